"""trtexec beside us: the same engine, by two clocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import asdict

from inferprof.documents import Trtexec
from inferprof.documents.engine import ClockComparison
from inferprof.report.common import CASE_COLUMNS, by_case, case_cells, in_ms, optional, table
from inferprof.report.documents import Document
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, words
from inferprof.report.numbers import significant
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


def _row(evidence: Evidence, document: Document[Trtexec]) -> dict[str, Any]:
    """The result beside the columns of its case."""
    content = document.content
    assert content is not None and content.case is not None  # failed ones are left out
    return {"machine": evidence.machine, **asdict(content.case), "content": content, "file": document.file}


def _cells(row: dict[str, Any], end_to_end_ms: float | None) -> list[Cell]:
    content: Trtexec = row["content"]
    comparison = content.comparison or ClockComparison()
    reason = comparison.not_compared or "not told by trtexec"
    summary = {name: values.median for name, values in content.summary_ms.items()}
    times = (summary.get(name) for name in ("Latency", "Enqueue Time"))
    difference = None if comparison.ratio is None else 100 * (comparison.ratio - 1)
    return [
        optional(end_to_end_ms, significant, "the case has no end_to_end"),
        in_ms(comparison.device_median_ns, reason),
        in_ms(comparison.trtexec_median_ns, reason),
        optional(difference, lambda value: f"{value:+.2f} %", reason),
        *(optional(time, significant, reason) for time in times),
        words(comparison.verdict or ""),
        words(content.version),
        words(row["file"]),
    ]


SECTION = Section(
    name="second_clock",
    title="trtexec beside our clock",
    place=310,
    build=build,
    needs=("second_clocks",),
)
