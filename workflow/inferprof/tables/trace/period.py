"""Iterations of a capture without ranges: the period of what each process launches, one thread after the other.

An API call is one step, whatever it launched (the kernels of a replayed CUDA graph are one step); steps are alike
where kernels, copies and memsets have the same names. The period is the shortest distance at which the longest
stretch of steps repeats itself; what comes before that stretch is start-up, and slower repetitions at its head are
warm-up. An iteration begins where the host came from a wait, and where it stayed away longest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
import pandas as pd

from inferprof.tables.trace.api_kind import api_kind
from inferprof.tables.trace.intervals import Times
from inferprof.tables.trace.timeline import NO_CALL, PATH_SEPARATOR, Nesting, Timeline, process_of

Confidence = Literal["high", "medium", "low"]
MOST_STEPS: Final = 1 << 19
"""Of a longer sequence the end is searched, where programs are warm."""
FEWEST: Final = 3
"""Ours: what repeats less often may be chance."""
SLACK: Final = 10
"""Of a capture that begins or ends within an iteration a tenth of a repetition may be missing."""
CANDIDATES: Final = 60
"""Distances that are looked at one by one, the most alike first."""
AS_LONG: Final = 0.98
"""Ours: a shorter distance whose stretch is as long as this is the period, and the longer one its multiple."""
SURE_REPEATS, SURE_SHARE, SURE_SPREAD = 5, 0.5, 0.5
"""Ours: from so many repetitions and so much of the GPU's time on, and up to this spread of their durations."""
LEAST_SHARE: Final = 0.2
"""Ours: a stretch with less of the GPU's time is not what the capture is about."""
WILD_SPREAD: Final = 2.0
"""Ours: what varies by more than this is no iteration of anything steady."""
OFTEN: Final = 0.5
"""Ours: of the iterations, how many begin behind a wait where the host waits between them."""
MUCH: Final = 0.5
"""Ours: of the largest phase's share, what a later one has at least to be the one that counts."""
MOST_PHASES: Final = 6
WARM: Final = 1.2
"""Ours: a repetition at the head that takes longer than so many medians is warm-up."""


@dataclass(frozen=True)
class Period:
    """The iterations of a process. `steps`: calls in one; `share`: of the process's GPU time inside; `waits`: of the
    iterations, how many the host begins behind a wait; `replays`: calls of one that replay a CUDA graph."""

    process: int
    thread: int
    start: Times
    end: Times
    took: Times
    """How long each lasts; of those that are queued one behind the other, from the end of its work to the next's."""
    steps: int
    share: float
    waits: float
    replays: int
    startup: int
    """Calls in front of the first repetition."""
    warmup: int
    """Repetitions at the head that are slower, and left out."""

    @property
    def count(self) -> int:
        """How many iterations there are."""
        return int(self.start.size)

    @property
    def spread(self) -> float:
        """By how many medians the longest differ from the shortest, but for a twentieth at both ends."""
        return float(np.subtract(*np.percentile(self.took, (95, 5))) / max(1.0, np.median(self.took)))

    @property
    def confidence(self) -> Confidence:
        """high: many, alike, most of the GPU's time, each behind a wait of the host; low: little of its time, or
        neither waits nor graphs between, as layers of one inference follow each other."""
        if self.share < LEAST_SHARE or not (self.waits >= OFTEN or self.replays) or self.spread > WILD_SPREAD:
            return "low"
        sure = self.count >= SURE_REPEATS and self.share >= SURE_SHARE and self.spread <= SURE_SPREAD
        return "high" if sure and self.waits >= OFTEN else "medium"


@dataclass(frozen=True, eq=False)
class _Steps:
    """The calls of a thread that launched something: what each is like, when it began, and the GPU's time of it."""

    alike: np.ndarray[Any, Any]
    start: Times
    end: Times
    done: Times
    work: Times
    replay: np.ndarray[Any, np.dtype[np.bool_]]


