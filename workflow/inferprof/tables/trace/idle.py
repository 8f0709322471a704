"""One GPU's idle time, split by what the GPU was waiting for. Times are ns on the capture's clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from inferprof.tables.trace.api_kind import ApiKind, untied
from inferprof.tables.trace.intervals import Intervals, Times, at_least_two
from inferprof.tables.trace.timeline import GRAPH, KERNEL, MEMCPY, NO_CALL, Timeline

IDLE_CAUSES: Final = ("launch", "sync", "copy", "queued", "end", "unknown")
"""Why the GPU was idle, by code:

launch   the host had not yet launched the next operation, or was launching it, and did nothing of the below; or a
         kernel or graph was on its way, LATENCY_NS behind the return of its call at most;
sync     the host was inside a synchronise call before it launched the next operation;
copy     the host was inside a copy call, or launching the copy that comes next;
queued   the next operation had been launched before the GPU went idle (latency between dependent kernels,
         a wait for another stream's event), or its call had returned: a copy should start then, a kernel or graph
         LATENCY_NS later at the latest;
end      no further operation begins in the window;
unknown  the capture does not tie the next operation to a launch, or none of them (api_kind.untied).
"""
LATENCY_NS: Final = 100_000
"""Ours: how long after its launch returned a kernel or a CUDA graph may still be on its way. A graph of a thousand
nodes takes a tenth of a millisecond; what takes longer waits for something else."""
_CHUNK = 50_000
"""Gaps that are looked at together: few enough for the processor's cache."""
_LAUNCH, _SYNC, _COPY, _QUEUED, _END, _UNKNOWN = range(len(IDLE_CAUSES))
LAUNCHING: Final = "launching_idle"
STARTING: Final = "starting_idle"
LAUNCH_PARTS: Final = (LAUNCHING, STARTING)
"""What of the cause launch is not the host's work elsewhere: it is in launching calls; they have returned, so that
it is the driver or the GPU that starts late."""
_ROWS: Final = len(IDLE_CAUSES) + len(LAUNCH_PARTS)
_CALLING, _STARTING = range(len(IDLE_CAUSES), _ROWS)


class _Inside(NamedTuple):
    """When a thread is in its synchronise calls, its copy calls, and those that launch anything else."""

    sync: Intervals
    copy: Intervals
    launch: Intervals


@dataclass(frozen=True)
class _Gaps:
    """Idle stretches [start, end), each followed by an operation of `kind` launched by the call [called, returned).

    `called` and `returned` mean nothing where `has_call` is False.
    """

    start: Times
    end: Times
    copy_next: np.ndarray[Any, np.dtype[np.bool_]]
    has_call: np.ndarray[Any, np.dtype[np.bool_]]
    called: Times
    returned: Times
    thread: Times

    def causes(self, inside: dict[int, _Inside], others: Intervals) -> Times:
        """ns of each of IDLE_CAUSES and LAUNCH_PARTS, an array [cause, gap]; `inside`: thread → its calls.

        `others`: when other processes compute, which is none of these causes.
        """
        split = np.zeros((_ROWS, self.start.size), np.int64)
        called = np.where(self.has_call, np.clip(self.called, self.start, self.end), self.start)
        settled = np.clip(self.returned + np.where(self.copy_next, 0, LATENCY_NS), called, self.end)
        settled = np.where(self.returned <= self.start, called, settled)
        settled = np.where(self.has_call, settled, self.end)
        returned = np.clip(self.returned, called, settled)
        for thread, calls in inside.items():
            own = np.flatnonzero(self.has_call & (self.thread == thread))
            start, until = self.start[own], called[own]
            split[_SYNC, own] = calls.sync.within(start, until)
            split[_COPY, own] = calls.copy.within(start, until)
            split[_CALLING, own] = calls.launch.within(start, np.where(self.copy_next[own], until, returned[own]))
        split[_LAUNCH] = _without(others, self.start, called) - split[_SYNC] - split[_COPY]
        launching = _without(others, called, settled)
        for cause, mask in (
            (_UNKNOWN, ~self.has_call),
            (_COPY, self.has_call & self.copy_next),
            (_LAUNCH, self.has_call & ~self.copy_next),
        ):
            split[cause] += np.where(mask, launching, 0)
        split[_STARTING] = np.where(self.has_call & ~self.copy_next, _without(others, returned, settled), 0)
        split[_QUEUED] = _without(others, settled, self.end)
        return split


def _without(others: Intervals, start: Times, end: Times) -> Times:
    """Length of each [start, end) outside of `others`."""
    return end - start - others.within(start, end)


@dataclass(frozen=True)
class Gpu:
    """One device's operations, prepared so that any number of windows is cheap."""

    busy: Intervals
    kernels: Intervals
    shared: Intervals
    call: np.ndarray[Any, np.dtype[np.int64]]
    """Per interval of `busy`: the row of `calls` that launched the operation which begins it, or NO_CALL."""
    copy: np.ndarray[Any, np.dtype[np.bool_]]
    """Per interval of `busy`: whether that operation is a copy."""
    calls: pd.DataFrame
    inside: dict[int, _Inside]
    others: Intervals
    """When other processes compute or copy, and none of these operations does."""

    @classmethod
    def of(cls, timeline: Timeline, kind: ApiKind, ops: pd.DataFrame) -> Gpu:
        """`ops`: the rows of timeline.ops of one device, at least one, none of length 0."""
        start, end, code = (ops[column].to_numpy() for column in ("start", "end", "kind"))
        busy, first = Intervals.united(start, end)
        computing = np.isin(code, (KERNEL, GRAPH))
        others = _alone(timeline.others, int(ops["device"].iloc[0]), busy)
        return cls(
            busy=busy,
            kernels=busy if computing.all() else Intervals.union(start[computing], end[computing]),
            shared=_streams_overlap(ops, first),
            call=np.full(first.size, NO_CALL) if untied(timeline) else ops["call"].to_numpy()[first],
            copy=code[first] == MEMCPY,
            calls=timeline.calls,
            inside=_inside(timeline, kind, others),
            others=others,
        )

    def amounts(self, start: Times, end: Times) -> dict[str, Times]:
        """What `derived.per_window` documents, for each window [start, end)."""
        busy = self.busy.within(start, end)
        idle = self._idle(start, end)
        others = {"idle_other_process": self.others.within(start, end)} if self.others.total else {}
        return {
            "gpu_busy": busy,
            "kernel_busy": self.kernels.within(start, end),
            "gpu_idle": end - start - busy,
            **{f"idle_{cause}": idle[code] for code, cause in enumerate(IDLE_CAUSES)},
            **{part: idle[code] for code, part in enumerate(LAUNCH_PARTS, len(IDLE_CAUSES))},
            **others,
            "streams_overlap": self.shared.within(start, end),
        }

    def _idle(self, start: Times, end: Times) -> Times:
        """ns idle, an array [cause, window], in each window [start, end): the gap at its start, the whole gaps, the
        tail at its end."""
        opening, closing = self.busy.start, self.busy.end
        first = np.searchsorted(opening, start, side="left")
        last = np.searchsorted(opening, end, side="left")
        idle = np.zeros((_ROWS, start.size), np.int64)
        some = last > first
        free_from = np.where(first > 0, np.maximum(start, closing[np.maximum(first - 1, 0)]), start)
        from_second, to_last = np.split(self._summed_gaps(np.concatenate((first[some] + 1, last[some]))), 2, axis=1)
        idle[:, some] = to_last - from_second
        first, free = first[some], free_from[some]
        idle[:, some] += self._gaps(first, np.minimum(free, opening[first])).causes(self.inside, self.others)
        idle_from = np.where(some, np.maximum(closing[np.maximum(last - 1, 0)], start), free_from)
        idle[_END] += _without(self.others, idle_from, np.maximum(end, idle_from))
        return idle

    def _summed_gaps(self, until: Times) -> Times:
        """For each i of `until`: ns by cause of the whole gaps in front of the intervals 1 … i - 1 of `busy`."""
        summed = np.zeros((_ROWS, until.size), np.int64)
        total = np.zeros((_ROWS, 1), np.int64)
        for begin in range(1, self.busy.start.size, _CHUNK):
            index = np.arange(begin, min(begin + _CHUNK, self.busy.start.size))
            running = np.cumsum(self._gaps(index, self.busy.end[index - 1]).causes(self.inside, self.others), axis=1)
            here = (until > begin) & (until <= begin + index.size)
            summed[:, here] = total + running[:, until[here] - begin - 1]
            total += running[:, -1:]
        return summed

    def _gaps(self, index: Times, start: Times) -> _Gaps:
        """The gaps before the intervals `index` of `busy`, each from `start` on."""
        call = self.call[index]
        has_call = call != NO_CALL
        launch = np.where(has_call, call, 0)

        def of_call(column: str) -> Times:
            return self.calls[column].to_numpy()[launch] if len(self.calls) else np.zeros_like(launch)

        return _Gaps(
            start=start,
            end=self.busy.start[index],
            copy_next=self.copy[index],
            has_call=has_call,
            called=of_call("start"),
            returned=of_call("end"),
            thread=of_call("thread"),
        )


def _streams_overlap(ops: pd.DataFrame, first: Times) -> Intervals:
    """Where operations of two streams or more overlap; first: those that begin a time in which the GPU is busy."""
    start, end, stream = (ops[column].to_numpy() for column in ("start", "end", "stream"))
    together = np.diff(first, append=len(ops))
    if (together > 1).any():  # of most operations nothing else runs meanwhile
        overlapping = np.repeat(together > 1, together)
        start, end, stream = start[overlapping], end[overlapping], stream[overlapping]
    streams = pd.unique(stream)
    if (together == 1).all() or streams.size < 2:
        return at_least_two([])
    return at_least_two(Intervals.union(start[stream == own], end[stream == own]) for own in streams)


def _alone(others: pd.DataFrame, device: int, busy: Intervals) -> Intervals:
    """When the operations of others run on a device while it is not `busy`."""
    theirs = others[others["device"] == device]
    return Intervals.union(theirs["start"].to_numpy(), theirs["end"].to_numpy()).minus(busy)


def _inside(timeline: Timeline, kind: ApiKind, others: Intervals) -> dict[int, _Inside]:
    """Thread → when it is in which calls, without the time of others."""
    calls, ops = timeline.calls, timeline.ops
    waits = kind.explicit_sync | kind.copy
    launching = np.zeros(len(calls), bool)
    call = ops["call"].to_numpy()
    launching[call[(call >= 0) & (ops["kind"].to_numpy() != MEMCPY)]] = True
    launching &= ~waits
    thread, start, end = (calls[column].to_numpy() for column in ("thread", "start", "end"))

    def of(mask: np.ndarray[Any, np.dtype[np.bool_]], own: int) -> Intervals:
        places = np.flatnonzero(mask & (thread == own))
        return Intervals.union(start[places], end[places]).minus(others)

    waiting = np.unique(thread[waits | launching])
    return {
        int(own): _Inside(*(of(mask, own) for mask in (kind.explicit_sync, kind.copy, launching))) for own in waiting
    }
