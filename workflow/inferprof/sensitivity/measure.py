"""The loss of each unit alone in a format, and alone left out of it, in a bounded number of passes over the samples.

A pass runs every sample once. Which units are in the format may differ from sample to sample of one pass: so many
samples try each unit as the passes allow, and 2·√N passes try all N of them both ways.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from inferprof import progress
from inferprof.errors import CaseFailed
from inferprof.model import accuracy
from inferprof.plugins import Feeds
from inferprof.sensitivity import switches
from inferprof.sensitivity.switches import Unit

Array = np.ndarray[Any, Any]
STATED = 2
"""Passes of every analysis that rank nothing by themselves: none of the units, and all of them."""
REPRODUCED = 0.98
"""Spearman's rho of a ranking with that of other samples, from which on more runs would not change it."""
SPLITS = 20
"""How often the samples are halved at random to see how well a ranking is reproduced."""


class Switched:
    """A graph with its switches, the samples, and how many runs of a sample there have been."""

    def __init__(self, model: Any, units: Sequence[Unit], samples: Sequence[Feeds]) -> None:
        self.units, self.samples, self.runs = units, samples, 0
        self._session = accuracy.session(switches.switchable(model, units))
        self.plain = [self._run(sample, ()) for sample in samples]
        self._signals = [
            float(np.mean([power(output) for output in outputs])) for outputs in zip(*self.plain, strict=True)
        ]
        if not any(self._signals):
            raise CaseFailed("all outputs of the float graph are 0 or not finite, so that no node can lose accuracy")

    def _run(self, sample: Feeds, on: Iterable[int]) -> list[Array]:
        self.runs += 1
        on = frozenset(on)
        chosen = {switches.switch(number): np.array(number in on) for number in range(len(self.units))}
        return [np.asarray(output, np.float64) for output in self._session.run(None, {**sample, **chosen})]

    def loss(self, index: int, on: Iterable[int]) -> float:
        """Of the worst output of a sample: error power by signal power; infinite where a value is none.

        An output that is 0 on this sample is measured by its power on all of them, and one that is always 0 by none.
        """
        outputs = zip(self._run(self.samples[index], on), self.plain[index], self._signals, strict=True)
        return max(ratio(actual, expected, power(expected) or usual) for actual, expected, usual in outputs)

    def losses(self, on: Iterable[int]) -> Array:
        """Of each sample: a pass."""
        on = frozenset(on)
        return np.array([self.loss(index, on) for index in range(len(self.samples))])

    @property
    def passes(self) -> int:
        """How many passes the runs amount to."""
        return math.ceil(self.runs / len(self.samples))


def power(output: Array) -> float:
    """Σ value², of those that are finite."""
    return float((output[np.isfinite(output)] ** 2).sum())


def ratio(actual: Array, expected: Array, signal: float) -> float:
    """Σ (actual − expected)² / signal; infinite where a value is not finite that was, 0 where there is no signal."""
    if not np.array_equal(np.isfinite(actual), finite := np.isfinite(expected)):
        return math.inf
    return power(actual[finite] - expected[finite]) / signal if signal else 0.0


def db(loss: float) -> float | None:
    """The loss as an SQNR in dB; None where it is 0 (identical) or no number."""
    return None if not 0 < loss < math.inf else -10 * math.log10(loss)


@dataclass(frozen=True)
class Losses:
    """By unit: the loss of it alone, and of all others without it, on its `samples`; and of all units together."""

    alone: Array
    without: Array
    """Of the loss of all: the part that goes where the unit is left out; negative where it helps."""
    joint: Array
    samples: int
    passes: int
    reproducible: tuple[float | None, float | None] = (None, None)
    """How well the two rankings, by `alone` and by `without`, agree with the same of other samples: `agreement`."""

    @property
    def left_out(self) -> Array:
        """By unit, what ranks them by what goes where each is left out: the mean of what went and of its loss alone.

        What goes is the loss alone and twice the product of its errors with the others'. The second is 0 on average
        where errors have nothing to do with each other, and noise as large as the first for all but the worst units.
        """
        with np.errstate(invalid="ignore", divide="ignore"):
            mean: Array = (self.without + np.nan_to_num(self.alone / self.joint.mean())) / 2
        return mean