def phases(timeline: Timeline) -> list[Period]:
    """The phases of each process that repeat, in order of time: a run with copies, a warm-up, replays of a graph."""
    repeated = [period for of_thread in _threads(timeline) for period in _phases(timeline, *of_thread)]
    return sorted(repeated, key=lambda period: int(period.start[0]))


def chosen(repeated: list[Period]) -> list[Period]:
    """Of each process the last phase with much of its GPU time, where that is sure enough: what a program does at the
    end is what it was warmed up for."""
    best = {}
    for period in repeated:
        most = max(other.share for other in repeated if other.process == period.process)
        if period.confidence != "low" and period.share >= MUCH * most:
            best[period.process] = period
    return list(best.values())


def with_iterations(timeline: Timeline, chosen: list[Period], label: str) -> Timeline:
    """The timeline with a range of this label around each iteration."""
    old = np.array(timeline.paths, object)[timeline.ranges["path"].to_numpy()]
    own = [path.rpartition(PATH_SEPARATOR)[2] for path in old]
    ranges = timeline.ranges[["start", "end", "thread"]].assign(label=own)
    made = [
        pd.DataFrame({"start": period.start, "end": period.end, "thread": period.thread, "label": label})
        for period in chosen
    ]
    nested = Nesting(pd.concat([ranges, *made], ignore_index=True))
    calls = timeline.calls
    path = nested.path_at(calls["thread"].to_numpy(), calls["start"].to_numpy())
    ops = timeline.ops
    if "made" in ops:  # where the nodes of graphs were made: outside of the iterations, which replay them
        place = {text: code for code, text in enumerate(nested.paths)}
        codes = np.array([place.get(text, 0) for text in timeline.paths], np.int32)
        ops = ops.assign(made=codes[ops["made"].to_numpy()])
    return replace(timeline, ops=ops, calls=calls.assign(path=path), ranges=nested.ranges, paths=nested.paths)


def _threads(timeline: Timeline) -> Iterator[tuple[int, int, _Steps]]:
    """Process, thread and steps of the thread of each process that launched most of the GPU's time."""
    ops, calls = timeline.ops, timeline.calls
    call = ops["call"].to_numpy()
    launched = call != NO_CALL
    if not launched.any():
        return
    call, length = call[launched], (ops["end"] - ops["start"]).to_numpy()[launched]
    work = np.bincount(call, weights=length, minlength=len(calls)).astype(np.int64)
    busy = np.flatnonzero(work)
    code, threads = pd.factorize(calls["thread"].to_numpy()[busy], sort=True)
    summed = np.bincount(code, weights=work[busy])
    sums = pd.DataFrame({"process": process_of(threads), "thread": threads, "work": summed})
    most = sums.sort_values("work", ascending=False, kind="stable").drop_duplicates("process")
    for process, own in zip(most["process"].tolist(), most["thread"].tolist(), strict=True):
        yield process, own, _steps(timeline, launched, work, own)


