"""What happened when: GPU operations, the API calls that launched them, and the named ranges around those calls.

Readers of Nsight Systems and Kineto fill the same Timeline; everything derived from one is in `trace.aggregate`
(a row per kernel name, device, stream and range) and `tables.trace.derived` (busy, idle and its causes).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pandas as pd

from inferprof.once import Derives
from inferprof.tables.trace.intervals import Times, stepped

KINDS = ("kernel", "memcpy", "memset", "graph")
"""Kinds of GPU operation, by code. A graph is one launch whose kernels were not traced one by one."""
KERNEL, MEMCPY, MEMSET, GRAPH = range(len(KINDS))
PATH_SEPARATOR = " > "
"""Between the names of nested ranges: `iteration > ExecutionContext::enqueue > /p/Conv`."""
OPERATOR = "op:"
"""How the range of an operator of torch is labelled, in front of its name."""
MODULE = "nn.Module: "
"""How the range of a module of torch is: by Kineto, where it records Python's stack, and by our own hooks."""
LATEST = 2**62
"""ns: 146 years, also since 1970."""
NO_CALL = -1
NOT_TOLD = -1
"""A number of bytes, or a stream, that the tool leaves out."""
OUTSIDE = 0
"""Code of the empty path: outside of every range."""
ID_BITS = 24
"""Bits of the system's number of a thread, and above them of its process, in the threads of a Timeline."""
SERIAL_NUMBERS = r", (?:op_id|seq|seq_id) = \d+|, input_op_ids = \[.*\]", r"^(ProfilerStep)#\d+"
"""Of ranges that torch opens (at::getNvtxStr); the second leaves its first group."""


def thread_of(process: int, thread: int) -> int:
    """The thread of a Timeline with these numbers of the system, as nsys counts them."""
    mask = (1 << ID_BITS) - 1
    return (process & mask) << ID_BITS | thread & mask


def process_of(threads: Times) -> Times:
    """The processes of threads of a Timeline, as nsys counts them; -1 where the system's number is not known."""
    return np.where(threads < 0, -1, (threads >> ID_BITS) & ((1 << ID_BITS) - 1))


@dataclass(frozen=True)
class Launch:
    """How kernels were launched: the mangled name where the capture has it, and grid and block as `x,y,z`."""

    symbol: str | None
    grid: str
    block: str


def _nothing() -> pd.DataFrame:
    return pd.DataFrame({"start": [], "end": [], "device": []}, dtype="int64")


@dataclass(frozen=True)
class Timeline(Derives):
    """One capture. Times are nanoseconds on the tool's clock; frames are sorted by `start`.

    ops: start, end, kind (code of KINDS), name (code), device, stream (or NOT_TOLD), bytes (of a memcpy or
        memset, or NOT_TOLD; else 0), call (row of `calls` that launched it, or NO_CALL); in captures of CUDA graphs
        node by node also made (code of the range in which its node of the graph was made, or OUTSIDE); process, where
        the tool tells it; within (code of the iteration that it begins in, or OUTSIDE), where some launches are not
        known and iterations are; launched (code, or NOT_TOLD), where it tells grids and blocks.
    calls: start, end, thread (negative where the system's number of it is not known), name (code), path (code): CUDA
        API calls on the host.
    ranges: start, end, thread, path (code): closed NVTX ranges or profiler annotations.
    names, paths: what the codes stand for; a path joins the nested names with PATH_SEPARATOR.
    others: start, end, device of the operations of processes that are not the case's (trace.iterations).
    launches: what the codes of `launched` stand for.
    endless: how many operations amid the others have no end in the capture, and so are none of `ops`.
    """

    ops: pd.DataFrame
    calls: pd.DataFrame
    ranges: pd.DataFrame
    names: Sequence[str]
    paths: Sequence[str]
    others: pd.DataFrame = field(default_factory=_nothing)
    launches: Sequence[Launch] = ()
    endless: int = 0

    @property
    def op_path(self) -> np.ndarray:
        """Per operation the code of the range that its launch lay in; where the launch is not known that of `within`,
        or OUTSIDE."""
        call = self.ops["call"].to_numpy()
        path = np.full(call.size, OUTSIDE, np.int32)
        path[call >= 0] = self.calls["path"].to_numpy()[call[call >= 0]]
        if "within" in self.ops:
            path = np.where(call >= 0, path, self.ops["within"].to_numpy())
        return path

    @property
    def wanted_path(self) -> np.ndarray:
        """Per operation the code of the range that it was asked for in: where the node of its CUDA graph was made, if
        that is known, and else where it was launched.
        """
        if "made" not in self.ops:
            return self.op_path
        made: np.ndarray = self.ops["made"].to_numpy()
        return np.where(made != OUTSIDE, made, self.op_path)


