"""When a server starts which requests, how requests arrive, and how long a batch takes, as asked for or measured."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from inferprof.documents import Serving
from inferprof.documents.serving import ServingPolicy
from inferprof.errors import UserError
from inferprof.units import NS_PER_MS, NS_PER_S

ANSWERING: Final = "torch_eager"
ANSWERING_OPTIONS: Final = frozenset({"threads", "cuda_graph"})
"""The backend of generative models under load, and the options of a variant that it has there."""
LEVELS: Final = 40
"""Equally likely values that stand for the samples of a batch size."""
Times = np.ndarray[Any, np.dtype[Any]]
Samples = Mapping[int, Sequence[float] | Times]


@dataclass(frozen=True)
class Policy:
    """Requests are served in order. A server that is free starts `max_batch` of them where so many wait, else all of
    them once the first has waited for `max_delay_ns`. Without batching: a `max_batch` of 1."""

    max_batch: int
    max_delay_ns: float = 0.0

    def starts(self, first: float, waiting: int, free: float) -> float:
        """The moment at which a server that is free since `free` starts, if nobody else comes: `first` is the
        arrival of the first of those that wait."""
        return free if waiting >= self.max_batch else max(free, first + self.max_delay_ns)

    def next_batch(self, arrivals: Sequence[float], i: int, free: float) -> tuple[float, int]:
        """When the batch of a schedule starts whose first request is `i`, and its size."""
        begins = max(free, arrivals[i] + self.max_delay_ns)
        end = i + self.max_batch
        if end <= len(arrivals):
            begins = min(begins, max(free, arrivals[end - 1]))
        return begins, bisect_right(arrivals, begins, i, min(end, len(arrivals))) - i


@dataclass(frozen=True)
class Curve:
    """Latency over the batch: measured batch size → equally likely service times, ns. A batch in between takes as
    long as the next larger measured one, which it is padded to.

    `after_idle` are those of batches that the server waited for, by when caches and clocks have cooled down; where
    there are none, they are no others."""

    times: Mapping[int, Times]
    after_idle: Mapping[int, Times] = field(default_factory=dict)

    @classmethod
    def of(cls, samples: Samples, after_idle: Samples | None = None) -> Curve:
        """The curve of measured samples: LEVELS means of as many neighbouring ones, whose mean is the samples'."""
        return cls(_leveled(samples), _leveled(after_idle or {}))

    def slower(self, factor: float) -> Curve:
        """The curve of a machine that takes so many times as long."""
        return Curve(*({size: factor * own for size, own in part.items()} for part in (self.times, self.after_idle)))

    @property
    def largest(self) -> int:
        """The largest batch."""
        return max(self.times)

    def bucket(self, batch: int) -> int:
        """The measured size that a batch is padded to. Raises ValueError beyond the largest."""
        fitting = [size for size in self.times if size >= batch]
        if not fitting:
            raise ValueError(f"a batch of {batch} is beyond the largest measured one, {self.largest}")
        return min(fitting)

    def service(self, batch: int, *, idle: bool = False) -> Times:
        """The service times of a batch; idle: of one that the server waited for."""
        size = self.bucket(batch)
        return self.after_idle.get(size, self.times[size]) if idle else self.times[size]

    def mean(self, batch: int, *, idle: bool = False) -> float:
        """The mean of these, ns."""
        return float(self.service(batch, idle=idle).mean())

    def capacity(self, max_batch: int) -> float:
        """Requests per second beyond which a queue grows without end: all batches are then full."""
        return max_batch / self.mean(max_batch) * NS_PER_S


def _leveled(samples: Samples) -> dict[int, Times]:
    return {batch: _levels(np.asarray(samples[batch], dtype=float)) for batch in sorted(samples)}


def _levels(samples: Times) -> Times:
    values = np.sort(samples)
    if values.size <= LEVELS:
        return values
    edges = np.linspace(0, values.size, LEVELS + 1)
    # Fractions of samples at the edges, so that all levels weigh the same.
    total = np.concatenate([[0.0], np.cumsum(values)])
    below = np.interp(edges, np.arange(values.size + 1), total)
    levels: Times = np.diff(below) * LEVELS / values.size
    return levels


def pieces(due: Times, parts: int) -> list[Times]:
    """A schedule in parts of as many requests each, whose moments count from the last request of the part before."""
    cut = np.array_split(due, parts)
    ends = np.concatenate([[0.0], [part[-1] if part.size else 0.0 for part in cut]])
    return [part - end for part, end in zip(cut, np.maximum.accumulate(ends), strict=False)]


def apart(due: Times, parts: int) -> Times:
    """A schedule with a pause between its parts that is as long as all of it: each part finds an empty queue."""
    number = np.repeat(np.arange(parts), [part.size for part in np.array_split(due, parts)])
    return np.asarray(due + number * due[-1])


def schedule(arrivals: str, rate: float, count: int, seed: int = 0) -> Times:
    """The moments, in ns from the start, at which requests are sent: `poisson`, `constant` or `gamma:SHAPE`, whose
    intervals vary with 1/√SHAPE. The same seed gives the same order of intervals at every rate."""
    rng = np.random.default_rng(seed)
    name, _, shape = arrivals.partition(":")
    if name == "constant":
        intervals = np.ones(count)
    elif name == "gamma":
        intervals = rng.gamma(float(shape), 1 / float(shape), count)
    else:
        intervals = rng.exponential(1.0, count)
    moments: Times = np.cumsum(intervals) * NS_PER_S / rate
    return moments


def traced(moments: Times, rate: float, count: int) -> Times:
    """Moments of a trace, brought to a rate and repeated until there are `count`."""
    intervals = np.diff(np.concatenate([[0.0], moments - moments[0] + (moments[-1] - moments[0]) / moments.size]))
    repeated = np.tile(intervals, math.ceil(count / intervals.size))[:count]
    due: Times = np.cumsum(repeated) / intervals.mean() * NS_PER_S / rate
    return due


def curve_of(document: Serving) -> Curve:
    """Its latency over the batch, as it was measured between the runs."""
    times, after_idle = (
        {int(size): np.array(taken, dtype=float) for size, taken in (curve or {}).items()}
        for curve in (document.curve, document.after_idle)
    )
    return Curve(times, after_idle)


def policy_of(asked: ServingPolicy) -> Policy:
    """As queueing has it."""
    return Policy(asked.max_batch, asked.max_delay_ms * NS_PER_MS)


def trace_of(asked: ServingPolicy) -> Times | None:
    """The moments of the trace that a policy is sent; None where it is sent none."""
    kind, _, file = asked.arrivals.partition(":")
    return read_trace(Path(file)) if kind == "trace" else None


def read_trace(path: Path) -> Times:
    """The moments of a trace, s. Raises UserError where it is none."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
        moments = np.array([float(line) for line in lines if line.strip()])
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: no trace: a moment in seconds on each line ({error})") from None
    if moments.size < 2 or not np.isfinite(moments).all() or (np.diff(moments) < 0).any() or not np.ptp(moments):
        raise UserError(f"{path}: no trace: at least two moments in seconds, in ascending order")
    return moments
