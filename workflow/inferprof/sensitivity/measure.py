"""The loss of each unit alone in a format, and alone left out of it, in a bounded number of passes over the samples.

A pass runs every sample once. Which units are in the format may differ from sample to sample of one pass: so many
samples try each unit as the passes allow, and 2·√N passes try all N of them both ways.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from inferprof import progress
from inferprof.errors import CaseFailed
from inferprof.model import accuracy
from inferprof.plugins import Feeds
from inferprof.sensitivity import held, switches
from inferprof.sensitivity.switches import Unit

Array = np.ndarray[Any, Any]
STATED = 2
"""Passes of every analysis that rank nothing by themselves: none of the units, and all of them."""
REPRODUCED = 0.98
"""Spearman's rho of a ranking with that of other samples, from which on more runs would not change it."""
Z95 = 1.96
"""95 % of a normal distribution lies so many standard deviations around its mean."""
SPLITS = 20
"""How often the samples are halved at random to see how well a ranking is reproduced."""


class Switched:
    """A graph with its switches, the samples, and how many runs of a sample there have been."""

    def __init__(self, model: Any, units: Sequence[Unit], samples: Sequence[Feeds]) -> None:
        self.units, self.samples, self.runs = units, samples, 0
        self._model = model
        self._session = accuracy.session(switches.switchable(model, units))
        self.plain = [self._run(sample, ()) for sample in samples]
        self._signals = [
            float(np.mean([power(output) for output in outputs])) for outputs in zip(*self.plain, strict=True)
        ]
        if not any(self._signals):
            raise CaseFailed("all outputs of the float graph are 0 or not finite, so that no node can lose accuracy")

    def _run(self, sample: Feeds, on: Iterable[int], errors: Feeds | None = None) -> list[Array]:
        """The outputs of a sample; with `errors` these are added in the place of quantizing."""
        self.runs += 1
        on = frozenset(on)
        chosen = {switches.switch(number): np.array(number in on) for number in range(len(self.units))}
        session = self._session if errors is None else self._held[1]
        return [
            np.asarray(output, np.float64) for output in session.run(None, {**sample, **chosen, **(errors or {})})
        ]

    @functools.cached_property
    def _held(self) -> tuple[Any, Any]:
        """What records the errors of all units, and the graph that they are put into."""
        graphs = held.recording(self._model, self.units), switches.switchable(self._model, self.units, held=True)
        recorder, holder = map(accuracy.session, graphs)
        return recorder, holder

    def loss(self, index: int, on: Iterable[int]) -> float:
        """Of the worst output of a sample: error power by signal power; infinite where a value is none.

        An output that is 0 on this sample is measured by its power on all of them, and one that is always 0 by none.
        """
        return self._lost(index, self._run(self.samples[index], on))

    def _lost(self, index: int, outputs: Sequence[Array]) -> float:
        pairs = zip(outputs, self.plain[index], self._signals, strict=True)
        return max(ratio(actual, expected, power(expected) or usual) for actual, expected, usual in pairs)

    def losses(self, on: Iterable[int]) -> Array:
        """Of each sample: a pass."""
        on = frozenset(on)
        return np.array([self.loss(index, on) for index in range(len(self.samples))])

    def left_out(self, index: int, numbers: Sequence[int]) -> tuple[float, list[float]]:
        """Of a sample, the loss of all units, and of all but each of these while the others' errors stay (held.py).

        Where a tensor is rounded that another unit has rounded already, and where values overflow, there is nothing
        to be held: such units are left out of the graph as it is.
        """
        every, sample = frozenset(range(len(self.units))), self.samples[index]
        if not held.holds(self.units):
            return self.loss(index, every), [self.loss(index, every - {number}) for number in numbers]
        self.runs += 1
        recorder = self._held[0]
        made = dict(zip((item.name for item in recorder.get_outputs()), recorder.run(None, sample), strict=True))
        outputs = [np.asarray(made.pop(item.name), np.float64) for item in self._session.get_outputs()]
        joint = self._lost(index, outputs)
        errors = made if math.isfinite(joint) else None
        return joint, [self._lost(index, self._run(sample, every - {number}, errors)) for number in numbers]

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
    left_out_ci: Array | None = None
    """95 % of `without` over samples, ±; None where each unit was left out of one sample only."""

    @property
    def left_out(self) -> Array:
        """By unit, what ranks them by what goes where each is left out: that, drawn towards its loss alone.

        What goes is the loss alone and twice the product of its errors with the others', whose size goes by the root
        of the loss. The less of the differences of the two is more than noise, the more counts the loss alone
        (James and Stein's estimator, with one weight for all units).
        """
        with np.errstate(invalid="ignore"):
            share: Array = np.nan_to_num(self.alone / self.joint.mean(), posinf=0)
        if self.left_out_ci is None:
            mean: Array = (self.without + share) / 2
            return mean
        size = np.maximum(share, share.max() * 1e-6 or 1.0)
        seen, noise = (((self.without - share) ** 2) / size).mean(), ((self.left_out_ci / Z95) ** 2 / size).mean()
        weight = max(0.0, 1 - noise / seen) if seen else 0.0
        drawn: Array = share + weight * (self.without - share)
        return drawn