def budget(units: int) -> int:
    """How many passes the ranking of so many units may take: 2·√N, and at least one behind the two stated ones."""
    return max(STATED + 1, math.floor(2 * math.sqrt(units)))


def each(units: int, samples: int) -> tuple[int, int]:
    """How many samples try each unit alone and left out: what the budget allows, at least one each.

    Three of four go to the losses alone, or half where that is enough (`rank`). Those left out are small differences
    of large ones: the ranking of all but the worst changes with the samples, however many there are.
    """
    total = max(2, max(budget(units) - STATED, 0) * samples // units)
    without = max(1, total // 4)
    return min(samples, total - without), min(samples, without)


def least_samples(units: int) -> int:
    """How many samples it takes so that each unit is tried on one at least within the budget."""
    return math.ceil(2 * units / max(budget(units) - STATED, 1))


def rank(switched: Switched) -> Losses:
    """Try every unit alone and left out, each on samples in turn.

    Where half of the runs rank the units alone as other samples would, the other half is for those left out.
    """
    count, samples = len(switched.units), len(switched.samples)
    everything = frozenset(range(count))
    joint = switched.losses(everything)
    per, fewer = each(count, samples)
    half = max(1, (per + fewer) // 2)

    def tried(number: int, places: range) -> list[int]:
        return [(number * per + place) % samples for place in places]

    def lost_alone(places: range) -> Array:
        units = progress.counted(range(count), "unit")
        return np.array([[switched.loss(index, {number}) for index in tried(number, places)] for number in units])

    alone = lost_alone(range(half))
    if (first := _alone_again(alone)) is not None and first >= REPRODUCED:
        fewer = min(samples, per + fewer - half)
    elif half < per:
        alone = np.hstack([alone, lost_alone(range(half, per))])
    places = range(fewer)
    units = progress.counted(range(count), "unit left out")
    rest = np.array([[switched.loss(i, everything - {number}) for i in tried(number, places)] for number in units])
    usual = np.array([joint[tried(number, places)] for number in range(count)])
    left_out_again = agreement(lambda part: gone(rest[:, part], usual[:, part]), fewer)
    return Losses(
        alone.mean(axis=1),
        gone(rest, usual),
        joint,
        alone.shape[1],
        switched.passes,
        (_alone_again(alone), left_out_again),
    )


def _alone_again(alone: Array) -> float | None:
    return agreement(lambda part: np.asarray(alone[:, part].mean(axis=1)), alone.shape[1])


def gone(rest: Array, joint: Array) -> Array:
    """Of each unit, the part of the joint loss that goes where a `rest` is left; where both are infinite it stays."""
    with np.errstate(invalid="ignore", divide="ignore"):
        share: Array = np.nan_to_num(1 - rest.mean(axis=-1) / joint.mean(axis=-1), neginf=0)
    return share


def agreement(ranking: Callable[[list[int]], Array], samples: int) -> float | None:
    """How well a ranking agrees with the same one of as many other samples: a ceiling of what agrees with it.

    Spearman's rho of halves, the mean of SPLITS of them, told for all samples by Spearman and Brown's 2 r / (1 + r).
    None where there are no halves, or nothing to rank.
    """
    from scipy.stats import spearmanr

    if samples < 2:
        return None
    random = np.random.default_rng(0)
    rhos = []
    for order in (random.permutation(samples) for _ in range(SPLITS)):
        halves = [ranking(part.tolist()) for part in (order[: samples // 2], order[samples // 2 :])]
        if any(len({*half.tolist()}) < 2 for half in halves):
            return None
        rhos.append(spearmanr(*halves).statistic)
    rho = float(np.mean(rhos))
    return 2 * rho / (1 + rho) if rho > 0 else rho
