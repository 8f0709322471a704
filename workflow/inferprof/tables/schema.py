"""The tidy table that every reader returns: one row is one metric of one thing, with its case, level and unit."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal, get_args

import pandas as pd

from inferprof.case import Case
from inferprof.documents import OF_ANOTHER
from inferprof.errors import UserError, require_file
from inferprof.tables.metrics import METRICS

Level = Literal[
    "run",
    "stage",
    "range",
    "layer",
    "op",
    "kernel",
    "graph",
    "memcpy",
    "memset",
    "api",
    "sync",
    "launch_config",
    "ncu_rule",
    "collective",
    "event",
]

COLUMNS: dict[str, str] = {
    "machine": "str",
    "model": "str",
    "precision": "str",
    "backend": "str",
    "variant": "str",
    "shape": "str",
    "round": "Int64",
    "tool": "str",
    "level": "str",
    "name": "str",
    "range": "str",
    "owner": "str",
    "device": "Int64",
    "stream": "Int64",
    "launch": "Int64",
    "instances": "Int64",
    "metric": "str",
    "value": "Float64",
    "text": "str",
    "unit": "str",
}
"""Column → dtype. `value` holds numbers and `text` words: one of the two is missing in each row."""
MEANINGS: dict[str, str] = {
    "machine": "slug of the machine: its folder in results/",
    "model": "of the case, as are the next four; missing in the table of a capture that names no case",
    "precision": "number format",
    "backend": "runtime",
    "variant": "named set of the runtime's options",
    "shape": "`b8`, `b8_s128`",
    "round": "which process of the case; missing in what several or none of them gave",
    "tool": "the profiler that wrote the capture",
    "level": f"what the row is about: {', '.join(get_args(Level))}",
    "name": "of the kernel, call, range, node, …",
    "range": "path of the ranges around it on the host",
    "owner": "what it belongs to: the layer or the node that launched a kernel, provider and type of a node, the "
    "kernel that a rule speaks of",
    "device": "number of the GPU",
    "stream": "number of the CUDA stream",
    "launch": "number of the launch where a capture holds them one by one, or of the launch configuration (kernel, "
    "grid and block); missing where a row sums over them",
    "instances": "how many of them the row sums over",
    "metric": "a name of the next table",
    "value": "a number, in `unit`",
    "text": "words, where the metric's unit is text",
    "unit": "that of the metric",
}
"""Column → what it holds, for the documentation."""

EVENT: Final = "event"
"""The level of single events: nine rows of ten of a table that has any."""
EVENT_KIND: Final = "event_kind"
_OWNED: Final = ("op", "ncu_rule")
_JOINS: Final = ("ort_nodes", "ort_nodes_kineto", "trt_nodes")
_LAUNCHED: Final = ("kernel", "memcpy", "memset", "graph")
"""What `parent` named the owner of, in tables of before `range` and `owner`: of any tool, and of those that join."""


def conform(frame: pd.DataFrame, tool: str) -> pd.DataFrame:
    """Give a reader's rows the schema: all columns in order, units from METRICS.

    Needs the columns `level`, `name`, `metric` and `value` or `text`. Raises ValueError for an unknown level or
    metric: that is a bug of the reader.
    """
    unknown_metrics = set(frame["metric"]) - set(METRICS)
    unknown_levels = set(frame["level"]) - set(get_args(Level))
    if unknown_metrics or unknown_levels:
        raise ValueError(f"{tool} reader: unknown metrics {unknown_metrics}, unknown levels {unknown_levels}")
    full = frame.reindex(columns=list(COLUMNS))
    full["tool"] = tool
    full["unit"] = full["metric"].map({name: metric.unit for name, metric in METRICS.items()})
    return full.astype(COLUMNS).reset_index(drop=True)


def joined(frames: Iterable[pd.DataFrame], tool: str) -> pd.DataFrame:
    """The rows of all frames, conformed; empty ones are left out, whose columns would change the others' types."""
    return conform(pd.concat([frame for frame in frames if len(frame)], ignore_index=True), tool)


def not_measured(reason: str, tool: str) -> pd.DataFrame:
    """The table of a capture that there is none of: one row, the reason."""
    rows = pd.DataFrame([{"metric": "not_measured", "text": reason, "level": "run", "name": tool}])
    return conform(rows, tool)


def reason_in(frame: pd.DataFrame) -> str | None:
    """Why a table holds no capture; None where it holds one."""
    reasons = frame.loc[frame["metric"] == "not_measured", "text"]
    return str(reasons.iloc[0]) if len(reasons) else None