def _steps(timeline: Timeline, launched: np.ndarray[Any, Any], work: Times, thread: int) -> _Steps:
    ops, calls = timeline.ops, timeline.calls
    call = ops["call"].to_numpy()[launched]
    # A number per name that sums of them tell apart; the order of a graph's kernels may change between replays.
    mixed = (ops["name"].to_numpy(np.uint64)[launched] + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    alike = np.zeros(len(calls), np.uint64)
    np.add.at(alike, call, mixed)
    done = np.zeros(len(calls), np.int64)
    np.maximum.at(done, call, ops["end"].to_numpy()[launched])
    own = np.flatnonzero((calls["thread"].to_numpy() == thread) & (done > 0))
    graph = np.array(["GraphLaunch" in name for name in timeline.names], bool)
    start, end = (calls[key].to_numpy()[own] for key in ("start", "end"))
    replay = graph[calls["name"].to_numpy()[own]]
    steps = _Steps(alike[own], start, end, done[own], work[own], replay)
    # A wait in front makes a step another one: layers that are alike are parts of an inference that ends in a wait.
    waited = alike[own] * np.uint64(2) + _waits(timeline, thread, steps).astype(np.uint64)
    return replace(steps, alike=pd.factorize(waited)[0])


def _phases(timeline: Timeline, process: int, thread: int, steps: _Steps) -> list[Period]:
    """The longest stretch that repeats, then those in front of it and behind."""
    waits = _waits(timeline, thread, steps)
    repeated: list[Period] = []
    left = [(0, steps.alike.size)]
    while left and len(repeated) < MOST_PHASES:
        begin, end = max(left, key=lambda part: steps.work[slice(*part)].sum())
        left.remove((begin, end))
        stretch = _stretch(pd.factorize(steps.alike[begin:end])[0])
        if stretch is not None:
            length, first, last = stretch[0], stretch[1] + begin, stretch[2] + begin
            left += [part for part in ((begin, first), (last, end)) if part[1] - part[0] >= FEWEST]
            repeated.append(_period(timeline, process, thread, steps, waits, (length, first, last)))
    return repeated


def _period(
    timeline: Timeline,
    process: int,
    thread: int,
    steps: _Steps,
    waits: np.ndarray[Any, Any],
    stretch: tuple[int, int, int],
) -> Period:
    length, first, last = stretch
    away = steps.start - np.concatenate(([steps.start[0]], steps.end[:-1]))
    shift = _shift(away[first:last], waits[first:last], length)
    begin = np.arange(first + shift, last - length + 1, length)
    if begin.size < FEWEST:
        begin = np.arange(first, last - length + 1, length)
    queued = begin.size > 1 and waits[begin[1:]].mean() < OFTEN
    start, end = _bounds(timeline, thread, steps, begin, length, queued=queued)
    done = np.array([steps.done[place : place + length].max() for place in begin])
    took = np.diff(done, prepend=done[:1] - np.diff(done[:2]).sum()) if queued else end - start
    slow = took > WARM * np.median(took)
    warmup = min(int(np.argmin(slow)), max(0, begin.size - FEWEST))
    kept = slice(warmup, None)
    inside = (steps.start >= start[warmup]) & (steps.start < end[-1])
    # Iterations of one kernel each, or of steps between which nobody waits, may be parts of one inference.
    return Period(
        process=process,
        thread=thread,
        start=start[kept],
        end=end[kept],
        took=took[kept],
        steps=length,
        share=float(steps.work[inside].sum() / _work_of(timeline, process)),
        waits=float(waits[begin[1:]].mean()) if begin.size > 1 else 0.0,
        replays=int(steps.replay[begin[0] : begin[0] + length].sum()),
        startup=int(begin[0]),
        warmup=warmup,
    )


def _work_of(timeline: Timeline, process: int) -> float:
    """The GPU's time of a process."""
    ops = timeline.ops
    length = (ops["end"] - ops["start"]).to_numpy()
    if "process" in ops:
        length = length[(ops["process"] == process).to_numpy()] if process >= 0 else length
    return max(1.0, float(length.sum()))


def _stretch(alike: np.ndarray[Any, Any]) -> tuple[int, int, int] | None:
    """Period in steps, and where the longest stretch with it begins and ends; None where nothing repeats."""
    count = alike.size
    if count < FEWEST:
        return None
    stretches = []
    searched = alike[-MOST_STEPS:]
    skipped = count - searched.size
    for lag in _lags(searched):
        first, run = _longest_run(searched[lag:] == searched[:-lag])
        if run + lag >= FEWEST * lag - lag // SLACK:
            stretches.append((lag, first, first + run + lag))
    if not stretches:
        return None
    longest = max(last - first for _, first, last in stretches)
    lag, first, last = min(stretch for stretch in stretches if stretch[2] - stretch[1] >= AS_LONG * longest)
    return lag, (first + skipped if first else _begin(alike, lag, skipped)), last + skipped


def _begin(alike: np.ndarray[Any, Any], lag: int, skipped: int) -> int:
    """Where the stretch begins that goes on at the place up to which the search skipped."""
    other = np.flatnonzero(alike[:skipped] != alike[lag : lag + skipped])
    return int(other[-1]) + 1 if other.size else 0


def _lags(alike: np.ndarray[Any, Any]) -> list[int]:
    """Distances at which most steps are alike, found by autocorrelation of a random sign per kind of step."""
    count = alike.size
    signs = np.random.default_rng(0).choice((-1.0, 1.0), (4, int(alike.max()) + 1))
    size = 1 << (2 * count - 1).bit_length()
    agreeing = np.zeros(count)
    for sign in signs:
        spectrum = np.fft.rfft(sign[alike], size)
        agreeing += np.fft.irfft(spectrum * spectrum.conj(), size)[:count]
    most = count - count // FEWEST
    share = agreeing[1:most] / np.arange(count - 1, count - most, -1)
    # All multiples of a period are as much alike as it is: the shortest first.
    order = np.lexsort((np.arange(share.size), -np.round(share, 2)))
    return [int(lag) + 1 for lag in order[:CANDIDATES]]


def _longest_run(same: np.ndarray[Any, Any]) -> tuple[int, int]:
    """Where the longest run of True begins, and its length."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], same.astype(np.int8), [0]))))
    if not edges.size:
        return 0, 0
    begin, length = edges[::2], edges[1::2] - edges[::2]
    longest = int(np.argmax(length))
    return int(begin[longest]), int(length[longest])


def _waits(timeline: Timeline, thread: int, steps: _Steps) -> np.ndarray[Any, Any]:
    """Of each step, whether the thread waited for the GPU between it and the one before."""
    kind = api_kind(timeline)
    calls = timeline.calls
    waiting = (kind.explicit_sync | kind.implicit_sync) & (calls["thread"].to_numpy() == thread)
    ended = np.sort(calls["end"].to_numpy()[waiting])
    before = np.searchsorted(ended, steps.start, side="right")
    waits = np.diff(before, prepend=0) > 0
    waits[0] = waits[1:].any()  # nothing tells what was before the first, which is like the others
    return waits


def _shift(away: Times, waits: np.ndarray[Any, Any], length: int) -> int:
    """At which step of a repetition an iteration begins."""
    whole = away.size // length * length
    folded = np.median(away[:whole].reshape(-1, length), axis=0)
    waited = waits[:whole].reshape(-1, length).mean(axis=0) >= OFTEN
    return int(np.argmax(np.where(waited, folded, -1) if waited.any() else folded))


def _bounds(
    timeline: Timeline, thread: int, steps: _Steps, begin: Times, length: int, *, queued: bool
) -> tuple[Times, Times]:
    """Start and end of each iteration on the host: up to the next one; of the last until its work and its wait are
    done, or where nobody waits until it is launched."""
    start = steps.start[begin]
    behind = begin[-1] + length
    if queued:
        return start, np.append(start[1:], steps.end[behind - 1])
    until = steps.start[behind] if behind < steps.start.size else np.iinfo(np.int64).max
    done = int(steps.done[begin[-1] : behind].max())
    calls = timeline.calls
    kind = api_kind(timeline)
    own = (calls["thread"].to_numpy() == thread) & kind.explicit_sync
    ended = calls["end"].to_numpy()[own & (calls["start"].to_numpy() >= steps.start[behind - 1])]
    last = min(until, max(done, int(ended.min()) if ended.size else done))
    usual = int(np.median(np.diff(start))) if start.size > 1 else last - int(start[0])
    return start, np.append(start[1:], min(last, int(start[-1]) + usual) if until == last else last)
