"""What the GPU did while the cases were measured: clocks, power, temperature, throttling, energy, other processes."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Section, Text, words
from inferprof.report.numbers import significant, three_digits
from inferprof.report.sections.common import CASE_COLUMNS, case_cells, enumerated, optional, path_of, table
from inferprof.tables.records import key_of, rows_of

UNTOLD = "NVML does not tell it"
GAUGES = {"sm_mhz": "SM MHz", "power_w": "W", "temperature_c": "°C", "memory_mhz": "memory MHz"}
COLUMNS = [
    *CASE_COLUMNS,
    *(Column(gauge, title, "number", hidden=gauge == "memory_mhz") for gauge, title in GAUGES.items()),
    Column("throttled_percent", "throttled %", "number"),
    Column("mj_per_inference", "mJ / inference", "number"),
    Column("other_processes", "others", "number"),
    Column("throttled_by", "throttled by", hidden=True),
]


def section(evidence: Evidence) -> Section:
    """A row per case whose records have samples, then what was not as it should be."""
    cases: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows_of(evidence.records):
        if "summary" in row["content"].get("telemetry", {}):
            cases.setdefault(key_of(row), []).append(row)
    if not cases:
        return Section("GPU telemetry", (Text(f"Not measured: {_why(evidence)}."),))
    order = evidence.order
    rounds = sorted(cases.values(), key=lambda rows: order[rows[0]["model"], rows[0]["shape"]])
    note = (
        "Medians over the rounds, sampled by a process of its own; the worst round's throttled share of samples and "
        "number of other processes on the GPU. Energy is the board's, over the back to back loop."
    )
    body = table("telemetry", "", COLUMNS, [_row(rows) for rows in rounds], note)
    return Section("GPU telemetry", (body, *_doubts(rounds)))


def _why(evidence: Evidence) -> str:
    """The distinct reasons of the records."""
    telemetry = [content.get("telemetry", {}) for content in evidence.records["content"]]
    reasons = dict.fromkeys(entry["not_measured"] for entry in telemetry if "not_measured" in entry)
    return "; ".join(reasons) or "no record has telemetry"


def _row(rounds: list[dict[str, Any]]) -> list[Cell]:
    """One case."""
    telemetry = [row["content"]["telemetry"] for row in rounds]
    summaries = [entry["summary"] for entry in telemetry]
    energies = [entry["energy"] for entry in telemetry]
    joules = _median(energy.get("j_per_inference") for energy in energies)
    no_energy = "; ".join(dict.fromkeys(energy["not_measured"] for energy in energies if "not_measured" in energy))
    throttled = [summary["throttled_share"] for summary in summaries if summary["throttled_share"] is not None]
    others = [summary["other_processes"] for summary in summaries if summary["other_processes"] is not None]
    return [
        *case_cells(rounds[0]),
        *(_gauge(summaries, gauge) for gauge in GAUGES),
        optional(100 * max(throttled) if throttled else None, lambda value: f"{value:.0f}", UNTOLD),
        optional(None if joules is None else 1e3 * joules, significant, no_energy),
        optional(max(others, default=None), str, "NVML shows no processes here"),
        words(", ".join(sorted({reason for summary in summaries for reason in summary["throttle_reasons"]}))),
    ]


def _gauge(summaries: Iterable[Mapping[str, Any]], gauge: str) -> Cell:
    middle = _median(summary[gauge]["median"] for summary in summaries if summary[gauge])
    return optional(middle, three_digits, UNTOLD)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _doubts(cases: list[list[dict[str, Any]]]) -> list[Block]:
    """Throttled windows and foreign processes: marked, never dropped."""
    found: dict[str, list[str]] = {}
    for row in (row for rounds in cases for row in rounds):
        summary = row["content"]["telemetry"]["summary"]
        if summary["throttled"]:
            found.setdefault(f"Throttled by {', '.join(summary['throttle_reasons'])}", []).append(path_of(row))
        if summary["other_processes"]:
            found.setdefault("Other processes computed on the GPU", []).append(path_of(row))
    return [
        Text(f"{doubt}: {enumerated(names, len(cases), 'csv/telemetry.csv')}.", "item", "warn")
        for doubt, names in found.items()
    ]
