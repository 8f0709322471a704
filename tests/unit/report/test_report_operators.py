"""What the report says of ONNX Runtime's own profiles: rows as the reader gives them from real captures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.unit.facts import facts, states
from tests.unit.report.conftest import evidence_of

from inferprof.case import Case
from inferprof.profilers import ort_profile
from inferprof.report import evidence
from inferprof.report.compose import content_of
from inferprof.report.model import Report, SectionContent, Table, Text
from inferprof.report.sections import kernels, operators, timeline
from inferprof.report.txt import render
from inferprof.tables import schema

CUDA = "vit_base/fp16/ort_cuda/default/b8"
TENSORRT = "vit_base/fp16/ort_tensorrt/default/b8"
CPU = "vit_base/fp32/ort_cpu/default/b8"


def load(results: Any) -> evidence.Evidence:
    return evidence_of(results, "fp32/ort_cpu/default")


def watch(results: Any, case: str, frame: pd.DataFrame) -> None:
    """Write the profile of a case, as `inferprof table` does."""
    path = results.root / results.machine / "table" / "ort_profile" / f"{case}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    schema.of_case(frame, results.machine, Case(*case.split("/"))).to_parquet(path)


def table_of(section: SectionContent, name: str) -> Table:
    return next(block for block in section.blocks if isinstance(block, Table) and block.name == name)


def rows_of(section: SectionContent, name: str, first: int = 5) -> list[list[str]]:
    return [[cell.text for cell in row[first:]] for row in table_of(section, name).rows]


@pytest.fixture
def captures(repository: Path) -> dict[str, pd.DataFrame]:
    """Case → the rows of a capture; that of the CPU is the CUDA session's nodes on the CPU, 1.2 ms a call."""
    folder = repository / "tests/data/ort_profile"
    frames = {
        CUDA: ort_profile.read(folder / "h100_ort_cuda_vit.json.gz"),
        TENSORRT: ort_profile.read(folder / "h100_ort_tensorrt_ep.json.gz"),
    }
    cuda = frames[CUDA]
    ranges = cuda[cuda["level"] == "range"].assign(name="call")
    cpu = cuda[cuda["owner"].fillna("").str.startswith("CPU")]
    return {**frames, CPU: pd.concat([cpu, ranges.assign(value=1.2e6)])}


@pytest.fixture
def study(results: Any, captures: dict[str, pd.DataFrame]) -> Any:
    for case, frame in captures.items():
        results.ok(case, 1.0, gpu=case != CPU)
        watch(results, case, frame)
    results.plan()
    return results


def test_each_provider_has_its_share_of_the_nodes_time_its_nodes_and_its_copies(study: Any) -> None:
    rows = rows_of(content_of(operators.build, load(study)), "providers", first=6)
    assert rows == [
        ["CUDA", "93.0", "14.31", "356", "14", "29", "0", "Gemm 27%, MatMul 17%"],
        ["CPU", "7.0", "1.070", "61", "13", "5", "0", "Slice 4%, Concat 3%"],
        ["Tensorrt", "98.1", "0.3868", "4", "2", "1", "2", "TRTKernel 93%, MemcpyToHost 3%"],
        ["CPU", "1.9", "0.007600", "1", "1", "1", "0", "Hardmax 2%"],
        ["CPU", "100.0", "1.070", "61", "1", "61", "0", "Slice 57%, Concat 43%"],
    ]


def test_nodes_left_to_the_cpu_are_named_where_another_provider_has_the_rest(study: Any) -> None:
    section = content_of(operators.build, load(study))
    shown = table_of(section, "cpu_nodes").shown
    assert [[row[i].text for i in shown[5:]] for row in table_of(section, "cpu_nodes").rows] == [
        ["0.2", "Concat", "node_Concat_414"],
        ["0.2", "Slice", "node_Slice_49"],
        ["0.2", "Concat", "node_Concat_10"],
        ["1.9", "Hardmax", "hardmax"],
    ]
    assert rows_of(section, "cpu_nodes", first=6)[-1] == ["1.9", "1", "7.60", "33.0", "Hardmax", "hardmax"]
    everything = table_of(section, "all_operators")
    assert everything.csv_only
    assert len(everything.rows) == 417 + 5 + 61


def test_the_slow_down_is_by_the_clock_of_the_run_that_was_watched(study: Any) -> None:
    names = dict(zip(("model", "precision", "backend", "variant", "shape"), CUDA.split("/"), strict=True))
    record = {"case": names, "iterations": {"samples_ns": [3_100_000, 3_200_000, 3_300_000]}}
    study.write(f"{study.machine}/capture/ort_profile/{CUDA}.record.json", record)
    found = load(study)
    table = table_of(content_of(operators.build, found), "providers")
    bare = found.latency.set_index(["backend", "boundary"])["median"]["ort_cuda", "end_to_end"]
    assert table.rows[0][5].value == pytest.approx(3.2e6 / bare)
    reason = "not measured: neither the profile nor the record of its run has the time of an iteration"
    assert [row[5].missing for row in table.rows] == [None, None, reason, reason, reason]
    known = f"these cases took {3.2e6 / bare:.2f}× as long as bare"
    assert states(table.note, "ort_profile", *facts(f"{known}"), "2", "3", *facts(f"{reason}"))


def test_sections_on_the_gpu_do_not_speak_of_it(study: Any) -> None:
    found = load(study)
    assert content_of(kernels.kernels, found).blocks == ()
    assert content_of(timeline.build, found).blocks == (Text("No case was traced."),)


def test_without_such_a_profile_there_is_no_section(results: Any) -> None:
    results.ok(CPU, 1.0)
    results.plan()
    assert content_of(operators.build, load(results)).blocks == ()


def test_it_fits_a_page_of_text(study: Any) -> None:
    text = render(Report("t", "s", (content_of(operators.build, load(study)),)))
    assert max(map(len, text.splitlines())) <= 100
    assert "TRTKernel_graph_fallback" not in text
