"""What the batches of a run took: the curve that they make, and how their times hang together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np

from inferprof import stats
from inferprof.queueing.policy import Curve, Policy, Times
from inferprof.queueing.simulate import Served

ENOUGH: Final = 5
"""Batches of a size whose mean is taken for it."""
FEWEST: Final = 20
"""Batches by which it is told how their times hang together."""
BLOCK: Final = 4.0
"""Of the batches that count as one: how many follow each other where they are drawn anew."""
Factors = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Batches:
    """The batches of a run in their order. Moments are ns from its start."""

    size: np.ndarray[Any, np.dtype[np.int64]]
    idle: np.ndarray[Any, np.dtype[np.bool_]]
    """Whether the server had waited for it."""
    begins: Times
    """When the policy has it start: the server is free, and it is full or its delay is over."""
    started: Times
    done: Times

    @classmethod
    def of(cls, served: Served, policy: Policy) -> Batches:
        """Those of a run."""
        moments, before = served.arrived.tolist(), 0.0
        firsts = np.flatnonzero(np.concatenate([[True], np.diff(served.started) > 0])[: len(moments)])
        begins, idle = np.zeros(firsts.size), np.zeros(firsts.size, dtype=bool)
        for place, first in enumerate(firsts.tolist()):
            due = policy.next_batch(moments, first, before)[0]
            begins[place], idle[place] = min(due, served.started[first]), due > before
            before = float(served.done[first])
        return cls(served.batch[firsts], idle, begins, served.started[firsts], served.done[firsts])

    @property
    def service(self) -> Times:
        """What the session took."""
        return self.done - self.started

    @property
    def late(self) -> Times:
        """How late each was started: the client was late, or the worker woke up."""
        return self.started - self.begins

    @property
    def taken(self) -> Times:
        """Both: what a batch costs the server."""
        return self.done - self.begins

    def late_mean(self, *, idle: bool) -> float:
        """The mean of `late`, ns; idle: of those that were waited for."""
        own = self.late[self.idle == idle]
        return float(own.mean()) if own.size else 0.0

    def after(self, share: float) -> Batches:
        """Without the first ones."""
        return self.at(np.arange(int(share * self.size.size), self.size.size))

    def at(self, places: np.ndarray[Any, np.dtype[np.int64]]) -> Batches:
        """Those at some places of their order."""
        return Batches(*(getattr(self, field.name)[places] for field in fields(self)))

    def sampled(self, curve: Curve, taken: Times) -> tuple[dict[int, Times], dict[int, Times]]:
        """Times of batches by the size in a curve: of those that followed at once, and of those that were waited
        for."""
        buckets = np.array([curve.bucket(int(size)) for size in self.size])
        return tuple(  # type: ignore[return-value]
            {int(size): taken[own & (buckets == size)] for size in np.unique(buckets[own])}
            for own in (~self.idle, self.idle)
        )

    def curve(self, base: Curve, taken: Times) -> Curve:
        """The curve that these times make. A size with too few of them has those of another curve, longer by the
        ratio that the rest is."""
        busy, idle = self.sampled(base, taken)
        times = _completed(busy, base)
        return Curve.of(times, _completed(idle, Curve.of(times)))

    def factors(self, curve: Curve, taken: Times) -> Factors:
        """Times over the means of a curve for the same batches."""
        means = [curve.mean(int(size), idle=bool(idle)) for size, idle in zip(self.size, self.idle, strict=True)]
        return np.asarray(taken / np.array(means))


def _completed(seen: Mapping[int, Times], curve: Curve) -> dict[int, Times]:
    enough = {size: taken for size, taken in seen.items() if taken.size >= ENOUGH}
    expected = sum(curve.mean(size) * taken.size for size, taken in enough.items())
    ratio = sum(float(taken.sum()) for taken in enough.values()) / expected if enough else 1.0
    return {size: enough.get(size, ratio * times) for size, times in curve.times.items()}


def correlation(factors: Factors) -> tuple[float, float] | None:
    """Of times that follow each other the autocorrelation at lag 1, and how many independent ones tell as much; None
    below FEWEST, and where all are the same."""
    logs = np.log(factors)
    logs = logs - logs.mean()
    if factors.size < FEWEST or not np.ptp(logs):
        return None
    return float(logs[1:] @ logs[:-1] / (logs @ logs)), stats.effective_size(factors)


def redrawn(factors: Factors, count: int, rng: np.random.Generator) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The places of so many of them in blocks that begin anywhere (circular block bootstrap: Politis and Romano
    1992). A block holds BLOCK times as many as count for one independent sample: what hangs together stays so."""
    size = factors.size
    length = min(max(1, round(BLOCK * size / stats.effective_size(factors))), max(1, size // 4))
    starts = rng.integers(0, size, -(-count // length))
    return np.asarray(((starts[:, None] + np.arange(length)) % size).ravel()[:count])
