"""What the GPU did while the cases were measured: clocks, power, temperature, throttling, energy, other processes."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from inferprof.documents.telemetry import Energy, Gauges
from inferprof.findings import END_TO_END
from inferprof.grouping import grouped
from inferprof.report.common import CASE_COLUMNS, case_cells, enumerated, optional, path_of, table
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Text, words
from inferprof.report.numbers import significant, three_digits
from inferprof.report.section import section
from inferprof.tables.records import key_of, rows_of

UNTOLD = "NVML does not tell it"
GAUGES = {"sm_mhz": "SM MHz", "temperature_c": "°C", "memory_mhz": "memory MHz"}
ENERGY = {"power_w": ("mean_w", 1.0), "mj_per_inference": ("j_per_inference", 1e3)}
"""Column → the key of a record's energy, and how many of the column's unit one of the record's is."""
COLUMNS = [
    *CASE_COLUMNS,
    *(Column(gauge, title, "number", hidden=gauge == "memory_mhz") for gauge, title in GAUGES.items()),
    Column("throttled_percent", "throttled %", "number"),
    Column("power_w", "W", "number"),
    Column("mj_per_inference", "mJ / inference", "number"),
    Column("other_processes", "others", "number"),
    Column("throttled_by", "throttled by", hidden=True),
]
NOTE = (
    "Medians over the rounds, sampled by a process of its own while the boundaries were measured, not while the case "
    "was loaded; the worst round's throttled share of samples and number of other processes on the GPU. W and energy "
    "are the board's, over the back to back loop."
)
Round = dict[str, Any]
"""A row of Evidence.records."""


@section("gpu", "GPU telemetry", place=260)
def build(evidence: Evidence) -> Sequence[Block]:
    """A row per case whose records have samples, then what was not as it should be."""
    cases = grouped(
        (key_of(row), row)
        for row in rows_of(evidence.records)
        if (telemetry := row["record"].telemetry) and telemetry.summary
    )
    if not cases:
        return (Text(f"Not measured: {_why(evidence)}."),)
    order = evidence.order
    rounds = sorted(cases.values(), key=lambda rows: order[rows[0]["model"], rows[0]["shape"]])
    body = table("telemetry", "", COLUMNS, [_row(rows) for rows in rounds], NOTE)
    return (body, *_doubts(rounds))


def _why(evidence: Evidence) -> str:
    """The distinct reasons of the records."""
    telemetry = [record.telemetry for record in evidence.records["record"] if record.telemetry]
    reasons = dict.fromkeys(entry.not_measured for entry in telemetry if entry.not_measured)
    return "; ".join(reasons) or "no record has telemetry"


def _loop(row: Round) -> Gauges | None:
    """What was sampled while end_to_end was measured; the boundaries take turns, so the others say the same."""
    loop: Gauges | None = row["record"].telemetry.boundaries.get(END_TO_END)
    return loop if loop and loop.samples is not None else None


def _row(rounds: list[Round]) -> list[Cell]:
    """One case."""
    loops = [loop for row in rounds if (loop := _loop(row))]
    throttled = [loop.throttled_share for loop in loops if loop.throttled_share is not None]
    others = [loop.other_processes for loop in loops if loop.other_processes is not None]
    return [
        *case_cells(rounds[0]),
        *(_gauge(loops, gauge) for gauge in GAUGES),
        optional(100 * max(throttled) if throttled else None, lambda value: f"{value:.0f}", _untold(loops)),
        *_energy([energy for row in rounds if (energy := row["record"].telemetry.energy)]),
        optional(max(others, default=None), str, "NVML shows no processes here" if loops else _untold(loops)),
        words(", ".join(sorted({reason for loop in loops for reason in loop.throttle_reasons}))),
    ]


def _untold(loops: list[Gauges]) -> str:
    return UNTOLD if loops else "no sample in the loop of end_to_end"


def _gauge(loops: list[Gauges], gauge: str) -> Cell:
    middle = _median(shown.median for loop in loops if (shown := getattr(loop, gauge)))
    return optional(middle, three_digits, _untold(loops))


def _energy(energies: list[Energy]) -> list[Cell]:
    """The cells of ENERGY."""
    reason = "; ".join(dict.fromkeys(energy.not_measured for energy in energies if energy.not_measured))
    return [
        optional(
            _median(unit * value for energy in energies if (value := getattr(energy, key)) is not None),
            significant,
            reason,
        )
        for key, unit in ENERGY.values()
    ]


def _median(values: Iterable[float]) -> float | None:
    measured = list(values)
    return statistics.median(measured) if measured else None


def _doubts(cases: list[list[Round]]) -> list[Block]:
    """Throttled loops and foreign processes: marked, never dropped."""
    doubtful: dict[str, list[str]] = {}
    for row in (row for rounds in cases for row in rounds):
        loop = _loop(row)
        if loop and loop.throttled:
            doubtful.setdefault(f"Throttled by {', '.join(loop.throttle_reasons)}", []).append(path_of(row))
        if loop and loop.other_processes:
            doubtful.setdefault("Other processes computed on the GPU", []).append(path_of(row))
    return [
        Text(f"{doubt}: {enumerated(names, len(cases), 'csv/telemetry.csv')}.", "item", "warn")
        for doubt, names in doubtful.items()
    ]
