"""Where the end_to_end median of each case on a GPU goes, in parts that add up to it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from inferprof.report.common import (
    CASE_COLUMNS,
    by_case,
    case_cells,
    enumerated,
    in_ms,
    optional,
    path_of,
    scaled,
    table,
)
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Table, Text, missing, number, words
from inferprof.report.numbers import milliseconds
from inferprof.report.section import section
from inferprof.tables.counters.bounds import BOUNDS
from inferprof.tables.limits.waterfall import GPU_PARTS, PARTS, bare_times, of_gpus
from inferprof.tables.records import KEY, key_of, rows_of
from inferprof.units import NS_PER_MS

MUCH_UNEXPLAINED = 0.15
"""From this share on the parts of a case do not say where its time goes, and the report marks it."""
ALL_KERNELS = "all_kernels"
WHOLE = ("launch", "idle", "copy", ALL_KERNELS, "execution", "unexplained")
"""The parts with the kernels as one."""
TITLES = {ALL_KERNELS: "kernels", "execution": "unsplit"}
OF_KERNELS = (*BOUNDS, "kernels")
COLUMNS = (
    *CASE_COLUMNS,
    Column("end_to_end_ms", "ms", "number"),
    *(Column(f"{part}_percent", TITLES.get(part, part), "number") for part in WHOLE),
    *(Column(f"{part}_ms", f"{part} ms", "number", hidden=True) for part in PARTS),
    Column("overlap_ms", "overlap ms", "number", hidden=True),
    Column("tool", "timeline", hidden=True),
)
KERNEL_COLUMNS = (
    *CASE_COLUMNS,
    Column("all_kernels_percent", "kernels", "number"),
    *(Column(f"{part}_percent", part, "number") for part in BOUNDS),
    Column("kernels_percent", "no counters", "number"),
    Column("counted_percent", "kernel time with counters %", "number", hidden=True),
)
GPU_COLUMNS = (
    *CASE_COLUMNS,
    Column("gpu", "GPU", "number"),
    Column("device_ms", "ms", "number"),
    *(Column(f"{part}_percent", part, "number") for part in GPU_PARTS),
    *(Column(f"{part}_ms", f"{part} ms", "number", hidden=True) for part in GPU_PARTS),
    Column("tool", "timeline", hidden=True),
)
GPU_NOTE = (
    "Computation: whatever runs beside it. Transfer: what it does not hide of communication. Waiting: in "
    "collectives, for the GPU that begins last. The median is of the bare run on GPU 0, with which all end; the "
    "profile shares it out."
)


@section("waterfall", "Waterfall", place=110, needs=("waterfall",))
def build(evidence: Evidence) -> Sequence[Block]:
    """The tables, and the cases that have none; empty where no case is on a GPU."""
    rows = by_case(rows_of(evidence.waterfall), evidence.order, lambda row: row["total_ns"] or 0.0)
    split = [_with_all_kernels(row) for row in rows if row["total_ns"] is not None]
    if not split:
        return ()
    return (_whole(split), *_kernels(split), *_by_gpu(evidence), *_without(rows))


def _with_all_kernels(row: dict[str, Any]) -> dict[str, Any]:
    total = None if row["kernels_ns"] is None else sum(row[f"{part}_ns"] or 0.0 for part in OF_KERNELS)
    return {**row, f"{ALL_KERNELS}_ns": total}


def _whole(rows: list[dict[str, Any]]) -> Table:
    title = "Where end_to_end goes: % of its median, which the parts add up to"
    note = (
        "Launch: the GPU waits for the host's launches. Idle: other waits. Copy: in and out, with staging. Unsplit: "
        "kernels and waits that no timeline tells apart. All from the bare run; a profile only shares out the time "
        "between the events of `device`, and what it does not show is unexplained."
    )
    if all(row["tool"] for row in rows):
        columns = [
            dataclasses.replace(column, hidden=column.hidden or column.key == "execution_percent")
            for column in COLUMNS
        ]
    else:
        columns = list(COLUMNS)
    return table("waterfall", title, columns, [_row(row) for row in rows], note)


def _row(row: dict[str, Any]) -> list[Cell]:
    return [
        *case_cells(row),
        number(row["total_ns"] / NS_PER_MS, milliseconds(row["total_ns"])),
        *(_percent(row, part) for part in WHOLE),
        *(_part(row, part, NS_PER_MS, milliseconds) for part in PARTS),
        number(row["overlap_ns"] / NS_PER_MS, milliseconds(row["overlap_ns"])),
        Cell(row["tool"], row["tool"]) if row["tool"] else missing(row["no_timeline"]),
    ]


def _kernels(rows: list[dict[str, Any]]) -> list[Block]:
    """The kernels by what bounds them; one line where no case has counters."""
    counted = [row for row in rows if row["counted_share"] is not None]
    if not counted:
        return [Text(f"What bounds the kernels was not measured: {rows[0]['no_counters']}.", "item")]
    note = (
        "By ncu's shares, on the times of the timeline. Memory, compute: that roof is 60 % busy or more. Latency: "
        "neither is. Tail: SMs that the last wave of blocks leaves empty."
    )
    body = [
        [
            *case_cells(row),
            *(_percent(row, part) for part in (ALL_KERNELS, *OF_KERNELS)),
            optional(100 * row["counted_share"], lambda value: f"{value:.0f}"),
        ]
        for row in counted
    ]
    return [
        table("waterfall_kernels", "Kernels by what bounds them: % of end_to_end", list(KERNEL_COLUMNS), body, note)
    ]


def _by_gpu(evidence: Evidence) -> list[Block]:
    """A row for each GPU of cases that have several; nothing without."""
    seen = {tuple(map(str, key)): frame for key, frame in evidence.profiles.groupby(KEY, sort=False)}
    cases = by_case(bare_times(evidence.latency, evidence.stages), evidence.order)
    rows = [row for case in cases for row in of_gpus(case, seen.get(key_of(case)))]
    if not rows:
        return []
    body = [
        [
            *case_cells(row),
            number(row["gpu"], str(row["gpu"])),
            number(row["total_ns"] / NS_PER_MS, milliseconds(row["total_ns"])),
            *(_share(row, part) for part in GPU_PARTS),
            *(in_ms(row[f"{part}_ns"], _no_waiting(row)) for part in GPU_PARTS),
            words(row["tool"]),
        ]
        for row in rows
    ]
    return [
        table("waterfall_gpus", "Where `device` goes on each GPU: % of its median", list(GPU_COLUMNS), body, GPU_NOTE)
    ]


def _share(row: dict[str, Any], part: str) -> Cell:
    return scaled(
        row[f"{part}_ns"], row["total_ns"] / 100, lambda ns: f"{100 * ns / row['total_ns']:.1f}", _no_waiting(row)
    )


def _no_waiting(row: dict[str, Any]) -> str:
    return row["not_paired"] or "no collective of all GPUs: waiting is in transfer"


def _percent(row: dict[str, Any], part: str) -> Cell:
    cell = _part(row, part, row["total_ns"] / 100, lambda value: f"{100 * value / row['total_ns']:.1f}")
    much = part == "unexplained" and row["unexplained_ns"] > MUCH_UNEXPLAINED * row["total_ns"]
    return dataclasses.replace(cell, mark="warn") if much else cell


def _part(row: dict[str, Any], part: str, unit: float, write: Callable[[float], str]) -> Cell:
    value = row[f"{part}_ns"]
    if value is None:
        return missing(row["no_counters"] if part in BOUNDS else row["no_timeline"])
    return number(value / unit, write(value))


def _without(rows: list[dict[str, Any]]) -> list[Block]:
    """The cases without a waterfall, and why."""
    lacking = [row for row in rows if row["total_ns"] is None]
    names = enumerated([path_of(row) for row in lacking], len(rows), "csv/end_to_end.csv")
    return [Text(f"No waterfall of {names}: {lacking[0]['not_measured']}", "item")] if lacking else []
