"""What holds the kernels of a case back: what bounds them, the longest, tiles, and NVIDIA's rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from msgspec import structs

from inferprof import registry
from inferprof.case import Shape
from inferprof.diagnosis.kernel_faults import counters_of, merged, of_time, time_shares
from inferprof.diagnosis.kernel_time import (
    NEEDS_NODES,
    clipped,
    counted_by,
    hidden_in_graphs,
    kernels_ns,
    longest,
    of_kernels,
    owner_of,
    short,
)
from inferprof.diagnosis.times import peer_of, percent
from inferprof.findings import Change, Clear, Finding, Frames, Gain, NotAssessed, Threshold
from inferprof.plugins import check
from inferprof.tables import roofs
from inferprof.tables.counters import ncu_rules
from inferprof.tables.counters.bounds import Bound
from inferprof.tables.counters.ncu_timeline import shares
from inferprof.tables.limits import tile_advice
from inferprof.tables.nodes.product_kernels import ties_of
from inferprof.tables.records import rows_of
from inferprof.tables.schema import of_first
from inferprof.tables.trace.kernel_class import KernelClass
from inferprof.words import counted, ms

BOUND_SHARE: Final = Threshold("bound", 0.5, "of the kernels' time", "ours: what bounds most of it names the case")
HOT_SHARE: Final = Threshold(
    "hot_kernel", 0.2, "of the kernels' time", "ours: from a fifth on one kernel is a place to look"
)
TILE_WASTE: Final = Threshold("tile_waste", 0.02, "of the case's time", "ours: less is not worth another shape")
RULE_SHARE: Final = Threshold(
    "rule_share", 0.01, "of the kernels' time, what a rule expects", "ours: the rule's gain times the kernel's share"
)
BOUND_ADVICE: Final[Mapping[Bound, str]] = {
    "memory": "Move fewer bytes: fuse elementwise chains into products, use a narrower format or a batch that the L2 "
    "holds.",
    "compute": "Compute less: a narrower format on the tensor cores, 2:4 sparsity, a smaller model.",
    "latency": "Give the GPU more to do at once: a larger batch, fused kernels, streams beside each other.",
    "tail": "Choose a batch or tiles with which the blocks fill whole waves.",
}
CLASS_ADVICE: Final[Mapping[KernelClass, str]] = {
    "convolution": "Compare it with its roofline. Pad channels to a multiple of 8. A convolution whose stride is its "
    "kernel (patches) is a matrix product: export it as reshape and MatMul.",
    "gemm": "Compare it with its roofline and its tiles. A narrower format or a better batch moves it.",
    "communication": "Part of it is waiting for other GPUs: see late_rank. Hide the rest behind computation, or send "
    "fewer bytes.",
    "attention": "Compare it with its roofline. A newer fused kernel or fewer tokens move it.",
}
OTHER_ADVICE: Final = "Compare it with its roofline. Fuse it with the operators before and behind it."


# --- what bounds -----------------------------------------------------------------------------------------------


@check("bound", "What bounds the kernels", "kernel", ("gpu", "timeline", "counters"), by="kernel")
def _bound(frames: Frames) -> list[Finding] | Clear:
    """What bounds BOUND_SHARE of the counted kernels' time (counters.bounds). Names the case, gains nothing."""
    by_bound = shares(counters_of(frames), frames.timeline)
    counted = sum(by_bound.values())
    if not counted:
        raise NotAssessed("counters of launches that the timeline has")
    bound = max(by_bound, key=lambda name: by_bound[name])
    words = ", ".join(f"{name} {percent(share)}" for name, share in by_bound.items() if share)
    if by_bound[bound] < frames.limit(BOUND_SHARE) * counted:
        return Clear(f"nothing bounds most of the kernels' time: {words}")
    time = of_kernels(frames, by_bound[bound])
    finding = Finding(
        subject="",
        bottleneck=bound,
        share=frames.share(time),
        reason=f"{bound} bounds the kernels for {percent(by_bound[bound])} of their time. Of it "
        f"{percent(counted)} was counted ({words}).",
        evidence={f"{name}_share": share for name, share in by_bound.items()},
        source=f"{counted_by(frames)}, {frames.tool}",
        gain=None,
        advice=BOUND_ADVICE[bound],
        confidence="medium",
    )
    return [finding]


