"""What runs beside communication: how much of it that hides, what that costs the computation, and how long the stages
of a pipeline have nothing to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pandas as pd

from inferprof.tables.trace import iterations
from inferprof.tables.trace.intervals import Intervals, Times
from inferprof.tables.trace.timeline import GRAPH, KERNEL, MEMCPY, NOT_TOLD, Timeline, process_of

LEAST_ALONE: Final = 3
"""Launches of a kernel with nothing beside it whose median is how long it takes alone."""
SAME_WORK: Final = 0.8
"""Beside communication nothing is faster: a launch of less than so much of what others take alone does other work."""
MOSTLY: Final = 0.5
"""A launch runs beside communication that overlaps with so much of it; one alone overlaps with none."""


def busy(timeline: Timeline, device: int, kernels: pd.DataFrame) -> tuple[Intervals, Intervals]:
    """When a GPU computes, and when it copies without computing; communication, `kernels`, is neither."""
    own = timeline.ops[timeline.ops["device"].to_numpy() == device]
    talking = own.index.isin(kernels.index)
    kind = own["kind"].to_numpy()
    start, end = own["start"].to_numpy(), own["end"].to_numpy()
    computing = np.isin(kind, (KERNEL, GRAPH)) & ~talking
    computes = Intervals.union(start[computing], end[computing])
    copying = kind >= MEMCPY
    copying &= kind != GRAPH
    return computes, Intervals.union(start[copying], end[copying]).minus(computes)


def overlap(timeline: Timeline, device: int, kernels: pd.DataFrame, talks: Intervals) -> dict[str, float]:
    """Of a GPU's communication in iterations, `talks`: how long it is, how much its computation hides, and what that
    costs the kernels beside it, where these also run alone."""
    computes, _ = busy(timeline, device, kernels)
    exposed = talks.minus(computes).total
    amounts = {"duration_total": talks.total, "hidden_total": talks.total - exposed, "exposed_total": exposed}
    return {**amounts, **_slowed(timeline, device, kernels, talks)}


def _slowed(timeline: Timeline, device: int, kernels: pd.DataFrame, talks: Intervals) -> dict[str, float]:
    """beside_total and slowed_total; nothing where no kernel runs both beside communication and alone.

    Launches of the same kernel with the same grid and block do the same work here, which no trace can promise.
    """
    if "launched" not in timeline.ops:
        return {}
    mine = timeline.ops["device"].eq(device) & timeline.ops["launched"].ne(NOT_TOLD)
    own = timeline.ops[mine & ~timeline.ops.index.isin(kernels.index)]
    length = (own["end"] - own["start"]).to_numpy()
    shared = talks.within(own["start"].to_numpy(), own["end"].to_numpy())
    same = [own["name"].to_numpy(), own["launched"].to_numpy()]
    alone = pd.Series(np.where(shared == 0, length, np.nan)).groupby(same)
    usual = alone.transform("median").where(alone.transform("count") >= LEAST_ALONE).to_numpy()
    beside = (shared >= MOSTLY * length) & (length > 0) & (length >= SAME_WORK * usual)
    if not beside.any():
        return {}
    slowed = max(0.0, float((length - usual)[beside].sum()))  # below nothing is noise
    return {"beside_total": float(length[beside].sum()), "slowed_total": slowed}


def bubbles(timeline: Timeline, kernels: pd.DataFrame, transfers: Mapping[int, Intervals]) -> dict[int, float]:
    """GPU → how long it neither computes nor copies nor transfers in iterations, ns; empty where it is not told when
    an iteration of all GPUs begins and ends.

    kernels: those that communicate; transfers: when they do more than wait.
    """
    windows = _windows(timeline)
    if windows is None:
        return {}
    start, end = windows
    whole, idle = int((end - start).sum()), {}
    for device, transfer in transfers.items():
        computes, copies = busy(timeline, device, kernels)
        used = [*zip(*((part.start, part.end) for part in (computes, copies, transfer)), strict=True)]
        works = Intervals.union(*(np.concatenate(edges) for edges in used))
        idle[device] = float(whole - int(works.within(start, end).sum()))
    return idle


def _windows(timeline: Timeline) -> tuple[Times, Times] | None:
    """From the first process's begin of each iteration to the last one's end; None where they have not as many."""
    own = timeline.ranges[iterations.is_iteration(timeline)]
    process = process_of(own["thread"].to_numpy())
    edges = [own[process == number].sort_values("start") for number in np.unique(process)]
    if not edges or len({len(part) for part in edges}) > 1:
        return None
    start, end = (np.stack([part[name].to_numpy() for part in edges]) for name in ("start", "end"))
    return start.min(axis=0), end.max(axis=0)
