"""At which batch throughput stops growing, and what holds each case back on the way there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from inferprof.report.common import sources_of
from inferprof.report.evidence import Evidence
from inferprof.report.fields import Field, Fields, plain, table_of, text
from inferprof.report.model import Block, Cell, Column, Mark, missing, words
from inferprof.report.numbers import percent, three_digits
from inferprof.report.section import section
from inferprof.tables.limits import saturation
from inferprof.tables.records import KEY, rows_of

SHARE: Final = percent(100 * saturation.SHARE)
NO_REGIME: Final = "needs a timeline of the case, with counters of its kernels or the graph's cost"
FLAT, LARGEST = "flat", "no larger batch"
FIELDS: Final[Fields] = (
    text("model"),
    text("rest", "at"),
    text("precision"),
    text("backend"),
    text("variant"),
    text("boundary", "by"),
    plain("batches", hidden=True),
    Field(Column("batch", "saturates at", "number"), lambda row: _batch(row)),
    plain("low", "from"),
    plain("high", "to"),
    Field(Column("saturated", "then"), lambda row: words(FLAT if row["saturated"] else LARGEST, _mark(row))),
    plain("below", "above", hidden=True),
    plain("peak_items_per_s", "most items/s", three_digits),
    plain("peak_batch", "at batch", hidden=True),
    Field(
        Column("regimes", "bound by"),
        lambda row: missing(NO_REGIME) if _untold(row["regimes"]) else words(row["regimes"]),
    ),
)
NOTE: Final = (
    "By: the boundary of a row's numbers. Throughput is batch / median. Saturates at: the smallest measured batch "
    f"with {SHARE} of the highest throughput. ≤: no smaller batch was measured. From, to: 95 % of bootstraps over "
    f"rounds and blocks of samples. {LARGEST.capitalize()}: the largest measured batch is the fastest, and it "
    "may grow on. Bound by launches: the GPU waits for them longer than it computes. Else: what bounds most kernel "
    "time, by counters or the graph's roofline. Measurements in doubt are left out."
)


@section("saturation", "Saturation over the batch", place=100, needs=("saturation",))
def build(evidence: Evidence) -> Sequence[Block]:
    """One table; empty where no case was measured at two batches."""
    series = rows_of(evidence.saturation)
    if not series:
        return ()
    places = evidence.models
    series.sort(key=lambda row: (places.index(row["model"]), row["rest"]))
    files = sources_of(evidence)
    rows = [{**row, "file": files.get(_place(row))} for row in series]
    return (table_of("saturation", "", FIELDS, rows, NOTE),)


def _place(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The case at the batch of a row."""
    shape = f"b{row['batch']}_{row['rest']}" if row["rest"] else f"b{row['batch']}"
    return (*(row[key] for key in KEY[:-1]), shape)


def _mark(row: Mapping[str, Any]) -> Mark | None:
    return None if row["saturated"] else "warn"


def _batch(row: Mapping[str, Any]) -> Cell:
    """`32`, `≤ 1` of the smallest measured batch, `over 8` where the batch behind 8 is the largest one."""
    least = "≤ " if row["batch"] == row["smallest"] else ""
    written = f"{least}{row['batch']}" if row["saturated"] else f"over {row['below']}"
    return Cell(written, row["batch"], _mark(row), file=row["file"])


def _untold(regimes: str) -> bool:
    """Whether nothing tells of any batch what bounds it: `not told b1 to b64`."""
    return regimes.startswith("not told") and "," not in regimes
