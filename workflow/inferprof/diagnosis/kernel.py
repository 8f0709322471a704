"""What holds the kernels of a case back: what bounds them, the longest, tiles, roofs, and NVIDIA's rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from inferprof import registry
from inferprof.case import Shape
from inferprof.diagnosis.kernel_faults import counters_of, merged, of_time, time_shares
from inferprof.diagnosis.kernel_time import (
    KERNEL_SHARE,
    NEEDS_NODES,
    clipped,
    counted_by,
    hidden_in_graphs,
    kernels_ns,
    longest,
    of_kernels,
    options_of,
    owner_of,
    roofs_of,
    rows_counted,
    short,
)
from inferprof.diagnosis.times import NS_PER_MS, bare_ns, ms, percent
from inferprof.findings import Clear, Finding, Frames, Gain, NotAssessed, Threshold
from inferprof.plugins import Check
from inferprof.tables import roofs
from inferprof.tables.counters import kernel_roofline, ncu_rules
from inferprof.tables.counters.bound_shares import shares
from inferprof.tables.counters.bounds import Bound
from inferprof.tables.limits import roofline, tile_advice
from inferprof.tables.nodes.product_kernels import ties_of
from inferprof.tables.records import rows_of
from inferprof.tables.schema import of_first
from inferprof.tables.trace.kernel_class import KernelClass

BOUND_SHARE: Final = Threshold("bound", 0.5, "of the kernels' time", "ours: what bounds most of it names the case")
HOT_SHARE: Final = Threshold(
    "hot_kernel", 0.2, "of the kernels' time", "ours: from a fifth on one kernel is a place to look"
)
TILE_WASTE: Final = Threshold("tile_waste", 0.02, "of the case's time", "ours: less is not worth another shape")
ROOF_DISTANCE: Final = Threshold(
    "roof_distance", 2.0, "times the time at the roof", "ours: good libraries reach 60 to 80 % of a roof"
)
ROOF_DURATION: Final = Threshold(
    "roof_duration", 10_000.0, "ns of a launch", "ours: an H100 takes 2 µs for a kernel that does nothing"
)
RULE_SHARE: Final = Threshold(
    "rule_share", 0.01, "of the kernels' time, what a rule expects", "ours: the rule's gain times the kernel's share"
)
BOUND_ADVICE: Final[Mapping[Bound, str]] = {
    "memory": "move fewer bytes: elementwise chains fused into products, narrower formats, a batch that the L2 holds",
    "compute": "fewer or cheaper operations: a narrower format on the tensor cores, 2:4 sparsity, a smaller model",
    "latency": "give the GPU more to do at once: a larger batch, fused kernels, streams beside each other",
    "tail": "a batch or tiles with which the blocks fill whole waves",
}
CLASS_ADVICE: Final[Mapping[KernelClass, str]] = {
    "convolution": "compare it with its roof; a convolution whose stride is its kernel (patches) is a matrix "
    "product, and runs as one when exported as reshape and MatMul; channels padded to a multiple of 8",
    "gemm": "compare it with its roof and its tiles; a narrower format or a better batch is what moves it",
    "attention": "compare it with its roof; a newer fused kernel, or fewer tokens",
}
UNMERGED: Final = ", so what is left lies between the nodes: each writes its result to memory for the next"
FUSERS: Final[Mapping[str, tuple[str, ...]]] = {
    "torch.compile": ("torch_compile",),
    "an engine": ("tensorrt", "tensorrt_rtx", "ort_tensorrt", "ort_tensorrt_rtx"),
    "ONNX Runtime's transformer optimizer": (),
}
"""What fuses more → the backends whose cases have it already."""
OTHER_ADVICE: Final = "compare it with its roof; fuse it into the product before or behind it"


# --- what bounds -----------------------------------------------------------------------------------------------


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
        reason=f"the kernels are bound by {bound}: {percent(by_bound[bound])} of their time, where "
        f"{percent(counted)} was counted ({words})",
        evidence={f"{name}_share": share for name, share in by_bound.items()},
        source=f"{counted_by(frames)}, {frames.tool}",
        gain=None,
        advice=BOUND_ADVICE[bound],
        confidence="medium",
    )
    return [finding]


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
        reason=f"{words}{f', and belongs to {clipped(owner)}' if owner else ''}",
        evidence={"kernel_share": float(first["share"]), "launches": float(first["launches"])},
        source=str(frames.tool or "trace"),
        gain=None,
        advice=CLASS_ADVICE.get(first["kernel_class"], OTHER_ADVICE),
        confidence="medium",
    )
    return [finding]


# --- tiles and roofs -------------------------------------------------------------------------------------------


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
    advice = _size_advice(case)
    findings = []
    for product in products:
        waste = (1 - product.fit.efficiency) * (product.duration or 0.0)
        if waste >= frames.limit(TILE_WASTE) * total:
            findings.append(_tile(frames, product, waste, advice))
    least = percent(frames.limit(TILE_WASTE))
    return findings or Clear(
        f"none of {len(products)} kinds of products wastes {least} of the case's time in its tiles"
    )


def _size_advice(case: tile_advice.Tiled) -> str:
    """The batch or sequence that would waste least."""
    best = next((suggestion for suggestion in tile_advice.suggestions(case) if suggestion["gemm_gain"]), None)
    if best is None:
        return "no batch or sequence near by wastes less: other tiles, by another tactic or version of the library"
    gain = f"{percent(best['gemm_gain'])} of the GEMMs' time per {best['per']}"
    return f"{best['kind']} {best['then']} instead of {best['now']} would save {gain}"


def _tile(frames: Frames, product: Any, waste: float, advice: str) -> Finding:
    gemm, fit = product.group.gemm, product.fit
    unused = f"{percent(1 - fit.efficiency)} of {ms(product.duration)}"
    return Finding(
        subject=f"{gemm.m}x{gemm.n}x{gemm.k} matrix products ({product.nodes} nodes)",
        bottleneck="tail",
        share=frames.share(product.duration),
        reason=f"tiles of {product.tile.label} leave {unused} unused: padding "
        f"{percent(fit.padding)}, last of {fit.waves:.2f} waves {percent(fit.last_wave)}",
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


def _roof(frames: Frames) -> list[Finding] | Clear:
    """ROOF_DISTANCE from the roof: launches where there are counters, else the graph and its nodes one by one.

    Gain: 0 to (1 - 1 / distance) · time of the launches; of a graph 0 to device - its roof as one kernel. Nodes that
    are near their roofs leave the memory traffic between them: 0 to the nodes' roofs - the graph's.
    """
    limits = roofs_of(frames)
    if limits.bandwidth is None:
        raise NotAssessed("the GPU's roofs: ceilings.json, bandwidth.json, or its datasheet in peaks.csv")
    if rows_counted(frames)["level"].eq("kernel").any():
        return _kernels_and_roofs(frames, limits)
    return _graph_and_roof(frames, limits)


def _kernels_and_roofs(frames: Frames, limits: roofs.Roofs) -> list[Finding] | Clear:
    counters = counters_of(frames)
    launches = kernel_roofline.of_case(counters, limits)
    compared = launches[launches["distance"].notna()]
    if compared.empty:
        raise NotAssessed("durations and bytes of the counted kernels, and the peaks of their formats")
    taken = time_shares(frames, counters)
    limit, shortest = frames.limit(ROOF_DISTANCE), frames.limit(ROOF_DURATION)
    shared = [{**row, "time_share": taken.get(row["launch"])} for row in rows_of(compared)]
    far = merged([row for row in shared if row["distance"] >= limit and row["duration_ns"] >= shortest])
    worth = [row for row in far if (row["time_share"] or 0.0) >= frames.limit(KERNEL_SHARE)]
    if not worth:
        least, most = (f"{value:.2g}" for value in (compared["distance"].min(), compared["distance"].max()))
        return Clear(f"{len(compared)} counted kernels take {least} to {most} times as long as at their roof")
    return [_far(frames, row) for row in worth]


def _far(frames: Frames, row: Mapping[str, Any]) -> Finding:
    share = row["time_share"]
    time = of_kernels(frames, share)
    lost = sum((1 - 1 / launch["distance"]) * (launch["time_share"] or 0.0) for launch in row["alike"])
    return Finding(
        subject=short(row["name"]),
        bottleneck="kernels",
        share=frames.share(time),
        reason=f"takes {row['distance']:.3g} times as long as at its roof, by {row['limit']}{of_time(share)}",
        evidence={"distance": row["distance"], "roof_ns": row["roof_ns"], "duration_ns": row["duration_ns"]},
        source=counted_by(frames),
        gain=None if time is None else Gain(0.0, lost / share * time),
        advice="see the counters: what its warps wait for is what keeps it from the roof",
        confidence="medium",
    )


def _graph_and_roof(frames: Frames, limits: roofs.Roofs) -> list[Finding] | Clear:
    cost, device = frames.documents.cost, bare_ns(frames.latency, "device")
    if cost is None or device is None:
        raise NotAssessed("counters (ncu); or the costs of the graph (.cost.json) and the case's device time")
    at_roof = roofline.of_graph(cost, limits)
    if "not_known" in at_roof:
        raise NotAssessed(f"a roof of the graph: {at_roof['not_known']}")
    fused, unfused = at_roof["fused_ms"] * NS_PER_MS, at_roof["unfused_ms"] * NS_PER_MS
    words = (
        f"the device takes {ms(device)}: {device / fused:.3g} times the graph's roof by {at_roof['limit']}, "
        f"{device / unfused:.3g} times that of its nodes one by one"
    )
    evidence = {"device_ns": device, "fused_ns": fused, "unfused_ns": unfused}
    limit = frames.limit(ROOF_DISTANCE)
    if device < limit * fused:
        return Clear(words, evidence)
    unmerged = device < limit * unfused
    finding = Finding(
        subject="",
        bottleneck="memory" if unmerged else "kernels",
        share=frames.share(min(device, kernels_ns(frames) or device)),
        reason=f"{words}{UNMERGED if unmerged else ''}",
        evidence=evidence,
        source=f"records, {at_roof['source']}",
        gain=Gain(0.0, (min(device, unfused) if unmerged else device) - fused),
        advice=_fuse(frames) if unmerged else _look(frames),
        confidence="low",
    )
    return [finding]


def _fuse(frames: Frames) -> str:
    """What might fuse more than the case's own backend."""
    others = [name for name, backends in FUSERS.items() if frames.case.backend not in backends]
    return f"a runtime that fuses more ({', '.join(others)}), or a narrower format"


