"""How fast a case could be at most: without launches, copies and gaps, and with its matrix products in FP8 or FP4.

Each step takes a part of the waterfall away (tables.limits.waterfall), so that no time counts twice:

launches   the part `launch`: as if a CUDA graph launched everything at no cost
copies     the part `copy`: as if inputs and outputs were on the device, and the runtime copied nothing
gaps       the part `idle`: as if the GPU never waited for anything
fp8, fp4   of the kernels' time the share s of matrix products (GEMMs, convolutions, attention), times 1 - r

r = Σ t(new) / Σ t(now) over the products of the graph, where t = max(FLOPs / peak, bytes / bandwidth) is a product's
time at its roof: operands are as many bits wide as the format, outputs stay as they are. A library reaches neither
roof; that the same share of both is reached is what makes this a ceiling and no promise.

Where two measured cases differ in one such change alone, what was predicted stands beside what was achieved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np
import pandas as pd

from inferprof import registry, stats
from inferprof.documents import Cost
from inferprof.grouping import grouped
from inferprof.model.operators import bits
from inferprof.tables.counters.bounds import BOUNDS
from inferprof.tables.limits.waterfall import NEEDS_TIMELINE, traced
from inferprof.tables.nodes.kernel_formats import MATRIX
from inferprof.tables.records import KEY, Key, Options, frame_of, key_of, paired_without, rows_of
from inferprof.tables.roofs import Roofs
from inferprof.tables.trace.kernel_compare import per_iteration
from inferprof.units import NS_PER_MS

Step = Literal["launches", "copies", "gaps", "fp8", "fp4"]
Change = Literal["graph", "pinned", "device", "fp8", "fp4"]
"""graph: a CUDA graph; pinned, device: where the inputs lie; fp8, fp4: the number format of the products."""
COLUMNS: Final = (*KEY, "total_ns", "step", "gain_ns", "left_ns", "speed_up", "not_known")
ACHIEVED: Final = (
    *KEY,
    *("change", "other", "predicted_ns", "achieved_ns", "low_ns", "high_ns", "verdict", "not_known"),
)
_PARTS: Final[Mapping[Step, str]] = {"launches": "launch_ns", "copies": "copy_ns", "gaps": "idle_ns"}
_BITS: Final[Mapping[Step, int]] = {"fp8": 8, "fp4": 4}
_SINCE: Final[Mapping[Step, str]] = {
    "fp8": "tensor cores have it from compute capability 8.9 on",
    "fp4": "tensor cores have it from compute capability 10.0 on",
}
NO_COST: Final = "there is no .cost.json of the graph"
_ROOFS: Final[Mapping[str, Change]] = {"fp8": "fp8", "fp4": "fp4"}
_DEFAULTS: Final = {"cuda_graph": False, "placement": "pageable"}
"""A variant that gives one of these gives nothing."""
Costs = Mapping[tuple[str, str, str], Cost | None]


def of_cases(
    waterfall: pd.DataFrame, profiles: pd.DataFrame, costs: Costs, roofs: Roofs, options: Options
) -> pd.DataFrame:
    """One row per case with a waterfall and step, with COLUMNS; `left_ns` and `speed_up` are after all steps so far.

    waterfall: waterfall.of_cases; profiles: tidy tables; costs: (model, precision, shape) → .cost.json; options: KEY
    → those of the variant. Where a step's gain is not known, `not_known` says why, and it takes nothing away.
    """
    seen = dict(iter(profiles.groupby(KEY, sort=False)))
    rows = []
    for row in rows_of(waterfall[waterfall["not_measured"].isna()]):
        key = key_of(row)
        cost = costs.get((row["model"], row["precision"], row["shape"]))
        left = float(row["total_ns"])
        for step, (gain, why) in _gains(row, seen.get(key), cost, roofs.of_variant(options.get(key, {}))).items():
            left -= gain or 0.0
            figures = {"gain_ns": gain, "left_ns": left, "speed_up": row["total_ns"] / left if left else None}
            rows.append(
                {
                    **dict(zip(KEY, key, strict=True)),
                    "total_ns": row["total_ns"],
                    "step": step,
                    **figures,
                    "not_known": why,
                }
            )
    return frame_of(rows, list(COLUMNS))


Known = tuple[float | None, str | None]
"""A gain in ns, or why it is not known."""


def _gains(
    row: Mapping[str, Any], profile: pd.DataFrame | None, cost: Cost | None, roofs: Roofs
) -> dict[Step, Known]:
    gains: dict[Step, Known] = {
        step: (None, NEEDS_TIMELINE) if row[part] is None else (float(row[part]), None)
        for step, part in _PARTS.items()
    }
    if cost is None:
        return {**gains, **dict.fromkeys(_BITS, (None, NO_COST))}
    rests = {step: narrowed(cost, roofs, step) for step in _BITS}
    _, timeline = traced(profile) if any(rest is not None for rest, _ in rests.values()) else (None, None)
    kernels_ns = sum(row[f"{part}_ns"] or 0.0 for part in (*BOUNDS, "kernels"))
    products = None if timeline is None else kernels_ns * product_share(timeline)
    taken = 0.0
    for step, (rest, why) in rests.items():
        if rest is None or products is None:
            gains[step] = (None, why or NEEDS_TIMELINE)
        else:
            gain = max(0.0, products * (1 - rest) - taken)
            gains[step] = (gain, None)
            taken += gain
    return gains


def product_share(timeline: pd.DataFrame) -> float:
    """Of the kernels' time in iterations, that of matrix products, convolutions and attention."""
    kernels = per_iteration(timeline)
    total = kernels["duration"].sum()
    return float(kernels.loc[kernels["kernel_class"].isin(MATRIX), "duration"].sum() / total) if total else 0.0


