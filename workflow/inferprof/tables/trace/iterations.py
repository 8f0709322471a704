"""Which of a capture's ranges are iterations, what belongs to them, and when each ends.

* Only processes with iterations are the case's: what others compute on the same GPU is kept apart (Timeline.others).
* The calls of a thread that launches in an iteration of another one belong to it, where its process has one iteration
  at a time; those of threads that launch nothing (a watchdog's) do not.
* An iteration that returns before its kernels are done lasts until they are. One that begins before those of the
  iteration before it are done lasts from there on: so iterations never overlap on a thread.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, Final

import numpy as np

from inferprof.errors import UserError
from inferprof.tables.trace import numbered
from inferprof.tables.trace.intervals import Times, holding
from inferprof.tables.trace.kernel_compare import ITERATION, unknown_range
from inferprof.tables.trace.timeline import (
    NO_CALL,
    OUTSIDE,
    PATH_SEPARATOR,
    Timeline,
    only,
    process_of,
    without_serial,
)
from inferprof.words import counted

NONE: Final = f"{ITERATION} (of another kind)"
Mask = np.ndarray[Any, np.dtype[np.bool_]]


def of_case(timeline: Timeline, name: str | None = None) -> Timeline:
    """The timeline of the case alone, with its iterations as they are described above; as it is without any.

    name: another program's range around an inference, which becomes an iteration (`step #`: of each number). Raises
    UserError where there is no such range, with those that are there.
    """
    named = _outermost(timeline if name is None else _renamed(timeline, name))
    if not is_iteration(named).any():
        return named
    own = _of_processes(named)
    around = _around(own)
    return _with_lost_launches(_until_done(_of_threads(own, around), around))


def _with_lost_launches(timeline: Timeline) -> Timeline:
    """With the iteration that an operation begins in, where its launch is not in the capture and others' are, as of
    NCCL's kernels in some traces of Kineto; as it is where iterations overlap."""
    lost = timeline.ops["call"].to_numpy() == NO_CALL
    ranges = timeline.ranges[is_iteration(timeline)].sort_values("start", kind="stable")
    begun, ended, path = (ranges[column].to_numpy() for column in ("start", "end", "path"))
    if not lost.any() or lost.all() or (begun[1:] < ended[:-1]).any():
        return timeline
    place = holding(begun, ended, timeline.ops["start"].to_numpy())
    within = np.where(lost & (place >= 0), path[place], OUTSIDE)
    return replace(timeline, ops=timeline.ops.assign(within=within))


def _outermost(timeline: Timeline) -> Timeline:
    """With iterations as the outermost ranges: what is around some of them (an epoch, a request of its own number)
    leaves their paths, which would else be of several kinds; and with another name for those inside of iterations, as
    a module of a module of its own kind has them: the outer one is the inference."""
    paths = [_from_iteration(path) for path in timeline.paths]
    if paths == list(timeline.paths):
        return timeline
    return numbered.with_paths(timeline, paths)


def _from_iteration(path: str) -> str:
    parts = path.split(PATH_SEPARATOR)
    if ITERATION not in parts:
        return path
    outer, *inner = parts[parts.index(ITERATION) :]
    return PATH_SEPARATOR.join([outer, *(NONE if part == ITERATION else part for part in inner)])


def is_iteration(timeline: Timeline) -> Mask:
    """Which of the timeline's ranges are iterations."""
    own = [path.rpartition(PATH_SEPARATOR)[2] == ITERATION for path in timeline.paths]
    iterations: Mask = np.array(own, bool)[timeline.ranges["path"].to_numpy()]
    return iterations


def _renamed(timeline: Timeline, name: str) -> Timeline:
    wanted = without_serial(name)
    if numbered.NUMBER in wanted:
        timeline = numbered.as_one(timeline)
    parts = [path.split(PATH_SEPARATOR) for path in timeline.paths]
    if not any(path[-1] == wanted for path in parts[1:]):
        there = numbered.as_one(timeline)
        codes = Counter(there.ranges["path"].tolist())
        raise unknown_range(name, {there.paths[code].split(PATH_SEPARATOR)[-1]: n for code, n in codes.items()})
    if why := unfit(timeline, wanted):
        raise UserError(f"range {name}: {why}; give a range that is around one inference at a time")
    if wanted == ITERATION:
        return timeline
    paths = [path.split(PATH_SEPARATOR) for path in without(timeline).paths]
    named = [PATH_SEPARATOR.join(ITERATION if part == wanted else part for part in path) for path in paths]
    return replace(timeline, paths=named)


def unfit(timeline: Timeline, name: str) -> str | None:
    """Why the ranges of a name can't be iterations: none has a length, or they overlap on a thread, as start-end
    ranges of requests may that are under way at once; None where they can."""
    own = np.array([path.rpartition(PATH_SEPARATOR)[2] == name for path in timeline.paths], bool)
    ranges = timeline.ranges[own[timeline.ranges["path"].to_numpy()]]
    if len(ranges) and (ranges["start"] == ranges["end"]).all():
        return f"each of the {counted(len(ranges), 'range')} begins and ends at one time"
    crossing = 0
    for _, rows in ranges.sort_values(["start", "end"], ascending=[True, False]).groupby("thread"):
        begun, ended = (rows[column].to_numpy() for column in ("start", "end"))
        latest = np.maximum.accumulate(ended)[:-1]
        crossing += int(((begun[1:] < latest) & (ended[1:] > latest)).sum())
    return f"{crossing:,} of {len(ranges):,} begin while another is open, and end after it" if crossing else None


