"""One iteration of a capture, event by event: what a picture of it needs, and nothing else of the table has."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd

from inferprof.tables.schema import EVENT, EVENT_KIND
from inferprof.tables.trace.derived import WORKLOAD_RANGES
from inferprof.tables.trace.kernel_compare import ITERATION
from inferprof.tables.trace.timeline import KINDS, MODULE, NOT_TOLD, OPERATOR, PATH_SEPARATOR, Timeline

API: Final = "api"
RANGE: Final = "range"
MOST_EVENTS: Final = 20_000
"""An iteration of more is not kept."""


def rows(timeline: Timeline, owner: pd.Series[str] | None = None) -> pd.DataFrame:
    """Level event: `start` since the iteration began and `duration_total`, both ns, of each event of the iteration of
    median length, and `event_kind` (one of KINDS, api, range); `launch` is its number, by start.

    An operation belongs to the iteration in which it was launched; where that is not told, in which it starts.
    `range` is the path of ranges in which it was asked for; `owner` each operation's, where a join found it. No rows
    where the capture has no iteration, or this one has too many events: ranges that are not the workload's go first.
    """
    window = _median_iteration(timeline)
    if window is None:
        return pd.DataFrame()
    events = pd.concat(_events(timeline, owner, *window), ignore_index=True)
    if len(events) > MOST_EVENTS:
        others = events["kind"].eq(RANGE) & ~events["name"].map(_is_workload)
        events = events[~others]
    if not 0 < len(events) <= MOST_EVENTS:
        return pd.DataFrame()
    events = events.sort_values("start", kind="stable", ignore_index=True)
    columns = ["name", "device", "stream", "range", "owner"]
    facts = events[columns].assign(level=EVENT, launch=events.index, instances=1)
    start, length = events["start"] - window[0], events["end"] - events["start"]
    return pd.concat(
        [
            facts.assign(metric="start", value=start),
            facts.assign(metric="duration_total", value=length),
            facts.assign(metric=EVENT_KIND, text=events["kind"]),
        ],
        ignore_index=True,
    )


def of_case(frame: pd.DataFrame) -> pd.DataFrame:
    """The events of a case's tidy table, by start: name, kind, device, stream (missing on the host), start, end, and
    `node`: the node, layer or operator that an operation was launched for, where the capture tells."""
    rows = frame[frame["level"] == EVENT]
    metric = rows["metric"].to_numpy(object)
    order = np.argsort(rows["launch"].to_numpy(float, na_value=np.nan), kind="stable")
    start, length, kind = (order[metric[order] == name] for name in ("start", "duration_total", EVENT_KIND))
    value = rows["value"].to_numpy(float, na_value=np.nan)
    kinds = rows["text"].to_numpy(object)[kind]
    owners, paths = (rows[name].to_numpy(object)[start] for name in ("owner", "range"))
    innermost = {path: _innermost(path) for path in set(paths) if isinstance(path, str)}
    nodes = [
        None if kind == RANGE else owner if isinstance(owner, str) else innermost.get(path)
        for kind, owner, path in zip(kinds, owners, paths, strict=True)
    ]
    # Objects: of a few hundred strings Arrow's take longer to compare and to choose from.
    return pd.DataFrame(
        {
            "name": pd.Series(rows["name"].to_numpy(object)[start], dtype=object),
            "kind": pd.Series(kinds, dtype=object),
            "device": rows["device"].array[start],
            "stream": rows["stream"].array[start],
            "start": value[start],
            "end": value[start] + value[length],
            "node": pd.Series(nodes, dtype=object),
        }
    )


def _innermost(path: str) -> str | None:
    """The last range of a path that is not the workload's own."""
    name = next((name for name in reversed(path.split(PATH_SEPARATOR)) if not _is_workload(name)), None)
    return name and name.removeprefix(OPERATOR).removeprefix(MODULE)


def _is_workload(name: str) -> bool:
    return WORKLOAD_RANGES.fullmatch(name) is not None


def without(frame: pd.DataFrame) -> pd.DataFrame:
    """A tidy table without its events."""
    return frame[frame["level"] != EVENT]


def _own_names(timeline: Timeline) -> np.ndarray[Any, Any]:
    """The last name of each path."""
    return np.array([path.rpartition(PATH_SEPARATOR)[2] for path in timeline.paths], object)


def _median_iteration(timeline: Timeline) -> tuple[int, int] | None:
    """start and end of it; of an even number the shorter of the two in the middle."""
    ranges = timeline.ranges
    iterations = ranges[(_own_names(timeline) == ITERATION)[ranges["path"].to_numpy()]]
    if iterations.empty:
        return None
    order = np.argsort((iterations["end"] - iterations["start"]).to_numpy(), kind="stable")
    middle = iterations.iloc[order[(len(order) - 1) // 2]]
    return int(middle["start"]), int(middle["end"])


def _events(timeline: Timeline, owner: pd.Series[str] | None, begin: int, end: int) -> list[pd.DataFrame]:
    """Operations, API calls and ranges of the window: name, kind, device, stream, range, owner, start, end."""

    def begun(frame: pd.DataFrame) -> np.ndarray[Any, np.dtype[np.bool_]]:
        start = frame["start"].to_numpy()
        return (start >= begin) & (start < end)

    names, paths = np.array(timeline.names, object), np.array([path or None for path in timeline.paths], object)
    call = timeline.ops["call"].to_numpy()
    inside = begun(timeline.ops)
    called = begun(timeline.calls)
    inside[call >= 0] = called[call[call >= 0]]
    ops, calls = timeline.ops[inside], timeline.calls[called]
    own = _own_names(timeline)
    ranges = timeline.ranges[begun(timeline.ranges) & (own != ITERATION)[timeline.ranges["path"].to_numpy()]]
    stream = ops["stream"].astype("Int64")
    return [
        ops[["start", "end", "device"]].assign(
            name=names[ops["name"].to_numpy()],
            kind=np.array(KINDS, object)[ops["kind"].to_numpy()],
            stream=stream.where(stream != NOT_TOLD),
            range=paths[timeline.wanted_path[inside]],
            owner=None if owner is None else owner.to_numpy(object)[inside],
        ),
        calls[["start", "end"]].assign(
            name=names[calls["name"].to_numpy()], kind=API, range=paths[calls["path"].to_numpy()]
        ),
        ranges[["start", "end"]].assign(name=own[ranges["path"].to_numpy()], kind=RANGE),
    ]
