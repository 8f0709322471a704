"""Kineto traces of several ranks, a file each, as one timeline: a rank is a GPU of it.

Each process has a clock of its own, and on several hosts they are apart. A collective ends on all its ranks at nearly
the same time, so the ends of those that all ranks have tie the clocks: a rank is moved by the median difference to
the first one. What the differences spread by is the error of that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import numpy as np

from inferprof.grouping import grouped
from inferprof.readers import kineto_json
from inferprof.readers.kineto_json import Event
from inferprof.tables.trace.collectives import SAME_END, clock_offset, operation_of
from inferprof.tables.trace.kernel_class import classify
from inferprof.tables.trace.timeline import KERNEL, Timeline
from inferprof.units import NS_PER_US

PROCESS_BITS: Final = 32
"""Correlations are unique in a process: a rank's are above those of the rank before."""


@dataclass(frozen=True)
class Clock:
    """By how much a rank's clock was moved, ns, by how many collectives, and the median spread of their ends."""

    rank: int
    moved: int
    spread: int
    collectives: int


@dataclass(frozen=True)
class Ranks:
    """Several ranks of a program of `world` ranks."""

    timeline: Timeline
    ranks: Sequence[int]
    world: int
    clocks: Sequence[Clock]


def joined(paths: Sequence[Path]) -> Ranks | None:
    """One timeline of traces; None where they do not say that they are different ranks of one program."""
    if (traces := _traces(paths)) is None:
        return None
    events, clocks = _together(paths, traces)
    worlds = {trace["distributedInfo"]["world_size"] for trace in traces.values()}
    return Ranks(kineto_json.of_events(_named(paths), events), list(traces), worlds.pop(), clocks)


def _named(paths: Sequence[Path]) -> Path:
    """All of them, where it is not told which one an event is of."""
    return paths[0].with_name(", ".join(path.name for path in paths))


def merged(paths: Sequence[Path]) -> dict[str, Any] | None:
    """The same as one trace: what the first rank's says of the machine, and the events of all on one clock."""
    if (traces := _traces(paths)) is None:
        return None
    events, clocks = _together(paths, traces)
    numbers = [{**event, "ts": float(event["ts"]), "dur": float(event.get("dur", 0))} for event in events]
    first = next(iter(traces.values()))
    base = min(map(_base, traces.values()))
    return {
        **first,
        "baseTimeNanoseconds": base,
        "clocks": [asdict(clock) for clock in clocks],
        "traceEvents": numbers,
    }


def _traces(paths: Sequence[Path]) -> dict[int, dict[str, Any]] | None:
    """Rank → its trace; None where they are not different ranks of one program."""
    documents = [kineto_json.document(path) for path in paths]
    listed = (document.get("distributedInfo") for document in documents)
    infos = [info for info in listed if isinstance(info, dict) and isinstance(info.get("rank"), int)]
    if len(infos) < len(documents):
        return None
    ranks, worlds = [info["rank"] for info in infos], {info.get("world_size") for info in infos}
    if len(set(ranks)) < len(ranks) or len(worlds) > 1 or not isinstance(world := worlds.pop(), int):
        return None
    if not 0 <= min(ranks) <= max(ranks) < world:
        return None
    return dict(sorted(zip(ranks, documents, strict=True)))


def _together(paths: Sequence[Path], traces: Mapping[int, Mapping[str, Any]]) -> tuple[list[Event], list[Clock]]:
    """The durations of all ranks on one clock, and what was done to the clocks."""
    bases = {rank: _base(document) for rank, document in traces.items()}
    shifts = {rank: base - min(bases.values()) for rank, base in bases.items()}
    try:
        clocks = _clocks({rank: _ends(document["traceEvents"], shifts[rank]) for rank, document in traces.items()})
        moved = {rank: shifts[rank] - clocks[rank].moved if rank in clocks else shifts[rank] for rank in traces}
        spans = ((rank, event) for rank, document in traces.items() for event in document["traceEvents"])
        events: list[Event] = [_of_rank(event, rank, moved[rank]) for rank, event in spans if event.get("ph") == "X"]
    except kineto_json.NOT_KINETO as error:
        raise kineto_json.not_kineto(_named(paths), error) from None
    return events, list(clocks.values())


def _base(document: Mapping[str, Any]) -> int:
    """What the times of a trace count from, ns since the epoch; torch up to 2.1 writes whole times."""
    base = document.get("baseTimeNanoseconds", 0)
    return int(base) if isinstance(base, int | str) else 0


def _ends(events: Sequence[Event], shift: int) -> dict[tuple[Any, str], list[int]]:
    """Process group and operation → the ends of its collectives in order, ns."""
    kernels = [
        (*kineto_json.times(event), _key(event))
        for event in events
        if event.get("ph") == "X"
        and kineto_json.OPERATIONS.get(str(event.get("cat"))) == KERNEL
        and classify(str(event["name"])).kernel_class == "communication"
    ]
    ends = grouped((key, end + shift) for _, end, key in sorted(kernels, key=lambda kernel: kernel[:2]))
    return {key: own for key, own in ends.items() if key[1] in SAME_END}


def _key(event: Event) -> tuple[Any, str]:
    return (event.get("args") or {}).get(kineto_json.GROUP), operation_of(str(event["name"]))


def _clocks(ends: Mapping[int, Mapping[tuple[Any, str], Sequence[int]]]) -> dict[int, Clock]:
    """How far each rank's clock is from the first one's; empty where no collective ran on all of them."""
    first, *others = ends
    clocks = {}
    for rank in others:
        same = [key for key, own in ends[first].items() if len(own) == len(ends[rank].get(key, ()))]
        if not same:
            continue
        apart = np.concatenate([np.subtract(ends[rank][key], ends[first][key]) for key in same])
        moved, spread = clock_offset(apart)
        clocks[rank] = Clock(rank, moved, spread, apart.size)
    return clocks


def _of_rank(event: Event, rank: int, shift: int) -> dict[str, Any]:
    """The event on the common clock, with its rank in the place of GPU and process."""
    details = dict(event.get("args") or {})
    if event.get("cat") in kineto_json.OPERATIONS:
        details |= {"device": rank, kineto_json.PROCESS: rank + 1}
    if "correlation" in details:
        details["correlation"] = (rank << PROCESS_BITS) + int(details["correlation"])
    moved = Decimal(event["ts"]) + Decimal(shift) / NS_PER_US
    # Numbers of a process and a thread as text stay what they are (a stream of the GPU, a lane of the trace).
    process = rank + 1 if isinstance(event.get("pid"), int) else f"{rank}: {event.get('pid')}"
    return {**event, "ts": str(moved), "pid": process, "args": details}
