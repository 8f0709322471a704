"""The loss of each unit alone in a format, and alone left out of it, in a bounded number of passes over the samples.

A pass runs every sample once. Which units are in the format may differ from sample to sample of one pass: so many
samples try each unit as the passes allow, and 2·√N passes try all N of them both ways.
"""

from __future__ import annotations

import dataclasses
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
from inferprof.sensitivity import switches
from inferprof.sensitivity.shares import agreement, error_of, gone, share_alone
from inferprof.sensitivity.switches import Unit

Array = np.ndarray[Any, Any]
STATED = 2
"""Passes of every analysis that rank nothing by themselves: none of the units, and all of them."""
REPRODUCED = 0.98
"""Spearman's rho of a ranking with that of other samples, from which on more runs would not change it."""
AGAIN = 0.95
"""Spearman's rho of a ranking with that of other samples, from which on more samples are not drawn."""
POOR = 0.9
"""The same, under which a ranking does not reproduce itself."""
TRIES = 24
"""How often a ranking that chooses its samples tries each unit, a quarter to a half of that alone. Of ViT-Tiny,
MiniLM and the detector in INT8, 12 samples of each unit left out agree with all by 0.95 to 0.97, 6 by
0.81 to 0.94."""
DOUBLED = 1
"""How often such a ranking doubles its samples until it reproduces itself."""
LEAST_TOLD = 3
"""So many units have to be no tie to speak of their order."""


class Switched:
    """A graph with its switches, the samples, and how many runs of a sample there have been."""

    def __init__(self, model: Any, units: Sequence[Unit], samples: Sequence[Feeds]) -> None:
        self.units, self.samples, self.runs = units, [*samples], 0
        self._model = model
        self._session = accuracy.session(switches.switchable(model, units))
        self.plain: list[list[Array]] = []
        self.add(())

    def add(self, samples: Sequence[Feeds]) -> None:
        """More samples. Raises CaseFailed where no output of the float graph is a number other than 0."""
        self.samples += samples
        self.plain += [self._run(sample, ()) for sample in self.samples[len(self.plain) :]]
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
        recording = switches.assembled(self._model, self.units, recorded=True)
        graphs = recording, switches.switchable(self._model, self.units, held=True)
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
        """Of a sample, the loss of all units, and of all but each of these while the others' errors stay.

        Whatever changes in front of a quantizer draws its rounding errors anew: those of all units behind the one
        that is left out. The joint loss differs by that more than by what most units lose. So the errors are recorded
        once, with all units in the format, and are then added in the place of the quantizers: what is left out takes
        its own errors away and no others. Of weights, whose errors never change, both forms are stored.

        Where a result is rounded, its readers round it again, and where values overflow, there is nothing to be held:
        such units are left out of the graph as it is.
        """
        every, sample = frozenset(range(len(self.units))), self.samples[index]
        if any(edge.place < 0 for unit in self.units for edge in unit.edges):
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
    return float((output[np.isfinite(output)].astype(np.float64) ** 2).sum())


def ratio(actual: Array, expected: Array, signal: float) -> float:
    """Σ (actual − expected)² / signal; infinite where a value is not finite that was, 0 where there is no signal."""
    if not np.array_equal(np.isfinite(actual), finite := np.isfinite(expected)):
        return math.inf
    return power(np.subtract(actual[finite], expected[finite], dtype=np.float64)) / signal if signal else 0.0


def db(loss: float) -> float | None:
    """The loss as an SQNR in dB; None where it is 0 (identical) or no number."""
    return None if not 0 < loss < math.inf else -10 * math.log10(loss)


@dataclass(frozen=True)
class Losses:
    """By unit: the loss of it alone, and of all others without it, on its `samples`; and of all units together.

    `alone` and `joint` are what a tolerance is of: mean losses. What goes is of a typical sample: geometric means.
    """

    alone: Array
    share: Array
    """Of the loss of all on a typical sample, what the unit loses alone."""
    without: Array
    """Of the same: the part that goes where the unit is left out; negative where it helps."""
    joint: Array
    samples: int
    passes: int
    reproducible: tuple[float | None, float | None] = (None, None)
    """How well the two rankings, by `alone` and by `without`, agree with the same of other samples: `agreement`. The
    second is of the units that are `told`: the order of ties is noise."""
    left_out_error: Array | None = None
    """Standard error of −ln(1 − `without`) over samples; None where each unit was left out of one sample only."""
    left_out_samples: int = 1

    @property
    def left_out_ci(self) -> Array | None:
        """95 % of `without`, as far as it reaches towards 0: logarithms, by Student's t, since samples are few."""
        from scipy.stats import t

        if self.left_out_error is None:
            return None
        log = t.ppf(0.975, self.left_out_samples - 1) * self.left_out_error
        with np.errstate(over="ignore"):
            within: Array = (1 - self.without) * abs(np.expm1(np.where(self.without > 0, log, -log)))
        return np.nan_to_num(within)

    @property
    def told(self) -> Array:
        """By unit, whether it is no tie: what goes with it is more than its interval."""
        within = [None] * len(self.without) if self.left_out_ci is None else self.left_out_ci
        return np.array([*map(is_told, self.without, within)], bool)

    @property
    def reproduces(self) -> bool:
        """Whether both rankings are those of other samples, and more would not change them."""
        return all(rho is not None and rho >= AGAIN for rho in self.reproducible)

    @property
    def left_out(self) -> Array:
        """By unit, what ranks them by what goes where each is left out: that, drawn towards its loss alone.

        What goes is the loss alone and twice the product of its errors with the others', whose size goes by the root
        of the loss. The less of the differences of the two is more than noise, the more counts the loss alone
        (James and Stein's estimator, with one weight for all units).
        """
        share = self.share
        if self.left_out_error is None:
            mean: Array = (self.without + share) / 2
            return mean
        size = np.maximum(share, share.max() * 1e-6 or 1.0)
        error = self.left_out_error * (1 - self.without)
        seen, noise = (((self.without - share) ** 2) / size).mean(), (error**2 / size).mean()
        weight = max(0.0, 1 - noise / seen) if seen else 0.0
        drawn: Array = share + weight * (self.without - share)
        return drawn


