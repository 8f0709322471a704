"""What the report says of where the time goes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.unit.facts import facts
from tests.unit.report.conftest import evidence_of
from tests.unit.two_gpus import TwoGpus

from inferprof.case import Case
from inferprof.profilers import nsys
from inferprof.report.compose import content_of
from inferprof.report.model import SectionContent, Table, Text
from inferprof.report.sections import waterfall
from inferprof.tables import schema
from inferprof.tables.limits.waterfall import GPU_PARTS

CASE = "vit_tiny/fp16/ort_cuda/default/b8"


def section_of(results: Any) -> SectionContent:
    return content_of(waterfall.build, evidence_of(results, None))


def table(results: Any, tool: str, frame: pd.DataFrame) -> None:
    """Write a profile of CASE, as `inferprof table` does."""
    path = results.root / results.machine / "table" / tool / f"{CASE}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    schema.of_case(frame.assign(tool=tool), results.machine, Case(*CASE.split("/"))).to_parquet(path)


def named(section: SectionContent, name: str) -> Table:
    return next(block for block in section.blocks if isinstance(block, Table) and block.name == name)


def shown(table: Table) -> list[str]:
    (row,) = table.rows
    return [row[index].text for index in table.shown]


@pytest.fixture
def ort(captured: Callable[[str], Path]) -> pd.DataFrame:
    frame = nsys.read(captured("h100_ort_cuda_vit"))
    return frame.replace({"range": {"host_run": "iteration"}, "name": {"host_run": "iteration"}})


@pytest.fixture
def study(results):
    """A case of 3 ms of device time and 4.8 ms end to end, with stages of 4.5 ms."""
    results.ok(CASE, 3.0, gpu=True)
    results.plan()
    return results


def test_without_a_timeline_the_inference_is_one_part_and_the_report_says_what_it_needs(study):
    section = section_of(study)
    found = named(section, "waterfall")
    assert shown(found)[6:8] == ["–", "–"]
    assert [facts(text) for text in found.footnotes] == [["not", "nsys", "kineto"]]
    assert "unsplit" in [found.columns[index].title for index in found.shown]
    (text,) = (block.text for block in section.blocks if isinstance(block, Text))
    assert facts(text, "bounds", "timeline") == ["bounds", "kernels", "not", "timeline", "nsys", "kineto"]


def test_the_shares_of_a_traced_case_add_up_to_all_of_it(study, ort):
    table(study, "nsys", ort)
    found = named(section_of(study), "waterfall")
    (row,) = found.rows
    shares = {column.key: cell.value for column, cell in zip(found.columns, row, strict=True)}
    parts = ("launch", "idle", "copy", "all_kernels", "execution", "unexplained")
    assert sum(float(shares[f"{part}_percent"] or 0) for part in parts) == pytest.approx(100)
    assert shares["kernels_ms"] == 2.010798
    assert "unsplit" not in [found.columns[index].title for index in found.shown]


def test_counters_tell_what_bounds_the_kernels(study, ort):
    table(study, "nsys", ort)
    configs = ort[ort["level"].eq("launch_config")]
    words = configs[configs["metric"].isin(["grid", "block", "symbol"])].assign(level="kernel")
    metrics = {"duration_total": 1e3, "sm_throughput": 90.0, "memory_throughput": 9.0, "tail_waste": 25.0}
    numbers = [
        {"level": "kernel", "name": name, "launch": launch, "metric": metric, "value": value}
        for name, launch in words[["name", "launch"]].drop_duplicates().itertuples(index=False, name=None)
        for metric, value in metrics.items()
    ]
    table(study, "ncu", schema.conform(pd.concat([words, pd.DataFrame(numbers)]), "ncu"))
    whole = shown(named(section_of(study), "waterfall"))
    found = shown(named(section_of(study), "waterfall_kernels"))
    assert found[5] == whole[9]
    assert float(found[7]) == pytest.approx(0.75 * float(whole[9]), abs=0.1)  # compute
    assert float(found[9]) == pytest.approx(0.25 * float(whole[9]), abs=0.1)  # tail
    assert found[10] == "0.0"


def test_much_that_is_unexplained_is_marked(results):
    record = results.measurement(CASE, 0, 3.0, True)
    record["stages"] = {name: {"samples_ns": [1000] * 5} for name in record["stages"]}
    results.ok(CASE, 3.0, gpu=True, stages=record["stages"])
    results.plan()
    found = named(section_of(results), "waterfall")
    cell = found.rows[0][[column.key for column in found.columns].index("unexplained_percent")]
    assert cell.mark == "warn"
    assert float(cell.value or 0) == pytest.approx(100 * (4.8 - 3.03) / 4.8, abs=1)


def test_cases_on_a_cpu_are_named_beside_those_on_a_gpu_and_make_no_section_alone(results):
    results.ok("vit_tiny/fp32/ort_cpu/default/b8", 18.0)
    results.plan()
    assert section_of(results).blocks == ()
    results.ok(CASE, 3.0, gpu=True)
    results.plan()
    *_, last = section_of(results).blocks
    assert isinstance(last, Text)
    assert facts(last.text, "waterfall") == [
        "waterfall",
        "1",
        "2",
        "vit_tiny/fp32/ort_cpu/default/b8",
        "device",
        "not",
        "waterfall",
        "GPUs",
    ]


def test_each_gpu_of_a_divided_case_has_a_row_that_adds_up_to_the_median_of_device(
    results: Any, tmp_path: Path
) -> None:
    """GPU 0 computes for 400 µs and waits for 200 until GPU 1 has; the transfer takes 50. Bare it takes 1,000."""
    gpus = TwoGpus()
    for _ in range(5):
        with gpus.iteration():
            gpus.compute(400)
            gpus.compute(200, 1)
            gpus.all_reduce(50)
    results.ok(CASE, 1.0, gpu=True, options={"parallel": {"tensor": 2}})
    results.plan()
    table(results, "kineto", gpus.table(tmp_path))
    found = named(section_of(results), "waterfall_gpus")
    first, second = ({c.key: cell.value for c, cell in zip(found.columns, row, strict=True)} for row in found.rows)
    assert [row["gpu"] for row in (first, second)] == [0, 1]
    for row in (first, second):
        parts = [float(str(row[f"{part}_ms"])) for part in GPU_PARTS]
        assert sum(parts) == pytest.approx(row["device_ms"], abs=1e-5)
    names = ("computation_ms", "transfer_ms", "waiting_ms")
    assert [first[name] for name in names] == pytest.approx([0.4, 0.05, 0.2], abs=0.003)
    assert [second[name] for name in names] == pytest.approx([0.6, 0.05, 0.0], abs=0.003)


def test_a_case_of_one_gpu_has_no_row_by_gpu(study: Any, ort: pd.DataFrame) -> None:
    table(study, "nsys", ort)
    assert not [block for block in section_of(study).blocks if isinstance(block, Table) and "gpus" in block.name]
