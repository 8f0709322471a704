"""What a rate comes to before it is sent, with an interval; and what lies between that and what came."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from inferprof.documents.serving import Gap, Predicted, Quantile
from inferprof.queueing import seen, theory
from inferprof.queueing.policy import Curve, Policy, Times
from inferprof.queueing.seen import Batches, Factors
from inferprof.queueing.simulate import Served, simulate

REPLICAS: Final = 100
"""Runs that the interval of a prediction is made of."""
REPLAYS: Final = 20
"""Of the schedule that was sent: their means tell what it comes to."""
FARTHEST: Final = 2.0
"""Standard deviations that a level moves by at the most."""
Figures = dict[str, float]
"""`mean`, `p99` → ns."""


@dataclass(frozen=True)
class Rehearsal:
    """The load by another schedule, between the parts of a run: client, queue and worker as in the run."""

    curve: Curve
    """Of what batches cost the server there."""
    batches: Batches | None = None
    """None of a generative model."""
    offline: Curve | None = None
    """The curve before it, whose shape sizes have that are rare in it."""
    parts: int = 1
    """That take turns with those of the run."""

    @property
    def _ratios(self) -> Factors:
        """What its batches cost in their order, over the curve before: one of its own for each size would take slow
        and quick times for those of the sizes that they fell on, and large batches follow slow ones."""
        assert self.batches is not None
        means = [(self.offline or self.curve).mean(int(size)) for size in self.batches.size]
        return np.asarray(self.batches.taken / np.array(means))

    @property
    def factors(self) -> Factors:
        """The same over the means of those that were waited for, and of those that were not."""
        if self.batches is None or not self.batches.size.size:
            return np.ones(1)
        ratios, idle = self._ratios, self.batches.idle
        return np.asarray(ratios / np.where(idle, *(_mean(ratios, idle == state) for state in (True, False))))

    def redrawn(self, rng: np.random.Generator) -> Curve:
        """The curve of another rehearsal that might as well have come, in blocks of the batches of this one."""
        if self.batches is None or not self.batches.size.size:
            return self.curve
        places = seen.redrawn(self.factors, self.batches.size.size, rng)
        ratios, idle = self._ratios[places], self.batches.idle[places]
        base = (self.offline or self.curve).times
        waited, followed = (
            {size: _mean(ratios, idle == state) * times for size, times in base.items()} for state in (True, False)
        )
        return Curve(followed, waited)

    @property
    def change(self) -> float:
        """The logarithm of how much slower the second halves of its parts were than the first ones: it moves by as
        much from rehearsal to run."""
        halves = np.array_split(self.factors, 2 * self.parts)
        first, second = (np.concatenate(halves[side::2]) for side in (0, 1))
        return float(np.log(second.mean() / first.mean())) if second.size else 0.0


def _mean(values: Times, chosen: np.ndarray[Any, np.dtype[np.bool_]]) -> float:
    """Of those that are chosen; of all where none is."""
    return float((values[chosen] if chosen.any() else values).mean())


def by_theory(curve: Curve, policy: Policy, rate: float, percents: Sequence[float]) -> Predicted:
    """The embedded chain's. Raises theory.Unstable."""
    foreseen = theory.predict(curve, policy, rate)
    latency = {"mean": foreseen.mean_ns, **{f"p{each:g}": foreseen.percentile(each) for each in percents}}
    return Predicted(latency=latency, utilization=foreseen.utilization, mean_batch=foreseen.mean_batch)


def figures(latency: Times, percents: Sequence[float]) -> Figures:
    """Mean and percentiles."""
    values = np.quantile(latency, np.array(percents) / 100)
    return {
        "mean": float(latency.mean()),
        **{f"p{each:g}": float(ns) for each, ns in zip(percents, values, strict=True)},
    }


def intervals(
    rehearsal: Rehearsal,
    policy: Policy,
    schedules: Sequence[Times],
    judged: Callable[[Served], Figures],
    changes: Sequence[float],
) -> dict[str, tuple[float, float]]:
    """The least and the most of figures, by one run on each schedule. Of what came 97 % lay between these of 100 runs
    where services are independent, and 87 % where they are slow ten in a row (docs/serving.md).

    Each has a curve and service times of its own. The rehearsal's batches are redrawn in blocks twice: once for how
    surely they tell the curve, once for the run. The level moves on to the run by as much as `changes`, logarithms,
    say that it has moved so far, FARTHEST times that at the most.
    """
    rng = np.random.default_rng(len(changes))
    factors, spread = rehearsal.factors, float(np.sqrt(np.square(changes).sum() / max(1, len(changes) - 1)))
    each: list[Figures] = []
    for due in schedules:
        level = np.exp(spread * np.clip(rng.standard_normal(), -FARTHEST, FARTHEST))
        drawn = level * factors[seen.redrawn(factors, due.size, rng)]
        each.append(judged(simulate(rehearsal.redrawn(rng), policy, due, factors=drawn)))
    return {name: (min(own[name] for own in each), max(own[name] for own in each)) for name in each[0]}


def replayed(curve: Curve, policy: Policy, due: Times, judged: Callable[[Served], Figures], seed: int) -> Predicted:
    """What a schedule comes to by simulation: means of REPLAYS."""
    runs = [simulate(curve, policy, due, seed + number) for number in range(REPLAYS)]
    each = [judged(run) for run in runs]
    return Predicted(
        latency={name: float(np.mean([own[name] for own in each])) for name in each[0]},
        utilization=float(np.mean([run.utilization for run in runs])),
        mean_batch=due.size / float(np.mean([sum(run.formed.values()) for run in runs])),
    )


@dataclass(frozen=True)
class Explained:
    """What a schedule comes to with the service times of its run, and what lies between predicted and measured."""

    seen: Predicted
    gaps: dict[str, Gap]


def explained(
    rehearsal: Rehearsal,
    own: Batches,
    replay: Callable[[Curve], Predicted],
    measured: Mapping[str, Quantile],
    predicted: Predicted | None,
) -> Explained:
    """A step at a time from prediction to measurement: the schedule that was sent; its services in place of the
    rehearsal's; its late starts in place of the rehearsal's; their order."""
    assert rehearsal.batches is not None
    curve = rehearsal.curve
    usual = np.where(own.idle, *(rehearsal.batches.late_mean(idle=idle) for idle in (True, False)))
    steps = [replay(each) for each in (curve, own.curve(curve, own.service + usual), own.curve(curve, own.taken))]
    parts = {}
    for name, value in measured.items():
        sent, served, started = (step.latency[name] for step in steps)
        parts[name] = Gap(
            arrivals=sent - predicted.latency[name] if predicted else None,
            service=served - sent,
            client=started - served,
            order=value.value_ns - started,
        )
    return Explained(steps[-1], parts)
