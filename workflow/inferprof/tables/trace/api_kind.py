"""What a CUDA API call does to the host: waits for the GPU, copies, allocates. Data, not code."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from inferprof.tables.trace.timeline import KERNEL, MEMCPY, NO_CALL, Timeline
from inferprof.units import NS_PER_S
from inferprof.words import figure

PAGEABLE: Final = "pageable"
"""In the name of a copy that touches host memory which is not page-locked."""

EXPLICIT_SYNC: Final = re.compile(r"(?:cu(?:da)?|hip)(?:Stream|Device|Ctx|Event|Thread)Synchronize")
IMPLICIT_SYNC: Final = re.compile(
    r"(?:cu(?:da)?|hip)(?:"
    r"Memcpy(?!.*Async)|"  # returns when the copy is done
    r"Free(?!Async)|MemFree(?!Async)|FreeHost|MemFreeHost|"  # waits for all work that may use the memory
    r"HostAlloc|MallocHost|MemHostAlloc|MemAllocHost|HostRegister|HostUnregister|MemHostRegister|MemHostUnregister|"
    r"ModuleLoad|ModuleUnload|LibraryLoad|LibraryUnload"  # lazy loading synchronises the context
    r")"
)
"""Calls that wait without saying so in their name. Source: CUDA C++ Programming Guide, `Implicit Synchronization` and
`Lazy Loading`; CUDA Runtime API, `API synchronization behavior`. An Async copy from or to pageable memory is one
too, which only its copy tells."""
COPY: Final = re.compile(r"(?:cu(?:da)?|hip)Memcpy")
ALLOCATION: Final = re.compile(
    r"(?:cu(?:da)?|hip)(?:Malloc|MemAlloc|HostAlloc|MemHostAlloc|Free|MemFree|MemCreate|MemMap|MemUnmap|MemRelease|MemAddress)"
)

LAUNCH: Final = re.compile(r"(?:cu(?:da)?|hip)(?:Module|Ext)?Launch(?:Cooperative)?Kernel(?!.*MultiDevice)")
"""Calls that run one kernel each, except where a CUDA graph is being recorded."""
RECORDS_GRAPH: Final = re.compile(r"(?:cu(?:da)?|hip)StreamBeginCapture")
UNTIED: Final = "no call that launched the GPU's work was traced, so nothing ties that to a range"
FEWEST_LAUNCHES: Final = 10
"""Of fewer nothing is said: their kernels may have begun after the capture's end."""
NOTICED: Final = 0.01
"""Ours: the share of the GPU's time from which on it is said to be of no call."""
MOST_QUEUED_NS: Final = 1_000_000_000
"""Ours: the first kernel of a stream does not begin a second after its call; so late are clocks apart."""

Mask = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class ApiKind:
    """One flag per row of Timeline.calls."""

    explicit_sync: Mask
    implicit_sync: Mask
    copy: Mask
    allocation: Mask


def api_kind(timeline: Timeline) -> ApiKind:
    """What each call of the timeline does to the host."""
    return timeline.once(_api_kind)


def _api_kind(timeline: Timeline) -> ApiKind:
    codes = timeline.calls["name"].to_numpy()
    return ApiKind(
        explicit_sync=_named(EXPLICIT_SYNC, timeline.names)[codes],
        implicit_sync=_named(IMPLICIT_SYNC, timeline.names)[codes] | _launched_pageable_copy(timeline),
        copy=_named(COPY, timeline.names)[codes],
        allocation=_named(ALLOCATION, timeline.names)[codes],
    )


def untied(timeline: Timeline) -> str | None:
    """Why nothing tells what the GPU waited for: no calls, kernels without times or calls, clocks that disagree."""
    codes, ops = timeline.calls["name"].to_numpy(), timeline.ops
    if has_no_calls(timeline):
        return UNTIED
    launched = int(_named(LAUNCH, timeline.names)[codes].sum())
    traced = int(((ops["kind"] == KERNEL) & (ops["end"] > ops["start"])).sum())
    recorded = _named(RECORDS_GRAPH, timeline.names)[codes].any()
    if launched >= FEWEST_LAUNCHES and traced < launched / 2 and not recorded:
        return f"{launched:,} kernels were launched and {traced:,} traced"
    call = ops["call"].to_numpy()
    has_call = call >= 0
    if has_call.size >= FEWEST_LAUNCHES and has_call.mean() < 0.5:
        return f"{has_call.size - has_call.sum():,} of {has_call.size:,} operations have no call that launched them"
    early = ops["start"].to_numpy()[has_call] < timeline.calls["start"].to_numpy()[call[has_call]]
    if early.size >= FEWEST_LAUNCHES and early.mean() > 0.5:
        return f"{early.mean():.0%} of the operations begin before the calls that launched them"
    return _late(timeline)


def launched_by_none(timeline: Timeline) -> str | None:
    """The operations of which no call that launched them was traced, where they are a noticeable part of the time."""
    ops = timeline.ops
    length, alone = (ops["end"] - ops["start"]).to_numpy(), (ops["call"] == NO_CALL).to_numpy()
    share = length[alone].sum() / max(1, length.sum())
    if share < NOTICED:
        return None
    of_time = f"{100 * share:.1f} % of the GPU's time"
    return f"{alone.sum():,} of {alone.size:,} operations ({of_time}; their calls were not traced)"


def _late(timeline: Timeline) -> str | None:
    """That the GPU's clock is ahead: of most kernels' streams not one kernel begins soon after its call."""
    launched = timeline.ops[timeline.ops["call"] >= 0]
    delay = launched["start"].to_numpy() - timeline.calls["end"].to_numpy()[launched["call"].to_numpy()]
    kernel = (launched["kind"] == KERNEL).to_numpy()
    streams = [launched["device"].to_numpy(), launched["stream"].to_numpy(), kernel]
    least = pd.Series(delay).groupby(streams).transform("min")
    late = (least > MOST_QUEUED_NS).to_numpy()
    if late.size >= FEWEST_LAUNCHES and late.mean() > 0.5:
        seconds = float(least[late].min()) / NS_PER_S
        after = f"{figure(seconds)} s or more after the calls that launched them"
        return f"{late.mean():.0%} of the operations begin {after}"
    return None


def has_no_calls(timeline: Timeline) -> bool:
    """Whether the GPU did something, and nothing of it has the call that launched it."""
    return bool(len(timeline.ops)) and bool((timeline.ops["call"] == NO_CALL).all())


def _named(pattern: re.Pattern[str], names: Sequence[str]) -> Mask:
    return np.array([pattern.match(name) is not None for name in names], bool)


def _launched_pageable_copy(timeline: Timeline) -> Mask:
    pageable = np.array([PAGEABLE in name for name in timeline.names], bool)
    ops = timeline.ops
    copies = (ops["kind"].to_numpy() == MEMCPY) & (ops["call"].to_numpy() >= 0)
    copies[copies] &= pageable[ops["name"].to_numpy()[copies]]
    launched = np.zeros(len(timeline.calls), bool)
    launched[ops["call"].to_numpy()[copies]] = True
    return launched
