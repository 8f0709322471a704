"""Several GPUs: what they gain at each size, from which size on, and what a model says of more of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from inferprof.case import PARALLEL
from inferprof.report.common import CASE_COLUMNS, EXAMPLES, case_cells, in_ms, in_us, optional, path_of, table, told
from inferprof.report.evidence import Evidence
from inferprof.report.host import DOUBTS
from inferprof.report.model import Block, Cell, Column, Mark, Table, Text, missing, number, words
from inferprof.report.numbers import milliseconds, ratio, three_digits
from inferprof.report.profiled import profiles
from inferprof.report.section import section
from inferprof.tables.limits import scaling
from inferprof.tables.limits.scaling import Fit, Messages, Point, Prediction, Sweep, messages_of
from inferprof.tables.records import KEY, Key, key_of, options_of, paired_without, rows_of

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
    Column("links_ms", "by links", "number"),
    Column("links_error_percent", "off %", "number"),
)
SIZES_NOTE: Final = (
    "Medians in ms by {boundary}. One: the variant with the same options on one GPU. Model: one / GPUs + a + b · "
    "tokens, fitted to the column `divided` (docs/ranks.md). By links: one / GPUs + what links.json says that its "
    "messages take, whose number and sizes Kineto saw; nothing is fitted."
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
NO_MESSAGES: Final = "needs links.json of as many GPUs, and sizes of messages of a case divided so: kineto"
LAUNCHED: Final = 0.9
"""A case that a CUDA graph brings below so much of its time waits for its host's launches."""
FEW: Final = f"a model is fitted to {scaling.LEAST} sizes or more of tensor or sequence"
NOT_RUN: Final = "not with so many GPUs"


@section("scaling", "Several GPUs", place=55)
def build(evidence: Evidence) -> Sequence[Block]:
    """Empty where no case was divided beside one that was not."""
    medians = {name: _medians(evidence, name) for name in BOUNDARIES}
    boundary = next((name for name in BOUNDARIES if medians[name]), BOUNDARIES[-1])
    sweeps = scaling.sweeps(options_of(evidence.ok), medians[boundary])
    if not sweeps:
        return ()
    fits = [(sweep, sweep.fit()) for sweep in sweeps]
    messages = _messages(evidence)
    sizes = [
        _size(fit, point, sweep, sweep.by_links(point, messages.get(_way(point.key, sweep)), evidence.links.content))
        for sweep, fit in fits
        for point in sweep.points
    ]
    blocks: list[Block] = [
        *_doubts(evidence, sweeps, boundary),
        table("scaling", "", list(told(SIZES, sizes)), sizes, SIZES_NOTE.format(boundary=boundary)),
        Table("scaling_models", PAYS, MODELS, tuple(_model(*pair) for pair in fits), MODELS_NOTE),
    ]
    if more := [_prediction(prediction) for prediction in scaling.predictions(sweeps)]:
        blocks.append(table("scaling_predicted", "More GPUs, predicted", list(MORE), more, MORE_NOTE))
    return blocks


def _medians(evidence: Evidence, boundary: str) -> dict[Key, float]:
    latency = evidence.latency
    rows = rows_of(latency[latency["boundary"].eq(boundary)].dropna(subset="median"))
    return {key_of(row): row["median"] for row in rows}


def _messages(evidence: Evidence) -> dict[tuple[Any, ...], Messages]:
    """Case and way to divide it, whatever its other options → its messages, at the most tokens that a tool saw."""
    options = options_of(evidence.ok)
    seen: dict[tuple[Any, ...], Messages] = {}
    for profile in profiles(evidence):
        key = key_of(profile.case)
        divided = options.get(key, {}).get(PARALLEL)
        own = messages_of(profile.frame, scaling.tokens(profile.case["shape"])) if divided else None
        if divided and own:
            ((kind, ranks),) = divided.items()
            way = (*_of_model(key), kind, ranks)
            seen[way] = max(own, seen.get(way, own), key=lambda messages: messages.tokens)
    return seen


def _way(key: Key, sweep: Sweep) -> tuple[Any, ...]:
    return (*_of_model(key), sweep.kind, sweep.ranks)


def _of_model(key: Key) -> tuple[str, ...]:
    names = _names(key)
    return tuple(names[name] for name in ("machine", "model", "precision", "backend"))


