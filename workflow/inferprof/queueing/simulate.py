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


def simulate(curve: Curve, policy: Policy, arrivals: Times, seed: int = 0, factors: Times | None = None) -> Served:
    """Serve a schedule by a policy; service times are drawn from the curve, or are its means times factors that
    follow each other as they are given, again from the first one where they end."""
    moments = arrivals.tolist()
    count = len(moments)
    sizes = range(1, policy.max_batch + 1)
    if factors is None:
        drawn = np.random.default_rng(seed).random(count).tolist()
        table = {idle: [curve.service(size, idle=idle).tolist() for size in sizes] for idle in (False, True)}
    else:
        drawn = factors.tolist()
        table = {idle: [curve.mean(size, idle=idle) for size in sizes] for idle in (False, True)}
    starts, ends = list[float](), list[float]()
    formed = list[int]()
    free, i = 0.0, 0
    while i < count:
        begins, size = policy.next_batch(moments, i, free)
        own = table[begins > free][size - 1]
        if factors is None:
            free = begins + own[int(drawn[i] * len(own))]
        else:
            free = begins + own * drawn[len(formed) % len(drawn)]
        starts.append(begins)
        ends.append(free)
        formed.append(size)
        i += size
    batches = np.array(formed, dtype=np.int64)
    return Served(arrivals, *(np.repeat(each, batches) for each in (np.array(starts), np.array(ends), batches)))
