"""Sets of disjoint intervals on a clock: union, gaps, coverage. All times are integer nanoseconds (int64 arrays)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Times = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Intervals:
    """Disjoint, non-touching intervals [start, end) in ascending order."""

    start: Times
    end: Times
    _before: Times = field(init=False, repr=False)
    """Length covered by all earlier intervals; one longer than `start`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_before", np.concatenate(([0], np.cumsum(self.end - self.start))))

    @classmethod
    def union(cls, start: Times, end: Times) -> Intervals:
        """Merge what overlaps or touches. Empty intervals count for nothing; the input need not be sorted."""
        return cls.united(start, end)[0]

    @classmethod
    def united(cls, start: Times, end: Times) -> tuple[Intervals, Times]:
        """The union, and which of the intervals that are not empty, by start, is the first in each of its own."""
        positive = end > start
        if not positive.all():
            start, end = start[positive], end[positive]
        if not start.size:
            return cls(np.empty(0, np.int64), np.empty(0, np.int64)), np.empty(0, np.int64)
        if np.any(start[1:] < start[:-1]):
            order = np.argsort(start, kind="stable")
            start, end = start[order], end[order]
        reach = np.maximum.accumulate(end)
        first = np.append(0, np.flatnonzero(start[1:] > reach[:-1]) + 1)
        return cls(start[first], reach[np.append(first[1:] - 1, start.size - 1)]), first

    @property
    def total(self) -> int:
        """Length of the whole set."""
        return int(self._before[-1])

    def covered(self, until: Times) -> Times:
        """Length of the set before each time `until`: the set's length within [a, b) is covered(b) - covered(a)."""
        begun = last_before(self.start, until) + 1
        if not self.start.size:
            return np.zeros_like(until)
        last_end = self.end[np.maximum(begun - 1, 0)]
        return self._before[begun] - np.where(begun > 0, np.maximum(last_end - until, 0), 0)

    def within(self, start: Times, end: Times) -> Times:
        """Length of the set within each window [start, end)."""
        return self.covered(end) - self.covered(start)

    def minus(self, other: Intervals) -> Intervals:
        """What of the set lies outside of the other."""
        if not self.start.size or not other.start.size:
            return self
        edges = np.unique(np.concatenate((self.start, self.end, other.start, other.end)))
        start, end = edges[:-1], edges[1:]
        kept = (self.within(start, end) > 0) & (other.within(start, end) == 0)
        return Intervals.union(start[kept], end[kept])


def last_before(edges: Times, times: Times) -> Times:
    """Which of the edges, in order, is the last one that is not after each time; -1: none of them."""
    if _few(times, edges):
        return np.searchsorted(edges, times, side="right") - 1
    return stepped(edges, np.arange(-1, edges.size), times)


def stepped(edges: Times, steps: np.ndarray[Any, Any], times: Times) -> np.ndarray[Any, Any]:
    """At each time the step behind the last of the edges, in order, that is not after it; `steps`: one in front of
    all edges, then one behind each."""
    if _few(times, edges):
        return steps.take(np.searchsorted(edges, times, side="right"))
    # Of many times in order, as calls are, few are looked at.
    reached = np.searchsorted(times, edges, side="left")
    return np.repeat(steps, np.diff(reached, prepend=0, append=times.size))


def _few(times: Times, edges: Times) -> bool:
    """Whether each time is looked up by itself."""
    return bool(edges.size >= times.size or np.any(times[1:] < times[:-1]))


def holding(start: Times, end: Times, times: Times) -> Times:
    """Which of the intervals [start, end), in order and disjoint, holds each time; -1: none of them."""
    steps = np.full(2 * start.size + 1, -1)
    steps[1::2] = np.arange(start.size)
    return stepped(np.column_stack((start, end)).ravel(), steps, times)


def at_least_two(sets: Iterable[Intervals]) -> Intervals:
    """Where two or more of the sets overlap."""
    # Time and direction in one integer, so that one sort orders them: at one time, ends come before starts.
    edges = [np.empty(0, np.int64)]
    for member in sets:
        edges += [member.start << 1 | 1, member.end << 1]
    ordered = np.concatenate(edges)
    del edges
    ordered.sort(kind="stable")
    begins = (ordered & 1).astype(np.int8)
    depth = np.cumsum(begins * 2 - 1, dtype=np.int32)
    shared = np.flatnonzero(depth[:-1] >= 2)
    return Intervals.union(ordered[shared] >> 1, ordered[shared + 1] >> 1)
