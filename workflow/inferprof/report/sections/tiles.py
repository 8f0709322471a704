"""What the tiles of GEMM kernels waste, the sizes at which they would waste less, and what came of trying them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inferprof.report.common import (
    CASE_COLUMNS,
    FEW,
    by_case,
    case_cells,
    enumerated,
    path_of,
    scaled,
    short_kernel,
    table,
)
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Mark, Table, Text, missing, number, words
from inferprof.report.numbers import three_digits
from inferprof.report.section import Section
from inferprof.tables.limits import tile_advice, tile_trials
from inferprof.tables.records import key_of, rows_of

NO_KERNEL = "no kernel of the timeline was found for it"
NO_NAME = "the names of the kernels do not tell their tiles"
SHOWN = 12
PERCENT = 0.01
CHANGES = {"batch": "batch", "sequence": "tokens", "alignment": "rows of"}
MARKS: dict[str, Mark] = {"right": "pass", "wrong": "warn", "a caller loses": "fail"}
CASE_TABLE = (
    *CASE_COLUMNS,
    Column("gemm_percent", "GEMMs", "number"),
    Column("told_percent", "tiles told", "number"),
    Column("efficiency_percent", "used", "number"),
    Column("padding_percent", "padding", "number"),
    Column("last_wave_percent", "last wave", "number"),
)
ADVICE_COLUMNS = (
    *CASE_COLUMNS,
    Column("change", "change"),
    Column("gemm_percent", "GEMMs", "number"),
    Column("gemm_gain_percent", "of GEMMs", "number"),
    Column("predicted_percent", "predicted", "number"),
    Column("confidence", "confidence"),
    Column("kind", "kind", hidden=True),
    Column("now", "now", "number", hidden=True),
    Column("then", "then", "number", hidden=True),
    Column("per", "gain per", hidden=True),
    Column("suggested_shape", "shape", hidden=True),
)
TRIED_COLUMNS = (
    *CASE_COLUMNS,
    Column("suggested_shape", "tried"),
    Column("predicted_percent", "predicted", "number"),
    Column("measured_percent", "measured", "number"),
    Column("low_percent", "from", "number"),
    Column("high_percent", "to", "number"),
    Column("caller_percent", "caller", "number"),
    Column("caller_low_percent", "from", "number", hidden=True),
    Column("caller_high_percent", "to", "number", hidden=True),
    Column("verdict", "verdict"),
)
PRODUCT_COLUMNS = (
    *CASE_COLUMNS,
    *(Column(size, size, "number") for size in ("m", "n", "k", "count", "nodes")),
    Column("example", "node"),
    Column("dtype", "type"),
    Column("tile", "tile"),
    Column("source", "source of the tile"),
    Column("blocks", "blocks", "number"),
    Column("waves", "waves", "number"),
    *(Column(f"{part}_percent", f"{part} %", "number") for part in ("padding", "last_wave", "efficiency")),
    Column("device_percent", "of device %", "number"),
    Column("kernel", "kernel"),
)


def build(evidence: Evidence) -> Sequence[Block]:
    """Waste by case, suggestions and what came of them; empty where no graph was counted for a case on a GPU."""
    products = by_case(rows_of(evidence.tiles), evidence.order)
    if not products:
        return ()
    return (*_cases(products), *_advice(evidence), *_tried(evidence), _products(products))


# --- waste by case ---------------------------------------------------------------------------------------------


def _cases(products: list[dict[str, Any]]) -> list[Block]:
    """A row per case whose kernels are known, and a line about the others."""
    cases: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in products:
        cases.setdefault(key_of(row), []).append(row)
    timed = [rows for rows in cases.values() if any(row["device_share"] is not None for row in rows)]
    others = [path_of(rows[0]) for rows in cases.values() if rows not in timed]
    note = (
        "GEMMs: % of the device's time in the kernels of matrix products and convolutions. Of their time: tiles told "
        "by the kernels' names; used: the multiply-accumulates that the products need, of those that their tiles pay "
        "for; the rest is padding to whole tiles, and blocks that the last wave lacks. Products: csv/products.csv."
    )
    title = "What whole tiles and whole waves cost, %"
    blocks: list[Block] = []
    if timed:
        blocks.append(table("tiles", title, list(CASE_TABLE), [_case(rows) for rows in timed], note))
    if others:
        names = enumerated(others, len(cases), "csv/products.csv")
        blocks.append(Text(f"Tiles of {names} not measured: {tile_advice.NEEDS_TIMELINE}.", "item"))
    return blocks


def _case(products: list[dict[str, Any]]) -> list[Cell]:
    timed = [row for row in products if row["device_share"] is not None]
    named = [row for row in timed if row["source"] != "assumed"]
    total, of_named = (sum(row["device_share"] for row in rows) for rows in (timed, named))

    def mean(part: str) -> Cell:
        if not named:
            return missing(NO_NAME)
        return _percent(sum(row["device_share"] * row[part] for row in named) / of_named)

    return [
        *case_cells(products[0]),
        _percent(min(1.0, total)),
        _percent(of_named / total),
        *(mean(part) for part in ("efficiency", "padding", "last_wave")),
    ]


def _products(products: list[dict[str, Any]]) -> Table:
    """Every product, for the CSV."""
    rows = tuple(
        (
            *case_cells(row),
            *(number(row[size], f"{row[size]:,}") for size in ("m", "n", "k", "count", "nodes")),
            *(words(row[name]) for name in ("example", "dtype", "tile", "source")),
            number(row["blocks"], f"{row['blocks']:,}"),
            number(row["waves"], three_digits(row["waves"])),
            *(_percent(row[part]) for part in ("padding", "last_wave", "efficiency")),
            missing(NO_KERNEL) if row["device_share"] is None else _percent(row["device_share"]),
            Cell(short_kernel(row["kernel"]), row["kernel"]) if row["kernel"] else missing(NO_KERNEL),
        )
        for row in products
    )
    return Table("products", "Every product and its tile", PRODUCT_COLUMNS, rows, csv_only=True)


# --- suggestions -----------------------------------------------------------------------------------------------


def _advice(evidence: Evidence) -> list[Block]:
    rows = rows_of(evidence.tile_advice)
    rows.sort(key=lambda row: tuple(-(row[part] or 0.0) for part in ("predicted_gain", "gemm_share", "gemm_gain")))
    if not rows:
        return []
    sure = sum(row["gemm_share"] is not None for row in rows)
    note = (
        "Of GEMMs: what their time per image (of a batch) or per token (of a sequence) loses if each keeps its tile. "
        "Predicted: that times the GEMMs' share of the device's time, which no gain can exceed. Confidence: by how "
        "the tiles are known. An alignment is of the rows that threads load, 16 bytes at a time."
    )
    body = tuple(tuple(_suggestion(row)) for row in rows)
    title = "Sizes at which the tiles would waste less: predicted gain, % of the device's time"
    limit = min(SHOWN, sure)
    return [Table("tile_advice", title, ADVICE_COLUMNS, body, note, csv_only=not sure, limit=limit)]


def _suggestion(row: dict[str, Any]) -> list[Cell]:
    why = row["not_predicted"]
    return [
        *case_cells(row),
        words(f"{CHANGES[row['kind']]} {row['now']} → {row['then']}"),
        scaled(row["gemm_share"], PERCENT, _written, tile_advice.NEEDS_TIMELINE),
        scaled(row["gemm_gain"], PERCENT, _written, why),
        scaled(row["predicted_gain"], PERCENT, _written, why),
        words(row["confidence"]),
        words(row["kind"]),
        *(number(row[size], f"{row[size]:,}") for size in ("now", "then")),
        words(row["per"]),
        words(row["suggested_shape"]) if row["suggested_shape"] else missing("no shape of the model has this size"),
    ]


def _tried(evidence: Evidence) -> list[Block]:
    rows = rows_of(tile_trials.tried(evidence.tile_advice, evidence.latency))
    if not rows:
        return []
    note = (
        "Measured: by the medians of `device` per image or token, from and to by the ends of their intervals. "
        "Caller: the same by end_to_end. Right: even the lower end is half of what was predicted or more. More: it "
        "is more than twice of it, so that not tiles alone gained. Wrong: even the upper end is less than half. A "
        "caller loses: whatever the device gains, items take longer end to end."
    )
    title = "Suggestions that were tried: predicted and measured gain, % of the device's time"
    body = [_attempt(row) for row in by_case(rows, evidence.order, lambda row: -(row["predicted_gain"] or 0.0))]
    return [table("tile_advice_tried", title, list(TRIED_COLUMNS), body, note)]


def _attempt(row: dict[str, Any]) -> list[Cell]:
    return [
        *case_cells(row),
        words(row["suggested_shape"]),
        scaled(row["predicted_gain"], PERCENT, _written, row["not_predicted"]),
        _percent(row["measured_gain"]),
        *(scaled(row[end], PERCENT, _written, FEW) for end in ("measured_low", "measured_high")),
        *(scaled(row[f"caller_{part}"], PERCENT, _written, FEW) for part in tile_trials.MEASURED),
        Cell(row["verdict"], row["verdict"], mark=MARKS.get(row["verdict"])),
    ]


def _percent(share: float) -> Cell:
    return number(share / PERCENT, _written(share))


def _written(share: float) -> str:
    return f"{share / PERCENT:.1f}"


SECTION = Section(
    name="tiles",
    title="Tiles and waves",
    place=140,
    build=build,
    needs=("tiles",),
)