def without(timeline: Timeline) -> Timeline:
    """The timeline with another name for its ranges that are called as iterations are, and are none."""
    paths = [
        PATH_SEPARATOR.join(NONE if part == ITERATION else part for part in path.split(PATH_SEPARATOR))
        for path in timeline.paths
    ]
    return replace(timeline, paths=paths)


def _of_processes(timeline: Timeline) -> Timeline:
    """Without the operations, calls and ranges of processes that have no iterations; as it is where the tool does not
    tell processes, or those with iterations compute nothing."""
    if "process" not in timeline.ops:
        return timeline
    ranges, calls, ops = timeline.ranges, timeline.calls, timeline.ops
    own = np.unique(process_of(ranges["thread"].to_numpy())[is_iteration(timeline)])
    ours = np.isin(ops["process"].to_numpy(), own)
    if not ours.any() or ours.all():
        return timeline
    called, opened = (np.isin(process_of(frame["thread"].to_numpy()), own) for frame in (calls, ranges))
    others = ops.loc[~ours, timeline.others.columns].reset_index(drop=True)
    return replace(only(timeline, ours, called, others), ranges=ranges[opened].reset_index(drop=True))


def _of_threads(timeline: Timeline, around: Times) -> Timeline:
    """With the iteration in front of the path of calls that lie in it by time alone. around: `_around` of it."""
    outside = ~np.array([ITERATION in path.split(PATH_SEPARATOR) for path in timeline.paths], bool)
    path = timeline.calls["path"].to_numpy()
    lost = outside[path] & (around >= 0)
    call, thread = timeline.ops["call"].to_numpy(), timeline.calls["thread"].to_numpy()
    launching = np.zeros(len(lost), bool)
    launching[call[call != NO_CALL]] = True
    lost &= np.isin(thread, np.unique(thread[lost & launching]))
    if not lost.any():
        return timeline
    paths = list(timeline.paths)
    codes = {}
    for code in np.unique(path[lost]).tolist():
        inside = f"{ITERATION}{PATH_SEPARATOR}{paths[code]}" if paths[code] else ITERATION
        codes[code] = paths.index(inside) if inside in paths else len(paths)
        if codes[code] == len(paths):
            paths.append(inside)
    moved = path.copy()
    moved[lost] = [codes[code] for code in path[lost].tolist()]
    return replace(timeline, calls=timeline.calls.assign(path=moved), paths=paths)


def _around(timeline: Timeline) -> Times:
    """Per call the row of `ranges` of the iteration of its thread, or else of its process, that it begins in; -1 for
    none, and where iterations of a process overlap."""
    thread, start = (timeline.calls[column].to_numpy() for column in ("thread", "start"))
    around = np.full(thread.size, -1, np.int64)
    rows = np.flatnonzero(is_iteration(timeline))
    ranges = timeline.ranges.iloc[rows]
    looked_at = set()
    for owner, of_ranges in (
        (process_of(thread), process_of(ranges["thread"].to_numpy())),
        (thread, ranges["thread"].to_numpy()),
    ):
        for member in np.unique(of_ranges):
            mine = of_ranges == member
            if (key := mine.tobytes()) in looked_at:  # of the only thread of its process that has any
                continue
            looked_at.add(key)
            begun, ended = (ranges[column].to_numpy()[mine] for column in ("start", "end"))
            if (begun[1:] < ended[:-1]).any():
                continue
            calls = owner == member
            place = holding(begun, ended, start[calls])
            around[calls] = np.where(place >= 0, rows[mine][place], around[calls])
    return around


def _until_done(timeline: Timeline, around: Times) -> Timeline:
    """With iterations until the end of what was launched in them. around: `_around` of it."""
    call = timeline.ops["call"].to_numpy()
    launched = np.flatnonzero(call != NO_CALL)
    around = around[call[launched]]
    done = timeline.ranges["end"].to_numpy().copy()
    inside = around >= 0
    np.maximum.at(done, around[inside], timeline.ops["end"].to_numpy()[launched[inside]])
    if (done == timeline.ranges["end"].to_numpy()).all():
        return timeline
    begun = timeline.ranges["start"].to_numpy().copy()
    iterations, thread = is_iteration(timeline), timeline.ranges["thread"].to_numpy()
    for member in np.unique(thread[iterations]):
        rows = np.flatnonzero(iterations & (thread == member))
        until = np.maximum.accumulate(done[rows])
        begun[rows[1:]] = np.minimum(np.maximum(begun[rows[1:]], until[:-1]), done[rows[1:]])
    ranges = timeline.ranges.assign(start=begun, end=done)
    return replace(timeline, ranges=ranges.sort_values("start", kind="stable", ignore_index=True))
