"""In which number formats the matrix products of each case really ran, and what conversions cost beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from inferprof import registry
from inferprof.report.common import CASE_COLUMNS, case_cells, in_percent, in_us
from inferprof.report.evidence import Evidence
from inferprof.report.fields import CASE, Field, csv_of, percent, text
from inferprof.report.model import Block, Cell, Column, Table, missing, words
from inferprof.report.profiled import Profile, caution, first_of
from inferprof.report.section import section
from inferprof.tables.nodes import kernel_formats, layer_times, precision_truth
from inferprof.tables.records import key_of, rows_of

FEW = 0.5
"""Less of the matrix products than this in the format asked for is marked."""
CONVERSIONS = ("cast", "reformat", "quantize")
NO_PRODUCTS = "no kernel is known to be a matrix product"
COLUMNS = (
    *CASE_COLUMNS,
    Column("tool", "tool", hidden=True),
    Column("as_asked_percent", "as asked %", "number"),
    Column("ran_in", "matrix products ran in"),
    Column("cast_us", "casts µs", "number"),
    Column("reformat_us", "reformats µs", "number"),
    Column("quantize_us", "Q/DQ µs", "number"),
    Column("conversions_percent", "% of kernel time", "number"),
    Column("other_work", "all other work ran in", hidden=True),
)
WRONG = (
    *CASE,
    percent("share", "% of matrix products"),
    text("format", of="dtype"),
    Field(Column("source", "told by"), lambda row: words(_or(row["source"], "nothing"))),
    Field(Column("layer", "layer"), lambda row: words(_or(row.get("layer"), ""))),
    text("kernel"),
)
NOTE = (
    "Shares of the time in matrix products, convolutions and attention. A kernel's format is told by ncu's counters "
    "where they were taken, else by its name, else by its layer's operands. MXFP8 is told from FP8 by scales of "
    "blocks in the name or among the layer's inputs; `fp8 or mxfp8` is where neither tells. Conversions are kernels "
    "that do nothing else, per inference; those that are fused into other kernels cost nothing of their own."
)


@section("formats", "Number formats that ran", place=200, needs=("profiles",))
def build(evidence: Evidence) -> Sequence[Block]:
    """A row per case whose kernels or layers were timed; what ran otherwise than asked is in a CSV."""
    seen = first_of(evidence, registry.timing(), lambda profile: kernel_formats.tells(profile.frame))
    if not seen:
        return ()
    counters = {key_of(profile.case): profile.frame for profile in first_of(evidence, registry.counters())}
    tables = [
        (profile, kernel_formats.of_case(profile.frame, counters.get(key_of(profile.case)))) for profile in seen
    ]
    rows = tuple(_row(profile, kernels) for profile, kernels in tables)
    wrong = [row for profile, kernels in tables for row in _wrong(profile, kernels)]
    blocks = [Table("formats", "", COLUMNS, rows, f"{NOTE} {caution(evidence, seen)}", groups=2)]
    if wrong:
        title = "Matrix products that ran in another format than asked"
        blocks.append(csv_of("other_formats", title, WRONG, wrong))
    return blocks


def _row(profile: Profile, kernels: pd.DataFrame) -> tuple[Cell, ...]:
    costs = precision_truth.conversions(kernels)
    spent = dict(zip(costs["conversion"], costs["duration_ns"], strict=True))
    count = layer_times.inferences(profile.frame) or 1
    shares = rows_of(precision_truth.by_dtype(kernels))
    return (
        *case_cells(profile.case),
        words(profile.tool),
        _as_asked(kernels, str(profile.case["precision"])),
        words(_ran_in(shares, matrix=True) or NO_PRODUCTS),
        *(in_us(spent.get(kind, 0) / count) for kind in CONVERSIONS),
        in_percent(float(costs["share"].sum())),
        words(_ran_in(shares, matrix=False)),
    )


def _as_asked(kernels: pd.DataFrame, precision: str) -> Cell:
    if not precision_truth.asked(precision):
        return missing("in which format the case was to compute is not known")
    share = precision_truth.share_as_asked(kernels, precision)
    return missing(NO_PRODUCTS) if share is None else in_percent(share, "warn" if share < FEW else None)


def _ran_in(shares: list[dict[str, Any]], *, matrix: bool) -> str:
    """`fp8 41%, fp16 59%`: of the rows of precision_truth.by_dtype."""
    return ", ".join(f"{row['dtype']} {100 * row['share']:.0f}%" for row in shares if row["matrix"] == matrix)


def _wrong(profile: Profile, kernels: pd.DataFrame) -> list[dict[str, Any]]:
    precision = str(profile.case["precision"])
    if not precision_truth.asked(precision):
        return []
    return [{**profile.case, **row} for row in rows_of(precision_truth.otherwise(kernels, precision))]


def _or(name: Any, nothing: str) -> str:
    """NaN is how a frame says "missing"."""
    return name if isinstance(name, str) else nothing
