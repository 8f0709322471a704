"""What the report says of counters: rows as the readers of ncu and nsys give them from captures of one GPU."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.unit.facts import facts, states
from tests.unit.report.conftest import evidence_of

from inferprof import profilers
from inferprof.case import Case
from inferprof.profilers import ncu, nsys
from inferprof.report import evidence, txt
from inferprof.report.compose import content_of
from inferprof.report.model import Report, SectionContent, Table, Text
from inferprof.report.sections import counters
from inferprof.tables import schema

ORT = "vit_tiny/fp16/ort_cuda/default/b1"
EAGER = "vit_tiny/fp16/torch_eager/default/b1"


def load(results: Any) -> evidence.Evidence:
    return evidence_of(results, "fp32/ort_cuda/default")


def profile(results: Any, case: str, frame: pd.DataFrame, tool: str) -> None:
    """Write a profile of a case, as `inferprof table` does."""
    path = results.root / results.machine / "table" / tool / f"{case}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    schema.of_case(frame, results.machine, Case(*case.split("/"))).to_parquet(path)


def table_of(section: SectionContent, name: str) -> Table:
    return next(block for block in section.blocks if isinstance(block, Table) and block.name == name)


def texts(table: Table, *columns: str) -> list[tuple[str, ...]]:
    """What stands in these columns, row by row."""
    places = [[column.key for column in table.columns].index(key) for key in columns]
    return [tuple(row[place].text for place in places) for row in table.rows]


@pytest.fixture
def study(results):
    for case in (ORT, EAGER):
        results.ok(case, 1.0, gpu=True)
    results.plan()
    return results


@pytest.fixture
def counted(repository: Path, tmp_path: Path) -> Callable[[str], pd.DataFrame]:
    """A page of tests/data/ncu, read with settings beside it."""

    def read(name: str) -> pd.DataFrame:
        path = tmp_path / f"{name}.csv.gz"
        path.write_bytes((repository / f"tests/data/ncu/{name}.csv.gz").read_bytes())
        settings = {"clock_control": "none", "cache_control": "all", "share": 0.83, "bytes": 65_000_000}
        path.with_suffix(".settings.json").write_text(
            json.dumps({**settings, "kernels": [{"name": "softmax", "symbols": []}]})
        )
        return ncu.read(path)

    return read


@pytest.fixture
def section(study, counted: Callable[[str], pd.DataFrame], captured: Callable[[str], Path]) -> SectionContent:
    profile(study, ORT, counted("h100_ort_cuda_vit_details"), "ncu")
    profile(study, ORT, nsys.read(captured("h100_ort_cuda_vit")), "nsys")
    return content_of(counters.counters, load(study))


def test_kernels_stand_with_their_duration_against_the_timelines(section):
    rows = texts(table_of(section, "counters"), "kernel", "time_percent", "us", "timeline_us", "times_timeline")
    assert rows[0] == ("nvjet_sm90_hsh_128x72_64x8_1x2_…", "13.1", "15.8", "10.9", "1.45×")
    assert [row[0][:27] for row in rows[1:]] == ["onnxruntime::cuApplyLayerNo"] * 2


def test_loads_are_percentages(section):
    keys = [f"{metric}_percent" for metric in ("sm_throughput", "dram_throughput", "l2_hit_rate")]
    assert texts(table_of(section, "counters"), *keys)[0] == ("47", "27", "76")


def test_what_the_details_page_lacks_is_not_measured(section):
    table = table_of(section, "counters")
    place = [column.key for column in table.columns].index("pipe_tensor_percent")
    assert [facts(text) for text in {row[place].missing for row in table.rows}] == [["not", "ncu", "not", "GPU"]]


def test_limits_and_nvidias_rule_of_the_largest_gain_stand_below(section):
    rows = texts(table_of(section, "counters_reasons"), "limiter", "rule", "rule_percent")
    assert rows == [
        ("registers, shared memory", "CPIStall", "41"),
        ("registers", "AchievedOccupancy", "51"),
        ("registers", "AchievedOccupancy", "51"),
    ]


def test_waits_are_of_the_raw_page(study, counted):
    profile(study, ORT, counted("h100_ort_cuda_vit_raw"), "ncu")
    section = content_of(counters.counters, load(study))
    reasons = texts(table_of(section, "counters_reasons"), "stall", "stall_percent", "rule")
    assert reasons[1] == ("long scoreboard", "28", "–")
    loads = table_of(section, "counters")
    assert texts(loads, "kernel", "pipe_tensor_percent")[:2] == [
        ("nvjet_sm90_hsh_128x72_64x8_1x2_…", "63"),
        ("nvjet_sm90_hsh_256x144_64x4_2x1…", "63"),
    ]
    place = [column.key for column in loads.columns].index("times_timeline")
    assert [facts(text) for text in {row[place].missing for row in loads.rows}] == [["not", "no", "nsys", "kineto"]]


def test_the_note_says_how_the_counters_were_taken(section):
    note = table_of(section, "counters").note
    assert "--clock-control none, --cache-control all" in note
    assert states(note, "83 %", "more", "kernel")


def test_every_launch_and_metric_is_in_the_csv(section):
    table = table_of(section, "all_counters")
    assert len(table.rows) == 8
    assert {"registers", "waves", "l1_hit_rate", "sm_clock"} <= {column.key for column in table.columns}


def test_a_refused_capture_is_named_with_its_reason_and_the_others_stand(study, counted, tmp_path):
    refused = tmp_path / "b1.ncu-rep"
    refused.write_text('{\n "not_measured": "ncu: the counters are held by another tool"\n}\n')
    profile(study, EAGER, profilers.read(ncu.NCU, refused), "ncu")
    profile(study, ORT, counted("h100_ort_cuda_vit_raw"), "ncu")
    section = content_of(counters.counters, load(study))
    items = [block.text for block in section.blocks if isinstance(block, Text)]
    assert [facts(text, "counters", "kernel", "softmax") for text in items] == [
        [*facts(ORT), "not", "ncu", "another", "kernel", "softmax"],
        [*facts(ORT), "65 MB"],
        [*facts(EAGER), "ncu", "counters", "another"],
    ]
    assert len(table_of(section, "counters").rows) == 3


def test_a_study_without_ncu_has_no_such_section(study):
    assert content_of(counters.counters, load(study)).blocks == ()


def test_the_page_is_as_wide_as_the_others(section):
    text = txt.render(Report("t", "s", (section,)))
    assert max(map(len, text.splitlines())) <= 100
    assert "1.45×" in text and "csv/all_counters.csv" in text
