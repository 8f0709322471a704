"""Reads the CSVs of `nsys stats` (nsys 2022.2 to 2026.3): what is left where only they were kept.

They hold sums per name: no range, stream or launch, and sizes rounded to 1 kB. Where one is cut off behind a whole
line, only its percentages tell: they are of the whole. How much of the time may lack all the same is the row
`untold_share` of each report; of traces and sizes, which have no percentages, it is 1.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from inferprof.errors import UserError, in_one_line
from inferprof.readers import nsys_text
from inferprof.readers.nsys_csv import SIZES, NotPlain, Table, is_csv, tables
from inferprof.tables.schema import Level, conform
from inferprof.tables.trace.aggregate import ranges
from inferprof.tables.trace.events import tidy
from inferprof.tables.trace.timeline import KERNEL, MEMCPY, MEMSET, NOT_TOLD, assemble


@dataclass(frozen=True)
class Report:
    """A summary report: the columns that tell it from the others, without their units, and what its rows are."""

    name: str
    level: Level
    named_by: str
    counted_by: str
    total: str

    @property
    def columns(self) -> frozenset[str]:
        """The columns that it must have."""
        return frozenset((self.named_by, self.counted_by, self.total))


SUMMARIES: Final = (
    Report("cuda_gpu_kern_sum", "kernel", "Name", "Instances", "Total Time"),
    Report("cuda_api_sum", "api", "Name", "Num Calls", "Total Time"),
    Report("cuda_gpu_mem_time_sum", "memcpy", "Operation", "Count", "Total Time"),
    Report("cuda_gpu_mem_size_sum", "memcpy", "Operation", "Count", "Total"),
    Report("nvtx_sum", "range", "Range", "Instances", "Total Time"),
)
READABLE: Final = (*(report.name for report in SUMMARIES), "cuda_gpu_trace", "nvtx_pushpop_trace")

SUMS_OFF: Final = 0.01
"""Ours: by what share a total may miss its mean times its count, beside their rounding."""
_ROUNDING: Final = 1e-9
"""Of doubles, far more than they lose."""
_METRICS: Final = {
    "Total Time": "duration_total",
    "Avg": "duration_mean",
    "Med": "duration_median",
    "Min": "duration_min",
    "Max": "duration_max",
    "StdDev": "duration_stddev",
}
_OPERATION: Final = re.compile(r"\[CUDA (?P<unified>Unified Memory )?mem(?P<kind>cpy|set) ?(?P<way>[\w-]*)\]")
_DIRECTIONS: Final = {
    "Host-to-Device": "HtoD",
    "Device-to-Host": "DtoH",
    "Device-to-Device": "DtoD",
    "Host-to-Host": "HtoH",
    "Peer-to-Peer": "PtoP",
}
_API: Final = re.compile(r"cu|hip")
"""How calls of a GPU's API begin: the same columns are also those of reports of other APIs."""
_TRACE: Final = frozenset(("Start", "Duration", "CorrId", "Strm", "Name", "Bytes", "SrcMemKd", "DstMemKd", "Device"))
_RANGES: Final = frozenset(("NameTree", "TID", "Start", "End", "Name", "NumChild", "RangeId", "ParentId"))
_DEVICE: Final = re.compile(r"\((\d+)\)$")


def read(path: Path, tool: str) -> pd.DataFrame:
    """The tidy table of all reports in a file. Raises UserError where none of them is in READABLE, and for one that
    is cut short, as far as it tells, or in units that are not known."""
    try:
        read_from = [(table, part) for table in _tables(path) if (part := _report(table, tool)) is not None]
    except KeyError as unit:
        raise UserError(
            f"{path} is in {unit.args[0] or 'no unit'}: write it again with `nsys stats --timeunit nsec`"
        ) from None
    except NotPlain as error:
        raise UserError(
            f"{path} has a cell that is no plain number ({error}): write it again with LC_ALL=C, "
            "as `nsys stats --format csv` writes it"
        ) from None
    except ValueError as error:
        raise UserError(f"{path} is cut short or damaged ({in_one_line(error)}): write it again") from None
    parts = [part for _, part in read_from]
    kinds = Counter((part["name"].iloc[-1], *table.cells) for table, part in read_from)
    if kinds and max(kinds.values()) > 1:
        raise UserError(f"{path} holds one report several times, of several profiles: give each in a file of its own")
    if not parts:
        raise UserError(f"{path} is none of the `nsys stats` reports that can be read: {', '.join(READABLE)}")
    return pd.concat(parts, ignore_index=True)


