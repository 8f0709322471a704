"""The checks on all labelled captures, and the scores that they get."""

from __future__ import annotations

import pytest
import yaml
from benchmarks.diagnosis import LABELS, Judged, Score, judge, scores

from inferprof import registry

LABELLED = yaml.safe_load(LABELS.read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("labelled", LABELLED, ids=lambda one: one.get("kernel", one["name"]))
def test_no_answer_contradicts_what_is_known_of_a_capture(labelled: dict[str, object]) -> None:
    assert [one for one in judge(labelled) if one.wrong] == []


def test_every_label_is_of_a_check() -> None:
    labels = {check for one in LABELLED for check in (*one["found"], *one.get("clear", ()))}
    assert labels <= set(registry.checks())


def test_a_score_counts_false_alarms_and_what_was_missed_or_not_assessed() -> None:
    judged = [
        Judged("a", "tail", "found", "found", ""),
        Judged("b", "tail", "clear", "found", ""),
        Judged("c", "tail", "found", "clear", ""),
        Judged("d", "tail", "found", "not assessed", ""),
    ]
    assert [one.wrong for one in judged] == [False, True, True, False]
    assert scores(judged) == [Score("tail", hits=1, false_alarms=1, misses=2, labels=4)]
    assert (scores(judged)[0].precision, scores(judged)[0].recall) == (1 / 2, 1 / 3)


def test_what_has_no_label_has_no_score() -> None:
    quiet = Score("tail", hits=0, false_alarms=0, misses=0, labels=1)
    assert (quiet.precision, quiet.recall) == (None, None)
