"""A Timeline as rows of the tidy table: one row per metric of each name, device, stream and range."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pandas as pd

from inferprof.tables.trace.api_kind import api_kind
from inferprof.tables.trace.intervals import Times
from inferprof.tables.trace.timeline import KINDS, MEMCPY, MEMSET, NOT_TOLD, PATH_SEPARATOR, Timeline

INT_BITS: Final = 63
MOST_DENSE: Final = 1 << 20
"""Of so few possible numbers each has a place in a table; of more only those that occur."""
_KEYS: Final = ("kind", "name", "range", "owner", "path", "device", "stream", "instances")


def operations(
    timeline: Timeline,
    keys: Sequence[str] = ("name", "device", "stream", "range"),
    owner: pd.Series[str] | np.ndarray | None = None,
) -> pd.DataFrame:
    """Levels kernel, memcpy, memset and graph: duration_* in ns, for copies and memsets bytes_total and bandwidth.

    Those two are missing where the tool leaves out the bytes of any of the copies.
    `keys` says what makes a row of its own; `("name",)` is what `nsys stats` prints. `range` is the path of ranges
    that the launch lay in; missing outside of all. owner: each operation's, where a join found it: a key too.
    """
    columns = {"range": timeline.op_path, **{key: timeline.ops[key].to_numpy() for key in timeline.ops}}
    if owner is not None:
        columns["owner"], owners = pd.factorize(np.asarray(owner, object))
        keys = (*keys, "owner")
    group, wide = grouped({key: columns[key] for key in ("kind", *keys)})
    wide = wide.join(durations(group, columns["end"] - columns["start"]))
    size = np.bincount(group, weights=columns["bytes"], minlength=len(wide))
    not_told = np.bincount(group, weights=columns["bytes"] == NOT_TOLD, minlength=len(wide)) > 0
    wide["bytes_total"] = np.where(np.isin(wide["kind"], (MEMCPY, MEMSET)) & ~not_told, size, np.nan)
    # bytes / ns = GB/s, with GB = 10^9 bytes as on a link's data sheet.
    wide["bandwidth"] = wide["bytes_total"] / wide["duration_total"].where(wide["duration_total"] > 0)
    rows = _named(tidy_rows(wide), timeline)
    if owner is not None:
        rows["owner"] = rows["owner"].map(dict(enumerate(owners)))
    return rows.assign(level=rows.pop("kind").map(dict(enumerate(KINDS))))


def api_calls(timeline: Timeline, keys: Sequence[str] = ("name", "range")) -> pd.DataFrame:
    """Level api: duration_* in ns of every CUDA API call by name and range; level sync: those that wait for the GPU.

    A sync row repeats its api row, with `sync_kind` explicit (the call is a synchronise) or implicit.
    """
    columns = {
        "name": timeline.calls["name"].to_numpy(),
        "range": timeline.calls["path"].to_numpy(),
        "duration": timeline.calls["end"].to_numpy() - timeline.calls["start"].to_numpy(),
    }
    kind = api_kind(timeline)
    frames = [_call_rows(columns, timeline, keys).assign(level="api")]
    for label, waits in (("explicit", kind.explicit_sync), ("implicit", kind.implicit_sync)):
        waiting = {name: values[waits] for name, values in columns.items()}
        rows = _call_rows(waiting, timeline, keys).assign(level="sync")
        heads = rows.drop_duplicates(list(keys)).assign(metric="sync_kind", value=float("nan"), text=label)
        frames += [rows, heads]
    return pd.concat([frame for frame in frames if len(frame)] or frames[:1], ignore_index=True)


def _call_rows(columns: Mapping[str, np.ndarray], timeline: Timeline, keys: Sequence[str]) -> pd.DataFrame:
    group, wide = grouped({key: columns[key] for key in keys})
    return _named(tidy_rows(wide.join(durations(group, columns["duration"]))), timeline)


def ranges(timeline: Timeline) -> pd.DataFrame:
    """Level range: duration_* in ns on the host; `name` is the range's own, `range` the path around it."""
    group, wide = grouped({"path": timeline.ranges["path"].to_numpy()})
    duration = timeline.ranges["end"].to_numpy() - timeline.ranges["start"].to_numpy()
    rows = tidy_rows(wide.join(durations(group, duration)))
    return split_path(rows, rows.pop("path").map(dict(enumerate(timeline.paths)))).assign(level="range")


def split_path(rows: pd.DataFrame, paths: pd.Series) -> pd.DataFrame:
    """Columns `name` (the last range of the path) and `range` (the path around it; missing for an outermost one)."""
    parts = pd.DataFrame([str(path).rpartition(PATH_SEPARATOR) for path in paths], index=rows.index, columns=range(3))
    return rows.assign(name=parts[2], range=parts[0].where(parts[0] != ""))


