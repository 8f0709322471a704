"""Successive halving."""

from __future__ import annotations

import pytest

from inferprof.best import halving

TIMES = {f"case{n}": 100.0 - 10 * n for n in range(8)}


def test_the_better_half_goes_on_until_one_is_left() -> None:
    rungs = halving.halve(list(TIMES), lambda name, share: [TIMES[name]], 0.1)
    assert [len(rung.medians) for rung in rungs] == [8, 4, 2]
    assert rungs[0].better == ("case7", "case6", "case5", "case4")
    assert rungs[-1].better == ("case7",)


def test_all_rungs_together_take_the_budget() -> None:
    rungs = halving.halve(list(TIMES), lambda name, share: [TIMES[name]], 0.1)
    assert [rung.share for rung in rungs] == pytest.approx([0.1 / 3, 0.2 / 3, 0.4 / 3])
    assert sum(rung.share * len(rung.medians) for rung in rungs) == pytest.approx(0.1 * len(TIMES))


def test_what_was_measured_at_earlier_rungs_counts_too() -> None:
    answers = {"a": iter([[1.0, 1.0, 1.0], [9.0]]), "b": iter([[2.0, 2.0, 2.0], [2.0]]), "c": iter([[3.0]])}
    rungs = halving.halve(["a", "b", "c"], lambda name, share: next(answers[name]), 0.5)
    assert rungs[-1].medians == (("a", 1.0), ("b", 2.0))


@pytest.mark.parametrize("candidates", [[], ["alone"]])
def test_fewer_than_two_need_no_measurement(candidates: list[str]) -> None:
    assert halving.halve(candidates, lambda name, share: [1.0], 0.1) == []
