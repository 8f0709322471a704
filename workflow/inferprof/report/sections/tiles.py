"""What the tiles of GEMM kernels waste, the sizes at which they would waste less, and what came of trying them."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from inferprof.grouping import grouped
from inferprof.report.common import FEW, by_case, enumerated, path_of
from inferprof.report.evidence import Evidence
from inferprof.report.fields import CASE, Field, Unit, csv_of, in_unit, kernel, plain, table_of, text
from inferprof.report.model import Block, Column, Mark, Text, words
from inferprof.report.numbers import three_digits
from inferprof.report.section import section
from inferprof.tables.limits import tile_advice, tile_trials
from inferprof.tables.records import key_of, rows_of

NO_KERNEL = "no kernel of the timeline was found for it"
NO_NAME = "the names of the kernels do not tell their tiles"
SHOWN = 12
NOT_PREDICTED = operator.itemgetter("not_predicted")
EVERY = "Every product and its tile"
SHARE = Unit(0.01, "{:.1f}".format)
NO_SHAPE = "no shape of the model has this size"
CHANGES = {"batch": "batch", "sequence": "tokens", "alignment": "rows of"}
MARKS: dict[str, Mark] = {"right": "pass", "wrong": "warn", "a caller loses": "fail"}
WASTE = (
    *CASE,
    in_unit("gemm_percent", "GEMMs", SHARE, "gemm"),
    in_unit("told_percent", "tiles told", SHARE, "told"),
    in_unit("efficiency_percent", "used", SHARE, "efficiency", NO_NAME),
    in_unit("padding_percent", "padding", SHARE, "padding", NO_NAME),
    in_unit("last_wave_percent", "last wave", SHARE, "last_wave", NO_NAME),
)
ADVICE = (
    *CASE,
    Field(Column("change", "change"), lambda row: words(f"{CHANGES[row['kind']]} {row['now']} → {row['then']}")),
    in_unit("gemm_percent", "GEMMs", SHARE, "gemm_share", tile_advice.NEEDS_TIMELINE),
    in_unit("gemm_gain_percent", "of GEMMs", SHARE, "gemm_gain", NOT_PREDICTED),
    in_unit("predicted_percent", "predicted", SHARE, "predicted_gain", NOT_PREDICTED),
    text("confidence"),
    text("kind", hidden=True),
    plain("now", None, "{:,}".format, hidden=True),
    plain("then", None, "{:,}".format, hidden=True),
    text("per", "gain per", hidden=True),
    text("suggested_shape", "shape", NO_SHAPE, hidden=True),
)
TRIED = (
    *CASE,
    text("suggested_shape", "tried"),
    in_unit("predicted_percent", "predicted", SHARE, "predicted_gain", NOT_PREDICTED),
    in_unit("measured_percent", "measured", SHARE, "measured_gain"),
    in_unit("low_percent", "from", SHARE, "measured_low", FEW),
    in_unit("high_percent", "to", SHARE, "measured_high", FEW),
    in_unit("caller_percent", "caller", SHARE, "caller_gain", FEW),
    in_unit("caller_low_percent", "from", SHARE, "caller_low", FEW, hidden=True),
    in_unit("caller_high_percent", "to", SHARE, "caller_high", FEW, hidden=True),
    Field(Column("verdict", "verdict"), lambda row: words(row["verdict"], MARKS.get(row["verdict"]))),
)
PRODUCTS = (
    *CASE,
    *(plain(size, None, "{:,}".format) for size in ("m", "n", "k", "count", "nodes")),
    text("example", "node"),
    text("dtype", "type"),
    text("tile"),
    text("source", "source of the tile"),
    plain("blocks", None, "{:,}".format),
    plain("waves", None, three_digits),
    *(in_unit(f"{part}_percent", f"{part} %", SHARE, part) for part in ("padding", "last_wave", "efficiency")),
    in_unit("device_percent", "of device %", SHARE, "device_share", NO_KERNEL),
    kernel("kernel", NO_KERNEL),
)


@section("tiles", "Tiles and waves", place=140, needs=("tiles",))
def build(evidence: Evidence) -> Sequence[Block]:
    """Waste by case, suggestions and what came of them; empty where no graph was counted for a case on a GPU."""
    products = by_case(rows_of(evidence.tiles), evidence.order)
    if not products:
        return ()
    return (
        *_cases(products),
        *_advice(evidence),
        *_tried(evidence),
        csv_of("products", EVERY, PRODUCTS, products),
    )


# --- waste by case ---------------------------------------------------------------------------------------------


def _cases(products: list[dict[str, Any]]) -> list[Block]:
    """A row per case whose kernels are known, and a line about the others."""
    cases = grouped((key_of(row), row) for row in products)
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
        blocks.append(table_of("tiles", title, WASTE, map(_case, timed), note))
    if others:
        names = enumerated(others, len(cases), "csv/products.csv")
        blocks.append(Text(f"Tiles of {names} not measured: {tile_advice.NEEDS_TIMELINE}.", "item"))
    return blocks


def _case(products: list[dict[str, Any]]) -> dict[str, Any]:
    timed = [row for row in products if row["device_share"] is not None]
    named = [row for row in timed if row["source"] != "assumed"]
    total, of_named = (sum(row["device_share"] for row in rows) for rows in (timed, named))
    means = {
        part: sum(row["device_share"] * row[part] for row in named) / of_named if named else None
        for part in ("efficiency", "padding", "last_wave")
    }
    return {**products[0], "gemm": min(1.0, total), "told": of_named / total, **means}


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
    title = "Sizes at which the tiles would waste less: predicted gain, % of the device's time"
    limit = min(SHOWN, sure)
    body = table_of("tile_advice", title, ADVICE, rows, note, groups=0)
    return [replace(body, csv_only=not sure, limit=limit)]


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
    rows = by_case(rows, evidence.order, lambda row: -(row["predicted_gain"] or 0.0))
    return [table_of("tile_advice_tried", title, TRIED, rows, note)]