def grouped(keys: Mapping[str, np.ndarray]) -> tuple[np.ndarray, pd.DataFrame]:
    """Group number of each event, and per group its keys; groups are in the order of the keys."""
    combined = np.zeros(next(iter(keys.values())).size, np.int64)
    spans = [_span(values) for values in keys.values()]
    dense = math.prod(count for _, count in spans) <= MOST_DENSE
    distinct = {}
    for (name, values), (least, count) in zip(keys.items(), spans, strict=True):
        if dense:
            distinct[name] = np.arange(least, least + count).astype(values.dtype)
        else:  # by rank among the values that occur: their product stays small, however large the numbers are
            values, distinct[name] = _ranked(values)
            least = 0
        if len(distinct[name]) > 1:
            combined *= len(distinct[name])
            combined += values
            combined -= least
    group, left = _ranked(combined)
    columns: dict[str, np.ndarray] = {}
    for name in reversed(list(keys)):
        left, rank = np.divmod(left, max(len(distinct[name]), 1))
        columns[name] = distinct[name][rank]
    return group, pd.DataFrame({name: columns[name] for name in keys})


def _span(values: np.ndarray) -> tuple[int, int]:
    """The least value, and how many numbers there are from it to the largest."""
    return (int(values.min()), int(values.max()) - int(values.min()) + 1) if values.size else (0, 0)


def _ranked(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each value its number among those that occur, and these in order."""
    least, count = _span(values)
    if count > MOST_DENSE:
        return pd.factorize(values, sort=True)
    place = values.astype(np.int64)  # what NumPy finds places by
    place -= least
    occurs = np.zeros(count, bool)
    occurs[place] = True
    return (np.cumsum(occurs) - 1).take(place), np.flatnonzero(occurs).astype(values.dtype) + least


def durations(group: np.ndarray, duration: Times) -> pd.DataFrame:
    """Per group, from one sort: instances and the duration_* metrics in ns, defined as in `nsys stats`."""
    ordered = _in_order(group, duration)
    count = np.bincount(group)
    first = np.cumsum(count) - count
    total = np.add.reduceat(ordered, first) if count.size else ordered
    mean = total / count
    spread = ordered - np.repeat(mean, count)
    squares = np.add.reduceat(spread * spread, first) if count.size else spread
    return pd.DataFrame(
        {
            "instances": count,
            "duration_total": total,
            "duration_median": (ordered[first + (count - 1) // 2] + ordered[first + count // 2]) / 2,
            "duration_mean": mean,
            "duration_min": ordered[first],
            "duration_max": ordered[first + count - 1],
            "duration_stddev": np.sqrt(squares / np.where(count > 1, count - 1, np.nan)),
        }
    )


def _in_order(group: np.ndarray, duration: Times) -> Times:
    """Durations by group, then by length."""
    least, bits = (int(duration.min()), int(np.ptp(duration)).bit_length()) if duration.size else (0, 0)
    if int(group.max(initial=0)).bit_length() + bits >= INT_BITS:
        ordered: Times = duration[np.lexsort((duration, group))]
        return ordered
    # Both in one integer: sorted in a tenth of the time.
    packed = np.sort(group.astype(np.int64) << bits | duration - least)
    return (packed & (1 << bits) - 1) + least


def tidy_rows(wide: pd.DataFrame) -> pd.DataFrame:
    """Columns of metrics → one row per metric. What does not exist (the deviation of one instance) gets no row."""
    keys = [column for column in wide if column in _KEYS]
    return wide.melt(id_vars=keys, var_name="metric", value_name="value").dropna(subset=["value"])


def statistics(events: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Events with a `duration` in ns → per group of `keys` instances and the duration_* metrics, a row per metric."""
    wide = events.groupby(keys, sort=False)["duration"].agg(
        instances="count",
        duration_total="sum",
        duration_median="median",
        duration_mean="mean",
        duration_min="min",
        duration_max="max",
    )
    return tidy_rows(wide.reset_index())


def _named(rows: pd.DataFrame, timeline: Timeline) -> pd.DataFrame:
    """Codes of names and paths → text; an unknown stream and the empty path become missing."""
    rows["name"] = rows["name"].map(dict(enumerate(timeline.names)))
    if "range" in rows:
        rows["range"] = rows["range"].map({code: path or None for code, path in enumerate(timeline.paths)})
    if "stream" in rows:
        rows["stream"] = rows["stream"].astype("Int64").mask(rows["stream"] < 0)
    return rows
