"""A Timeline as rows of the tidy table: one row per metric of each name, device, stream and range."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd

from inferprof.tables.api_kind import api_kind
from inferprof.tables.timeline import KINDS, MEMCPY, MEMSET, PATH_SEPARATOR, Timeline

_STATISTICS: Final = {
    "sum": "duration_total",
    "median": "duration_median",
    "mean": "duration_mean",
    "min": "duration_min",
    "max": "duration_max",
    "std": "duration_stddev",
}
_KEYS: Final = ("kind", "name", "parent", "device", "stream", "instances")


def operations(timeline: Timeline, keys: Sequence[str] = ("name", "device", "stream", "parent")) -> pd.DataFrame:
    """Levels kernel, memcpy, memset and graph: duration_* in ns, for copies and memsets bytes_total and bandwidth.

    `keys` says what makes a row of its own; `("name",)` is what `nsys stats` prints. `parent` is the path of ranges
    that the launch lay in; missing outside of all.
    """
    events = timeline.ops[["kind", "name", "device", "stream", "bytes"]].assign(
        parent=timeline.op_path, duration=timeline.ops["end"] - timeline.ops["start"]
    )
    groups = events.groupby(["kind", *keys], sort=True)
    wide = groups["duration"].agg(["count", *_STATISTICS])
    sized = np.isin(wide.index.get_level_values("kind"), (MEMCPY, MEMSET))
    wide["bytes_total"] = groups["bytes"].sum().where(sized)
    # bytes / ns = GB/s, with GB = 10^9 bytes as on a link's data sheet.
    wide["bandwidth"] = wide["bytes_total"] / wide["sum"].where(wide["sum"] > 0)
    rows = _named(tidy_rows(wide), timeline)
    return rows.assign(level=rows.pop("kind").map(dict(enumerate(KINDS))))


def api_calls(timeline: Timeline, keys: Sequence[str] = ("name", "parent")) -> pd.DataFrame:
    """Level api: duration_* in ns of every CUDA API call by name and range; level sync: those that wait for the GPU.

    A sync row repeats its api row, with `sync_kind` explicit (the call is a synchronise) or implicit.
    """
    events = timeline.calls[["name"]].assign(
        parent=timeline.calls["path"], duration=timeline.calls["end"] - timeline.calls["start"]
    )
    kind = api_kind(timeline)
    frames = [_call_rows(events, timeline, keys).assign(level="api")]
    for label, waits in (("explicit", kind.explicit_sync), ("implicit", kind.implicit_sync)):
        rows = _call_rows(events[waits], timeline, keys).assign(level="sync")
        heads = rows.drop_duplicates(list(keys)).assign(metric="sync_kind", value=float("nan"), text=label)
        frames += [rows, heads]
    return pd.concat([frame for frame in frames if len(frame)] or frames[:1], ignore_index=True)


def _call_rows(events: pd.DataFrame, timeline: Timeline, keys: Sequence[str]) -> pd.DataFrame:
    wide = events.groupby(list(keys), sort=True)["duration"].agg(["count", *_STATISTICS])
    return _named(tidy_rows(wide), timeline)


def ranges(timeline: Timeline) -> pd.DataFrame:
    """Level range: duration_* in ns on the host; `name` is the range's own, `parent` the path around it."""
    events = timeline.ranges.assign(duration=timeline.ranges["end"] - timeline.ranges["start"])
    rows = tidy_rows(events.groupby("path", sort=True)["duration"].agg(["count", *_STATISTICS]))
    return split_path(rows, rows.pop("path").map(dict(enumerate(timeline.paths)))).assign(level="range")


def split_path(rows: pd.DataFrame, paths: pd.Series) -> pd.DataFrame:
    """Columns `name` (the last range of the path) and `parent` (the path around it; missing for an outermost one)."""
    parts = pd.DataFrame([str(path).rpartition(PATH_SEPARATOR) for path in paths], index=rows.index, columns=range(3))
    return rows.assign(name=parts[2], parent=parts[0].where(parts[0] != ""))


def tidy_rows(wide: pd.DataFrame) -> pd.DataFrame:
    """Columns of metrics → one row per metric. What does not exist (the deviation of one instance) gets no row."""
    flat = wide.rename(columns={"count": "instances", **_STATISTICS}).reset_index()
    keys = [column for column in flat if column in _KEYS or column == "path"]
    return flat.melt(id_vars=keys, var_name="metric", value_name="value").dropna(subset=["value"])


def _named(rows: pd.DataFrame, timeline: Timeline) -> pd.DataFrame:
    """Codes of names and paths → text; an unknown stream (-1) and the empty path become missing."""
    rows["name"] = rows["name"].map(dict(enumerate(timeline.names)))
    if "parent" in rows:
        rows["parent"] = rows["parent"].map({code: path or None for code, path in enumerate(timeline.paths)})
    if "stream" in rows:
        rows["stream"] = rows["stream"].astype("Int64").mask(rows["stream"] < 0)
    return rows
