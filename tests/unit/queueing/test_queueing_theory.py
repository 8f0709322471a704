"""The theory against closed forms, against simulation, and against Inoue's bounds."""

from __future__ import annotations

import numpy as np
import pytest

from inferprof.queueing import advice, theory
from inferprof.queueing.policy import Curve, Policy, schedule, traced
from inferprof.queueing.simulate import simulate

MS = 1e6
STEPS = Curve.of({1: [3 * MS], 2: [4 * MS], 4: [6 * MS], 8: [10 * MS]})


def linear(slope: float, intercept: float, largest: int) -> Curve:
    return Curve.of({batch: [slope * batch + intercept] for batch in range(1, largest + 1)})


LINE = linear(1 * MS, 2 * MS, 64)
COLD = Curve.of(
    {1: [3 * MS, 4 * MS], 2: [4 * MS], 4: [6 * MS], 8: [10 * MS]},
    after_idle={1: [6 * MS, 9 * MS], 2: [8 * MS], 4: [9 * MS], 8: [13 * MS]},
)


def noisy() -> Curve:
    rng = np.random.default_rng(1)
    return Curve.of({b: (2 + b) * MS * rng.lognormal(0, 0.3, 500) for b in (1, 2, 4, 8)})


def test_without_batching_the_mean_is_that_of_pollaczek_and_khinchine():
    curve = noisy()
    service = curve.times[1]
    rate = 0.7 / service.mean() * 1e9
    wait = 0.7 / (2 * 0.3) * (service**2).mean() / service.mean()
    predicted = theory.predict(curve, Policy(1), rate)
    assert predicted.mean_ns == pytest.approx(service.mean() + wait, rel=0.005)
    assert predicted.utilization == pytest.approx(0.7, abs=1e-3)
    assert predicted.batches == pytest.approx([1.0])


@pytest.mark.parametrize(
    "curve, cap, delay, load",
    [
        (LINE, 8, 0, 0.9),
        (LINE, 8, 5, 0.3),
        (LINE, 8, 5, 0.8),
        (LINE, 8, 50, 0.8),
        (LINE, 8, 20, 0.1),
        (LINE, 3, 2, 0.6),
        (LINE, 64, 0, 0.6),
        (STEPS, 8, 10, 0.6),
        (STEPS, 2, 3, 0.7),
        (noisy(), 8, 4, 0.7),
        (COLD, 1, 0, 0.5),
        (COLD, 2, 5, 0.8),
        (COLD, 8, 0, 0.4),
        (COLD, 8, 20, 0.4),
    ],
)
def test_latency_and_batches_are_those_of_a_simulation(curve, cap, delay, load):
    policy = Policy(cap, delay * MS)
    rate = load * curve.capacity(cap)
    predicted = theory.predict(curve, policy, rate)
    served = simulate(curve, policy, schedule("poisson", rate, 300_000, seed=3))
    latency = served.latency[1000:]
    assert predicted.mean_ns == pytest.approx(latency.mean(), rel=0.02)
    assert predicted.percentile(50) == pytest.approx(np.quantile(latency, 0.5), rel=0.02)
    assert predicted.percentile(99) == pytest.approx(np.quantile(latency, 0.99), rel=0.04)
    counts = np.bincount(served.batch, minlength=cap + 1)[1:] / np.arange(1, cap + 1)
    assert predicted.batches == pytest.approx(counts / counts.sum(), abs=0.006)


@pytest.mark.parametrize("load", [0.2, 0.5, 0.8])
def test_the_mean_is_below_the_bounds_of_inoue_and_near_them(load):
    """φ0 and φ1 of arXiv:1912.06322 for all that wait, without a cap and a delay."""
    slope, intercept = 1.0, 2.0
    rate = load / slope
    phi0 = (slope + intercept) / (2 * (1 - rate * slope))
    phi0 *= 1 + 2 * rate * intercept + (1 - rate * intercept) / (1 + rate * slope)
    phi1 = 1.5 * intercept / (1 - rate * slope) + slope / 2 * (rate * slope + 2) / (1 - (rate * slope) ** 2)
    mean = theory.predict(LINE, Policy(64), rate * 1e3).mean_ns / MS
    assert 0.9 * min(phi0, phi1) <= mean <= 1.005 * min(phi0, phi1)