def budget(units: int) -> int:
    """How many passes the ranking of so many units may take: 2·√N, and at least one behind the two stated ones."""
    return max(STATED + 1, math.floor(2 * math.sqrt(units)))


def tries(units: int, samples: int) -> int:
    """On how many samples the budget lets each unit be tried, alone and left out together: one each at least."""
    return max(2, max(budget(units) - STATED, 0) * samples // units)


def least_samples(units: int) -> int:
    """How many samples it takes so that each unit is tried on one at least within the budget."""
    return math.ceil(2 * units / max(budget(units) - STATED, 1))


def rank(switched: Switched) -> Losses:
    """Try every unit alone and left out, each on samples in turn.

    Where half of the runs rank the units alone as other samples would, the other half is for those left out, else a
    quarter.
    """
    count, samples = len(switched.units), len(switched.samples)
    total = tries(count, samples)
    alone = _alone(switched, min(samples, total - max(1, total // 4)), max(1, total // 2))
    each = min(samples, total - alone.shape[1])
    tried: list[list[int]] = [[] for _ in range(samples)]
    for turn in range(count * each):
        tried[turn % samples].append(turn // each)
    joint = np.empty(samples)
    rest: list[list[float]] = [[] for _ in range(count)]
    usual: list[list[float]] = [[] for _ in range(count)]
    for index in progress.counted(range(samples), "sample"):
        joint[index], losses = switched.left_out(index, tried[index])
        for number, loss in zip(tried[index], losses, strict=True):
            rest[number].append(loss)
            usual[number].append(joint[index])
    without, of_all = np.array(rest), np.array(usual)
    return Losses(
        alone.mean(axis=1),
        gone(without, of_all),
        joint,
        alone.shape[1],
        switched.passes,
        (_alone_again(alone), agreement(lambda part: gone(without[:, part], of_all[:, part]), each)),
        interval(without, of_all),
    )


def alone(switched: Switched) -> Array:
    """The loss of each unit alone, of whose runs half are spared where other samples would rank alike."""
    most = min(len(switched.samples), tries(len(switched.units), len(switched.samples)))
    mean: Array = _alone(switched, most, max(1, most // 2)).mean(axis=1)
    return mean


def _alone(switched: Switched, most: int, first: int) -> Array:
    """[unit, sample]: the loss of each unit alone on the `first` samples, and on `most` unless others rank alike."""
    samples = len(switched.samples)

    def lost(places: range) -> Array:
        units = progress.counted(range(len(switched.units)), "unit")
        return np.array([[switched.loss((n * most + place) % samples, {n}) for place in places] for n in units])

    losses = lost(range(first))
    again = _alone_again(losses)
    return losses if first >= most or (again or 0) >= REPRODUCED else np.hstack([losses, lost(range(first, most))])


def _alone_again(alone: Array) -> float | None:
    return agreement(lambda part: np.asarray(alone[:, part].mean(axis=1)), alone.shape[1])


def gone(rest: Array, joint: Array) -> Array:
    """Of each unit, the part of the joint loss that goes where a `rest` is left; where both are infinite it stays."""
    with np.errstate(invalid="ignore", divide="ignore"):
        share: Array = np.nan_to_num(1 - rest.mean(axis=-1) / joint.mean(axis=-1), neginf=0)
    return share


def interval(rest: Array, joint: Array) -> Array | None:
    """95 % of what `gone` says, ±, by each sample's difference; None of one sample, or where one is no number."""
    if joint.shape[-1] < 2 or not np.isfinite(joint).all() or not np.isfinite(rest).all():
        return None
    deviation: Array = (joint - rest).std(axis=-1, ddof=1) / math.sqrt(joint.shape[-1]) / joint.mean(axis=-1)
    return Z95 * deviation


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
