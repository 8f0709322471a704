"""Which batch or sequence would waste less in the tiles of a case's GEMMs.

**Prediction.** A product keeps its tile at another size, so that its time goes with `work` (limits.tiles). With T the
time of a product's kernels per iteration and i the items (images, or tokens) of an iteration:

gemm_gain        1 - Σ T · work(new) / work(now) · i(now) / i(new)  /  Σ T
predicted_gain   gemm_share · gemm_gain, where gemm_share = Σ T / `device` median: of the device's time per item

So no gain is larger than the share of device time that the counted products have: everything else is taken to cost
the same per item. Nothing is predicted where the GPU waits longer than it computes. A library may choose a better
tile for the new size; then more is gained than predicted. Products whose tile is not known count only where no tile
of the case is.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import pandas as pd
from msgspec.structs import replace

from inferprof import registry
from inferprof.case import BATCH, Shape
from inferprof.documents.graph import Gemm, Node
from inferprof.model.operators import bits
from inferprof.tables.limits.tiles import NO_TIES, Placed, fit, groups_of, place
from inferprof.tables.limits.waterfall import traced, watched
from inferprof.tables.nodes.product_kernels import Ties, kernels_of, ties_of
from inferprof.tables.records import KEY, frame_of, key_of, rows_of
from inferprof.tables.schema import of_first
from inferprof.tables.trace.kernel_class import classify

Nodes = Mapping[tuple[str, str, str], Sequence[Node]]
"""(model, precision, shape) → nodes of its .cost.json."""
Confidence = Literal["high", "medium", "low"]
"""By the tiles behind a prediction. high: most of the time is of kernels that a trace ties to the node, or whose grid
is that of the product's tiles; medium: the tiles are in the kernels' names; low: the tile is assumed."""
MIN_GAIN: Final = 0.01
"""Of the GEMMs' time; less is not worth a run."""
BATCHES: Final = (0.5, 2.0)
"""How far from the batch in hand others are looked at, as multiples: farther off the library takes other tiles."""
SEQUENCES: Final = (0.75, 1.5)
"""The same for the number of tokens."""
MULTIPLES: Final = (8, 16, 32, 64, 128)
"""What a sequence is rounded to: from the 16 bytes of one load in 16-bit formats to the rows of a tile."""
LOAD_BYTES: Final = 16
"""What a thread loads at once where rows are a multiple of it (NVIDIA's guide, "Tensor Core Requirements")."""
MOST: Final = 0.8
"""From this share of the GEMMs' time on a source of tiles is that of most."""
NEEDS_TIMELINE: Final = "needs a timeline of the case (nsys or kineto): how much of the device's time the GEMMs take"
MOSTLY_BUSY: Final = 0.5
WAITS: Final = "the GPU waits longer than it computes, so its tiles are not what holds it up: see the waterfall"
NOT_OF_TILES: Final = "how fast rows are loaded that are no multiple of 16 bytes is not a matter of tiles: try it"
GEMM_COLUMNS: Final = (
    *KEY,
    *("m", "n", "k", "count", "nodes", "example", "dtype"),
    *("tile", "source", "kernel", "blocks", "waves", "padding", "last_wave", "efficiency", "device_share"),
)
SUGGESTION_COLUMNS: Final = (
    *KEY,
    *("kind", "now", "then", "per", "suggested_shape"),
    *("gemm_share", "gemm_gain", "predicted_gain", "confidence", "not_predicted"),
)


@dataclass(frozen=True)
class Tiled:
    """The tiles of a case, and what is known of its time."""

    shape: Shape
    sms: int
    placed: Sequence[Placed]
    device_ns: float
    kernels_ns: float | None = None
    """Time in which a kernel runs; None where no timeline tells it."""

    @property
    def waits(self) -> bool:
        """Whether the GPU waits more than it computes, so that faster kernels would wait longer."""
        return self.kernels_ns is not None and self.kernels_ns < MOSTLY_BUSY * self.device_ns

    @property
    def counted(self) -> list[Placed]:
        """The products that a prediction rests on."""
        certain = [product for product in self.placed if product.source != "assumed" and product.duration is not None]
        return certain or list(self.placed)

    @property
    def weighted(self) -> list[tuple[Placed, float]]:
        """The counted products by their time per iteration in ns; where one has none, all by their work."""
        times = [product.duration for product in self.counted]
        works = [float(product.nodes * product.fit.work) for product in self.counted]
        return [
            (product, time or 0.0)
            for product, time in zip(self.counted, works if None in times else times, strict=True)
        ]

    def share(self, products: Iterable[Placed]) -> float | None:
        """Of the device's time, how much products take; None where no timeline tells it."""
        times = [product.duration for product in products]
        measured = [time for time in times if time is not None]
        return min(1.0, sum(measured) / self.device_ns) if len(measured) == len(times) else None

    @property
    def confidence(self) -> Confidence:
        """How well the tiles are known."""
        certain = sum(weight for product, weight in self.weighted if product.source in ("node", "grid"))
        if certain >= MOST * sum(weight for _, weight in self.weighted):
            return "high"
        return "low" if any(product.source == "assumed" for product in self.counted) else "medium"

    def gain(self, change: Callable[[Gemm], Gemm], items: float) -> float:
        """gemm_gain of a change of sizes that makes `items` times as many items of an iteration."""
        new = sum(
            weight
            * fit(change(product.group.gemm), product.tile, self.sms, splits=product.splits).work
            / product.fit.work
            for product, weight in self.weighted
        )
        return 1 - new / items / sum(weight for _, weight in self.weighted)


