"""How fast the host itself was while the cases were measured: a part of the section on latency."""

from __future__ import annotations

import dataclasses
from typing import Any

from inferprof.diagnosis.unsteady_host import HOST_SPREAD
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Text
from inferprof.report.numbers import NS_PER_MS, milliseconds, significant
from inferprof.report.sections.common import (
    CASE_COLUMNS,
    by_case,
    case_cells,
    enumerated,
    optional,
    path_of,
    scaled,
    table,
)
from inferprof.tables import summary
from inferprof.tables.records import hosts, rows_of

COLUMNS = [
    *CASE_COLUMNS,
    Column("spread", "host ×", "number"),
    Column("yardstick_ms", "yardstick ms", "number"),
    Column("steal_percent", "stolen %", "number"),
    Column("readings", "readings", "number", hidden=True),
]
TITLE = "The host itself: how much its own speed varied, by the time of a fixed piece of work"
NOTE = (
    "host ×: 90th over 10th percentile of the yardstick, about 1 ms of Python that is timed between the loops; its "
    "median. Stolen: of the time that CPUs had work, what the hypervisor took, in the worst round."
)


def blocks(evidence: Evidence) -> list[Block]:
    """What the yardstick says of each case and between them; of a steady host the table is in the CSV alone."""
    found = summary.hosts(hosts(evidence.records[evidence.records["status"] == "ok"]))
    if found.empty:
        return []
    rows = by_case(rows_of(found), evidence.order)
    if not found["readings"].any():
        return [Text(f"The host's own speed was not measured: {rows[0]['not_measured']}.")]
    doubts = [*_within(evidence, rows), *_between(evidence, rows)]
    body = table("host", TITLE, COLUMNS, [_row(row) for row in rows], NOTE)
    return [dataclasses.replace(body, csv_only=not doubts), *doubts]


def _row(row: dict[str, Any]) -> list[Cell]:
    return [
        *case_cells(row),
        optional(row["spread"], lambda value: f"{value:.2f}", row["not_measured"]),
        scaled(row["yardstick_ns"], NS_PER_MS, milliseconds, row["not_measured"]),
        optional(row["steal_percent"], lambda value: significant(value, 2), row["no_steal"]),
        optional(row["readings"], str),
    ]


def _within(evidence: Evidence, rows: list[dict[str, Any]]) -> list[Text]:
    """The cases during which it varied, most first."""
    known = sorted((row for row in rows if row["spread"] is not None), key=lambda row: -row["spread"])
    unsteady = [path_of(row) for row in known if row["spread"] >= _limit(evidence)]
    if not unsteady:
        return []
    cases = enumerated(unsteady, len(rows), "csv/host.csv")
    said = f"The host's own speed varied by a factor of up to {known[0]['spread']:.2f} during {cases} of the cases"
    return [Text(f"{said}: those that wait for its launches vary as much.", "item", "warn")]


def _between(evidence: Evidence, rows: list[dict[str, Any]]) -> list[Text]:
    """By how much its median differed from one case to another."""
    known = sorted((row for row in rows if row["readings"]), key=lambda row: row["yardstick_ns"])
    fastest, slowest = known[0], known[-1]
    factor = slowest["yardstick_ns"] / fastest["yardstick_ns"]
    if factor < _limit(evidence):
        return []
    ends = ", ".join(f"{path_of(row)} {milliseconds(row['yardstick_ns'])} ms" for row in (fastest, slowest))
    said = f"From case to case the host's speed differed by a factor of up to {factor:.2f} ({ends})"
    worth = "those that wait for its launches can be compared no better than that"
    return [Text(f"{said}: {worth}.", "item", "warn")]


def _limit(evidence: Evidence) -> float:
    """The threshold of the check: the config's where it has one."""
    moved = [one.get("thresholds", {}).get(HOST_SPREAD.name) for one in evidence.diagnoses.values()]
    return next((limit for limit in moved if limit is not None), HOST_SPREAD.value)