def _tables(path: Path) -> list[Table]:
    """The tables of a file, as CSV where it has any, else as text."""
    return tables(path) if is_csv(path) else nsys_text.tables(path)


def _report(table: Table, tool: str) -> pd.DataFrame | None:
    """The rows of a report; None for one that is not read. Raises KeyError, with a unit that is not known."""
    columns = set(table.cells)
    if columns >= _TRACE:
        return pd.concat([_gpu_trace(table, tool), _untold("cuda_gpu_trace", 1.0, tool)])
    if columns >= _RANGES:
        return pd.concat([_pushpop_trace(table, tool), _untold("nvtx_pushpop_trace", 1.0, tool)])
    for report in SUMMARIES:
        if report.columns <= columns and (report.level != "api" or table.cells["Name"].str.match(_API).all()):
            _require_sums(table, report)
            untold = _missing_at_most(table) if "Time" in columns else 1.0
            return pd.concat([conform(_summary(table, report), tool), _untold(report.name, untold, tool)])
    return None


def _untold(report: str, share: float, tool: str) -> pd.DataFrame:
    row = {"level": "run", "name": report, "metric": "untold_share", "value": share}
    return conform(pd.DataFrame([row]), tool)


def _require_sums(table: Table, report: Report) -> None:
    """Raise ValueError where a total is not its mean as often as it is counted, as far as these are rounded."""
    if "Avg" not in table.cells:
        return
    total, count, mean = table.numbers(report.total), table.whole(report.counted_by), table.numbers("Avg")
    # Up to 2021 means were cut to whole ones.
    places = (
        table.half_places("Avg").where(lambda half: half > 0, 0.5).clip(lower=0.0 if "Med" in table.cells else 1.0)
    )
    off = (total - mean * count).abs() > SUMS_OFF * total + 2 * count * places + table.half_places(report.total)
    if off.any():
        row = int(off.to_numpy().argmax())
        raise ValueError(f"{count.iloc[row]:,} times {mean.iloc[row]:,} are not the total {total.iloc[row]:,}")


def _missing_at_most(table: Table) -> float:
    """What share of the time rows may have that are not there, by the percentages. Raises ValueError where some must
    be missing.

    A row of v and p % says that the whole is v / p; the whole lies where all rows say so, as far as both are rounded.
    """
    values, shares = table.numbers("Total Time"), table.numbers("Time") / 100
    off, share_off = table.half_places("Total Time"), table.half_places("Time").clip(lower=0.005) / 100
    if "Med" not in table.cells and table.numbers("Time").mod(1).eq(0).all():  # up to 2021 cut to whole ones
        share_off = share_off.clip(lower=0.01)
    total = float(values.sum())
    if not total:
        return 0.0
    low = float(((values - off) / (shares + share_off)).max())
    most = shares > share_off
    high = float(((values + off)[most] / (shares - share_off)[most]).min()) if most.any() else float("inf")
    slack = float(off.sum()) + total * _ROUNDING
    if table.excerpt:
        return max(0.0, 1 - (total + slack) / low)
    if total + slack < low or total - slack > high:
        raise ValueError(f"its rows hold {100 * total / low:.1f} % of the time that its percentages are of")
    return max(0.0, 1 - total / high)