def test_a_rate_beyond_the_capacity_is_refused_before_anything_is_measured():
    assert STEPS.capacity(8) == pytest.approx(800)
    with pytest.raises(theory.Unstable, match="800"):
        theory.predict(STEPS, Policy(8), 800)


def test_the_chain_holds_all_its_probability_and_obeys_little():
    predicted = theory.predict(STEPS, Policy(8, 5 * MS), 300)
    assert predicted.masses.sum() == pytest.approx(1)
    assert predicted.batches.sum() == pytest.approx(1)
    sizes = np.arange(1, 9)
    busy = sum(share * STEPS.mean(int(size)) for share, size in zip(predicted.batches, sizes, strict=True))
    assert predicted.utilization == pytest.approx(300e-9 * busy / predicted.mean_batch)


def test_a_batch_in_between_takes_as_long_as_the_one_that_it_is_padded_to():
    assert STEPS.bucket(3) == 4
    assert STEPS.mean(5) == 10 * MS
    with pytest.raises(ValueError, match="9"):
        STEPS.bucket(9)


def test_many_samples_become_levels_with_the_same_mean():
    samples = np.random.default_rng(0).lognormal(0, 1, 997)
    assert Curve.of({1: samples}).times[1].size == 40
    assert Curve.of({1: samples}).mean(1) == pytest.approx(samples.mean())


def lasting(policy: Policy) -> advice.Lasting:
    return advice.Lasting.of(lambda rate: theory.predict(STEPS, policy, rate).percentile(99), STEPS.capacity(8))


def test_the_highest_rate_meets_its_objective_within_a_percent_and_a_little_more_does_not():
    policy = Policy(8, 2 * MS)
    rate = lasting(policy).highest(25 * MS)
    assert rate
    assert theory.predict(STEPS, policy, rate).percentile(99) == pytest.approx(25 * MS, rel=0.01)
    assert theory.predict(STEPS, policy, 1.01 * rate).percentile(99) > 25 * MS
    assert lasting(Policy(8, 50 * MS)).highest(5 * MS) is None


def test_a_slower_machine_has_a_highest_rate_of_its_own():
    slower = advice.Lasting.of(
        lambda rate: theory.predict(STEPS.slower(1.2), Policy(8), rate).percentile(99), STEPS.slower(1.2).capacity(8)
    )
    assert lasting(Policy(8)).highest(25 * MS, 1.2) == pytest.approx(slower.highest(25 * MS), rel=0.01)


def test_no_delay_is_best_where_waiting_gains_nothing_and_one_where_batches_are_nearly_free():
    assert advice.best_delay(linear(3 * MS, 0.01 * MS, 8), 8, 100, 99).delay_ns == 0
    flat = linear(0.05 * MS, 10 * MS, 8)
    advised = advice.best_delay(flat, 8, 0.9 * flat.capacity(8), 99)
    assert advised.value_ns <= theory.predict(flat, Policy(8), 0.9 * flat.capacity(8)).percentile(99)


def test_schedules_have_their_rate_and_their_spread_of_intervals():
    for arrivals, spread in (("poisson", 1.0), ("constant", 0.0), ("gamma:4", 0.5)):
        intervals = np.diff(schedule(arrivals, 200, 50_000, seed=1))
        assert intervals.mean() == pytest.approx(5 * MS, rel=0.02)
        assert intervals.std() / intervals.mean() == pytest.approx(spread, abs=0.02)


def test_a_schedule_at_another_rate_is_the_same_one_stretched():
    assert schedule("poisson", 100, 50, seed=2) == pytest.approx(2 * schedule("poisson", 200, 50, seed=2))


def test_a_trace_keeps_the_ratios_of_its_intervals_at_any_rate():
    moments = traced(np.array([5.0, 6.0, 8.0, 8.5]), 1000, 8)
    assert np.diff(moments)[:3] / np.diff(moments)[0] == pytest.approx([1, 2, 0.5])
    assert moments.size == 8 and moments[-1] == pytest.approx(8 * MS)