@check("hot_kernel", "The longest kernel", "kernel", ("gpu",), by="kernel")
def _hot(frames: Frames) -> list[Finding] | Clear:
    """The kernel with HOT_SHARE of the kernels' time, and the layer that launches it. Its gain: see its roof.

    Where most of that time is in CUDA graphs that were traced as a whole, the longest of these.
    """
    if hidden := hidden_in_graphs(frames):
        return [hidden]
    kernels = longest(frames)
    if kernels.empty:
        raise NotAssessed(NEEDS_NODES)
    first = rows_of(kernels.head(1))[0]
    name = short(first["name"])
    words = f"{name} is the longest kernel, {percent(first['share'])} of the kernels' time"
    if first["share"] < frames.limit(HOT_SHARE):
        return Clear(words, {"kernel_share": float(first["share"])})
    owner, time = owner_of(frames, first["name"]), of_kernels(frames, float(first["share"]))
    finding = Finding(
        subject=f"{first['kernel_class']} {clipped(owner) if owner else name}",
        bottleneck="kernels",
        share=frames.share(time),
        reason=f"{words}.{f' It belongs to {clipped(owner)}.' if owner else ''}",
        evidence={"kernel_share": float(first["share"]), "launches": float(first["launches"])},
        source=str(frames.tool or "trace"),
        gain=None,
        advice=CLASS_ADVICE.get(first["kernel_class"], OTHER_ADVICE),
        confidence="medium",
        acts=False,
    )
    return [finding]


# --- tiles -------------------------------------------------------------------------------------------


@check("tile_waste", "Waste in tiles and waves", "kernel", ("gpu", "timeline"), by="shape")
def _tiles(frames: Frames) -> list[Finding] | Clear:
    """Products whose tiles waste TILE_WASTE of the case. Gain: 0 to (1 - efficiency) · time of their kernels."""
    cost = frames.documents.cost
    sms = (roofs.gpu_in_use(frames.documents.environment) or roofs.NO_GPU).sm_count
    if cost is None or not isinstance(sms, int):
        raise NotAssessed("the costs of the graph (.cost.json) and the GPU's number of SMs (environment.json)")
    ties = ties_of(of_first(frames.profiles, registry.joining("node")))
    placed = tile_advice.placed_in(cost.nodes or (), frames.timeline, sms, ties)
    products = [kind for kind in placed if kind.duration is not None and kind.source != "assumed"]
    if not products:
        raise NotAssessed("tiles that the names or grids of the kernels tell")
    total = frames.total.ns if frames.total else sum(kind.duration or 0.0 for kind in products)
    case = tile_advice.Tiled(Shape.parse(frames.case.shape), sms, placed, total, kernels_ns(frames))
    advice, change = _size_advice(frames, case)
    findings = []
    for product in products:
        waste = (1 - product.fit.efficiency) * (product.duration or 0.0)
        if waste >= frames.limit(TILE_WASTE) * total:
            findings.append(structs.replace(_tile(frames, product, waste, advice), change=change))
    least = percent(frames.limit(TILE_WASTE))
    return findings or Clear(
        f"none of {len(products)} kinds of products wastes {least} of the case's time in its tiles"
    )


def _loses(frames: Frames, suggestion: Mapping[str, Any]) -> bool:
    """Whether the study measured that a caller's items take longer at the suggested size."""
    then = frames.case.shape if suggestion["suggested_shape"] is None else suggestion["suggested_shape"]
    own, other = (peer_of(frames.peers, replace(frames.case, shape=shape)) for shape in (frames.case.shape, then))
    if own is None or other is None or then == frames.case.shape:
        return False
    items = suggestion["then"] / suggestion["now"]
    return bool(other["end_to_end_low_ms"] > own["end_to_end_high_ms"] * items)


