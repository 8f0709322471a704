"""A candidate against the incumbent, by paired rounds: fresh processes of both that take turns.

Rounds are looked at a few times only, and the chance of a false acceptance is shared among these looks, so that
looking early costs nothing: Bonferroni over the looks of a group-sequential test (Jennison and Turnbull 2000). A
round counts as the logarithm of the ratio of its two medians. Below RANKED of them Student's test is asked, which
few pairs of outliers make cautious, not bold; from there on Wilcoxon's signed ranks, which one slow process does not
move: what processes differ by is mostly next to nothing, and sometimes a fifth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from inferprof.words import counted

Verdict = Literal["better", "no better", "undecided", "measure more"]
RANKED = 10
"""From so many rounds on signed ranks can reach the level of a look: 2 ** -RANKED is below it."""


@dataclass(frozen=True)
class Rule:
    """When a candidate replaces the incumbent. `wanted`: the gain that is worth finding, as a share of the time."""

    looks: tuple[int, ...] = (4, 10, 20, 40, 80)
    """Numbers of rounds after which it is judged."""
    false_acceptance: float = 0.005
    """Chance that a candidate that is no better is accepted at any of the looks."""
    missed: float = 0.02
    """Chance that one with the wanted gain is dropped at any of them but the last."""
    wanted: float = 0.03
    least: float = 0.01
    """A gain below it is none, however sure."""


@dataclass(frozen=True)
class Duel:
    """What the rounds say of the candidate. gain: share of the incumbent's time that goes, with its 95 % interval."""

    verdict: Verdict
    gain: float
    low: float
    high: float
    rounds: int
    reason: str


NO_SPREAD = 1e-12
"""Of logarithms: what rounding leaves of none."""
USUAL = Rule()


def judge(incumbent: Sequence[float], candidate: Sequence[float], rule: Rule = USUAL) -> Duel:
    """Whether the candidate is better, by the medians of the rounds that both have, the i-th beside the i-th.

    Only whole looks count: of 7 rounds the first 4. Raises ValueError for unpaired rounds and for what is no time.
    """
    if len(incumbent) != len(candidate):
        raise ValueError(f"rounds must be paired: {len(incumbent)} and {len(candidate)}")
    look = max((look for look in rule.looks if look <= len(incumbent)), default=0)
    if look == 0:
        return Duel("measure more", 0.0, -math.inf, 1.0, 0, f"fewer than {counted(rule.looks[0], 'round')}")
    times = np.array([incumbent[:look], candidate[:look]], dtype=float)
    if not (np.isfinite(times).all() and times.min() > 0):
        raise ValueError("medians must be finite and above 0")
    saved = np.log(times[0] / times[1])
    estimate, low, high = _interval(saved)
    verdict, reason = _verdict(saved, estimate, rule)
    return Duel(verdict, _share(estimate), _share(low), _share(high), look, reason)


def _verdict(saved: np.ndarray[Any, Any], estimate: float, rule: Rule) -> tuple[Verdict, str]:
    """By the logarithms of incumbent over candidate."""
    by_chance = _p_value(saved, "greater")
    if by_chance <= rule.false_acceptance / len(rule.looks):
        if _share(estimate) < rule.least:
            return "no better", f"it gains less than {rule.least:.1%}"
        return "better", f"p = {by_chance:.1g} that this is chance"
    hoped = _p_value(saved + math.log1p(-rule.wanted), "less")
    if hoped <= rule.missed / len(rule.looks):
        return "no better", f"a gain of {rule.wanted:.1%} would show so little with p = {hoped:.1g}"
    if len(saved) == rule.looks[-1]:
        return "undecided", f"not distinguishable in {counted(len(saved), 'round')}"
    return "measure more", f"not distinguishable in {counted(len(saved), 'round')} yet"


def _p_value(values: np.ndarray[Any, Any], side: Literal["greater", "less"]) -> float:
    """How likely values like these are where the middle of all is 0."""
    from scipy import stats

    if np.ptp(values) < NO_SPREAD:  # no spread: an exact clock, or copies; only the sign tells
        return 0.5 ** len(values) if (values[0] > 0) == (side == "greater") and values[0] != 0 else 1.0
    if len(values) < RANKED:
        return float(stats.ttest_1samp(values, 0.0, alternative=side).pvalue)
    return float(stats.wilcoxon(values, alternative=side).pvalue)


def _interval(values: np.ndarray[Any, Any]) -> tuple[float, float, float]:
    """The middle and its 95 % interval: the mean and Student's; from RANKED rounds on the middle of all pairs' means
    (Hodges and Lehmann 1963) and the ranks that enclose it."""
    from scipy import stats

    n = len(values)
    if n < RANKED:
        half = float(stats.t.ppf(0.975, n - 1) * stats.sem(values))
        return float(values.mean()), float(values.mean()) - half, float(values.mean()) + half
    means = np.sort(((values[:, None] + values[None, :]) / 2)[np.triu_indices(n)])
    spread = 1.96 * math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
    rank = max(0, math.floor(len(means) / 2 - spread))
    return float(np.median(means)), float(means[rank]), float(means[-1 - rank])


def _share(saved: float) -> float:
    """The share of the time that a log ratio is."""
    return -math.expm1(-saved)