def _summary(table: Table, report: Report) -> pd.DataFrame:
    wide = pd.DataFrame({"name": [operation_name(name) for name in table.cells[report.named_by]]})
    wide["instances"] = table.whole(report.counted_by)
    if report.total == "Total":  # the spread of sizes has no metric: only that of durations does
        wide["bytes_total"] = (table.numbers("Total") * SIZES[table.units["Total"]]).round(6)
    else:
        for column in [column for column in _METRICS if column in table.cells]:
            wide[_METRICS[column]] = table.ns(column)
    rows = wide.melt(id_vars=["name", "instances"], var_name="metric", value_name="value")
    memsets = (rows["name"] == "memset") & (report.level == "memcpy")
    return rows.assign(level=np.where(memsets, "memset", report.level))


def operation_name(name: str) -> str:
    """Copies and memsets as all readers name them; a range without the colon of the default domain."""
    if match := _OPERATION.fullmatch(name):
        if match["kind"] == "set":
            return "memset"
        direction = _DIRECTIONS.get(match["way"], match["way"])
        return f"{direction} unified memory" if match["unified"] else direction
    return name.removeprefix(":")


def _gpu_trace(table: Table, tool: str) -> pd.DataFrame:
    """One row per operation, with no launch: idle time is of unknown cause."""
    cells = table.cells
    names = [_traced_name(*row) for row in zip(cells["Name"], cells["SrcMemKd"], cells["DstMemKd"], strict=True)]
    if not all(names):
        raise ValueError("an operation without a name")
    codes, distinct = pd.factorize(np.array(names, dtype=object))
    start = table.times("Start")
    kinds = [_kind(name) for name in cells["Name"]]
    devices = [int(match[1]) if (match := _DEVICE.search(text)) else 0 for text in cells["Device"]]
    ops = pd.DataFrame(
        {
            "start": start,
            "end": start + table.times("Duration"),
            "kind": kinds,
            "name": codes,
            "device": devices,
            "stream": table.whole("Strm"),
            "bytes": _traced_bytes(table, kinds),
            "correlation": table.whole("CorrId"),
        }
    )
    return tidy(assemble(ops, _no_calls(), _no_ranges(), list(distinct)), tool)


def _traced_name(name: str, source: str, target: str) -> str:
    memory = next((end.lower() for end in (source, target) if end in ("Pageable", "Pinned", "Managed")), None)
    return f"{operation_name(name)} {memory}" if memory and _kind(name) == MEMCPY else operation_name(name)


def _traced_bytes(table: Table, kinds: Sequence[int]) -> list[int]:
    """The column is empty for kernels, which move none that a trace would tell."""
    factor, sizes = SIZES[table.units["Bytes"]], table.cells["Bytes"]
    moved = replace(table, cells=table.cells[sizes != ""]).numbers("Bytes") * factor
    untold = pd.Series([0.0 if kind == KERNEL else NOT_TOLD for kind in kinds], sizes.index)
    whole: list[int] = moved.round().reindex(sizes.index).where(sizes != "", untold).astype(np.int64).tolist()
    return whole


def _kind(name: str) -> int:
    match = _OPERATION.fullmatch(name)
    if match is None:
        return KERNEL
    return MEMSET if match["kind"] == "set" else MEMCPY


def _pushpop_trace(table: Table, tool: str) -> pd.DataFrame:
    """One row per range: the ranges of a capture without its GPU operations. Raises ValueError where a range has
    fewer inside than it says."""
    cells = table.cells
    inside = cells["RangeId"].map(cells["ParentId"].value_counts()).fillna(0).astype(np.int64)
    if lacking := int((table.whole("NumChild") - inside).clip(lower=0).sum()):
        raise ValueError(f"{lacking:,} ranges are missing")
    nested = pd.DataFrame(
        {
            "start": table.times("Start"),
            "end": table.times("End"),
            "thread": table.whole("TID"),
            "label": [name.removeprefix(":") for name in cells["Name"]],
        }
    )
    no_ops = pd.DataFrame(columns=["start", "end", "kind", "name", "device", "stream", "bytes", "correlation"])
    return conform(ranges(assemble(no_ops, _no_calls(), nested, [])), tool)


def _no_calls() -> pd.DataFrame:
    return pd.DataFrame(columns=["start", "end", "thread", "name", "correlation"])


def _no_ranges() -> pd.DataFrame:
    return pd.DataFrame(columns=["start", "end", "thread", "label"])
