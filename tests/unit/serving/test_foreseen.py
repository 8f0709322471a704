"""Predictions with intervals, and what differs from them, on simulated machines."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from inferprof.documents.serving import Predicted
from inferprof.queueing.policy import Curve, Policy, Times, schedule
from inferprof.queueing.seen import Batches
from inferprof.queueing.simulate import Served, simulate
from inferprof.serving import foreseen
from inferprof.serving.bench import latency_of

MS = 1e6
CURVE = Curve.of({1: [3 * MS], 2: [4 * MS], 4: [6 * MS], 8: [10 * MS]})
POLICY = Policy(8, 2 * MS)
RATE = 500.0


def figures(served: Served) -> foreseen.Figures:
    return foreseen.figures(served.latency, [95])


def factors(rng: np.random.Generator) -> Times:
    """Service times that are slow ten in a row."""
    return np.repeat(rng.lognormal(-0.02, 0.2, 300), 10)


def rehearsed(rng: np.random.Generator) -> foreseen.Rehearsal:
    run = simulate(CURVE, POLICY, schedule("poisson", RATE, 1000, int(rng.integers(1 << 30))), factors=factors(rng))
    batches = Batches.of(run, POLICY)
    return foreseen.Rehearsal(batches.curve(CURVE, batches.taken), batches, CURVE)


def test_most_runs_lie_in_the_interval_of_their_prediction_though_slow_services_follow_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(foreseen, "REPLICAS", 60)
    rng = np.random.default_rng(5)
    inside = []
    for _ in range(20):
        schedules = [schedule("poisson", RATE, 1500, int(rng.integers(1 << 30))) for _ in range(60)]
        between = foreseen.intervals(rehearsed(rng), POLICY, schedules, figures, [])
        due = schedule("poisson", RATE, 1500, int(rng.integers(1 << 30)))
        came = figures(simulate(CURVE, POLICY, due, factors=factors(rng)))
        inside += [low <= came[name] <= high for name, (low, high) in between.items()]
    assert np.mean(inside) > 0.75


def test_a_machine_that_moved_before_has_a_wider_interval() -> None:
    rehearsal = rehearsed(np.random.default_rng(1))
    schedules = [schedule("poisson", RATE, 500, seed) for seed in range(60)]
    still, moved = (
        foreseen.intervals(rehearsal, POLICY, schedules, figures, changes)["mean"]
        for changes in ([0.0] * 4, [0.2] * 4)
    )
    assert moved[1] - moved[0] > 1.5 * (still[1] - still[0])


@pytest.mark.parametrize(("slower", "later", "part"), [(1.3, 0.0, "service"), (1.0, 3 * MS, "client")])
def test_what_differs_is_split_into_slower_services_and_late_starts(slower: float, later: float, part: str) -> None:
    due = schedule("poisson", 300.0, 2000, 7)
    rehearsal_batches = Batches.of(simulate(CURVE, POLICY, schedule("poisson", 300.0, 1000, 8)), POLICY)
    rehearsal = foreseen.Rehearsal(CURVE, rehearsal_batches)
    longer = {size: slower * times + later for size, times in CURVE.times.items()}
    run = simulate(Curve(longer), POLICY, due)
    own = Batches.of(run, POLICY)
    own = dataclasses.replace(own, started=own.begins + later)
    predicted = Predicted(latency={"mean": 1.0, "p95": 1.0}, utilization=0.5, mean_batch=1.0)
    why = foreseen.explained(
        rehearsal,
        own,
        lambda curve: foreseen.replayed(curve, POLICY, due, figures, 0),
        latency_of(run.latency, [95]),
        predicted,
    )
    gap = why.gaps["mean"]
    parts = {name: getattr(gap, name) for name in ("service", "client", "order")}
    assert max(parts, key=lambda name: abs(parts[name])) == part
    assert sum(parts.values()) + (gap.arrivals or 0) + 1.0 == pytest.approx(run.latency.mean())
    assert why.seen.latency["mean"] == pytest.approx(run.latency.mean(), rel=0.02)
