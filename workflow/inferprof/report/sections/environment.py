"""The machine, as `inferprof probe` found it, and how the records say that it was used."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from inferprof.documents.machine import Curve, Direction
from inferprof.files import read_json
from inferprof.report.common import few, in_us, optional
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Table, Text, number, words
from inferprof.report.numbers import significant
from inferprof.report.section import section
from inferprof.words import counted

COLUMNS = (Column("fact", "fact"), Column("value", "value"))
BANDWIDTH_COLUMNS = (
    Column("copy", "copy"),
    Column("gb_per_s", "GB/s", "number"),
    Column("latency_us", "latency µs", "number"),
)
NULL = "not known"


@section("environment", "Environment", place=350)
def build(evidence: Evidence) -> Sequence[Block]:
    """Every fact of environment.json, then revisions and start times of the records."""
    blocks: list[Block] = []
    if evidence.environment.content is None:
        blocks.append(Text(f"Not measured: {evidence.environment.lacking}."))
    else:
        every = read_json(evidence.results / evidence.environment.file)  # also what no type names
        rows = tuple((words(name), words(value)) for name, value in flat(every))
        blocks.append(Table("environment", f"From {evidence.environment.file}", COLUMNS, rows))
    blocks += _bandwidth(evidence)
    blocks += _records(evidence)
    return blocks


def _bandwidth(evidence: Evidence) -> list[Block]:
    """What the link and the device's memory were measured to do; nothing on a machine without a GPU."""
    content = evidence.bandwidth.content
    if content is None:
        return []
    curves: dict[str, Curve] = {}
    for way in get_args(Direction):
        link = content.link(way)
        curves |= {f"{way} pinned": link.pinned, f"{way} pageable": link.pageable}
    memories = {"d2d": content.d2d, "h2h": content.h2h}  # h2h: since 2026-11-28
    curves |= {way: curve for way, curve in memories.items() if curve}
    sizes = tuple(sorted({size for curve in curves.values() for size in curve.by_size}, key=int))
    by_size = (Column(f"ns_of_{size}_bytes", size, "number", hidden=True) for size in sizes)
    rows = tuple(_curve(way, curve, sizes, evidence.bandwidth.file) for way, curve in curves.items())
    title = "Bandwidth of the link (h2d, d2h), of the device's memory (d2d) and of one thread of the host (h2h)"
    return [Table("bandwidth", title, (*BANDWIDTH_COLUMNS, *by_size), rows, f"Measured {content.method}.")]


def _curve(way: str, curve: Curve, sizes: tuple[str, ...], file: str) -> tuple[Cell, ...]:
    gb_per_s = curve.gb_per_s
    return (
        words(way),
        dataclasses.replace(number(gb_per_s, significant(gb_per_s)), file=file),
        in_us(curve.latency_ns),
        *(optional(curve.by_size.get(size), significant, "this size was not copied") for size in sizes),
    )


def flat(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """(dotted name, text) of each leaf; `{value, reason}` is one, and a list of plain values too."""
    for key, value in content.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and set(value) == {"value", "reason"}:
            yield name, f"{_plain(value['value'])}: {value['reason']}"
        elif isinstance(value, Mapping):
            yield from flat(value, f"{name}.")
        elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
            yield from flat({str(index): item for index, item in enumerate(value)}, f"{name}.")
        elif isinstance(value, list):
            yield name, ", ".join(map(str, value)) or "none"
        else:
            yield name, _plain(value)


def _plain(value: Any) -> str:
    """A leaf in words."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return NULL if value is None else str(value)


def _records(evidence: Evidence) -> list[Block]:
    """Git revisions and the span of time that the records come from: a stale record shows here."""
    measured = list(evidence.records["record"])
    if not measured:
        return []
    revisions = sorted({record.environment.git or NULL for record in measured})
    started = sorted(record.started for record in measured)
    span = f"started between {started[0]} and {started[-1]}"
    text = f"{counted(len(measured), 'record')}, {span}, at git revision {few(revisions)}."
    blocks: list[Block] = [Text(text)]
    if len(revisions) > 1:
        blocks.append(Text("The records come from different revisions of this code.", mark="warn"))
    return blocks
