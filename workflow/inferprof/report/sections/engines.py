"""The engines: what was built, here and for other GPUs, what failed, and trtexec's clock beside ours."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pandas as pd
from msgspec.structs import asdict

from inferprof.documents import Trtexec
from inferprof.documents.engine import ClockComparison
from inferprof.grouping import grouped
from inferprof.report.common import (
    CASE_COLUMNS,
    FEW,
    by_case,
    case_cells,
    few,
    in_mib,
    in_ms,
    optional,
    path_of,
    table,
)
from inferprof.report.documents import Document, Engine
from inferprof.report.evidence import Evidence
from inferprof.report.fields import CASE, Field, csv_of, ms, plain, table_of, text
from inferprof.report.model import Block, Cell, Column, Table, Text, missing, words
from inferprof.report.numbers import count, percent, significant, three_digits
from inferprof.report.section import section
from inferprof.tables.nodes import engine_layers
from inferprof.tables.records import key_of, rows_of

COLUMNS = (
    Column("machine", "for"),
    *CASE_COLUMNS,
    Column("status", "build"),
    Column("mib", "MiB", "number"),
    Column("seconds", "seconds", "number"),
    Column("kernels", "kernels", "number"),
    Column("products", "GEMMs and convolutions in"),
    Column("reason", "reason", hidden=True),
    Column("file", "file", "path", hidden=True),
)

OF_LAYERS = ("kernels", "products")
"""Columns that the table has on the page where a builder listed layers."""
LAYERS = (
    text("machine"),
    *CASE,
    plain("place"),
    text("layer"),
    text("kind"),
    text("class", of="kernel_class"),
    text("format", of="dtype"),
    Field(
        Column("conversion", "conversion"),
        lambda row: words(row["conversion"] if isinstance(row["conversion"], str) else ""),
    ),
    text("nodes", "ONNX nodes"),
)
AHEAD = (
    "Engines for aot-sm… were compiled ahead of time, for GPUs that need not be here: one of each model and format, "
    "in the first variant and the last shape of the study."
)
LISTED = (
    "The builder lists the kernels of an engine when it is done, without a GPU and without times. GEMMs, "
    "convolutions and fused attention are counted by the format of what they read. "
    "csv/engine_layers.csv has each kernel."
)

REBUILDS = (
    *(field for field in CASE if field.column.key != "variant"),
    plain("builds"),
    text("fastest"),
    ms("fastest", "ms"),
    text("slowest"),
    ms("slowest", "ms"),
    Field(Column("spread_percent", "spread", "number"), lambda row: _percent(row["spread"])),
    Field(Column("noise_percent", "±", "number"), lambda row: _percent(row["noise"])),
)


@section("engines", "Engines", place=300)
def engines(evidence: Evidence) -> Sequence[Block]:
    """The table, then the messages of failed builds, each once."""
    if not evidence.engines:
        return (Text("No engine was built: none of the cases needs one, or every one was refused."),)
    listings = [engine.build.content.layers if engine.build.content else () for engine in evidence.engines]
    kernels = [engine_layers.of_build(listing) for listing in listings]
    rows = tuple(tuple(_row(engine, of_it)) for engine, of_it in zip(evidence.engines, kernels, strict=True))
    by_reason = grouped(
        (failure, f"{engine.machine} {path_of(dataclasses.asdict(engine.case))}")
        for engine in evidence.engines
        if (failure := _failure(engine))
    )
    failed = [Text(f"{few(names)}: {reason}", "item", "fail") for reason, names in by_reason.items()]
    foreign = any(engine.machine != evidence.machine for engine in evidence.engines)
    note = AHEAD if foreign else ""
    layers = [row for pair in zip(evidence.engines, kernels, strict=True) for row in _layers(*pair)]
    listed = [csv_of("engine_layers", "Layers of the engines", LAYERS, layers)] if layers else []
    note = f"{note} {LISTED if layers else ''}".strip()
    heading = [Text("Builds that failed, with the message of the builder or its parser:")] if failed else []
    columns = tuple(dataclasses.replace(c, hidden=c.hidden or (c.key in OF_LAYERS and not layers)) for c in COLUMNS)
    body = Table("engines", "", columns, rows, note, groups=2)
    return (body, *listed, *heading, *failed, *_rebuilds(evidence))


def _layers(engine: Engine, kernels: pd.DataFrame) -> list[dict[str, Any]]:
    """The kernels of a build with its machine and case."""
    case = {"machine": engine.machine, **dataclasses.asdict(engine.case)}
    return [{**case, "place": place, **row} for place, row in enumerate(rows_of(kernels))]


def _rebuilds(evidence: Evidence) -> list[Table]:
    """What the builder's search leaves to chance: engines that were built several times."""
    rows = by_case(rows_of(evidence.rebuilds), evidence.order, lambda row: row["fastest_ns"])
    note = (
        "Spread: slowest / fastest - 1. ± is the widest interval of the medians: a spread within it is none. "
        "A difference between two cases that is smaller than the spread may be one between two builds."
    )
    title = "The same engine built several times: device medians over the builds"
    return [table_of("rebuilds", title, REBUILDS, rows, note)] if rows else []


