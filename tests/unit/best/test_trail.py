"""The trail to a model's best case, out of a results folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tests.unit.facts import naming
from tests.unit.report.conftest import Results, series

from inferprof import cli, documents
from inferprof.best import trail
from inferprof.case import Shape
from inferprof.errors import UserError

BASELINE = "fp32/ort_cpu/default"
BOX = "cpu-sample-0123abcd"


def study(root: Path, medians: Mapping[str, Sequence[float]]) -> Results:
    """Case without model and shape → its medians in ms by round."""
    results = Results(root)
    for place, (case, times) in enumerate(medians.items()):
        for number, ms in enumerate(times):
            path = f"vit/{case}/b8"
            record = results.record(path, number)
            record["boundaries"] = {"end_to_end": series(ms, 10 * place + number)}
            results.write(results.record_path(path, number), record)
    return results


def around(ms: float) -> list[float]:
    """Four rounds whose processes differ a little."""
    return [ms * factor for factor in (1.0, 1.003, 0.998, 1.001 + ms / 1e4)]


def found(root: Path, shape: str = "b8") -> documents.Trail:
    return trail.of_results(root, BOX, "vit", Shape.parse(shape), BASELINE)


def test_what_is_better_is_the_incumbent_of_the_next_duel(tmp_path: Path) -> None:
    slow, middle, fast = (around(ms) for ms in (9.0, 6.0, 3.0))
    study(tmp_path, {BASELINE: slow, "fp32/ort_cpu/threads": fast, "fp32/torch_eager/default": middle})
    walked = found(tmp_path)
    assert [(s.incumbent, s.candidate, s.decision) for s in walked.steps] == [
        (BASELINE, "fp32/ort_cpu/threads", "kept"),
        ("fp32/ort_cpu/threads", "fp32/torch_eager/default", "dropped"),
    ]
    assert walked.best == "fp32/ort_cpu/threads"
    assert walked.steps[0].gain == pytest.approx(2 / 3, abs=0.02)
    assert (walked.more, walked.next) == ([], [])


def test_the_first_duel_that_lacks_rounds_says_how_many(tmp_path: Path) -> None:
    study(tmp_path, {BASELINE: [9.0], "fp32/ort_cpu/threads": [3.0], "fp32/torch_eager/default": [6.0]})
    walked = found(tmp_path)
    assert walked.best == BASELINE
    assert [(pair.cases, pair.rounds) for pair in walked.more] == [([BASELINE, "fp32/ort_cpu/threads"], 4)]


def test_a_format_whose_accuracy_failed_is_dropped_unmeasured(tmp_path: Path) -> None:
    results = study(tmp_path, {BASELINE: around(9.0), "int8/ort_cpu/default": around(3.0)})
    failed = {"status": "ok", "outcome": "fail", "reason": "SQNR 3 dB"}
    results.write(
        "onnx/vit/int8.accuracy.json", failed | {"outputs": {}, "tolerance": {"passes_db": 30, "warns_db": 20}}
    )
    walked = found(tmp_path)
    assert [(s.candidate, s.decision, s.rounds) for s in walked.steps] == [("int8/ort_cpu/default", "dropped", 0)]
    assert walked.best == BASELINE


def test_a_baseline_that_was_not_measured_is_the_users_to_mend(tmp_path: Path) -> None:
    study(tmp_path, {BASELINE: [9.0]})
    with pytest.raises(UserError, match=naming(BASELINE, "b16")):
        found(tmp_path, "b16")


def test_the_verb_writes_a_document_that_is_read_again(tmp_path: Path) -> None:
    study(tmp_path, {BASELINE: around(9.0), "fp32/ort_cpu/threads": around(3.0)})
    out = tmp_path / "trail.json"
    words = ["--machine", BOX, "--model", "vit", "--shape", "b8", "--baseline", BASELINE, "--out", str(out)]
    assert cli.main(["best", str(tmp_path), *words]) == 0
    written: documents.Trail = documents.read(out, "trail")
    assert (written.best, [step.decision for step in written.steps]) == ("fp32/ort_cpu/threads", ["kept"])
