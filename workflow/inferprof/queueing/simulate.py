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
        """Of the time until the end, the server worked on a request."""
        ends = np.maximum.accumulate(self.done)
        before = np.concatenate([[0.0], ends[:-1]])
        return float(np.maximum(ends - np.maximum(self.started, before), 0.0).sum() / ends[-1])


def simulate(curve: Curve, policy: Policy, arrivals: Times, seed: int = 0) -> Served:
    """Serve a schedule by a policy; service times are drawn from the curve."""
    rng = np.random.default_rng(seed)
    count = arrivals.size
    drawn = rng.random(count)
    started, done = np.zeros(count), np.zeros(count)
    batches = np.zeros(count, dtype=np.int64)
    sizes = range(1, policy.max_batch + 1)
    by_size = {idle: [curve.service(size, idle=idle) for size in sizes] for idle in (False, True)}
    free, i = 0.0, 0
    while i < count:
        begins, size = policy.next_batch(arrivals, i, free)
        times = by_size[begins > free][size - 1]
        free = begins + float(times[int(drawn[i] * times.size)])
        started[i : i + size], done[i : i + size], batches[i : i + size] = begins, free, size
        i += size
    return Served(arrivals, started, done, batches)
