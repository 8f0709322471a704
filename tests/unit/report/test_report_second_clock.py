"""trtexec's times beside ours, and why a case has none."""

from typing import Any

import pytest
from tests.unit.report.conftest import evidence_of

from inferprof.report.compose import content_of
from inferprof.report.model import Table
from inferprof.report.sections import engines

COMPARED = {
    "device_median_ns": 990_000.0,
    "trtexec_median_ns": 1_000_000.0,
    "difference_ns": 10_000.0,
    "ratio": 1.0101,
    "interval": [1.0, 1.02],
    "samples": [60, 60],
    "verdict": "undecided",
    "reason": "one process each",
}
SUMMARY = {"Latency": {"median": 1.01}, "Enqueue Time": {"median": 0.25}, "GPU Compute Time": {"median": 1.0}}


def write(results: Any, case: str, **content: Any) -> None:
    names = dict(zip(("model", "precision", "backend", "variant", "shape"), case.split("/"), strict=True))
    common = {"schema": 1, "case": names, "round": 0, "version": "10.13.3"}
    results.write(f"{results.machine}/trtexec/{case}.json", common | content)


def section_of(results: Any) -> Any:
    results.plan()
    return content_of(engines.second_clock, evidence_of(results, None))


def test_the_difference_between_the_clocks_stands_beside_both(results):
    end_to_end = {"samples_ns": [2_000_000] * 50, "settled": True, "stopped_by": "interval"}
    missing = {"not_measured": "sample"}
    boundaries = {"device": missing, "call": missing, "end_to_end": end_to_end}
    results.ok("vit/fp16/tensorrt/default/b8", 1.0, gpu=True, boundaries=boundaries)
    write(results, "vit/fp16/tensorrt/default/b8", comparison=COMPARED, summary_ms=SUMMARY)
    (table,) = section_of(results).blocks
    assert isinstance(table, Table)
    assert [table.columns[index].title for index in table.shown][4:] == [
        *("end_to_end", "device", "GPU compute", "difference", "latency", "enqueue")
    ]
    (row,) = table.rows
    assert [row[index].text for index in table.shown] == [
        *("vit", "b8", "fp16", "default", "2.000", "0.9900", "1.000", "+1.01 %", "1.010", "0.2500")
    ]
    assert [cell.text for cell in row[-3:]] == [
        *("undecided", "10.13.3", f"{results.machine}/trtexec/vit/fp16/tensorrt/default/b8.json")
    ]


def test_a_case_that_is_not_compared_says_why(results):
    reason = "trtexec is of TensorRT 10.16.1, the engine of 10.13.3.9"
    results.ok("vit/fp16/tensorrt/default/b8", 1.0, gpu=True)
    write(results, "vit/fp16/tensorrt/default/b8", comparison={"not_compared": reason})
    (table,) = section_of(results).blocks
    assert table.footnotes == (f"not measured: {reason}",)
    assert table.rows[0][6].text == "–"


def test_without_trtexec_there_is_no_section(results):
    results.ok("vit/fp16/tensorrt/default/b8", 1.0, gpu=True)
    assert section_of(results).blocks == ()


@pytest.mark.parametrize("planned", [True, False])
def test_only_the_engines_of_the_study_are_shown(results, planned):
    results.ok("vit/fp16/tensorrt/default/b1", 1.0, gpu=True)
    write(results, f"vit/fp16/tensorrt/default/{'b1' if planned else 'b8'}", comparison=COMPARED, summary_ms=SUMMARY)
    assert bool(section_of(results).blocks) == planned
