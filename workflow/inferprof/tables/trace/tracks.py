"""The events of an iteration as tracks: what the host did, and what ran on each stream of each GPU.

Both the page's timeline and the trace file beside it are made of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import pandas as pd

from inferprof.tables.records import rows_of
from inferprof.tables.trace.api_kind import EXPLICIT_SYNC
from inferprof.tables.trace.intervals import Intervals
from inferprof.tables.trace.one_iteration import API, RANGE
from inferprof.units import NS_PER_US

Kind = Literal["range", "call", "sync", "kernel", "copy", "idle"]
HOST: Final = "host"


@dataclass(frozen=True, eq=False)
class Track:
    """A line of a timeline. `events` has name, node, start and end, and `thread` and `depth` of each: within a thread
    events lie beside or inside of each other, so deep."""

    process: str
    label: str
    kind: Kind
    events: pd.DataFrame

    @property
    def threads(self) -> int:
        """How many it has."""
        return int(self.events["thread"].max()) + 1


def of_events(events: pd.DataFrame) -> list[Track]:
    """The tracks of one_iteration.of_case, from the host down to the GPUs' gaps; none is empty."""
    ranges, calls = events[events["kind"] == RANGE], events[events["kind"] == API]
    waits = calls["name"].map(lambda name: EXPLICIT_SYNC.match(name) is not None).astype(bool)
    wanted: list[tuple[str, str, Kind, pd.DataFrame]] = [
        (HOST, "ranges", "range", ranges),
        (HOST, "API calls", "call", calls[~waits]),
        (HOST, "synchronise", "sync", calls[waits]),
        *_of_gpus(events[~events["kind"].isin([API, RANGE])]),
    ]
    return [Track(process, label, kind, _nested(own)) for process, label, kind, own in wanted if len(own)]


def _of_gpus(gpu: pd.DataFrame) -> Iterator[tuple[str, str, Kind, pd.DataFrame]]:
    for device, of_device in gpu.groupby("device", sort=True, dropna=False):
        process = "GPU" if pd.isna(device) else f"GPU {device!s}"
        for stream, own in of_device.groupby("stream", sort=True, dropna=False):
            where = "" if pd.isna(stream) else f"stream {stream!s}: "
            computing = own["kind"].isin(["kernel", "graph"])
            yield process, f"{where}kernels", "kernel", own[computing]
            yield process, f"{where}copies", "copy", own[~computing]
        yield process, "idle", "idle", gaps(of_device)


def gaps(gpu: pd.DataFrame) -> pd.DataFrame:
    """Where none of these operations ran, from the iteration's begin to the last one's end: events called idle."""
    busy = Intervals.union(gpu["start"].to_numpy(np.int64), gpu["end"].to_numpy(np.int64))
    start = np.concatenate(([0], busy.end[:-1])) if busy.end.size else np.empty(0, np.int64)
    between = pd.DataFrame({"name": "idle", "start": start, "end": busy.start, "node": None})
    return between[between["end"] > between["start"]]


def _nested(events: pd.DataFrame) -> pd.DataFrame:
    """The events with thread and depth, outer ones first: each in the first thread where it crosses no other."""
    ordered = events.sort_values(["start", "end"], ascending=[True, False], kind="stable", ignore_index=True)
    threads: list[list[float]] = []
    places = [_place(threads, start, end) for start, end in zip(ordered["start"], ordered["end"], strict=True)]
    return ordered.assign(thread=[thread for thread, _ in places], depth=[depth for _, depth in places])


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
        events += [_event(row, track, process, first) for row in rows_of(track.events)]
        first += track.threads
    order = [
        {"ph": "M", "name": "process_sort_index", "pid": number, "tid": 0, "args": {"sort_index": number}}
        for number in processes.values()
    ]
    return {"traceEvents": [*names, *order, *events], "displayTimeUnit": "ns", "otherData": {"title": title}}


def _name(what: str, name: str, process: int, thread: int) -> dict[str, Any]:
    return {"ph": "M", "name": f"{what}_name", "pid": process, "tid": thread, "args": {"name": name}}


def _event(row: dict[str, Any], track: Track, process: int, first: int) -> dict[str, Any]:
    event = {
        "ph": "X",
        "name": row["name"],
        "cat": track.kind,
        "pid": process,
        "tid": first + row["thread"],
        "ts": row["start"] / NS_PER_US,
        "dur": (row["end"] - row["start"]) / NS_PER_US,
    }
    return event | ({"args": {"node": row["node"]}} if isinstance(row["node"], str) else {})
