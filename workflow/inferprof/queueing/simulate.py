"""A server that forms batches, event by event: what a schedule of arrivals comes to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from inferprof.queueing.policy import Curve, Policy, Times


@dataclass(frozen=True)
class Served:
    """Each request in the order of arrival, ns."""

    arrived: Times
    started: Times
    done: Times
    batch: np.ndarray[tuple[int], np.dtype[np.int64]]
    """The size of the batch that it was in."""

    @property
    def latency(self) -> Times:
        """From arrival to the end."""
        return self.done - self.arrived

    @property
    def formed(self) -> dict[int, int]:
        """Size → how many batches there were of it."""
        sizes, requests = np.unique(self.batch, return_counts=True)
        return {int(size): int(count // size) for size, count in zip(sizes, requests, strict=True)}

    @property
    def utilization(self) -> float:
        """Of the time until the end, the server worked."""
        first = np.concatenate([[True], np.diff(self.started) > 0])
        return float((self.done - self.started)[first].sum() / self.done[-1])


def simulate(curve: Curve, policy: Policy, arrivals: Times, seed: int = 0) -> Served:
    """Serve a schedule by a policy; service times are drawn from the curve."""
    rng = np.random.default_rng(seed)
    count = arrivals.size
    drawn = rng.random(count)
    started, done = np.zeros(count), np.zeros(count)
    batches = np.zeros(count, dtype=np.int64)
    by_size = [curve.times[curve.bucket(size)] for size in range(1, policy.max_batch + 1)]
    free, i = 0.0, 0
    while i < count:
        full = i + policy.max_batch - 1
        begins = max(free, float(arrivals[i]) + policy.max_delay_ns)
        if full < count:
            begins = min(begins, max(free, float(arrivals[full])))
        size = min(policy.max_batch, int(np.searchsorted(arrivals, begins, side="right")) - i)
        times = by_size[size - 1]
        free = begins + float(times[int(drawn[i] * times.size)])
        started[i : i + size], done[i : i + size], batches[i : i + size] = begins, free, size
        i += size
    return Served(arrivals, started, done, batches)
