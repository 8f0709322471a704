"""trtexec beside us: the same engine, by two clocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inferprof.report.common import CASE_COLUMNS, by_case, case_cells, optional, scaled, table
from inferprof.report.documents import Document
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, words
from inferprof.report.numbers import NS_PER_MS, milliseconds, significant
from inferprof.report.section import Section
from inferprof.tables.records import key_of, rows_of

COLUMNS = [
    *(Column(column.key, column.title, hidden=column.key == "backend") for column in CASE_COLUMNS),
    Column("end_to_end_ms", "end_to_end", "number"),
    Column("device_ms", "device", "number"),
    Column("gpu_compute_ms", "GPU compute", "number"),
    Column("difference_percent", "difference", "number"),
    Column("latency_ms", "latency", "number"),
    Column("enqueue_ms", "enqueue", "number"),
    Column("verdict", "verdict", hidden=True),
    Column("trtexec", "trtexec", hidden=True),
    Column("file", "file", "path", hidden=True),
]
NOTE = (
    "Medians in ms. Ours: end_to_end over all rounds, device of the round that trtexec is compared with. trtexec's, "
    "with every switch given: GPU compute, from event to event as in device; latency, which has no copies in it, as "
    "they are off; enqueue, the host's time to launch. Difference: GPU compute / device - 1."
)


def build(evidence: Evidence) -> Sequence[Block]:
    """A row per engine that trtexec was asked to run; where it is not compared, why."""
    whole = {key_of(row): row["end_to_end_ms"] for row in rows_of(evidence.measured)}
    rows = by_case([_row(evidence, document) for document in evidence.second_clocks], evidence.order)
    body = [[*case_cells(row), *_cells(row, whole.get(key_of(row)))] for row in rows]
    return (table("trtexec", "", COLUMNS, body, NOTE),) if body else ()


def _row(evidence: Evidence, document: Document) -> dict[str, Any]:
    """The result with the columns of its case."""
    content = document.content or {}
    return {"machine": evidence.machine, **content["case"], **content, "file": document.file}


def _cells(row: dict[str, Any], end_to_end_ms: float | None) -> list[Cell]:
    comparison = row["comparison"]
    reason = comparison.get("not_compared", "not told by trtexec")
    summary = {name: values["median"] for name, values in row.get("summary_ms", {}).items()}
    times = (summary.get(name) for name in ("Latency", "Enqueue Time"))
    difference = 100 * (comparison["ratio"] - 1) if "ratio" in comparison else None
    return [
        optional(end_to_end_ms, significant, "the case has no end_to_end"),
        scaled(comparison.get("device_median_ns"), NS_PER_MS, milliseconds, reason),
        scaled(comparison.get("trtexec_median_ns"), NS_PER_MS, milliseconds, reason),
        optional(difference, lambda value: f"{value:+.2f} %", reason),
        *(optional(time, significant, reason) for time in times),
        words(comparison.get("verdict", "")),
        words(row["version"]),
        words(row["file"]),
    ]


SECTION = Section(
    name="second_clock",
    title="trtexec beside our clock",
    place=310,
    build=build,
    needs=("second_clocks",),
)
