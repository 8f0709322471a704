"""How fast the host itself was while the cases were measured: a part of the section on latency."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import itemgetter
from typing import Any

from inferprof.diagnosis.unsteady_host import HOST_SPREAD, HOST_WAITED
from inferprof.findings import Threshold
from inferprof.report.common import by_case, enumerated, path_of, scaled
from inferprof.report.evidence import Evidence
from inferprof.report.fields import CASE, Field, ms, plain, table_of
from inferprof.report.model import Block, Column, Text
from inferprof.report.numbers import milliseconds, percent, significant
from inferprof.tables.records import rows_of

FIELDS = (
    *CASE,
    plain("spread", "host ×", "{:.2f}".format, itemgetter("not_measured")),
    ms("yardstick", "yardstick ms", itemgetter("not_measured")),
    Field(
        Column("waited_percent", "waited %", "number"),
        lambda row: scaled(row["waited"], 0.01, lambda share: significant(100 * share, 2), row["not_measured"]),
    ),
    plain("steal_percent", "stolen %", lambda value: significant(value, 2), itemgetter("no_steal")),
    plain("readings", hidden=True),
)
TITLE = "The host itself: how much its own speed varied, by the time of a fixed piece of work"
NOTE = (
    "host ×: 90th over 10th percentile of the yardstick, about 1 ms of Python on a core, timed between loops; its "
    "median. Waited: of the yardstick's time, not of the case's threads' (check cpu_threads), what other work had "
    "the core. Stolen: of the time that CPUs had work, what the hypervisor took, in the worst round."
)
DOUBTS: tuple[tuple[str, Threshold, Callable[[float], str]], ...] = (
    (
        "spread",
        HOST_SPREAD,
        lambda factor: (
            f"The host's own speed varied by a factor of up to {factor:.2f} during a case, and what waits for "
            "launches with it"
        ),
    ),
    (
        "waited",
        HOST_WAITED,
        lambda share: (
            f"The yardstick's thread waited for a core, which other work had, for up to {percent(100 * share)} "
            "of the yardstick's time"
        ),
    ),
)
"""Column of summary.hosts, from when on it is a doubt, and the worst value in words."""


def blocks(evidence: Evidence) -> list[Block]:
    """What the yardstick says of each case and between them; of a steady host the table is in the CSV alone."""
    summaries = evidence.hosts
    if summaries.empty:
        return []
    rows = by_case(rows_of(summaries), evidence.order)
    if not summaries["readings"].any():
        return [Text(f"The host's own speed was not measured: {rows[0]['not_measured']}.")]
    doubts = [*_within(evidence, rows), *_between(evidence, rows)]
    body = table_of("host", TITLE, FIELDS, rows, NOTE)
    return [dataclasses.replace(body, csv_only=not doubts), *doubts]


def _within(evidence: Evidence, rows: list[dict[str, Any]]) -> list[Text]:
    """The cases during which it varied, and those during which others had its cores, most first."""
    texts = []
    for key, threshold, doubt in DOUBTS:
        ranked = sorted((row for row in rows if row["spread"] is not None), key=lambda row: -row[key])
        if cases := [path_of(row) for row in ranked if row[key] >= evidence.limit(threshold)]:
            said = f"{doubt(ranked[0][key])}: {enumerated(cases, len(rows), 'csv/host.csv')}."
            texts.append(Text(said, "item", "warn"))
    return texts


def _between(evidence: Evidence, rows: list[dict[str, Any]]) -> list[Text]:
    """By how much its median differed from one case to another."""
    ranked = sorted((row for row in rows if row["readings"]), key=lambda row: row["yardstick_ns"])
    fastest, slowest = ranked[0], ranked[-1]
    factor = slowest["yardstick_ns"] / fastest["yardstick_ns"]
    if factor < evidence.limit(HOST_SPREAD):
        return []
    ends = ", ".join(f"{path_of(row)} {milliseconds(row['yardstick_ns'])} ms" for row in (fastest, slowest))
    said = f"From case to case the host's speed differed by a factor of up to {factor:.2f} ({ends})"
    worth = "those that wait for its launches can be compared no better than that"
    return [Text(f"{said}: {worth}.", "item", "warn")]
