"""Fixes that a study tried: the pairs of cases, and the prediction against what came of it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.facts import facts
from tests.unit.report.conftest import evidence_of

from inferprof.report import evidence
from inferprof.report.compose import content_of
from inferprof.report.model import Table
from inferprof.report.sections import fixes

BEFORE = "vit/fp16/ort_cuda/default/b8"
PINNED = "vit/fp16/ort_cuda/pinned/b8"
GRAPH = "vit/fp16/ort_cuda/graph_pinned/b8"


def load(results: Any) -> evidence.Evidence:
    return evidence_of(results, "fp16/ort_cuda/default")


@pytest.fixture
def study(results: Any) -> Any:
    """10 ms on the device without a fix, 8 from page-locked memory, 7 with a graph too; end_to_end 1.6 times that."""
    results.ok(BEFORE, 10.0, gpu=True)
    results.ok(PINNED, 8.0, gpu=True, options={"placement": "pinned"})
    results.ok(GRAPH, 7.0, gpu=True, options={"placement": "pinned", "cuda_graph": True})
    results.ok("vit/fp16/torch_eager/pinned/b8", 5.0, gpu=True, options={"placement": "pinned"})  # alone
    results.plan()
    return results


def diagnose(results: Any, case: str, check: str, verdict: str, gain: tuple[float, float] | None = None) -> None:
    """Write what one check says of a case, its gain in ms."""
    bounds = {"low_ns": gain[0] * 1e6, "high_ns": gain[1] * 1e6} if gain else None
    finding = {
        "subject": "",
        "bottleneck": "copy",
        "share": None,
        "reason": "it is so",
        "evidence": {},
        "gain": bounds,
    }
    finding |= {"source": "records", "advice": "this", "confidence": "high"}
    answer = {"check": check, "level": "host", "verdict": verdict, "reason": "it is so", "findings": [finding]}
    nothing: dict[str, Any] = {"sentence": "nothing", "groups": [], "cautions": [], "gain": None}
    content = {"total": None, "verdict": nothing, "answers": [answer]}
    results.write(f"{results.machine}/diagnosis/{case}.json", content)


def rows(results: Any) -> list[dict[str, Any]]:
    table, _calibration = content_of(fixes.build, load(results)).blocks
    assert isinstance(table, Table)
    return [{column.key: cell for column, cell in zip(table.columns, row, strict=True)} for row in table.rows]


def test_a_case_is_paired_with_the_one_that_lacks_nothing_but_the_fix(study: Any) -> None:
    found = [(row["variant"].text, row["fix"].text) for row in rows(study)]
    assert sorted(found) == [("graph_pinned", "cuda_graph: true"), ("pinned", "placement: pinned")]


@pytest.mark.parametrize(
    ("gain", "judged"), [((2.0, 4.0), "as predicted"), ((5.0, 6.0), "less"), ((0.0, 0.5), "more")]
)
def test_what_was_achieved_is_judged_by_the_bounds_of_the_finding(
    study: Any, gain: tuple[float, float], judged: str
) -> None:
    diagnose(study, BEFORE, "pageable_copies", "found", gain)
    row = next(row for row in rows(study) if row["variant"].text == "pinned")
    assert (row["predicted_low_ms"].value, row["predicted_high_ms"].value) == gain
    assert row["achieved_ms"].value == pytest.approx(row["before_ms"].value - row["after_ms"].value)
    assert row["achieved_ms"].value == pytest.approx(3.2, abs=0.2)
    assert row["judged"].text == judged


def test_an_interval_beyond_the_prediction_on_both_sides_decides_nothing(study: Any) -> None:
    pinned = next(row for row in rows(study) if row["variant"].text == "pinned")
    within = (pinned["achieved_low_ms"].value + pinned["achieved_high_ms"].value) / 2
    diagnose(study, BEFORE, "pageable_copies", "found", (within, within))
    assert [row["judged"].text for row in rows(study) if row["variant"].text == "pinned"] == ["undecided"]


def test_where_nothing_was_predicted_the_reason_stands(study: Any) -> None:
    diagnose(study, BEFORE, "pageable_copies", "clear")
    by_variant = {row["variant"].text: row["judged"].missing for row in rows(study)}
    assert {variant: facts(missing, "diagnosed") for variant, missing in by_variant.items()} == {
        "pinned": ["not", "pageable_copies", "clear"],
        "graph_pinned": ["not", "without", "not", "diagnosed"],
    }


def test_a_study_without_such_pairs_has_no_section(results: Any) -> None:
    results.ok(BEFORE, 10.0, gpu=True)
    results.plan()
    assert content_of(fixes.build, load(results)).blocks == ()
