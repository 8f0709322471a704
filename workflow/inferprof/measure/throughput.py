"""Inferences per second: queued back to back on one stream, or in a pipeline of sessions on streams of their own."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from inferprof import progress
from inferprof.measure.lane import Lane
from inferprof.measure.loop import Clock, Protocol

MIN_ROUNDS = 2
"""Inferences per lane at the least, so that a pipeline fills."""


@dataclass(frozen=True)
class Throughput:
    """Inferences (of the case's batch) over wall time. `sessions` > 1 is a pipeline."""

    inferences: int
    span_ns: tuple[int, int]
    """First and last moment on the clock."""
    sessions: int = 1
    overlap: float | None = None
    """The share of staging and copies that a pipeline hides behind compute: 0 none, 1 all; None: nothing to hide."""

    @property
    def seconds(self) -> float:
        """Wall time."""
        return (self.span_ns[1] - self.span_ns[0]) / 1e9

    @property
    def ns(self) -> float:
        """Nanoseconds per inference."""
        return self.seconds * 1e9 / self.inferences

    def record(self) -> dict[str, Any]:
        """The entry of the record."""
        return {**dataclasses.asdict(self), "seconds": self.seconds}


def back_to_back(lane: Lane, latency_ns: float, protocol: Protocol, clock: Clock) -> Throughput:
    """Queue inferences on resident inputs and wait once. `latency_ns` is what one of them takes by itself."""
    progress.step("back to back")
    with protocol.range("back_to_back"):
        start = clock()
        count = 0
        for _ in _inferences(1, latency_ns, protocol.throughput_s, clock):
            lane.execute()
            count += 1
        lane.device.synchronize()
        return Throughput(count, (start, clock()))


def pipeline(ring: Sequence[Lane], latency_ns: float, protocol: Protocol, clock: Clock) -> Throughput:
    """Serve the lanes in turn: collect a lane's outputs, then queue its next inference while the others compute."""
    progress.step("pipelined")
    with protocol.range("pipelined"):
        start = clock()
        count = 0
        for count in _inferences(len(ring), latency_ns, protocol.pipeline_s, clock):
            lane = ring[(count - 1) % len(ring)]
            if count > len(ring):
                lane.finish()
            lane.begin()
        for i in range(count, count + len(ring)):  # the longest under way first
            ring[i % len(ring)].finish()
        return Throughput(count, (start, clock()), sessions=len(ring))


def _inferences(lanes: int, latency_ns: float, window_s: float, clock: Clock) -> Iterator[int]:
    """Count from 1 for as long as a window lasts.

    By number, since a stream takes many more inferences than it has done yet; and by the clock, since on a machine
    that others disturb they take longer than the latency given.
    """
    window_ns = window_s * 1e9
    least = MIN_ROUNDS * lanes
    most = max(least, round(window_ns / latency_ns))
    end = clock() + window_ns
    for count in itertools.count(1):
        yield count
        if count >= most or (count >= least and clock() >= end):
            return
