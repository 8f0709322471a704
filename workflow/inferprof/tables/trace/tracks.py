"""The events of an iteration as tracks: what the host did, and what ran on each stream of each GPU.

Both the page's timeline and the trace file beside it are made of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import pandas as pd

from inferprof.tables.trace.api_kind import EXPLICIT_SYNC
from inferprof.tables.trace.intervals import Intervals
from inferprof.tables.trace.one_iteration import API, RANGE
from inferprof.units import NS_PER_US

Objects = np.ndarray[Any, np.dtype[np.object_]]
Times = np.ndarray[Any, np.dtype[np.float64]]
Chosen = np.ndarray[Any, np.dtype[Any]]
Kind = Literal["range", "call", "sync", "kernel", "copy", "idle"]
HOST: Final = "host"


@dataclass(frozen=True, eq=False)
class Events:
    """Events as arrays, which cost less to cut into tracks than a frame. `node` is what one was launched for, where
    that is a text; `start` and `end` are ns since the iteration began."""

    name: Objects
    node: Objects
    start: Times
    end: Times

    def of(self, chosen: Chosen) -> Events:
        """Some of them, by place or by mask."""
        return Events(self.name[chosen], self.node[chosen], self.start[chosen], self.end[chosen])


@dataclass(frozen=True, eq=False)
class Track:
    """A line of a timeline: its events by their begin, with `thread` and `depth` of each: within a thread events lie
    beside or inside of each other, so deep."""

    process: str
    label: str
    kind: Kind
    events: Events
    thread: Chosen
    depth: Chosen

    @property
    def threads(self) -> int:
        """How many it has."""
        return int(self.thread.max()) + 1


def of_events(events: pd.DataFrame) -> list[Track]:
    """The tracks of one_iteration.of_case, from the host down to the GPUs' gaps; none is empty."""
    return [_nested(*wanted) for wanted in _wanted(events) if wanted[-1].start.size]


def _wanted(frame: pd.DataFrame) -> Iterator[tuple[str, str, Kind, Events]]:
    names, nodes, kinds = (frame[column].to_numpy(object) for column in ("name", "node", "kind"))
    every = Events(names, nodes, frame["start"].to_numpy(float), frame["end"].to_numpy(float))
    call, waits = kinds == API, {name for name in set(names[kinds == API]) if EXPLICIT_SYNC.match(name)}
    waiting = call & np.array([name in waits for name in names], bool)
    yield HOST, "ranges", "range", every.of(kinds == RANGE)
    yield HOST, "API calls", "call", every.of(call & ~waiting)
    yield HOST, "synchronise", "sync", every.of(waiting)
    computing = (kinds == "kernel") | (kinds == "graph")
    for device, of_device in _each(frame["device"], ~call & (kinds != RANGE)):
        process = "GPU" if device is None else f"GPU {device}"
        for stream, own in _each(frame["stream"], of_device):
            where = "" if stream is None else f"stream {stream}: "
            yield process, f"{where}kernels", "kernel", every.of(own & computing)
            yield process, f"{where}copies", "copy", every.of(own & ~computing)
        yield process, "idle", "idle", gaps(every.of(of_device))


def _each(column: pd.Series, among: Chosen) -> Iterator[tuple[int | None, Chosen]]:
    """Each number of a column with the rows that have it, and the rows without one at the end."""
    numbers = column.to_numpy(float, na_value=np.nan)
    for number in np.unique(numbers[among]):
        missing = bool(np.isnan(number))
        yield None if missing else int(number), among & (np.isnan(numbers) if missing else numbers == number)


def gaps(gpu: Events) -> Events:
    """Where none of these operations ran, from the iteration's begin to the last one's end: events called idle."""
    busy = Intervals.union(gpu.start.astype(np.int64), gpu.end.astype(np.int64))
    start = np.concatenate(([0], busy.end[:-1])) if busy.end.size else np.empty(0, np.int64)
    nothing = np.full(start.size, None, object)
    between = Events(np.full(start.size, "idle", object), nothing, start.astype(float), busy.start.astype(float))
    return between.of(between.end > between.start)


def _nested(process: str, label: str, kind: Kind, events: Events) -> Track:
    """The track of these events, outer ones first: each in the first thread where it crosses no other."""
    ordered = events.of(np.lexsort((-events.end, events.start)))
    threads: list[list[float]] = []
    places = [_place(threads, *span) for span in zip(ordered.start.tolist(), ordered.end.tolist(), strict=True)]
    thread, depth = np.array(places).T
    return Track(process, label, kind, ordered, thread, depth)


def _place(threads: list[list[float]], start: float, end: float) -> tuple[int, int]:
    """The thread and depth of the next event; threads: the ends of what is still open in each, and of this one."""
    for number, ends in enumerate(threads):
        while ends and ends[-1] <= start:
            ends.pop()
        if not ends or end <= ends[-1]:
            ends.append(end)
            return number, len(ends) - 1
    threads.append([end])
    return len(threads) - 1, 0


def chrome_trace(tracks: list[Track], title: str) -> dict[str, Any]:
    """A trace as chrome://tracing and Perfetto read it: complete events in µs, a process each for host and GPUs."""
    processes = {process: number for number, process in enumerate(dict.fromkeys(track.process for track in tracks))}
    names = [_name("process", process, number, 0) for process, number in processes.items()]
    events: list[dict[str, Any]] = []
    first = 1
    for track in tracks:
        process = processes[track.process]
        names += [_name("thread", track.label, process, first + place) for place in range(track.threads)]
        events += list(_slices(track, process, first))
        first += track.threads
    order = [
        {"ph": "M", "name": "process_sort_index", "pid": number, "tid": 0, "args": {"sort_index": number}}
        for number in processes.values()
    ]
    return {"traceEvents": [*names, *order, *events], "displayTimeUnit": "ns", "otherData": {"title": title}}


def _name(what: str, name: str, process: int, thread: int) -> dict[str, Any]:
    return {"ph": "M", "name": f"{what}_name", "pid": process, "tid": thread, "args": {"name": name}}


def _slices(track: Track, process: int, first: int) -> Iterator[dict[str, Any]]:
    """Its events; `first`: the number of its first thread."""
    own = track.events
    ts, dur = (own.start / NS_PER_US).tolist(), ((own.end - own.start) / NS_PER_US).tolist()
    for name, node, thread, at, took in zip(
        own.name, own.node, (track.thread + first).tolist(), ts, dur, strict=True
    ):
        event = {"ph": "X", "name": name, "cat": track.kind, "pid": process, "tid": thread, "ts": at, "dur": took}
        yield event | ({"args": {"node": node}} if isinstance(node, str) else {})
