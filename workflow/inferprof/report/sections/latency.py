"""Latency of each case by boundary."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from inferprof.case import Shape
from inferprof.report import host
from inferprof.report.common import (
    CASE_COLUMNS,
    FEW,
    by_case,
    case_cells,
    enumerated,
    in_ms,
    optional,
    path_of,
    sources_of,
    table,
)
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Text, missing, number, without_number, words
from inferprof.report.numbers import half_width, significant
from inferprof.report.section import section
from inferprof.stats import PERCENTILES, samples_needed
from inferprof.tables.records import key_of, rows_of

TITLES = {
    "end_to_end": "end_to_end: host arrays in, host arrays out. The boundary for comparing with a CPU",
    "device": "device: inputs resident on the GPU, enqueue to done by its events. For GPU against GPU",
    "call": "call, host call to synchronised with inputs bound",
}
ALL_OF_THEM = "all in the CSV of each boundary"
LATENCY_COLUMNS = [
    *CASE_COLUMNS,
    Column("median_ms", "median ms", "number"),
    Column("interval", "±", "number"),
    Column("samples", "n", "number"),
    Column("p99_ms", "p99 ms", "number"),
    Column("items_per_s", "items/s", "number"),
    Column("low_ms", "low ms", "number", hidden=True),
    Column("high_ms", "high ms", "number", hidden=True),
    Column("p90_ms", "p90 ms", "number", hidden=True),
    Column("p95_ms", "p95 ms", "number", hidden=True),
    Column("p99_9_ms", "p99.9 ms", "number", hidden=True),
    Column("min_ms", "min ms", "number", hidden=True),
    Column("mean_ms", "mean ms", "number", hidden=True),
    Column("cov", "CoV", "number", hidden=True),
    Column("rounds", "rounds", "number", hidden=True),
    Column("stopped_by", "stopped by", hidden=True),
    Column("settled", "settled", hidden=True),
    Column("drift", "drift", "number", hidden=True),
    Column("doubt", "doubt", hidden=True),
]
NOTE = "n: samples of all rounds. *: in doubt, and no headline is made of it: column doubt of the CSV."


@section("latency", "Latency", place=60)
def build(evidence: Evidence) -> Sequence[Block]:
    """A table for each boundary, how steady the host was, and what speaks against single values."""
    blocks: list[Block] = []
    for boundary, title in TITLES.items():
        blocks += _latency(evidence, boundary, title)
    blocks += [*host.blocks(evidence), *_doubts(evidence)]
    if evidence.latency.empty:
        blocks = [Text("No case was measured; the reasons are below.")]
    return blocks


def _latency(evidence: Evidence, boundary: str, title: str) -> list[Block]:
    frame = evidence.latency[evidence.latency["boundary"] == boundary]
    measured = rows_of(frame[frame["not_measured"].isna()])
    blocks: list[Block] = []
    if measured:
        sources = sources_of(evidence)
        rows = [
            _row(row, sources[key_of(row)]) for row in by_case(measured, evidence.order, lambda row: row["median"])
        ]
        body = table(boundary, title, LATENCY_COLUMNS, rows, NOTE)
        blocks.append(dataclasses.replace(body, csv_only=boundary == "call"))
    blocks += _not_measured(frame, boundary)
    return blocks


def _not_measured(frame: Any, boundary: str) -> list[Block]:
    """`device was not measured for 4 cases: the CPU has no clock apart from the host's`."""
    lacking = frame[frame["not_measured"].notna()]
    return [
        Text(f"{boundary} was not measured for {len(group)} of {len(frame)} cases: {reason}.")
        for reason, group in lacking.groupby("not_measured", sort=False)
    ]


def _row(row: dict[str, Any], source: str) -> list[Cell]:
    def ms(key: str) -> Cell:
        few = f"fewer than {samples_needed(PERCENTILES[key])} samples" if key in PERCENTILES else FEW
        return in_ms(row[key], few)

    low, high = ms("low"), ms("high")
    spread = missing(FEW) if low.missing else words(half_width(row["median"], row["low"], row["high"]))
    rate = Shape.parse(row["shape"]).batch / row["median"] * 1e9
    median = dataclasses.replace(ms("median"), file=source)
    if row["doubt"]:
        median = dataclasses.replace(median, text=f"{median.text}*", mark="warn")
    return [
        *case_cells(row),
        median,
        spread,
        number(row["n"], f"{row['n']:,}"),
        ms("p99"),
        number(rate, significant(rate)),
        low,
        high,
        *(ms(key) for key in ("p90", "p95", "p99_9", "min", "mean")),
        optional(row["cov"], significant, FEW),
        number(row["rounds"], str(row["rounds"])),
        words(row["stopped_by"]),
        words(row["settled"]),
        without_number("none found") if row["drift"] is None else number(row["drift"], f"{row['drift']:+.1%}"),
        words(row["doubt"] or ""),
    ]


def _doubts(evidence: Evidence) -> list[Block]:
    """What speaks against trusting a latency, with the measurements that it concerns; the largest drift first."""
    measured = rows_of(evidence.latency[evidence.latency["not_measured"].isna()])
    concerned: dict[str, list[str]] = {}
    for row in sorted(measured, key=lambda row: -abs(row["drift"] or 0)):
        where = f"{path_of(row)} {row['boundary']}"
        if not row["settled"]:
            concerned.setdefault("The latency had not settled when warm-up had to end", []).append(where)
        if row["drift"] is not None:
            change = f"{where} ({row['drift']:+.1%})"
            concerned.setdefault("The latency drifted from start to end of a round", []).append(change)
        if row["rounds"] < evidence.rounds and not evidence.selected:
            lacking = f"{where} ({row['rounds']} of {evidence.rounds})"
            concerned.setdefault("Rounds are missing", []).append(lacking)
    return [
        Text(f"{doubt}: {enumerated(names, len(measured), ALL_OF_THEM)}.", "item", "warn")
        for doubt, names in concerned.items()
    ]
