"""Reads the CSVs of `nsys stats` (nsys 2022.2 to 2026.3): what is left where only they were kept.

They hold sums per name: no range, stream or launch, and sizes rounded to 1 kB.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from inferprof.errors import UserError
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

_METRICS: Final = {
    "Total Time": "duration_total",
    "Avg": "duration_mean",
    "Med": "duration_median",
    "Min": "duration_min",
    "Max": "duration_max",
    "StdDev": "duration_stddev",
    "Total": "bytes_total",
}
_UNITS: Final = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "MB": 1_000_000}
"""In ns and bytes; the header names the unit, which `--timeunit` changes."""
_HEADER: Final = re.compile(r"(?P<name>[^(]+?) \((?P<unit>[^)]+)\)")
_OPERATION: Final = re.compile(r"\[CUDA (?P<unified>Unified Memory )?mem(?P<kind>cpy|set) ?(?P<way>[\w-]*)\]")
_DIRECTIONS: Final = {
    "Host-to-Device": "HtoD",
    "Device-to-Host": "DtoH",
    "Device-to-Device": "DtoD",
    "Host-to-Host": "HtoH",
    "Peer-to-Peer": "PtoP",
}
_DEVICE: Final = re.compile(r"\((\d+)\)$")


def read(path: Path, tool: str) -> pd.DataFrame:
    """The tidy table of one CSV. Raises UserError for a report that is not in READABLE."""
    try:
        raw = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (pd.errors.ParserError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is no CSV as `nsys stats` writes it ({error}): write it again") from None
    if raw.empty:
        raise UserError(f"{path} has a heading and no rows: nothing of its kind was traced")
    units = {column: _split(str(column)) for column in raw}
    if foreign := sorted({unit for name, unit in units.values() if name in _METRICS} - _UNITS.keys() - {""}):
        raise UserError(f"{path} is in {', '.join(foreign)}: write it again with `nsys stats --timeunit nsec`")
    table = raw.rename(columns={column: name for column, (name, _) in units.items()})
    factors = {name: _UNITS.get(unit, 1) for name, unit in units.values()}
    columns = set(table)
    try:
        if {"Duration", "CorrId", "Strm", "Name"} <= columns:
            return _gpu_trace(table, tool)
        if {"NameTree", "TID", "End"} <= columns:
            return _pushpop_trace(table, tool)
        for report in SUMMARIES:
            if report.columns <= columns:
                return conform(_summary(table, report, factors), tool)
    except ValueError as error:
        raise UserError(f"{path} is cut short or damaged ({error}): write it again") from None
    raise UserError(f"{path} is none of the `nsys stats` reports that can be read: {', '.join(READABLE)}")


def _split(column: str) -> tuple[str, str]:
    """`Total Time (ns)` → name and unit; no unit is an empty one."""
    match = _HEADER.fullmatch(column)
    return (match["name"], match["unit"]) if match else (column, "")


def _summary(table: pd.DataFrame, report: Report, factors: Mapping[str, int]) -> pd.DataFrame:
    wide = pd.DataFrame({"name": [operation_name(name) for name in table[report.named_by]]})
    wide["instances"] = table[report.counted_by].astype(int)
    # The spread of sizes has no metric: only that of durations does.
    chosen = ["Total"] if report.total == "Total" else [column for column in _METRICS if column in table]
    for column in chosen:
        wide[_METRICS[column]] = (table[column].astype(float) * factors[column]).round(6)
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


def _gpu_trace(table: pd.DataFrame, tool: str) -> pd.DataFrame:
    """One row per operation, with no launch: idle time is of unknown cause."""
    names = [_traced_name(*row) for row in zip(table["Name"], table["SrcMemKd"], table["DstMemKd"], strict=True)]
    codes, distinct = pd.factorize(np.array(names, dtype=object))
    start = table["Start"].astype(np.int64)
    kinds = [_kind(name) for name in table["Name"]]
    devices = [int(match[1]) if (match := _DEVICE.search(text)) else 0 for text in table["Device"]]
    ops = pd.DataFrame(
        {
            "start": start,
            "end": start + table["Duration"].astype(np.int64),
            "kind": kinds,
            "name": codes,
            "device": devices,
            "stream": table["Strm"].astype(np.int64),
            "bytes": [_traced_bytes(*row) for row in zip(table["Bytes"], kinds, strict=True)],
            "correlation": table["CorrId"].astype(np.int64),
        }
    )
    return tidy(assemble(ops, _no_calls(), _no_ranges(), list(distinct)), tool)


def _traced_name(name: str, source: str, target: str) -> str:
    memory = next((end.lower() for end in (source, target) if end in ("Pageable", "Pinned", "Managed")), None)
    return f"{operation_name(name)} {memory}" if memory and _kind(name) == MEMCPY else operation_name(name)


def _traced_bytes(size: str, kind: int) -> int:
    """The column is in MB; it is empty for kernels, which move none that a trace would tell."""
    if size:
        return round(float(size) * _UNITS["MB"])
    return 0 if kind == KERNEL else NOT_TOLD


def _kind(name: str) -> int:
    match = _OPERATION.fullmatch(name)
    if match is None:
        return KERNEL
    return MEMSET if match["kind"] == "set" else MEMCPY


def _pushpop_trace(table: pd.DataFrame, tool: str) -> pd.DataFrame:
    """One row per range: the ranges of a capture without its GPU operations."""
    nested = pd.DataFrame(
        {
            "start": table["Start"].astype(np.int64),
            "end": table["End"].astype(np.int64),
            "thread": table["TID"].astype(np.int64),
            "label": [name.removeprefix(":") for name in table["Name"]],
        }
    )
    no_ops = pd.DataFrame(columns=["start", "end", "kind", "name", "device", "stream", "bytes", "correlation"])
    return conform(ranges(assemble(no_ops, _no_calls(), nested, [])), tool)


def _no_calls() -> pd.DataFrame:
    return pd.DataFrame(columns=["start", "end", "thread", "name", "correlation"])


def _no_ranges() -> pd.DataFrame:
    return pd.DataFrame(columns=["start", "end", "thread", "label"])