def _percent(share: float | None) -> Cell:
    return optional(None if share is None else 100 * share, percent, FEW)


def _failure(engine: Engine) -> str | None:
    return engine.build.content.reason if engine.build.content and engine.build.content.status == "failed" else None


def _row(engine: Engine, kernels: pd.DataFrame) -> list[Cell]:
    failure, build = _failure(engine), engine.build.content
    ok = failure is None
    lacking = "not recorded" if ok else "the build failed"
    case = dataclasses.asdict(engine.case)
    names = [words(engine.machine), *(words(case[column.key]) for column in CASE_COLUMNS)]
    if build is None:
        return [*names, *[missing(engine.build.lacking)] * 5, words(""), words(engine.build.file)]
    unlisted = "the builder listed no layers" if ok else lacking
    return [
        *names,
        Cell("ok", "ok", file=engine.build.file) if ok else Cell("failed", "failed", "fail", file=engine.build.file),
        in_mib(build.bytes, lacking),
        optional(build.seconds, three_digits, lacking),
        optional(len(kernels) or None, count, unlisted),
        words(engine_layers.products(kernels)) if len(kernels) else missing(unlisted),
        words(failure or ""),
        words(engine.build.file),
    ]


CLOCK_COLUMNS = [
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
CLOCK_NOTE = (
    "Medians in ms. Ours: end_to_end over all rounds, device of the round that trtexec is compared with. trtexec's, "
    "with every switch given: GPU compute, from event to event as in device; latency, which has no copies in it, as "
    "they are off; enqueue, the host's time to launch. Difference: GPU compute / device - 1."
)


@section("second_clock", "trtexec beside our clock", place=310, needs=("second_clocks",))
def second_clock(evidence: Evidence) -> Sequence[Block]:
    """A row per engine that trtexec was asked to run; where it is not compared, why."""
    whole = {key_of(row): row["end_to_end_ms"] for row in rows_of(evidence.measured)}
    rows = by_case([_clock(evidence, document) for document in evidence.second_clocks], evidence.order)
    body = [[*case_cells(row), *_clock_cells(row, whole.get(key_of(row)))] for row in rows]
    return (table("trtexec", "", CLOCK_COLUMNS, body, CLOCK_NOTE),) if body else ()


def _clock(evidence: Evidence, document: Document[Trtexec]) -> dict[str, Any]:
    """The result beside the columns of its case."""
    content = document.content
    assert content is not None and content.case is not None  # failed ones are left out
    return {"machine": evidence.machine, **asdict(content.case), "content": content, "file": document.file}


def _clock_cells(row: dict[str, Any], end_to_end_ms: float | None) -> list[Cell]:
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
