"""Where throughput stops growing with the batch, and what holds a case back at each batch.

Throughput is batch / median latency. A case saturates at the smallest batch whose throughput is SHARE of the highest
of all measured batches. Its interval comes from RESAMPLES bootstraps: rounds are drawn with replacement, then blocks
of consecutive samples within each (neighbouring samples are correlated), and the answer is looked up anew. Where the
answer is the largest batch, throughput may grow further, and only that it saturates above the batch before is known.
Where it is the smallest one, a smaller batch may do as well: "at most".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np
import pandas as pd

from inferprof import stats
from inferprof.case import Shape
from inferprof.tables.counters.bounds import BOUNDS
from inferprof.tables.records import KEY, frame_of, key_of, rows_of

SHARE: Final = 0.95
"""Of the highest throughput: what counts as saturated."""
RESAMPLES: Final = 500
SERIES: Final = ("machine", "model", "precision", "backend", "variant", "rest")
"""What the batches of one series have in common; `rest` is the shape without its batch."""
COLUMNS: Final = (
    *SERIES,
    *(
        "boundary",
        "batches",
        "smallest",
        "below",
        "batch",
        "low",
        "high",
        "saturated",
        "peak_batch",
        "peak_items_per_s",
        "regimes",
    ),
)
Regime = Literal["launch", "memory", "compute", "latency", "neither", "not told"]
"""latency: warps wait for each other, for results or for the last wave (tables.counters.bounds: latency and tail).
neither: less than half of any roof is reached (tables.limits.generation)."""
Rounds = Sequence[stats.Samples]


def of_cases(
    boundaries: pd.DataFrame, waterfall: pd.DataFrame, roofline: pd.DataFrame, seed: int = 0
) -> pd.DataFrame:
    """One row per series of two batches and more, with COLUMNS.

    boundaries: records.boundaries; waterfall: waterfall.of_cases; roofline: roofline.by_case. `boundary` is device
    where every batch has it, else end_to_end. `low` and `high`: the batches that 95 % of the bootstraps lie between.
    `below`: the largest measured batch below `batch`, 0 for none. `regimes`: what `turns` gives, as text.
    """
    measured = boundaries[boundaries["not_measured"].isna()]
    bound = _regimes(waterfall, roofline)
    rows = []
    for series, cases in _series(measured).items():
        boundary = "device" if all("device" in sampled for sampled in cases.values()) else "end_to_end"
        rounds = {batch: cases[batch][boundary] for batch in sorted(cases) if boundary in cases[batch]}
        if len(rounds) < 2:
            continue
        by_batch = [(batch, bound.get((*series, batch), "not told")) for batch in rounds]
        names = dict(zip(SERIES, series, strict=True))
        rows.append({**names, "boundary": boundary, **saturation(rounds, seed), "regimes": in_words(turns(by_batch))})
    return frame_of(rows, list(COLUMNS))


def saturation(rounds: Mapping[int, Rounds], seed: int = 0) -> dict[str, Any]:
    """The columns of one series from its batches: batch → the samples of each round, ns."""
    batches = np.array(sorted(rounds))
    medians = np.array([np.median(np.concatenate([np.asarray(samples) for samples in rounds[b]])) for b in batches])
    rng = np.random.default_rng(seed)
    drawn = np.stack([_bootstrap(rounds[int(batch)], rng) for batch in batches], axis=1)
    answers = [smallest(batches, batches / row) for row in drawn]
    tail = (1 - stats.CONFIDENCE) / 2
    low, high = np.quantile(answers, [tail, 1 - tail], method="inverted_cdf")
    rates = batches / medians * 1e9
    batch = smallest(batches, rates)
    return {
        "batches": len(batches),
        "smallest": int(batches[0]),
        "below": int(max(batches[batches < batch], default=0)),
        "batch": batch,
        "low": min(int(low), batch),
        "high": max(int(high), batch),
        "saturated": batch < int(batches[-1]),
        "peak_batch": int(batches[np.argmax(rates)]),
        "peak_items_per_s": float(rates.max()),
    }


def smallest(batches: Iterable[int], rates: Iterable[float]) -> int:
    """The smallest batch that reaches SHARE of the highest throughput."""
    pairs = list(zip(batches, rates, strict=True))
    peak = max(rate for _, rate in pairs)
    return min(int(batch) for batch, rate in pairs if rate >= SHARE * peak)


def _bootstrap(rounds: Rounds, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """RESAMPLES medians: rounds drawn with replacement, then blocks within each."""
    blocks = [stats.block_medians(samples) for samples in rounds]
    sizes = np.array([own.size for own in blocks])
    padded = np.stack([np.pad(own, (0, stats.BLOCKS - own.size)) for own in blocks])
    chosen = rng.integers(len(blocks), size=(RESAMPLES, len(blocks), 1))
    within = (rng.random((RESAMPLES, len(blocks), stats.BLOCKS)) * sizes[chosen]).astype(int)
    medians: np.ndarray[Any, Any] = np.median(padded[chosen, within], axis=(1, 2))
    return medians


def _series(measured: pd.DataFrame) -> dict[tuple[str, ...], dict[int, dict[str, Rounds]]]:
    """SERIES → batch → boundary → the samples of each round."""
    by_series: dict[tuple[str, ...], dict[int, dict[str, Rounds]]] = {}
    for key, rows in measured.groupby([*KEY, "boundary"], sort=False):
        *case, label, boundary = map(str, key)
        cases = by_series.setdefault((*case, rest_of(label)), {})
        cases.setdefault(Shape.parse(label).batch, {})[boundary] = list(rows["samples"])
    return by_series


def rest_of(label: str) -> str:
    """What a shape says behind its batch: `b8_s128` → `s128`."""
    return label.partition("_")[2]


# --- what holds it back ----------------------------------------------------------------------------------------


def _regimes(waterfall: pd.DataFrame, roofline: pd.DataFrame) -> dict[tuple[Any, ...], Regime]:
    """(SERIES, batch) → regime."""
    limits = {key_of(row): row["limit"] for row in rows_of(roofline)}
    regimes: dict[tuple[Any, ...], Regime] = {}
    for row in rows_of(waterfall[waterfall["not_measured"].isna()]):
        key = key_of(row)
        place = (*key[:-1], rest_of(key[-1]), Shape.parse(key[-1]).batch)
        regimes[place] = regime(row, limits.get(key))
    return regimes


def regime(parts: Mapping[str, Any], limit: str | None) -> Regime:
    """What a case is bound by: parts as a row of the waterfall; limit: of its roofline, where that is known.

    launch: the GPU waits for launches longer than it computes. Else what holds most of the kernels' time, by
    counters; without counters of half of it, the roof that the whole graph would meet first. Without a timeline
    launches cannot be told from kernels.
    """
    if parts["launch_ns"] is None:
        return "not told"
    memory, compute, latency, tail = (parts[f"{bound}_ns"] or 0.0 for bound in BOUNDS)
    counted = memory + compute + latency + tail
    kernels = counted + parts["kernels_ns"]
    if parts["launch_ns"] > kernels:
        return "launch"
    if counted > kernels / 2:
        times: dict[Regime, float] = {"memory": memory, "compute": compute, "latency": latency + tail}
        return max(times, key=lambda name: times[name])
    return "memory" if limit == "memory" else "compute" if limit == "compute" else "not told"


def turns(by_batch: Iterable[tuple[int, Regime]]) -> list[tuple[Regime, int, int]]:
    """(regime, first batch, last batch) of each stretch of batches in one regime, in the order of the batches."""
    stretches: list[tuple[Regime, int, int]] = []
    for batch, bound in by_batch:
        if stretches and stretches[-1][0] == bound:
            stretches[-1] = (bound, stretches[-1][1], batch)
        else:
            stretches.append((bound, batch, batch))
    return stretches


def in_words(stretches: Sequence[tuple[Regime, int, int]]) -> str:
    """`launch b1 to b4, compute b8`: what nothing tells is said too."""
    spans = [(bound, f"b{first}" if first == last else f"b{first} to b{last}") for bound, first, last in stretches]
    return ", ".join(f"{bound} {span}" for bound, span in spans)
