"""Several GPUs: what they gain at each size, from which size on, and what a model says of more of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from inferprof.report.common import CASE_COLUMNS, case_cells, optional, scaled, table
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Table, missing, number, words
from inferprof.report.numbers import NS_PER_MS, NS_PER_US, microseconds, milliseconds, ratio, three_digits
from inferprof.report.section import Section
from inferprof.tables.limits import scaling
from inferprof.tables.limits.scaling import Fit, Point, Prediction, Sweep
from inferprof.tables.records import KEY, Key, key_of, options_of, rows_of

BOUNDARIES: Final = ("device", "call")
"""The first that was measured: a CPU has no clock of its own."""
SIZES: Final = (
    *CASE_COLUMNS,
    Column("divided", "divided", hidden=True),
    Column("tokens", "tokens", "number"),
    Column("alone_ms", "one", "number"),
    Column("ms", "divided", "number"),
    Column("speed_up", "speed-up", "number"),
    Column("model_ms", "model", "number"),
    Column("error_percent", "off %", "number"),
)
SIZES_NOTE: Final = (
    "Medians in ms by {boundary}. One: the variant with the same options on one GPU. Model: one / GPUs + a + b · "
    "tokens, fitted to the column before (docs/ranks.md)."
)
MODELS: Final = (
    Column("model", "model"),
    Column("precision", "precision"),
    Column("variant", "variant"),
    Column("divided", "divided"),
    Column("alone", "against"),
    Column("pays_from", "pays from", "number"),
    Column("a_us", "a µs", "number"),
    Column("b_ns", "b ns", "number"),
    Column("residual_percent", "off by up to %", "number"),
)
MODELS_NOTE: Final = (
    "Pays from: tokens (batch times sequence) from which it is faster than one GPU at all sizes that were measured. "
    f"a: what messages take however small they are. b: what a token adds. A model that is off by more than "
    f"{100 * scaling.TRUSTED:.0f} % predicts nothing."
)
MORE: Final = (
    Column("model", "model"),
    Column("shape", "shape"),
    Column("precision", "precision"),
    Column("divided", "divided"),
    Column("from_ranks", "from GPUs", "number"),
    Column("low_ms", "predicted", "number"),
    Column("high_ms", "to", "number"),
    Column("speed_up_low", "speed-up", "number"),
    Column("speed_up_high", "to", "number"),
    Column("measured_ms", "measured", "number"),
    Column("error_percent", "off %", "number"),
)
MORE_NOTE: Final = (
    "A prediction, no measurement, in ms: the model of fewer GPUs, with a growing by between log2 n and n - 1 and b "
    "by (n - 1) / n. Off: how far the measured time lies outside of the range."
)
PAYS: Final = "From which size on more GPUs pay"
FEW: Final = f"a model is fitted to {scaling.LEAST} sizes or more of tensor or sequence"
NOT_RUN: Final = "not with so many GPUs"


def build(evidence: Evidence) -> Sequence[Block]:
    """Empty where no case was divided beside one that was not."""
    medians = {name: _medians(evidence, name) for name in BOUNDARIES}
    boundary = next((name for name in BOUNDARIES if medians[name]), BOUNDARIES[-1])
    sweeps = scaling.sweeps(options_of(evidence.ok), medians[boundary])
    if not sweeps:
        return ()
    fits = [(sweep, sweep.fit()) for sweep in sweeps]
    sizes = [_size(sweep, fit, point) for sweep, fit in fits for point in sweep.points]
    blocks = [
        table("scaling", "", list(SIZES), sizes, SIZES_NOTE.format(boundary=boundary)),
        Table("scaling_models", PAYS, MODELS, tuple(_model(*pair) for pair in fits), MODELS_NOTE),
    ]
    if more := [_prediction(prediction) for prediction in scaling.predictions(sweeps)]:
        blocks.append(table("scaling_predicted", "More GPUs, predicted", list(MORE), more, MORE_NOTE))
    return blocks


def _medians(evidence: Evidence, boundary: str) -> dict[Key, float]:
    latency = evidence.latency
    rows = rows_of(latency[latency["boundary"].eq(boundary)].dropna(subset="median"))
    return {key_of(row): row["median"] for row in rows}


def _names(key: Key) -> dict[str, Any]:
    return dict(zip(KEY, key, strict=True))


def _divided(kind: str, ranks: int) -> Cell:
    return words(f"{kind} {ranks}")


def _size(sweep: Sweep, fit: Fit | None, point: Point) -> list[Cell]:
    modelled = fit.at(point) if fit else None
    error = 100 * (modelled / point.divided_ns - 1) if modelled else None
    return [
        *case_cells(_names(point.key)),
        _divided(sweep.kind, sweep.ranks),
        number(point.tokens, f"{point.tokens:,}"),
        *(scaled(ns, NS_PER_MS, milliseconds) for ns in (point.alone_ns, point.divided_ns)),
        number(point.speed_up, ratio(point.speed_up), "fail" if point.speed_up < 1 else None),
        scaled(modelled, NS_PER_MS, milliseconds, FEW),
        optional(error, lambda value: f"{value:+.1f}", FEW),
    ]


def _model(sweep: Sweep, fit: Fit | None) -> tuple[Cell, ...]:
    names, pays = _names(sweep.points[0].key), sweep.pays_from()
    largest = sweep.points[-1].tokens
    return (
        *(words(names[name]) for name in ("model", "precision", "variant")),
        _divided(sweep.kind, sweep.ranks),
        words(sweep.alone),
        missing(f"slower than one GPU at {largest:,} tokens") if math.isinf(pays) else number(pays, f"{pays:,.0f}"),
        scaled(fit and fit.a_ns, NS_PER_US, microseconds, FEW),
        optional(fit and fit.b_ns, three_digits, FEW),
        _residual(fit),
    )


def _residual(fit: Fit | None) -> Cell:
    if fit is None:
        return missing(FEW)
    return number(100 * fit.residual, f"{100 * fit.residual:.1f}", "warn" if fit.residual > scaling.TRUSTED else None)


def _prediction(prediction: Prediction) -> list[Cell]:
    names, point, error = _names(prediction.point.key), prediction.point, prediction.error
    return [
        *(words(names[name]) for name in ("model", "shape", "precision")),
        _divided(prediction.kind, prediction.ranks),
        number(prediction.of.ranks, str(prediction.of.ranks)),
        *(scaled(ns, NS_PER_MS, milliseconds) for ns in (prediction.low_ns, prediction.high_ns)),
        *(number(point.alone_ns / ns, ratio(point.alone_ns / ns)) for ns in (prediction.high_ns, prediction.low_ns)),
        scaled(prediction.measured_ns, NS_PER_MS, milliseconds, NOT_RUN),
        optional(None if error is None else 100 * error, lambda value: f"{value:+.1f}", NOT_RUN),
    ]


SECTION = Section(
    name="scaling",
    title="Several GPUs",
    place=55,
    build=build,
)
