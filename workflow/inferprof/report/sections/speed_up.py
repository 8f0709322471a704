"""Each case against the baseline of its model and shape."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from inferprof.grouping import grouped
from inferprof.report.common import (
    CASE_COLUMNS,
    FEW,
    by_case,
    case_cells,
    factor,
    few,
    name_of,
    of_rounds,
    optional,
    sources_of,
    table,
)
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Text, missing, words
from inferprof.report.numbers import ratio
from inferprof.report.section import section
from inferprof.tables.records import key_of, rows_of

FLAGGED = "flagged"
"""In place of a verdict: the factor says more about the baseline, or the measurement, than about the case."""

MIXED = "Rows by device are of two GPUs, rows by end_to_end of a CPU and another device: the two are not comparable."

COLUMNS = [
    *CASE_COLUMNS,
    Column("boundary", "by"),
    Column("speed_up", "speed-up", "number"),
    Column("interval", "±", "number"),
    Column("verdict", "verdict"),
    Column("flag", "but", hidden=True),
    Column("low", "low", "number", hidden=True),
    Column("high", "high", "number", hidden=True),
    Column("detectable", "smallest detectable ratio", "number", hidden=True),
    Column("reason", "reason", hidden=True),
]


@section("speed_up", "Speed-up over the baseline", place=50)
def build(evidence: Evidence) -> Sequence[Block]:
    """One table, or why there is none."""
    if not evidence.baseline:
        return (Text("No baseline was given."),)
    rows = by_case(rows_of(evidence.speed_ups), evidence.order, _rank)
    if not rows:
        other = f" other than the baseline {evidence.baseline}" if len(evidence.latency) else ""
        return (Text(f"No case{other} was measured."),)
    if len(reasons := {row["not_measured"] for row in rows}) == 1 and None not in reasons:
        return (Text(f"Not measured, for each case: {reasons.pop()}."),)
    note = (
        f"Baseline: {evidence.baseline} of the same model and shape. Speed-up: its time / the case's time, paired by "
        "round, with the 95 % interval. Undecided: below what these rounds could tell apart, or one of the two is in "
        "doubt; csv/speed_up.csv has the reason."
    )
    if of_round := of_rounds(evidence):
        note = f"{note} {of_round}"
    if len({row["boundary"] for row in rows if row["boundary"]}) > 1:
        note = f"{note} {MIXED}"
    sources = sources_of(evidence)
    shown = table("speed_up", "", COLUMNS, [_row(row, sources[key_of(row)]) for row in rows], note)
    return (*_flags(rows), shown)


def _rank(row: dict[str, Any]) -> tuple[str, float]:
    """One boundary after the other, within each the fastest first."""
    return row["boundary"] or "", -(row["speed_up"] or 0)


def _flags(rows: list[dict[str, Any]]) -> list[Text]:
    """Each flag once, with the cases whose factor is none of theirs."""
    flagged = grouped(
        ((row["model"], row["shape"], row["flag"]), f"{name_of(row)} ({ratio(row['speed_up'])})")
        for row in rows
        if row["flag"]
    )
    return [
        Text(f"Not to be taken for a speed-up: {model} {shape}, {few(names)}: {flag}.", "item", "warn")
        for (model, shape, flag), names in flagged.items()
    ]


def _row(row: dict[str, Any], source: str) -> list[Cell]:
    if row["speed_up"] is None:
        lacking = missing(row["not_measured"])
        return [*case_cells(row), words(row["boundary"] or "–"), *[lacking] * 3, words(""), *[lacking] * 4]
    times, spread = factor(row["speed_up"], row["low"], row["high"])
    return [
        *case_cells(row),
        words(row["boundary"]),
        dataclasses.replace(times, file=source),
        spread,
        words(FLAGGED if row["flag"] else row["verdict"], "warn" if row["flag"] else None),
        words(row["flag"] or ""),
        optional(row["low"], ratio, FEW),
        optional(row["high"], ratio, FEW),
        optional(row["detectable"], ratio, FEW),
        words(row["reason"]),
    ]