def narrowed(cost: Cost, roofs: Roofs, step: Step) -> Known:
    """The time at the roof of a graph's products in a narrower format over that in theirs; or why it is not known."""
    if step not in roofs.flops or roofs.bandwidth is None:
        return None, f"no peak of this GPU in {step}, or no bandwidth, is measured or on file ({_SINCE[step]})"
    now = then = 0.0
    for node in cost.nodes or ():
        compute = roofs.compute_s(node)
        if not node.product:
            continue
        if compute is None or node.flops is None or node.operands is None or node.written is None:
            return None, "FLOPs or bytes of a product are not known, or the peak of its format"
        narrow = min(1.0, _BITS[step] / bits(node.dtype))
        at_now = max(compute, (node.operands + node.written) / roofs.bandwidth.value)
        moved = (node.operands * narrow + node.written) / roofs.bandwidth.value
        now += at_now
        then += at_now if narrow == 1 else min(at_now, max(node.flops / roofs.flops[step].value, moved))
    return (then / now, None) if now else (None, "the graph has no matrix product")


# --- predicted and achieved ------------------------------------------------------------------------------------


def achieved(
    boundaries: pd.DataFrame, ceilings: pd.DataFrame, stages: pd.DataFrame, floors: pd.DataFrame, options: Options
) -> pd.DataFrame:
    """One row per pair of measured cases that differ in one Change alone, with ACHIEVED; KEY is the case before it.

    boundaries: records.boundaries; ceilings: of_cases; stages: join.stage_medians; floors: copies.floors. `other`:
    the case after it, precision/backend/variant. Gains are of end_to_end in ns; the interval of what was achieved is
    that of stats.ratio, paired by round; `verdict` is about the change. Predicted is what the change takes away: a
    graph the part `launch`; page-locked inputs what the copies take beyond the link's floor; inputs on the device
    their copy and its preparation; a format its step. Other parts may shrink with it (an H100 gained 1.1 times the
    part `launch` by a graph, since its kernels follow each other more closely too).
    """
    rounds = _rounds(boundaries)
    predictions = {(*key_of(row), row["step"]): row["gain_ns"] for row in rows_of(ceilings)}
    copies, least = ({key_of(row): row for row in rows_of(frame)} for frame in (stages, floors))
    rows = []
    for before, after, change in _pairs(list(rounds), options):
        predicted = {
            "graph": predictions.get((*before, "launches")),
            "pinned": _over_floor(least.get(before)),
            "device": _sum_ms(copies.get(before), "stage_inputs_ms", "h2d_ms"),
        }.get(change, predictions.get((*before, change)))
        common = sorted(set(rounds[before]) & set(rounds[after]))
        if common:
            facts = _compared([rounds[before][r] for r in common], [rounds[after][r] for r in common])
            names = dict(zip(KEY, before, strict=True))
            why = None if predicted is not None else "not predicted: see the steps of the case"
            rows.append(
                {
                    **names,
                    "change": change,
                    "other": "/".join(after[2:5]),
                    "predicted_ns": predicted,
                    **facts,
                    "not_known": why,
                }
            )
    return frame_of(rows, list(ACHIEVED))


