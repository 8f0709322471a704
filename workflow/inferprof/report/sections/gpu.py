"""What the GPU did while the cases were measured: clocks, power, temperature, throttling, energy, other processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Section, Text, missing, words
from inferprof.report.numbers import significant
from inferprof.report.sections.common import CASE_COLUMNS, case_cells, optional, path_of, table
from inferprof.tables.records import rows_of

UNTOLD = "NVML does not tell it"
GAUGES = {"sm_mhz": "SM MHz", "memory_mhz": "memory MHz", "power_w": "W", "temperature_c": "°C"}
COLUMNS = [
    *CASE_COLUMNS,
    *(Column(gauge, title, "number") for gauge, title in GAUGES.items()),
    Column("throttled_percent", "throttled %", "number"),
    Column("mj_per_inference", "mJ / inference", "number"),
    Column("other_processes", "others", "number"),
    Column("round", "round", "number", hidden=True),
    Column("file", "file", "path", hidden=True),
]


def section(evidence: Evidence) -> Section:
    """A row per record with samples, then what was not as it should be."""
    rows = [row for row in rows_of(evidence.records) if "summary" in row["content"].get("telemetry", {})]
    if not rows:
        return Section("GPU telemetry", (Text(f"Not measured: {_why(evidence)}."),))
    order = evidence.order
    rows.sort(key=lambda row: order[row["model"], row["shape"]])
    note = "Medians over the run, sampled by a process of its own; energy is the board's, over the back to back loop."
    body = table("telemetry", "Clocks, power and temperature, per record", COLUMNS, [_row(row) for row in rows], note)
    return Section("GPU telemetry", (body, *_doubts(rows)))


def _why(evidence: Evidence) -> str:
    """The distinct reasons of the records."""
    telemetry = [content.get("telemetry", {}) for content in evidence.records["content"]]
    reasons = dict.fromkeys(entry["not_measured"] for entry in telemetry if "not_measured" in entry)
    return "; ".join(reasons) or "no record has telemetry"


def _row(row: Mapping[str, Any]) -> list[Cell]:
    telemetry = row["content"]["telemetry"]
    summary, energy = telemetry["summary"], telemetry["energy"]
    joules = energy.get("j_per_inference")
    return [
        *case_cells(row),
        *(_median(summary[gauge]) for gauge in GAUGES),
        optional(100 * summary["throttled_share"], lambda value: f"{value:.0f}"),
        missing(energy["not_measured"]) if joules is None else optional(1e3 * joules, significant),
        optional(summary["other_processes"], str, "NVML shows no processes here"),
        optional(row["round"], str),
        words(row["file"]),
    ]


def _median(gauge: Mapping[str, float] | None) -> Cell:
    return missing(UNTOLD) if gauge is None else optional(gauge["median"], lambda value: significant(value, 3))


def _doubts(rows: list[dict[str, Any]]) -> list[Block]:
    """Throttled windows and foreign processes: marked, never dropped."""
    found: dict[str, list[str]] = {}
    for row in rows:
        summary = row["content"]["telemetry"]["summary"]
        where = f"{path_of(row)} r{row['round']}"
        if summary["throttled"]:
            found.setdefault(f"Throttled by {', '.join(summary['throttle_reasons'])}", []).append(where)
        if summary["other_processes"]:
            found.setdefault("Other processes computed on the GPU", []).append(where)
    return [Text(f"{doubt}: {', '.join(cases)}.", "item", "warn") for doubt, cases in found.items()]
