"""The kernels of two cases side by side: FP16 against FP8, ONNX Runtime against TensorRT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pandas as pd

from inferprof import escape
from inferprof.errors import UserError
from inferprof.tables.schema import Level
from inferprof.tables.trace.kernel_class import classify
from inferprof.tables.trace.timeline import PATH_SEPARATOR, without_serial

ITERATION: Final = "iteration"
MOST_NAMED: Final = 20
"""Ranges that an error lists."""


def as_iterations(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """The same rows, with the ranges of a name as iterations: of a capture that was not made by `inferprof run`.

    Raises UserError where there is no range of another name than ITERATION.
    """
    if name == ITERATION:
        return frame
    name = without_serial(name)

    def renamed(path: str) -> str:
        return PATH_SEPARATOR.join(ITERATION if part == name else part for part in path.split(PATH_SEPARATOR))

    ranges = frame["level"].eq("range") & frame["name"].eq(name)
    if not ranges.any():
        counted = frame[frame["level"].eq("range") & frame["metric"].eq("duration_total")]
        instances = counted.groupby("name")["instances"].sum()
        raise unknown_range(name, {str(other): int(count) for other, count in instances.items()})
    return frame.assign(
        name=frame["name"].mask(ranges, ITERATION), range=frame["range"].map(renamed, na_action="ignore")
    )


def unknown_range(name: str, instances: Mapping[str, int]) -> UserError:
    """The error of a range that is not there, with those that are, the most frequent first."""
    often = sorted(instances, key=lambda other: (-instances[other], other))
    rest = len(often) - MOST_NAMED
    there = [f"{escape.line(other)} ({instances[other]})" for other in often[:MOST_NAMED]]
    said = f"there are (how often): {', '.join(there)}" if there else "there is none that begins and ends in it"
    return UserError(f"the capture has no range {name}; {said}{f' and {rest:,} more' if rest > 0 else ''}")


def of_iterations(frame: pd.DataFrame, *levels: Level) -> pd.DataFrame:
    """The rows of kernels (or of `levels`) that were launched inside iterations; all of a profile without any.

    Earlier joins told the owner of a launch and not its range, of captures that hold iterations alone.
    """
    return frame[_launched(frame, levels)]


def holds(frame: pd.DataFrame, *levels: Level) -> bool:
    """Whether `of_iterations` has a row."""
    return bool(_launched(frame, levels).any())


def _launched(frame: pd.DataFrame, levels: Sequence[Level]) -> pd.Series[bool]:
    wanted = frame["level"].isin(levels or ("kernel",))
    inside = _inside(frame)
    joined_earlier = frame["owner"].notna() & frame["range"].isna()
    return wanted & (inside | joined_earlier) if inside.any() else wanted


def per_iteration(frame: pd.DataFrame) -> pd.DataFrame:
    """Per kernel name of one case: `kernel_class`, `dtype`, `launches` and `duration` (ns), each per iteration.

    Counts what was launched inside iterations. A profile without any is one iteration as a whole.
    """
    totals = frame[frame["metric"] == "duration_total"]
    sums = of_iterations(totals).groupby("name", as_index=False)[["instances", "value"]].sum()
    count = on_gpus(frame) if _inside(totals).any() else 1
    kinds = [classify(str(name)) for name in sums["name"]]
    return pd.DataFrame(
        {
            "name": sums["name"],
            "kernel_class": [kind.kernel_class for kind in kinds],
            "dtype": pd.array([kind.dtype for kind in kinds], dtype="str"),
            "launches": sums["instances"] / count,
            "duration": sums["value"] / count,
        }
    )


def _inside(frame: pd.DataFrame) -> pd.Series[bool]:
    """Which rows lie in a range called iteration, however deep."""
    paths = frame["range"].dropna().unique()
    return frame["range"].isin([path for path in paths if ITERATION in path.split(PATH_SEPARATOR)])


def iterations(frame: pd.DataFrame) -> int:
    """How many iterations a profile holds."""
    rows = frame[(frame["level"] == "range") & (frame["name"] == ITERATION) & (frame["metric"] == "duration_total")]
    return int(rows["instances"].sum())


def on_gpus(frame: pd.DataFrame) -> int:
    """How many iterations operations are of: where all are of one GPU those of its process, else `iterations`."""
    rows = frame[frame["level"].eq("range") & frame["name"].eq(ITERATION) & frame["metric"].eq("gpu_busy")]
    devices = rows["device"].nunique() if "device" in rows else 0  # tables of older versions don't tell
    return int(rows["instances"].sum()) if devices == 1 else iterations(frame)


def by_name(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    """One row per kernel of either case, largest change first.

    Columns: name, kernel_class, `launches_a`, `launches_b`, `duration_a`, `duration_b` (ns per iteration, 0 where it
    does not run), `change` = duration_b - duration_a, and `status`: both, gone (only in a) or new (only in b).
    Raises ValueError for profiles of different tools, which spell the same kernel differently.
    """
    _require_one_tool(a, b)
    return side_by_side(per_iteration(a), per_iteration(b))


def side_by_side(a: pd.DataFrame, b: pd.DataFrame, within: Sequence[str] = ()) -> pd.DataFrame:
    """The table of by_name, of what per_iteration says of two profiles by the same tool.

    Of many pairs at once where `within` names the columns that tell them apart.
    """
    keys = [*within, "name", "kernel_class"]
    columns = [*keys, "launches", "duration"]
    table = a[columns].merge(b[columns], on=keys, how="outer", suffixes=("_a", "_b"), indicator="status")
    table["status"] = table["status"].astype(str).map({"both": "both", "left_only": "gone", "right_only": "new"})
    return _with_change(table)


def by_class(names: pd.DataFrame, within: Sequence[str] = ()) -> pd.DataFrame:
    """The table of by_name summed by class, largest change first; columns as there, without name and status."""
    amounts = ["launches_a", "launches_b", "duration_a", "duration_b"]
    return _with_change(names.groupby([*within, "kernel_class"], as_index=False)[amounts].sum())


def _with_change(table: pd.DataFrame) -> pd.DataFrame:
    counted = ["launches_a", "launches_b", "duration_a", "duration_b"]
    table[counted] = table[counted].astype("Float64").fillna(0.0)
    table["change"] = table["duration_b"] - table["duration_a"]
    order = table["change"].abs().sort_values(ascending=False, kind="stable").index
    return table.loc[order].reset_index(drop=True)


def _require_one_tool(a: pd.DataFrame, b: pd.DataFrame) -> None:
    tools = set(a["tool"]) | set(b["tool"])
    if len(tools) > 1:
        raise ValueError(f"kernels of {' and '.join(sorted(tools))} cannot be compared: they spell names differently")
