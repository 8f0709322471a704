"""At which batch throughput stops growing, and what holds each case back on the way there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from inferprof.report.common import sources_of
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Mark, Table, missing, number, words
from inferprof.report.numbers import percent, three_digits
from inferprof.report.section import section
from inferprof.tables.limits import saturation
from inferprof.tables.records import KEY, rows_of

SHARE: Final = percent(100 * saturation.SHARE)
NO_REGIME: Final = "needs a timeline of the case, with counters of its kernels or the graph's cost"
FLAT, LARGEST = "flat", "no larger batch"
COLUMNS: Final = (
    Column("model", "model"),
    Column("rest", "at"),
    Column("precision", "precision"),
    Column("backend", "backend"),
    Column("variant", "variant"),
    Column("boundary", "by"),
    Column("batches", "batches", "number", hidden=True),
    Column("batch", "saturates at", "number"),
    Column("low", "from", "number"),
    Column("high", "to", "number"),
    Column("saturated", "then"),
    Column("below", "above", "number", hidden=True),
    Column("peak_items_per_s", "most items/s", "number"),
    Column("peak_batch", "at batch", "number", hidden=True),
    Column("regimes", "bound by"),
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
    rows = tuple(_row(row, files) for row in series)
    return (Table("saturation", "", COLUMNS, rows, NOTE, groups=2),)


def _batch(row: Mapping[str, Any]) -> str:
    """`32`, `≤ 1` of the smallest measured batch, `over 8` where the batch behind 8 is the largest one."""
    if not row["saturated"]:
        return f"over {row['below']}"
    return f"{'≤ ' if row['batch'] == row['smallest'] else ''}{row['batch']}"


def _untold(regimes: str) -> bool:
    """Whether nothing tells of any batch what bounds it: `not told b1 to b64`."""
    return regimes.startswith("not told") and "," not in regimes


def _row(row: Mapping[str, Any], files: Mapping[tuple[str, ...], str]) -> tuple[Cell, ...]:
    mark: Mark | None = None if row["saturated"] else "warn"
    shape = f"b{row['batch']}_{row['rest']}" if row["rest"] else f"b{row['batch']}"
    file = files.get((*(row[key] for key in KEY[:-1]), shape))
    return (
        *(words(row[key]) for key in ("model", "rest", "precision", "backend", "variant", "boundary")),
        number(row["batches"], str(row["batches"])),
        Cell(_batch(row), row["batch"], mark, file=file),
        *(number(row[key], str(row[key])) for key in ("low", "high")),
        words(FLAT if row["saturated"] else LARGEST, mark),
        number(row["below"], str(row["below"])),
        number(row["peak_items_per_s"], three_digits(row["peak_items_per_s"])),
        number(row["peak_batch"], str(row["peak_batch"])),
        missing(NO_REGIME) if _untold(row["regimes"]) else words(row["regimes"]),
    )