Rounds = dict[int, Any]


def _rounds(boundaries: pd.DataFrame) -> dict[Key, Rounds]:
    measured = boundaries[(boundaries["boundary"] == "end_to_end") & boundaries["not_measured"].isna()]
    return {
        tuple(map(str, key)): dict(zip(group["round"], group["samples"], strict=True))
        for key, group in measured.groupby(KEY, sort=False)
    }


def _pairs(cases: Sequence[Key], options: Options) -> Iterator[tuple[Key, Key, Change]]:
    """(before, after, change) of the cases that differ in one change."""
    given = {
        case: {name: value for name, value in options.get(case, {}).items() if value != _DEFAULTS.get(name)}
        for case in cases
    }
    graphs, placed = (paired_without(option, given) for option in ("cuda_graph", "placement"))
    related = grouped((_but_change(case), case) for case in cases)
    for before, after in ((a, b) for a in cases for b in related[_but_change(a)] if a != b):
        if before in graphs.get(after, ()):
            yield before, after, "graph"
        elif before in placed.get(after, ()):
            yield before, after, "pinned" if given[after]["placement"] == "pinned" else "device"
        elif change := _narrowed(before, after):
            yield before, after, change


def _but_change(case: Key) -> tuple[str, ...]:
    """What no Change touches: all but the number format and the variant."""
    return tuple(value for name, value in zip(KEY, case, strict=True) if name not in ("precision", "variant"))


def _narrowed(before: Key, after: Key) -> Change | None:
    """The number format, where two cases differ in that alone and it has become a narrow one."""
    place = KEY.index("precision")
    alike = (*before[:place], *before[place + 1 :]) == (*after[:place], *after[place + 1 :])
    wide, narrow = (registry.precisions().get(case[place]) for case in (before, after))
    if not alike or wide is None or narrow is None or not wide.plain:
        return None
    return _ROOFS.get(narrow.roof)


def _compared(before: Sequence[Any], after: Sequence[Any]) -> dict[str, Any]:
    ratio = stats.ratio(before, after)
    median = float(np.median(np.concatenate(list(before))))
    bounded = np.isfinite(ratio.high)
    return {
        "achieved_ns": median * (1 - ratio.estimate),
        "low_ns": median * (1 - ratio.high) if bounded else None,
        "high_ns": median * (1 - ratio.low) if bounded else None,
        "verdict": ratio.verdict,
    }


def _over_floor(row: Mapping[str, Any] | None) -> float | None:
    """What the copies take beyond what the link needs for their bytes."""
    if row is None:
        return None
    parts = [row[f"{way}_ms"] - row[f"{way}_floor_ms"] for way in ("h2d", "d2h")]
    excess = [max(0.0, part) for part in parts if not np.isnan(part)]
    return sum(excess) * NS_PER_MS if excess else None


def _sum_ms(row: Mapping[str, Any] | None, *stages: str) -> float | None:
    parts = [row[stage] for stage in stages if not np.isnan(row[stage])] if row else []
    return sum(parts) * NS_PER_MS if parts else None