def _look(frames: Frames) -> str:
    """What would tell more. Without a timeline the device's time may be waits for the host, but of a CUDA graph."""
    if frames.tool is None and not options_of(frames).get("cuda_graph"):
        return "a timeline, which tells launches from kernels: nsys under `profilers:`; or a CUDA graph beside it"
    return "look into the longest kernels with counters: nsys and ncu under `profilers:`"


# --- NVIDIA's rules --------------------------------------------------------------------------------------------


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
        reason=f"NVIDIA's rule {row['rule']} expects {row['rule_percent']:.1f} % of the kernel{of_time(share)}, "
        f"where ours says {row['ours']}",
        evidence={"rule_percent": float(row["rule_percent"])},
        source=counted_by(frames),
        gain=None if time is None else Gain(0.0, row["rule_percent"] / 100 * time),
        advice=str(row["message"]),
        confidence="low",
    )


KERNEL_BOUND = Check("bound", "What bounds the kernels", "kernel", "case", ("gpu", "timeline", "counters"), _bound)
HOT_KERNEL = Check("hot_kernel", "The longest kernel", "kernel", "case", ("gpu",), _hot)
TILES = Check("tile_waste", "Waste in tiles and waves", "kernel", "case", ("gpu", "timeline"), _tiles)
ROOF = Check("roof", "Distance from the roofline", "kernel", "case", ("gpu",), _roof)
NCU_RULES = Check(
    "ncu_rules", "NVIDIA's rules, where ours see nothing", "kernel", "case", ("gpu", "counters"), _rules
)
