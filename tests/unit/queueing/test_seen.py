"""What the batches of a run took, on runs that can be followed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from inferprof.queueing import seen
from inferprof.queueing.policy import Curve, Policy
from inferprof.queueing.seen import Batches
from inferprof.queueing.simulate import Served, simulate

CURVE = Curve.of({1: [10.0], 2: [16.0]})


def run() -> Batches:
    """At 0 one alone, started 3 late; two that came meanwhile; at 100 one that starts when its delay of 5 is over."""
    served = Served(
        arrived=np.array([0.0, 4.0, 6.0, 100.0]),
        started=np.array([8.0, 20.0, 20.0, 105.0]),
        done=np.array([19.0, 40.0, 40.0, 117.0]),
        batch=np.array([1, 2, 2, 1]),
    )
    return Batches.of(served, Policy(2, 5.0))


def test_a_batch_costs_from_when_the_policy_has_it_start_until_its_answer() -> None:
    own = run()
    assert own.size.tolist() == [1, 2, 1] and own.idle.tolist() == [True, False, True]
    # The first one's batch is full with the second request, at 4.
    assert own.begins.tolist() == [4.0, 19.0, 105.0]
    assert own.late.tolist() == [4.0, 1.0, 0.0]
    assert own.service.tolist() == [11.0, 20.0, 12.0]
    assert own.taken.tolist() == [15.0, 21.0, 12.0]
    assert (own.late_mean(idle=True), own.late_mean(idle=False)) == (2.0, 1.0)
    assert own.after(0.4).size.tolist() == [2, 1]


def test_what_a_simulation_serves_starts_on_time_and_takes_what_its_curve_says() -> None:
    own = Batches.of(simulate(CURVE, Policy(2), np.array([1.0, 2.0, 30.0])), Policy(2))
    assert own.late.tolist() == [0.0, 0.0, 0.0]
    assert own.factors(CURVE, own.taken) == pytest.approx(np.ones(3))


def test_a_size_that_is_rare_in_a_run_is_slower_by_as_much_as_the_rest() -> None:
    own = Batches.of(simulate(CURVE, Policy(2), 100.0 * np.arange(1, 9)), Policy(2))
    curve = own.curve(CURVE, 1.5 * own.taken)
    assert curve.mean(1, idle=True) == pytest.approx(15.0) and curve.mean(2, idle=True) == pytest.approx(24.0)
    assert curve.mean(1) == 10.0  # none of them followed another one at once


def test_services_that_follow_each_other_in_pairs_are_correlated_and_count_less() -> None:
    rng = np.random.default_rng(0)
    apart = rng.lognormal(0, 0.3, 400)
    lag, independent = seen.correlation(apart) or (1.0, 0.0)
    assert abs(lag) < 0.15 and independent > 200
    lag, independent = seen.correlation(np.repeat(apart[:40], 10)) or (0.0, 400.0)
    assert lag > 0.8 and independent < 100
    assert seen.correlation(np.ones(400)) is None and seen.correlation(apart[:10]) is None


def test_what_hangs_together_stays_together_where_it_is_drawn_anew() -> None:
    rng = np.random.default_rng(0)
    apart = rng.lognormal(0, 0.3, 400)
    blocks = np.repeat(apart[:40], 10)
    spread = [np.std([each[seen.redrawn(each, 400, rng)].mean() for _ in range(200)]) for each in (apart, blocks)]
    assert spread[1] > 2 * spread[0]
    assert seen.redrawn(np.array([2.0]), 3, rng).tolist() == [0, 0, 0]