def _doubts(evidence: Evidence, sweeps: Sequence[Sweep], boundary: str) -> list[Block]:
    """The first few sizes that are more times as fast as there are GPUs, each with its reason, and how many more."""
    beyond = [(sweep, point) for sweep in sweeps for point in sweep.beyond]
    items = [Text(_doubt(evidence, *each, boundary), "item", "warn") for each in beyond[:EXAMPLES]]
    rest = len(beyond) - len(items)
    return [*items, *([Text(f"and {rest} more like these: csv/scaling.csv", "item")] if rest else [])]


def _doubt(evidence: Evidence, sweep: Sweep, point: Point, boundary: str) -> str:
    """More than its GPUs can give: how fast, and what speaks against the time on one GPU."""
    return (
        f"In doubt: {path_of(_names(point.key))} is {ratio(point.speed_up)} as fast as {sweep.alone} on one GPU, and "
        f"has {sweep.ranks} GPUs. {_why(evidence, sweep, point, boundary)}"
    )


def _why(evidence: Evidence, sweep: Sweep, point: Point, boundary: str) -> str:
    """What was measured of one GPU that makes its time longer than its work."""
    if doubt := evidence.doubts.get((*point.alone, boundary)):
        return f"Its time on one GPU is not to be trusted: {doubt}."
    host = next((row for row in rows_of(evidence.hosts) if key_of(row) == point.alone), {})
    for column, threshold, words_of in DOUBTS:
        if (value := host.get(column)) is not None and value >= evidence.limit(threshold):
            return f"On one GPU: {words_of(value)}."
    medians = _medians(evidence, boundary)
    graphs = paired_without("cuda_graph", options_of(evidence.ok)).items()
    for key in (graph for graph, plain in graphs if point.alone in plain and graph in medians):
        if medians[key] < LAUNCHED * point.alone_ns:
            name = _names(key)["variant"]
            return (
                f"One GPU waits for its host's launches: {name}, a CUDA graph, takes {milliseconds(medians[key])} ms."
            )
    return "Parts that fit a cache may do so; else look at the time on one GPU: its host, its clock, its launches."


def _names(key: Key) -> dict[str, Any]:
    return dict(zip(KEY, key, strict=True))


def _divided(kind: str, ranks: int) -> Cell:
    return words(f"{kind} {ranks}")


def _size(fit: Fit | None, point: Point, sweep: Sweep, by_links: float | None) -> list[Cell]:
    mark: Mark | None = "fail" if point.speed_up < 1 else "warn" if point in sweep.beyond else None
    return [
        *case_cells(_names(point.key)),
        _divided(sweep.kind, sweep.ranks),
        number(point.tokens, f"{point.tokens:,}"),
        *(in_ms(ns) for ns in (point.alone_ns, point.divided_ns)),
        number(point.speed_up, ratio(point.speed_up), mark),
        *_said(fit.at(point) if fit else None, point, FEW),
        *_said(by_links, point, NO_MESSAGES),
    ]


def _said(ns: float | None, point: Point, lacking: str) -> tuple[Cell, Cell]:
    """What something says that a size takes, and by how much that is off."""
    error = None if ns is None else 100 * (ns / point.divided_ns - 1)
    return in_ms(ns, lacking), optional(error, lambda value: f"{value:+.1f}", lacking)


def _model(sweep: Sweep, fit: Fit | None) -> tuple[Cell, ...]:
    names, pays = _names(sweep.points[0].key), sweep.pays_from()
    largest = sweep.points[-1].tokens
    return (
        *(words(names[name]) for name in ("model", "precision", "variant")),
        _divided(sweep.kind, sweep.ranks),
        words(sweep.alone),
        missing(f"slower than one GPU at {largest:,} tokens") if math.isinf(pays) else number(pays, f"{pays:,.0f}"),
        in_us(fit and fit.a_ns, FEW),
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
        *(in_ms(ns) for ns in (prediction.low_ns, prediction.high_ns)),
        *(number(point.alone_ns / ns, ratio(point.alone_ns / ns)) for ns in (prediction.high_ns, prediction.low_ns)),
        in_ms(prediction.measured_ns, NOT_RUN),
        optional(None if error is None else 100 * error, lambda value: f"{value:+.1f}", NOT_RUN),
    ]
