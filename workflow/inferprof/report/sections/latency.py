"""Latency of each case by boundary."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

from inferprof.case import Shape
from inferprof.report import host
from inferprof.report.common import FEW, by_case, enumerated, in_ms, path_of, sources_of
from inferprof.report.evidence import Evidence
from inferprof.report.fields import CASE, Field, Fields, Named, ms, plain, table_of, text
from inferprof.report.model import Block, Cell, Column, Text, missing, number, without_number, words
from inferprof.report.numbers import half_width, significant
from inferprof.report.section import section
from inferprof.stats import PERCENTILES, samples_needed
from inferprof.tables.records import key_of, rows_of
from inferprof.units import NS_PER_S

TITLES = {
    "end_to_end": "end_to_end: host arrays in, host arrays out. The boundary for comparing with a CPU",
    "device": "device: inputs resident on the GPU, enqueue to done by its events. For GPU against GPU",
    "call": "call, host call to synchronised with inputs bound",
}
ALL_OF_THEM = "all in the CSV of each boundary"
NOTE = "n: samples of all rounds. *: in doubt, and no headline is made of it: column doubt of the CSV."


def _tail(name: str, title: str, *, hidden: bool = True) -> Field[Named]:
    """A percentile, which needs samples beyond it."""
    return ms(name, title, f"fewer than {samples_needed(PERCENTILES[name])} samples", of=name, hidden=hidden)


FIELDS: Final[Fields] = (
    *CASE,
    Field(Column("median_ms", "median ms", "number"), lambda row: _median(row)),
    Field(Column("interval", "±", "number"), lambda row: _interval(row)),
    plain("samples", "n", "{:,}".format, of="n"),
    _tail("p99", "p99 ms", hidden=False),
    plain("items_per_s", "items/s", significant),
    ms("low", "low ms", FEW, of="low", hidden=True),
    ms("high", "high ms", FEW, of="high", hidden=True),
    _tail("p90", "p90 ms"),
    _tail("p95", "p95 ms"),
    _tail("p99_9", "p99.9 ms"),
    ms("min", "min ms", of="min", hidden=True),
    ms("mean", "mean ms", of="mean", hidden=True),
    plain("cov", "CoV", significant, FEW, hidden=True),
    plain("rounds", hidden=True),
    text("stopped_by", "stopped by", hidden=True),
    text("settled", hidden=True),
    Field(Column("drift", "drift", "number", hidden=True), lambda row: _drift(row)),
    Field(Column("doubt", "doubt", hidden=True), lambda row: words(row["doubt"] or "")),
)


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
            {**row, "file": sources[key_of(row)], "items_per_s": _rate(row)}
            for row in by_case(measured, evidence.order, lambda row: row["median"])
        ]
        body = table_of(boundary, title, FIELDS, rows, NOTE)
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


def _rate(row: Named) -> float:
    return float(Shape.parse(row["shape"]).batch / row["median"] * NS_PER_S)


def _median(row: Named) -> Cell:
    """Marked where it is in doubt."""
    cell = dataclasses.replace(in_ms(row["median"]), file=row["file"])
    return dataclasses.replace(cell, text=f"{cell.text}*", mark="warn") if row["doubt"] else cell


def _interval(row: Named) -> Cell:
    if in_ms(row["low"]).missing:
        return missing(FEW)
    return words(half_width(row["median"], row["low"], row["high"]))


def _drift(row: Named) -> Cell:
    return without_number("none found") if row["drift"] is None else number(row["drift"], f"{row['drift']:+.1%}")


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
