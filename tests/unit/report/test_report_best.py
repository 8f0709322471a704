"""The section about the search for the best case."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.facts import mentions
from tests.unit.report.conftest import Results, evidence_of

from inferprof.diagnosis.run import plain
from inferprof.documents.diagnosed import Gain
from inferprof.documents.trail import Step, Trail
from inferprof.report import answers
from inferprof.report.answers import Answer
from inferprof.report.model import Table, Text
from inferprof.report.sections import best

BASELINE = "fp32/ort_cpu/default"
ONE_THREAD = "fp32/ort_cpu/threads=1"


def studied(root: Path) -> Results:
    """A case of vit."""
    results = Results(root)
    results.ok(f"vit/{BASELINE}/b8", 9.0)
    results.plan()
    return results


def test_each_step_is_a_row_with_what_was_predicted_and_what_came(tmp_path: Path) -> None:
    results = studied(tmp_path)
    steps = [
        Step(BASELINE, "fp16/ort_cpu/default", "dropped", "accuracy: SQNR 3 dB"),
        Step(BASELINE, ONE_THREAD, "kept", "p", 4, 0.25, 0.2, 0.3, Gain(low_ns=1e6, high_ns=4e6), 8e6, "cpu_threads"),
    ]
    trail = Trail(model="vit", shape="b8", best=ONE_THREAD, median_ns=7e6, stopped="done", steps=steps)
    results.write(f"{results.machine}/best/vit.json", plain(trail))
    said, table = best.build.build(evidence_of(results))
    assert isinstance(said, Text) and isinstance(table, Table)
    dropped, kept = ({c.key: cell for c, cell in zip(table.columns, row, strict=True)} for row in table.rows)
    assert (kept["decision"].text, kept["candidate"].text, kept["check"].text) == ("kept", ONE_THREAD, "cpu_threads")
    numbers = (
        "gain_percent",
        "low_percent",
        "high_percent",
        "rounds",
        "predicted_low_percent",
        "predicted_high_percent",
    )
    assert [kept[name].value for name in numbers] == [25.0, 20.0, 30.0, 4, 12.5, 50.0]
    assert dropped["decision"].text == "dropped" and dropped["gain_percent"].value is None


def searched(results: Results, **changes: Any) -> Answer:
    """The answer of a study whose search confirmed ONE_THREAD at 7 ms."""
    duel = Step(BASELINE, ONE_THREAD, "confirmed", "p", 4, 0.22, 0.2, 0.24)
    content = {"shape": "b8", "baseline": BASELINE, "best": ONE_THREAD, "median_ns": 7e6, "ended": "tolerance"}
    trail = Trail(model="vit", stopped="done", steps=[duel], **{**content, **changes})
    results.write(f"{results.machine}/best/vit.json", plain(trail))
    (answer,) = answers.of(evidence_of(results))
    return answer


def test_what_a_search_confirmed_is_the_headline(tmp_path: Path) -> None:
    answer = searched(studied(tmp_path))
    assert answer.use.startswith(ONE_THREAD) and answer.card.mark is None
    assert mentions(
        answer.use, "7.000 ms", "22.0% less", BASELINE, "20.0% to 24.0%", "confirmed", "search", BASELINE, "9.22 ms"
    )
    assert answer.why.startswith(f"of {BASELINE}")


def test_it_is_the_headline_where_the_study_itself_is_in_doubt(tmp_path: Path) -> None:
    results = Results(tmp_path)
    waited = {"yardstick_ns": [9e6], "yardstick_cpu_ns": [6e6], "steal": {"percent": 0.0}}
    results.ok(f"vit/{BASELINE}/b8", 9.0, host=waited)
    results.plan()
    answer = searched(results)
    assert answer.best is None and answer.card.mark is None
    assert answer.use.startswith(ONE_THREAD) and mentions(answer.use, "nothing yet", BASELINE, "in doubt")


def test_it_is_the_headline_of_a_study_that_measured_nothing_itself(tmp_path: Path) -> None:
    results = Results(tmp_path)
    for shape in ("b8", "b64"):
        results.failed(f"vit/{BASELINE}/{shape}", "out of memory")
    results.plan()
    answer = searched(results)
    assert answer.shape == "b8" and mentions(answer.use, ONE_THREAD, "nothing, no case was measured")


@pytest.mark.parametrize(
    "changes", [{"median_ns": 12e6}, {"best": BASELINE}, {"ended": None}, {"boundary": "device"}, {"shape": "b1"}]
)
def test_a_search_that_is_slower_or_confirmed_nothing_here_does_not_lead(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    answer = searched(studied(tmp_path), **changes)
    assert answer.use.startswith(BASELINE)
    assert ("The search" in answer.use) == ("median_ns" in changes)


def test_without_a_search_there_is_no_section(tmp_path: Path) -> None:
    assert list(best.build.build(evidence_of(studied(tmp_path)))) == []


def test_a_search_that_failed_or_was_cut_short_costs_its_own_lines_alone(tmp_path: Path) -> None:
    results = studied(tmp_path)
    results.ok(f"minilm/{BASELINE}/b8", 9.0)
    results.plan()
    results.write(
        f"{results.machine}/best/vit.json",
        plain(Trail(model="vit", shape="b8", best=ONE_THREAD, median_ns=7e6, stopped="done")),
    )
    cut = results.root / results.machine / "best" / "minilm.json"
    for content in ('{"model": "mi', '{"status": "failed", "stage": "best", "reason": "no such model"}'):
        cut.write_text(content, encoding="utf-8")
        evidence = evidence_of(results)
        assert [block.text.split()[0] for block in best.build.build(evidence) if isinstance(block, Text)] == ["vit"]
        lost = [document.file for document in (*evidence.damaged, *evidence.failed)]
        assert f"{results.machine}/best/minilm.json" in lost