def is_told(gone: float, within: float | None) -> bool:
    """Whether a unit is no tie: what goes with it is more than its interval, ±; None where it has none."""
    return within is not None and abs(gone) > within


def budget(units: int) -> int:
    """How many passes the ranking of so many units may take: 2·√N, and at least one behind the two stated ones."""
    return max(STATED + 1, math.floor(2 * math.sqrt(units)))


def tries(units: int, samples: int) -> int:
    """On how many samples the budget lets each unit be tried, alone and left out together: one each at least."""
    return max(2, max(budget(units) - STATED, 0) * samples // units)


def least_samples(units: int, each: int = 2) -> int:
    """How many samples it takes so that each unit is tried on so many within the budget, alone and left out."""
    return math.ceil(each * units / max(budget(units) - STATED, 1))


@dataclass
class _Tried:
    """What was measured so far, of all samples behind one another: [unit, sample] and joint losses."""

    alone: Array
    rest: Array
    """Losses of all others where a unit is left out."""
    usual: Array
    """Losses of all units on the same samples."""
    joint: Array

    def losses(self, passes: int) -> Losses:
        """The rankings as they are."""
        ranking = Losses(
            self.alone.mean(axis=1),
            share_alone(self.alone, self.joint),
            gone(self.rest, self.usual),
            self.joint,
            self.alone.shape[1],
            passes,
            left_out_error=error_of(self.rest, self.usual),
            left_out_samples=self.rest.shape[1],
        )
        rest, usual = self.rest[ranking.told], self.usual[ranking.told]
        again = agreement(lambda part: gone(rest[:, part], usual[:, part]), rest.shape[1], least=LEAST_TOLD)
        return dataclasses.replace(ranking, reproducible=(_alone_again(self.alone), again))


def rank(switched: Switched, more: Callable[[int], Sequence[Feeds]] | None = None) -> Losses:
    """Try every unit alone and left out, each on samples in turn.

    `more` gives further samples by how many there are: with them the ranking goes on until it reproduces itself, the
    samples were doubled `DOUBLED` times, or there are no more. The budget holds of the samples that there are then.
    """
    none = np.empty((len(switched.units), 0))
    tried = _Tried(none, none, none, np.empty(0))
    _go_on(switched, tried, range(len(switched.samples)))
    losses = tried.losses(switched.passes)
    for _ in range(DOUBLED):
        there = len(switched.samples)
        if more is None or losses.reproduces or not (new := more(there)):
            break
        switched.add(new)
        _go_on(switched, tried, range(there, len(switched.samples)))
        losses = tried.losses(switched.passes)
    return losses


def _go_on(switched: Switched, tried: _Tried, samples: range) -> None:
    """Some of the tries on further samples are alone: a quarter, or a half where others would rank otherwise."""
    count, total = len(switched.units), tries(len(switched.units), len(samples))
    if (_alone_again(tried.alone) or 0) < REPRODUCED:
        most = min(len(samples), max(1, total // 2))
        losses = _alone(switched, samples, most, max(1, total // 4))
        tried.alone = np.hstack([tried.alone, losses])
        total -= losses.shape[1]
    each = min(len(samples), total)
    numbers: list[list[int]] = [[] for _ in samples]
    for turn in range(count * each):
        numbers[turn % len(samples)].append(turn // each)
    rest: list[list[float]] = [[] for _ in range(count)]
    usual: list[list[float]] = [[] for _ in range(count)]
    for index in progress.counted(samples, "sample"):
        joint, without = switched.left_out(index, numbers[index - samples.start])
        tried.joint = np.append(tried.joint, joint)
        for number, loss in zip(numbers[index - samples.start], without, strict=True):
            rest[number].append(loss)
            usual[number].append(joint)
    tried.rest, tried.usual = np.hstack([tried.rest, np.array(rest)]), np.hstack([tried.usual, np.array(usual)])


def alone(switched: Switched) -> Array:
    """The loss of each unit alone, of whose runs half are spared where other samples would rank alike."""
    every = range(len(switched.samples))
    most = min(len(every), tries(len(switched.units), len(every)))
    mean: Array = _alone(switched, every, most, max(1, most // 2)).mean(axis=1)
    return mean


def _alone(switched: Switched, samples: range, most: int, first: int) -> Array:
    """[unit, sample]: the loss of each unit alone on the `first` samples, and on `most` unless others rank alike."""

    def lost(places: range) -> Array:
        units = progress.counted(range(len(switched.units)), "unit")
        return np.array(
            [[switched.loss(samples[(n * most + place) % len(samples)], {n}) for place in places] for n in units]
        )

    losses = lost(range(min(first, most)))
    again = _alone_again(losses)
    return losses if first >= most or (again or 0) >= REPRODUCED else np.hstack([losses, lost(range(first, most))])


def _alone_again(alone: Array) -> float | None:
    return agreement(lambda part: np.asarray(alone[:, part].mean(axis=1)), alone.shape[1])
