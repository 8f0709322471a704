"""What follows from the predictions: the highest rate of a policy, and the delay to set at a rate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from inferprof.queueing import theory
from inferprof.queueing.policy import Curve, Policy, Times

SHARES: Final = 1 - np.geomspace(0.95, 0.012, 20)
"""Of the capacity: where a latency percentile is computed; in between it is linear in the logarithms of itself and of
what is left of the capacity."""
DELAYS: Final = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0)
"""Delays that are compared, in service times of a full batch."""
NO_WORSE: Final = 0.01
"""Of the percentile: of delays that are so near, the shortest is advised."""


@dataclass(frozen=True)
class Advice:
    """The delay to set at a rate, and what the latency percentile then is."""

    delay_ns: float
    value_ns: float


@dataclass(frozen=True)
class Lasting:
    """A latency percentile (ns) over the share of the capacity (requests per second), of loads without end."""

    capacity: float
    values: Times

    @classmethod
    def of(cls, percentile_at: Callable[[float], float], capacity: float) -> Lasting:
        """percentile_at: what it is at a rate, ns."""
        return cls(capacity, np.array([percentile_at(share * capacity) for share in SHARES]))

    def highest(self, objective_ns: float, slower: float = 1.0) -> float | None:
        """The highest rate that meets an objective, on a machine whose services take `slower` times as long; None
        where none does. A delay makes low rates slow too: it is looked for from above."""
        beyond = np.log(self.values * slower / objective_ns)
        met = np.flatnonzero(beyond <= 0)
        if not met.size:
            return None
        place = int(met[-1])
        left = np.log(1 - SHARES)
        if place + 1 < left.size:
            part = beyond[place] / (beyond[place] - beyond[place + 1])
            share = 1 - np.exp(left[place] + part * (left[place + 1] - left[place]))
        else:
            share = SHARES[-1]
        return float(share * self.capacity / slower)


def best_delay(curve: Curve, max_batch: int, rate: float, percent: float) -> Advice:
    """The delay with the lowest latency percentile at a rate. Raises theory.Unstable beyond the capacity."""
    candidates = [share * curve.mean(max_batch) for share in (DELAYS if max_batch > 1 else (0.0,))]
    values = [theory.predict(curve, Policy(max_batch, delay), rate).percentile(percent) for delay in candidates]
    least = min(values)
    return next(
        Advice(delay, value)
        for delay, value in zip(candidates, values, strict=True)
        if value <= (1 + NO_WORSE) * least
    )