# --- other sizes -----------------------------------------------------------------------------------------------


def with_batch(gemm: Gemm, now: int, then: int) -> Gemm:
    """The same product at another batch; one whose rows, or number, are no multiple of the batch is not of it."""

    def scaled(size: int) -> int:
        return size // now * then if size % now == 0 else size

    if gemm.batch_in == "m":
        return replace(gemm, m=scaled(gemm.m))
    return replace(gemm, count=scaled(gemm.count))


def with_sequence(gemm: Gemm, batch: int, now: int, then: int) -> Gemm:
    """The same product at another number of tokens; what has nothing to do with it stays as it is."""
    if gemm.batch_in == "m":
        return replace(gemm, m=batch * then) if gemm.m == batch * now else gemm
    m, n, k = (then if size == now else size for size in (gemm.m, gemm.n, gemm.k))
    return replace(gemm, m=m, n=n, k=k)


def sequence_of(placed: Iterable[Placed], batch: int) -> int | None:
    """The number of tokens: rows per item of the products with most of the work; None where there is just one."""
    work: dict[int, int] = {}
    for product in placed:
        if product.group.gemm.batch_in == "m" and not product.group.convolution:
            rows = product.group.gemm.m // batch
            work[rows] = work.get(rows, 0) + product.macs
    tokens = max(work, key=lambda rows: work[rows], default=1)
    return tokens if tokens > 1 else None


def suggestions(case: Tiled) -> list[dict[str, Any]]:
    """The best smaller and larger batch and sequence, the largest gain first; then what cannot be predicted.

    Rows have the columns of SUGGESTION_COLUMNS behind KEY.
    """
    rows = [*_batches(case), *_sequences(case)]
    rows.sort(key=lambda row: -row["gemm_gain"])
    return [*rows, *_unaligned(case)]


def _batches(case: Tiled) -> list[dict[str, Any]]:
    now = case.shape.batch
    low, high = (round(now * factor) for factor in BATCHES)
    gains = {
        then: case.gain(functools.partial(with_batch, now=now, then=then), then / now)
        for then in range(max(1, low), high + 1)
    }
    return [_suggestion(case, "batch", now, then, gain) for then, gain in _best_each_way(gains, now)]


def _sequences(case: Tiled) -> list[dict[str, Any]]:
    """By the time per token: a model that needs no more of them gains nothing by a longer sequence."""
    batch = case.shape.batch
    now = sequence_of(case.placed, batch)
    if now is None:
        return []
    low, high = (now * factor for factor in SEQUENCES)
    rounded = {step(now / multiple) * multiple for multiple in MULTIPLES for step in (math.floor, math.ceil)}
    gains = {
        then: case.gain(functools.partial(with_sequence, batch=batch, now=now, then=then), then / now)
        for then in sorted(rounded)
        if low <= then <= high
    }
    return [_suggestion(case, "sequence", now, then, gain) for then, gain in _best_each_way(gains, now)]


def _best_each_way(gains: Mapping[int, float], now: int) -> list[tuple[int, float]]:
    """(size, gain) of the best smaller and the best larger size, where it gains anything worth a run."""
    sides = [[then for then in gains if then < now], [then for then in gains if then > now]]
    best = [max(side, key=lambda then: gains[then]) for side in sides if side]
    return [(then, gains[then]) for then in best if gains[then] >= MIN_GAIN]


