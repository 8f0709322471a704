"""Whether a candidate replaces the incumbent."""

from __future__ import annotations

import numpy as np
import pytest

from inferprof.best import duel


def rounds(count: int, gain: float, spread: float, seed: int) -> tuple[list[float], list[float]]:
    """Medians of two cases whose processes differ by a spread."""
    rng = np.random.default_rng(seed)
    incumbent, candidate = np.exp(rng.normal(0, spread, (2, count))) * 1e6
    return list(incumbent), list(candidate * (1 - gain))


def test_a_clear_gain_is_accepted_at_the_first_look() -> None:
    ended = duel.judge(*rounds(4, 0.3, 0.005, 0))
    assert (ended.verdict, ended.rounds) == ("better", 4)
    assert ended.low < 0.3 < ended.high and ended.gain == pytest.approx(0.3, abs=0.02)


def test_a_loss_is_dropped_at_the_first_look() -> None:
    assert duel.judge(*rounds(4, -0.3, 0.005, 0)).verdict == "no better"


def test_between_the_looks_only_the_rounds_of_the_last_one_count() -> None:
    incumbent, candidate = rounds(9, 0.05, 0.05, 1)
    assert duel.judge(incumbent, candidate) == duel.judge(incumbent[:4], candidate[:4])
    assert duel.judge(incumbent[:3], candidate[:3]).verdict == "measure more"


def test_a_gain_below_the_least_is_none_however_sure() -> None:
    ended = duel.judge(*rounds(10, 0.005, 0.0, 0))
    assert (ended.verdict, round(ended.gain, 6)) == ("no better", 0.005)


def test_copies_without_any_spread_are_no_better() -> None:
    assert duel.judge([1e6] * 10, [1e6] * 10).verdict == "no better"


def test_what_is_never_told_apart_is_undecided() -> None:
    last = duel.USUAL.looks[-1]
    assert duel.judge(*rounds(last, 0.02, 0.3, 3)).verdict == "undecided"


def test_one_slow_process_does_not_hide_a_gain() -> None:
    incumbent, candidate = rounds(20, 0.1, 0.01, 4)
    candidate[3] *= 5
    ended = duel.judge(incumbent, candidate)
    assert ended.verdict == "better" and ended.gain == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize("spread", [0.002, 0.02, 0.1])
def test_a_copy_is_accepted_at_most_once_in_a_hundred(spread: float) -> None:
    def accepted(seed: int) -> bool:
        incumbent, candidate = rounds(duel.USUAL.looks[-1], 0.0, spread, seed)
        verdicts = (duel.judge(incumbent[:look], candidate[:look]).verdict for look in duel.USUAL.looks)
        return next((v for v in verdicts if v != "measure more"), None) == "better"

    assert sum(map(accepted, range(300))) <= 3


@pytest.mark.parametrize(("incumbent", "candidate"), [([1e6] * 4, [1e6] * 3), ([0.0] * 4, [1e6] * 4)])
def test_what_is_not_paired_or_no_time_is_refused(incumbent: list[float], candidate: list[float]) -> None:
    with pytest.raises(ValueError, match=r"paired|above 0"):
        duel.judge(incumbent, candidate)


@pytest.mark.parametrize(("look", "said"), [(1, "1 round"), (2, "2 rounds")])
def test_a_count_of_rounds_agrees_with_its_noun(look: int, said: str) -> None:
    assert duel.judge([], [], duel.Rule(looks=(look,))).reason.endswith(said)