def _size_advice(frames: Frames, case: tile_advice.Tiled) -> tuple[str, Change]:
    """The batch or sequence that would waste least, in words and as data."""
    every = (suggestion for suggestion in tile_advice.suggestions(case) if suggestion["gemm_gain"])
    best = next((suggestion for suggestion in every if not _loses(frames, suggestion)), None)
    if best is None:
        words = "Try other tiles: another tactic or version of the library. No batch or sequence near by wastes less."
        return words, Change("kernel")
    gain = f"{percent(best['gemm_gain'])} of the GEMMs' time per {best['per']}"
    shape = best["suggested_shape"]
    change = Change("shape", Shape.parse(shape).as_dict()) if shape else Change("caller")
    return f"Take a {best['kind']} of {best['then']} instead of {best['now']}. It would save {gain}.", change


def _tile(frames: Frames, product: Any, waste: float, advice: str) -> Finding:
    gemm, fit = product.group.gemm, product.fit
    unused = f"{percent(1 - fit.efficiency)} of {ms(product.duration)}"
    return Finding(
        subject=f"{gemm.m}x{gemm.n}x{gemm.k} matrix products ({counted(product.nodes, 'node')})",
        bottleneck="tail",
        share=frames.share(product.duration),
        reason=f"tiles of {product.tile.label} leave {unused} unused: padding "
        f"{percent(fit.padding)}, last of {fit.waves:.2f} waves {percent(fit.last_wave)}.",
        evidence={
            "padding": fit.padding,
            "last_wave": fit.last_wave,
            "waves": fit.waves,
            "duration_ns": product.duration,
        },
        source=str(frames.tool),
        gain=Gain(0.0, waste),
        advice=advice,
        confidence="high" if product.source in ("node", "grid") else "medium",
    )


# --- NVIDIA's rules --------------------------------------------------------------------------------------------


@check("ncu_rules", "NVIDIA's rules, where ours see nothing", "kernel", ("gpu", "counters"), by="kernel")
def _rules(frames: Frames) -> list[Finding] | Clear:
    """Rules that see what our checks of the same do not (counters.ncu_rules). Gain: 0 to the rule's own estimate."""
    counters = counters_of(frames)
    table = ncu_rules.agreement(counters)
    if not (counters["level"] == "ncu_rule").any():
        raise NotAssessed("results of NVIDIA's rules: the details page, or the .ncu-rep with them")
    taken = time_shares(frames, counters)
    apart = [
        {**row, "time_share": taken.get(row["launch"])}
        for row in rows_of(table)
        if row["agreement"] == "theirs alone"
    ]
    rules = dict.fromkeys(row["rule"] for row in apart)
    worth = [row for rule in rules for row in _worth(frames, apart, rule)]
    agreed, alone = (int((table["agreement"] == agreement).sum()) for agreement in ("agree", "ours alone"))
    if not worth:
        return Clear(
            f"{agreed} results agree with ours, {alone} faults are ours alone, {len(apart)} theirs alone and small"
        )
    return [_rule(frames, row) for row in worth]


def _worth(frames: Frames, apart: Sequence[Mapping[str, Any]], rule: str) -> list[dict[str, Any]]:
    """One row per kernel of a rule, where it expects enough of the kernels' time, or no trace tells."""
    rows = merged([row for row in apart if row["rule"] == rule])
    least = frames.limit(RULE_SHARE)
    return [
        row for row in rows if row["time_share"] is None or row["time_share"] * row["rule_percent"] / 100 >= least
    ]


def _rule(frames: Frames, row: Mapping[str, Any]) -> Finding:
    share = row["time_share"]
    time = of_kernels(frames, share)
    return Finding(
        subject=short(row["name"]),
        bottleneck="kernels",
        share=frames.share(time),
        reason=f"NVIDIA's rule {row['rule']} expects {row['rule_percent']:.1f} % of the kernel{of_time(share)}. "
        f"Ours says {row['ours']}.",
        evidence={"rule_percent": float(row["rule_percent"])},
        source=counted_by(frames),
        gain=None if time is None else Gain(0.0, row["rule_percent"] / 100 * time),
        advice=str(row["message"]),
        confidence="low",
    )