def _unaligned(case: Tiled) -> list[dict[str, Any]]:
    """A sequence whose rows are no whole number of loads: what rounding it up gains is not a matter of tiles."""
    now = sequence_of(case.placed, case.shape.batch)
    among = [
        product
        for product in case.placed
        if product.group.gemm.batch_in == "count" and now in (product.group.gemm.n, product.group.gemm.k)
    ]
    if now is None or not among:
        return []
    values = LOAD_BYTES * 8 // max(bits(product.group.dtype) for product in among)
    if now % values == 0:
        return []
    then = math.ceil(now / values) * values
    return [_suggestion(case, "alignment", now, then, None) | {"gemm_share": case.share(among)}]


def _suggestion(
    case: Tiled, kind: Literal["batch", "sequence", "alignment"], now: int, then: int, gain: float | None
) -> dict[str, Any]:
    others = (symbol for symbol, size in case.shape.sizes if size == now and symbol != BATCH)
    symbol = BATCH if kind == "batch" else next(others, None)
    share = case.share(case.counted)
    unknown = NOT_OF_TILES if gain is None else NEEDS_TIMELINE if share is None else WAITS if case.waits else None
    return {
        "kind": kind,
        "now": now,
        "then": then,
        "per": "item" if kind == "batch" else "token",
        "suggested_shape": None if symbol is None else _with_size(case.shape, symbol, then).label,
        "gemm_share": share,
        "gemm_gain": gain,
        "predicted_gain": None if unknown or gain is None or share is None else share * gain,
        "confidence": case.confidence,
        "not_predicted": unknown,
    }


def _with_size(shape: Shape, symbol: str, size: int) -> Shape:
    return Shape(tuple((name, size if name == symbol else held) for name, held in shape.sizes))


# --- from frames -----------------------------------------------------------------------------------------------


def of_cases(
    latency: pd.DataFrame,
    profiles: pd.DataFrame,
    costs: Mapping[tuple[str, str, str], Sequence[Node]],
    sms: int | None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The products of each case with their tiles (GEMM_COLUMNS), and the suggestions (SUGGESTION_COLUMNS).

    latency: summary.latency; profiles: tidy tables; costs: Nodes; sms:
    of the GPU. A case without `device` median or cost has no rows; nor has any where the GPU's SMs are not known.
    """
    cases = {} if sms is None else dict(_tiled(latency, profiles, costs, sms))
    gemms = [{**dict(zip(KEY, key, strict=True)), **row} for key, case in cases.items() for row in _gemms(case)]
    advice = [{**dict(zip(KEY, key, strict=True)), **row} for key, case in cases.items() for row in suggestions(case)]
    return frame_of(gemms, list(GEMM_COLUMNS)), frame_of(advice, list(SUGGESTION_COLUMNS))


def _tiled(
    latency: pd.DataFrame, profiles: pd.DataFrame, costs: Nodes, sms: int
) -> Iterator[tuple[tuple[str, ...], Tiled]]:
    seen = dict(iter(profiles.groupby(KEY, sort=False)))
    for row in rows_of(latency[latency["boundary"].eq("device") & latency["not_measured"].isna()]):
        key = key_of(row)
        if nodes := costs.get((row["model"], row["precision"], row["shape"])):
            profile = seen.get(key)
            _, timeline = traced(profile)
            ties = NO_TIES if profile is None else ties_of(of_first(profile, registry.joining("node")))
            if placed := placed_in(nodes, timeline, sms, ties):
                kernels = None if timeline is None else watched(timeline).kernels
                yield key, Tiled(Shape.parse(row["shape"]), sms, placed, float(row["median"]), kernels)


def placed_in(nodes: Sequence[Node], timeline: pd.DataFrame | None, sms: int, ties: Ties = NO_TIES) -> list[Placed]:
    """The products of a graph with the tiles that a timeline shows.

    Where kernels of fused attention ran, products of two activations are theirs, and have no tile of their own.
    """
    groups = groups_of(nodes)
    if timeline is None:
        return place(groups, [], sms)
    names = timeline.loc[timeline["level"].eq("kernel"), "name"].unique()
    if any(classify(str(name)).kernel_class == "attention" for name in names):
        groups = [group for group in groups if group.gemm.batch_in == "m"]
    return place(groups, kernels_of(timeline), sms, ties)


def _gemms(case: Tiled) -> Iterator[dict[str, Any]]:
    for product in case.placed:
        gemm = product.group.gemm
        yield {
            **{name: getattr(gemm, name) for name in ("m", "n", "k", "count")},
            "nodes": product.nodes,
            "example": product.group.nodes[0],
            "dtype": product.group.dtype,
            "tile": product.tile.label,
            "source": product.source,
            "kernel": product.kernel,
            **{
                name: getattr(product.fit, name) for name in ("blocks", "waves", "padding", "last_wave", "efficiency")
            },
            "device_share": None if product.duration is None else product.duration / case.device_ns,
        }