def only(timeline: Timeline, ops: np.ndarray, calls: np.ndarray, others: pd.DataFrame) -> Timeline:
    """The timeline with these of its operations and calls, which are flagged; `others`: see Timeline."""
    place = np.where(calls, np.cumsum(calls) - 1, NO_CALL)
    kept = timeline.ops[ops].reset_index(drop=True)
    call = kept["call"].to_numpy()
    return replace(
        timeline,
        ops=kept.assign(call=np.where(call >= 0, place[call], NO_CALL) if len(place) else call),
        calls=timeline.calls[calls].reset_index(drop=True),
        others=others,
    )


def assemble(
    ops: pd.DataFrame,
    calls: pd.DataFrame,
    ranges: pd.DataFrame,
    names: Sequence[str],
    launches: Sequence[Launch] = (),
) -> Timeline:
    """Join raw events to a Timeline.

    ops: start, end, kind, name, device, stream, bytes, correlation; calls: start, end, thread, name, correlation;
    ranges: start, end, thread, label (text), all unsorted. `correlation` is unique per process and ties an
    operation to its call; where a tool logs a call inside a call of the same correlation, the outer one counts.
    Calls that follow each other may share one too (cuProfilerStop and nsys's own cuCtxSynchronize behind it).
    ops may have made_at (time) and made_by (thread) of the nodes of a CUDA graph; both are 0 where there is none; and
    launched, a code of `launches`.
    Rows that a tool wrote twice count once. Raises ValueError for what ends before it starts.
    """
    ops = _once(_in_order(ops))
    calls = _in_order(calls)
    ranges = _once(_in_order(ranges, "label"))
    correlation = calls.pop("correlation").to_numpy()
    order = np.argsort(correlation, kind="stable")
    ordered = correlation[order]
    alike = np.flatnonzero(ordered[1:] == ordered[:-1])
    before, after = order[alike], order[alike + 1]
    again = after[calls["start"].to_numpy()[after] < calls["end"].to_numpy()[before]]
    if again.size:
        first = np.setdiff1d(np.arange(correlation.size), again)
        calls, correlation = calls.take(first).reset_index(drop=True), correlation[first]
        order = np.argsort(correlation, kind="stable")
    ops["call"] = _position(correlation, order, ops.pop("correlation").to_numpy())
    nested = Nesting(ranges)
    calls["path"] = nested.path_at(calls["thread"].to_numpy(), calls["start"].to_numpy())
    if "made_at" in ops:
        ops["made"] = nested.path_at(ops.pop("made_by").to_numpy(), ops.pop("made_at").to_numpy())
    return Timeline(ops, calls, nested.ranges, names, nested.paths, launches=launches)


def _in_order(events: pd.DataFrame, *texts: str) -> pd.DataFrame:
    """By start; integers also where the frame is empty, and so has no types of its own.

    Raises ValueError for what is no number, and for what ends before it starts.
    """
    numbers = [column for column in events if column not in texts]
    if events.empty or any(events[column].dtype.kind != "i" for column in numbers):
        events = events.astype(dict.fromkeys(numbers, np.int64))
    events = events.reset_index(drop=True)
    if backwards := int((events["end"] < events["start"]).sum()):
        raise ValueError(f"{backwards:,} events end before they start")
    if beyond := int((events["end"] > LATEST).sum() + (events["start"] < -LATEST).sum()):
        raise ValueError(f"{beyond:,} events lie beyond what a clock can show")
    if events["start"].is_monotonic_increasing:  # as exports mostly are: saves a copy of five million rows
        return events
    return events.sort_values("start", kind="stable", ignore_index=True)


def _once(events: pd.DataFrame) -> pd.DataFrame:
    """Without rows that are equal in all columns; `events` are in order."""
    start = events["start"].to_numpy()
    together = np.append(start[1:] == start[:-1], False)
    together |= np.insert(together[:-1], 0, False)
    if not together.any():  # as mostly: looking at a few saves hashing five million rows
        return events
    again = events[together].duplicated()
    return events.drop(index=again.index[again]).reset_index(drop=True) if again.any() else events


def _position(keys: Times, order: np.ndarray, wanted: Times) -> np.ndarray:
    """Index of each of `wanted` in `keys`, which `order` sorts: of equal ones the first; or NO_CALL."""
    if not keys.size:
        return np.full(wanted.size, NO_CALL, np.int64)
    place = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), keys.size - 1)]
    return np.where(keys[place] == wanted, place, NO_CALL)


def without_serial(label: str) -> str:
    """A range's label as it is in paths: serial numbers (torch's emit_nvtx) would make every call one of its own."""
    of_operator, of_step = SERIAL_NUMBERS
    return re.sub(of_step, r"\1", re.sub(of_operator, "", label)).strip()