def of_first(frame: pd.DataFrame, tools: Iterable[str]) -> pd.DataFrame:
    """The rows of the first of the tools that made any of them; none where none did."""
    made = set(frame["tool"])
    return frame[frame["tool"].eq(next((tool for tool in tools if tool in made), ""))]


def wide(rows: pd.DataFrame, index: list[str]) -> pd.DataFrame:
    """One row per `index`, with a column per metric: its value or its text (NaN or None: not there)."""
    content = rows["value"].astype(object).where(rows["value"].notna(), rows["text"])
    pivoted = rows.assign(content=content).pivot(index=index, columns="metric", values="content")
    return pivoted.rename_axis(columns=None).reset_index()


def shared(frame: pd.DataFrame) -> pd.DataFrame:
    """The same rows with equal strings kept once, as Python objects: of many small frames cut out of one table, those
    of Arrow's strings take four times as long to filter."""
    strings = [name for name, dtype in COLUMNS.items() if dtype == "str"]
    # Copied, all columns of a type are one block: rows are then chosen in two thirds of the time.
    return frame.astype(dict.fromkeys(strings, "category")).astype(dict.fromkeys(strings, object)).copy()


def of_case(frame: pd.DataFrame, machine: str, case: Case | None, round_: int | None = None) -> pd.DataFrame:
    """The same rows with the columns that say which case of which machine they belong to; missing where not known."""
    names = dataclasses.asdict(case) if case else {field.name: None for field in dataclasses.fields(Case)}
    return frame.assign(machine=machine, **names, round=round_).astype(COLUMNS)


def read_earlier(path: Path, events: bool | None = None) -> pd.DataFrame:
    """A table that any version of `inferprof table` wrote; earlier ones had fewer columns, which are empty then.

    `events`: whether only the rows of level event are wanted, or only the others. Raises UserError where the file is
    missing or no Parquet.
    """
    frame = _read(path, events)
    # Both calls copy all of a frame that is as it should be, which takes as long as to read it.
    if list(frame) != list(COLUMNS):
        frame = frame.reindex(columns=list(COLUMNS))
    others = {column: dtype for column, dtype in COLUMNS.items() if frame[column].dtype != dtype}
    return frame.astype(others) if others else frame


def read_table(path: Path, events: bool | None = None) -> pd.DataFrame:
    """The same of this version. Raises UserError where the file is missing or no such table."""
    frame = _read(path, events)
    if lacking := set(COLUMNS) - set(frame):
        raise UserError(
            f"{path} is not a table that `inferprof table` wrote: it lacks {', '.join(sorted(lacking))}; {OF_ANOTHER}"
        )
    return frame[list(COLUMNS)]


def _read(path: Path, events: bool | None) -> pd.DataFrame:
    import pyarrow.compute as pc
    from pyarrow import parquet

    try:
        # Of a small table pandas' own reader takes twice the time, and rows that are not wanted are most of it.
        with parquet.ParquetFile(require_file(path, 1 << 62)) as file:
            table = file.read(use_threads=False)
        if events is not None:
            is_event = pc.field("level") == EVENT
            table = table.filter(is_event if events else ~is_event)
        frame = table.to_pandas()
    except (ValueError, OSError) as error:
        why = str(error).rstrip(".")
        raise UserError(f"{path} is not a table that `inferprof table` wrote: {why}; {OF_ANOTHER}") from None
    return _split_parent(frame) if "parent" in frame else frame


def _split_parent(frame: pd.DataFrame) -> pd.DataFrame:
    """A table of before `range` and `owner`, which had one column for both and, of events, for their kind."""
    parent, level = frame["parent"], frame["level"]
    events = level == EVENT
    owned = level.isin(_OWNED) | (frame["tool"].isin(_JOINS) & level.isin(_LAUNCHED))
    split = frame.drop(columns="parent").assign(range=parent.mask(owned | events), owner=parent.where(owned))
    first = events & (frame["metric"] == "start")
    kinds = split[first].assign(metric=EVENT_KIND, value=None, text=parent[first], unit=METRICS[EVENT_KIND].unit)
    return pd.concat([split, kinds.astype(split.dtypes)], ignore_index=True)


def by_launch(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per launch of one case's table: `launch`, `name`, a column per metric (NaN or None: not counted)."""
    kernels = frame[(frame["level"] == "kernel") & frame["launch"].notna()]
    return wide(kernels, ["launch", "name"])
