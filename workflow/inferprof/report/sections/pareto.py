"""Accuracy against speed, size and memory of all formats, mixes and sparsities of a model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from inferprof.report import standings
from inferprof.report.common import CASE_COLUMNS, FEW, NO_FILE, by_case, case_cells, in_mib, onnx_bytes, optional
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Mark, Table, Text, missing, number, without_number, words
from inferprof.report.numbers import half_width, significant, three_digits
from inferprof.report.section import Section
from inferprof.tables.limits.pareto import BEHIND, BOUNDARY
from inferprof.tables.records import first_rounds, key_of, rows_of

COLUMNS = (
    *CASE_COLUMNS,
    Column("end_to_end_ms", "end_to_end ms", "number"),
    Column("interval", "±", "number"),
    Column("sqnr_db", "SQNR dB", "number"),
    Column("accuracy", "accuracy", hidden=True),
    Column("onnx_mib", "ONNX MiB", "number"),
    Column("engine_mib", "engine MiB", "number", hidden=True),
    Column("memory_mib", "memory MiB", "number"),
    Column("standing", "standing"),
    Column("against", "against"),
)
NOTE = (
    "front: no case of the model and shape is as accurate and as fast. undecided: it may be as fast as the case "
    "beside it, or slower, by the rule of all speed-ups. behind: that case is as accurate and faster. Memory: of the "
    "device, on a CPU of the process. csv/accuracy_speed.csv has those behind, and engines, too."
)


def build(evidence: Evidence) -> Sequence[Block]:
    """The cases on the front and those that are not distinguishable from it; in the CSV all."""
    table = evidence.once(standings.of)
    if len(table.drop_duplicates(["model", "precision"])) <= table["model"].nunique():
        return ()
    rows = by_case(rows_of(table), evidence.order, lambda row: row["end_to_end_ms"])
    memory = {key_of(row): row for row in rows_of(first_rounds(evidence.resources))}
    engines = {engine.key: engine.build.content.bytes for engine in evidence.engines if engine.build.content}
    cells = [(row, _row(evidence, row, engines.get(key_of(row)), memory.get(key_of(row), {}))) for row in rows]
    near = tuple(line for row, line in cells if row["standing"] != BEHIND)
    every = tuple(line for _, line in cells)
    behind = len(every) - len(near)
    return (
        Table("accuracy_front", "", COLUMNS, near, NOTE, groups=2),
        *([Text(f"{behind} of {len(every)} cases are behind one of these.")] if behind else []),
        Table("accuracy_speed", "Accuracy against speed of all cases", COLUMNS, every, csv_only=True),
    )


def _row(
    evidence: Evidence, row: Mapping[str, Any], engine: int | None, memory: Mapping[str, Any]
) -> tuple[Cell, ...]:
    low, high = (row[f"{BOUNDARY}_{end}_ms"] for end in ("low", "high"))
    used = memory.get("device_bytes") or memory.get("host_rss_bytes")
    return (
        *case_cells(row),
        optional(row[f"{BOUNDARY}_ms"], significant),
        words(half_width(row[f"{BOUNDARY}_ms"], low, high)) if not math.isnan(low) else missing(FEW),
        _sqnr(row),
        words(row["accuracy"]),
        in_mib(onnx_bytes(evidence, row["model"], row["precision"]), NO_FILE),
        in_mib(engine, "no engine is built for it"),
        in_mib(used),
        words(row["standing"]),
        words(row["against"] or ""),
    )


def _sqnr(row: Mapping[str, Any]) -> Cell:
    """Marked where the accuracy warns or fails."""
    if row["identical"]:
        return without_number("identical")
    mark: Mark | None = row["accuracy"] if row["accuracy"] in ("warn", "fail") else None
    return number(row["sqnr_db"], three_digits(row["sqnr_db"]), mark)


SECTION = Section(
    name="pareto",
    title="Accuracy against speed",
    place=283,
    build=build,
    needs=("measured",),
)