class Nesting:
    """Push-pop ranges of each thread, as paths; `path_at` finds the innermost one at a time."""

    def __init__(self, ranges: pd.DataFrame) -> None:
        self.paths: list[str] = [""]
        self._pairs: dict[int, int] = {}
        """Path around and label, as one number → path, counted as they come; `_codes` has them by first opening."""
        self._codes: dict[int, int] = {OUTSIDE: OUTSIDE}
        self._changes: dict[int, tuple[Times, np.ndarray]] = {}
        labels, distinct = pd.factorize(ranges["label"])
        merged, self._labels = pd.factorize(np.array([without_serial(str(label)) for label in distinct], object))
        numbers = ranges[["start", "end", "thread"]].astype(np.int64).assign(label=merged[labels].astype(np.int64))
        ordered = numbers.sort_values(["start", "end"], ascending=[True, False], ignore_index=True)
        codes = np.zeros(len(ordered), np.int32)
        for thread, rows in ordered.groupby("thread"):
            start, end, label = (rows[name].to_numpy() for name in ("start", "end", "label"))
            nested = _nested(start, end)
            path = self._paths_of(nested, label)
            codes[rows.index.to_numpy()] = path
            self._changes[int(str(thread))] = nested.changes(start, path)
        self.ranges = ordered.drop(columns="label").assign(path=codes)

    def _paths_of(self, nested: _Nested, label: Times) -> np.ndarray:
        """The path code of each range of a thread."""
        pair = np.zeros(label.size, np.int64)
        order = np.argsort(nested.depth, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(nested.depth[order])) + 1):
            around = np.where(nested.depth[rows] > 0, pair[nested.parent[rows]], OUTSIDE)
            place, distinct = pd.factorize(around * len(self._labels) + label[rows])
            numbers = [self._pairs.setdefault(key, len(self._pairs) + 1) for key in distinct.tolist()]
            pair[rows] = np.array(numbers, np.int64)[place]
        keys = list(self._pairs)
        for number in pd.unique(pair).tolist():
            if number not in self._codes:
                self._codes[number] = len(self.paths)
                outer, inner = divmod(keys[number - 1], len(self._labels))
                name = self._labels[inner]
                self.paths.append(f"{self.paths[self._codes[outer]]}{PATH_SEPARATOR}{name}" if outer else name)
        lookup = np.zeros(len(keys) + 1, np.int32)
        lookup[list(self._codes)] = list(self._codes.values())
        return lookup[pair]

    def path_at(self, threads: Times, times: Times) -> np.ndarray:
        """Code of the innermost range open on each thread at each time."""
        path = np.full(times.size, OUTSIDE, np.int32)
        for thread, (changes, inner) in self._changes.items():
            own = threads == thread
            path[own] = stepped(changes, np.insert(inner, 0, OUTSIDE), times[own])
        return path


@dataclass(frozen=True)
class _Nested:
    """The ranges of a thread in order: how many are around each, which is the innermost of them, and when each ends,
    which is never behind those around it."""

    depth: Times
    parent: Times
    end: Times

    def changes(self, start: Times, path: np.ndarray) -> tuple[Times, np.ndarray]:
        """The times at which the innermost path changes, and to what."""
        count = start.size
        empty = self.end == start
        times = np.concatenate([start, self.end])
        # At one time ranges end, inner ones first, then others begin, outer ones first, then those of no length end.
        kind = np.concatenate([np.ones(count, np.int8), np.where(empty, 2, 0).astype(np.int8)])
        order = np.lexsort((np.concatenate([np.arange(count), -self.depth]), kind, times))
        around = np.where(self.depth > 0, path[self.parent], OUTSIDE)
        return times[order], np.concatenate([path, around])[order]


def _nested(start: Times, end: Times) -> _Nested:
    """How ranges nest that are sorted by start, and of equal ones the longest first."""
    number = np.arange(start.size)
    empty = np.cumsum(end == start)
    until_then = np.searchsorted(np.sort(end), start, "right")
    behind = empty[np.searchsorted(start, start, "right") - 1] - empty + (end == start)
    depth = number - (until_then - behind)
    order = np.argsort(depth, kind="stable")
    levels = np.split(order, np.flatnonzero(np.diff(depth[order])) + 1)
    parent = np.zeros(start.size, np.int64)
    for above, rows in pairwise(levels):
        parent[rows] = above[np.searchsorted(above, rows) - 1]
    inside = depth > 0
    fits = (start < end[parent]) & (end <= end[parent]) & (parent < number)
    if start.size and depth.min() == 0 and len(levels) == depth.max() + 1 and fits[inside].all():
        return _Nested(depth, parent, end)
    return _walked(start, end)


def _walked(start: Times, end: Times) -> _Nested:
    """The same of ranges that cross, one by one: one that outlives another around it (start-end ranges may) is closed
    with it."""
    depth, parent, ends = [], [], []
    still_open: list[tuple[float, int]] = [(np.inf, 0)]
    for number, (begun, ended) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        while still_open[-1][0] <= begun:
            still_open.pop()
        depth.append(len(still_open) - 1)
        parent.append(still_open[-1][1])
        ends.append(min(ended, still_open[-1][0]))
        still_open.append((ends[-1], number))
    return _Nested(*(np.array(column, np.int64) for column in (depth, parent, ends)))
