"""What follows from the predictions: the highest rate of a policy, and the delay to set at a rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from inferprof.queueing import theory
from inferprof.queueing.policy import Curve, Policy

SCAN: Final = np.linspace(0.95, 0.05, 19)
"""Shares of the capacity at which the highest rate is looked for, from above: a delay makes low rates slow too."""
WITHIN: Final = 0.005
"""Relative width to which it is looked for."""
DELAYS: Final = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0)
"""Delays that are compared, in service times of a full batch."""
NO_WORSE: Final = 0.01
"""Of the percentile: of delays that are so near, the shortest is advised."""


@dataclass(frozen=True)
class Advice:
    """The delay to set at a rate, and what the latency percentile then is."""

    delay_ns: float
    value_ns: float


def highest_rate(curve: Curve, policy: Policy, objective_ns: float, percent: float) -> float | None:
    """The highest rate whose latency percentile meets an objective, requests per second; None where none does."""
    capacity = curve.capacity(policy.max_batch)

    def meets(share: float) -> bool:
        return theory.predict(curve, policy, share * capacity).percentile(percent) <= objective_ns

    above = theory.FULL
    for share in SCAN:
        if meets(float(share)):
            break
        above = float(share)
    else:
        return None
    below = float(share)
    while above / below > 1 + WITHIN:
        middle = (below * above) ** 0.5
        below, above = (middle, above) if meets(middle) else (below, middle)
    return below * capacity


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
