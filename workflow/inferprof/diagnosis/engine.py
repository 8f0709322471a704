"""What the runtime made of the graph: conversions, attention in pieces, formats, quantizers, loops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pandas as pd

from inferprof import registry
from inferprof.case import QUANTIZE, REFERENCE
from inferprof.diagnosis.kernel_time import (
    clipped,
    hides_kernels,
    longest,
    of_kernels,
    options_of,
    roofs_of,
    rows_counted,
    short,
    trace_of,
)
from inferprof.diagnosis.times import compared_by, peer_of, percent
from inferprof.findings import Change, Clear, Finding, Frames, Gain, NotAssessed, Threshold
from inferprof.plugins import check
from inferprof.tables import roofs
from inferprof.tables.limits.speed_up_flags import LARGE
from inferprof.tables.nodes import kernel_formats, precision_truth
from inferprof.tables.nodes.kernel_loops import loops
from inferprof.tables.records import rows_of
from inferprof.tables.trace.kernel_class import EITHER_FP8, FP8S
from inferprof.units import NS_PER_MS
from inferprof.words import counted

FUSED_FROM: Final = (8, 0)
"""Compute capability from which the runtimes have attention in one kernel (FlashAttention-2: Ampere and later)."""
MOSTLY: Final = 0.5
"""From here on too little is known of the products' formats."""
CONVERTING: Final = {
    "cast": "Keep neighbouring nodes in one format. Then no cast is left between them.",
    "reformat": "Give inputs in the layout that the kernels take, with channels that they need not pad.",
    "quantize": "Place Q/DQ where it fuses into a product: around inputs and weights, not behind residual sums.",
}
CONVERSIONS: Final = Threshold(
    "conversions", 0.05, "of the kernels' time", "ours: less than what a change of the graph is worth"
)
AS_ASKED: Final = Threshold(
    "as_asked", 0.95, "of the products' time in the format asked for", "ours: first and last layers may stay wider"
)
FAR_BEHIND: Final = Threshold(
    "far_behind",
    LARGE,
    "times as long as the fastest",
    "ours: an eager launch-bound model was 10 times its CUDA graph",
)
SOFTMAX: Final = Threshold(
    "unfused_softmax", 0.02, "of the kernels' time", "ours: of a classifier's last layer it is far less"
)
AROUND: Final = 2
"""Products around each softmax of an attention."""
MAY_BE_PRODUCTS: Final = ("gemm", "convolution", "other")


# --- what kernels convert and compute in -----------------------------------------------------------------------


def _executed(frames: Frames) -> tuple[str, pd.DataFrame]:
    """The tool that tells most, and kernel_formats.of_case by it. Raises NotAssessed."""
    counters = rows_counted(frames)
    for tool in registry.timing():
        rows = frames.of_tool(tool)
        if kernel_formats.tells(rows) and not hides_kernels(rows):
            return tool, kernel_formats.of_case(rows, counters)
    raise NotAssessed("a trace of the case's kernels, or the times of its layers")


@check("conversions", "Casts, reformats and quantizers", "engine", ("gpu",), by="model")
def _conversions(frames: Frames) -> list[Finding] | Clear:
    """Kernels that only cast, reformat or quantize, of CONVERSIONS of the kernels' time. Gain: 0 to all of theirs."""
    tool, kernels = frames.once(_executed)
    table = precision_truth.conversions(kernels)
    findings = [_conversion(frames, row, tool) for row in rows_of(table[table["share"] >= frames.limit(CONVERSIONS)])]
    return findings or Clear(f"{table['share'].sum():.1%} of the kernels' time converts formats or layouts")


def _conversion(frames: Frames, row: Mapping[str, Any], tool: str) -> Finding:
    time = of_kernels(frames, float(row["share"]))
    return Finding(
        subject=f"{row['conversion']} kernels",
        bottleneck="memory",
        share=frames.share(time),
        reason=f"kernels that only {row['conversion']} take {percent(row['share'])} of the kernels' time.",
        evidence={"kernel_share": float(row["share"]), "launches": float(row["instances"])},
        source=tool,
        gain=None if time is None else Gain(0.0, time),
        advice=CONVERTING[row["conversion"]],
        confidence="medium",
    )


@check("precision", "Formats that ran", "engine", ("gpu",), by="model")
def _precision(frames: Frames) -> list[Finding] | Clear:
    """Matrix products of which less than AS_ASKED ran in the format asked for, of those whose format is told.

    Gain: 0 to Σ time · (1 - peak of the format that ran / peak of the one asked for); None where a peak is not known.
    """
    precision = frames.case.precision
    if not precision_truth.asked(precision):
        raise NotAssessed(f"what {precision} is to compute in")
    if quantizer := options_of(frames).get(QUANTIZE):
        raise NotAssessed(f"what weights by {quantizer} are to be multiplied in")
    tf32 = precision == REFERENCE and bool(options_of(frames).get("tf32"))
    asked = ("tf32",) if tf32 else precision_truth.wanted(precision)
    tool, kernels = frames.once(_executed)
    products = precision_truth.by_dtype(kernels[kernels["matrix"]])
    shares = {str(row["dtype"]): float(row["share"]) for row in rows_of(products)}
    unknown = shares.pop(kernel_formats.NOT_TOLD, 0.0) + (shares.pop(EITHER_FP8, 0.0) if {*asked} & {*FP8S} else 0.0)
    if not shares or unknown > MOSTLY:
        raise NotAssessed(f"the formats of the matrix products: of {unknown:.0%} of their time nothing tells")
    ran = {dtype: share / (1 - unknown) for dtype, share in shares.items()}
    words = ", ".join(f"{percent(share)} in {dtype}" for dtype, share in ran.items())
    as_asked = sum(ran.get(dtype, 0.0) for dtype in asked)
    if as_asked >= frames.limit(AS_ASKED):
        return Clear(f"the matrix products ran as asked: {words}", {"as_asked": as_asked})
    time = _products_ns(frames, kernels)
    lost = (
        None
        if time is None
        else _lost(frames, {dtype: part * time for dtype, part in ran.items() if dtype not in asked}, asked[0])
    )
    other = 1 - as_asked
    finding = Finding(
        subject=", ".join(dtype for dtype in ran if dtype not in asked),
        bottleneck="compute",
        share=frames.share(None if time is None else other * time),
        reason=f"the matrix products were to run in {' or '.join(asked)}. They ran {words}.",
        evidence={f"{dtype}_share": share for dtype, share in ran.items()},
        source=tool,
        gain=None if lost is None else Gain(0.0, lost),
        advice="See what kept the kernels from it: sizes that are not aligned, Q/DQ that does not fuse, or no kernel "
        "of that format in this runtime.",
        confidence="medium",
        acts=False,
    )
    return [finding]


def _products_ns(frames: Frames, kernels: pd.DataFrame) -> float | None:
    """The time of the matrix products in an inference."""
    share = kernels.loc[kernels["matrix"], "duration_ns"].sum() / kernels["duration_ns"].sum()
    return of_kernels(frames, float(share))


def _lost(frames: Frames, times: Mapping[str, float], asked: str) -> float | None:
    """What the products would gain at the peak of the format asked for; None where a peak is not known."""
    peaks = roofs_of(frames).flops
    if not {asked, *times} <= set(peaks):
        return None
    return sum(max(0.0, 1 - peaks[dtype].value / peaks[asked].value) * time for dtype, time in times.items())


def _launches(kernels: pd.DataFrame, *classes: str) -> float:
    return float(kernels.loc[kernels["kernel_class"].isin(classes), "launches"].sum())


@check("unfused_attention", "Attention in pieces", "engine", ("gpu",), by="model")
def _attention(frames: Frames) -> list[Finding] | Clear:
    """Softmax in kernels of its own, beside products of two activations, on a GPU that has fused attention.

    Gain: 0 to the softmax kernels' time; what the scores cost on their way through memory would come on top.
    """
    kernels = longest(frames)
    if (kernels["kernel_class"] == "attention").any():
        return Clear("attention runs in kernels of its own kind")
    softmax = kernels[kernels["kernel_class"] == "softmax"]
    share = float(softmax["share"].sum())
    if share < frames.limit(SOFTMAX):
        return Clear(f"softmax kernels take {percent(share)} of the kernels' time")
    cost = frames.documents.cost
    scores = cost is not None and any(node.gemm and node.gemm.batch_in == "count" for node in cost.nodes or ())
    if cost is not None and not scores:
        return Clear("the graph has no product of two activations")
    if cost is None and _launches(kernels, *MAY_BE_PRODUCTS) < AROUND * _launches(kernels, "softmax"):
        return Clear("fewer than two products for each softmax: it is of a last layer, or of a choice of experts")
    capability = (roofs.gpu_in_use(frames.documents.environment) or roofs.NO_GPU).compute_capability
    if isinstance(capability, str) and tuple(map(int, capability.split("."))) < FUSED_FROM:
        return Clear(f"compute capability {capability} has no fused attention in these runtimes")
    time = of_kernels(frames, share)
    finding = Finding(
        subject=short(str(softmax["name"].iloc[0])),
        bottleneck="memory",
        share=frames.share(time),
        reason=f"attention runs as product, softmax and product. Softmax alone takes {percent(share)} of the "
        "kernels' time. The scores pass through device memory.",
        evidence={"softmax_share": share, "softmax_launches": float(softmax["launches"].sum())},
        source=str(frames.tool or "trace"),
        gain=None if time is None else Gain(0.0, time),
        advice="Use a runtime or an export with fused attention: the Attention operator, "
        "scaled_dot_product_attention.",
        confidence="medium" if scores else "low",
    )
    return [finding]


@check("quantization", "Quantized, and slower", "engine", ("gpu", "record"), by="precision", scope="model")
def _quantization(frames: Frames) -> list[Finding] | Clear:
    """A quantized case whose interval lies above that of the same case in plain. Gain: the difference of medians."""
    case, formats = frames.case, registry.precisions()
    if case.precision not in formats or not formats[case.precision].quantized:
        return Clear(f"{case.precision} has no quantizers")
    wider = [name for name, described in formats.items() if described.plain]
    own, *others = (peer_of(frames.peers, replace(case, precision=name)) for name in (case.precision, *wider))
    plain = next((row for row in others if row), None)
    if own is None or plain is None:
        raise NotAssessed(f"measurements of the case and of the same case in {' or '.join(wider)}")
    boundary = compared_by(own, plain)
    mine, other = own[f"{boundary}_ms"], plain[f"{boundary}_ms"]
    words = f"{mine:.4g} ms in {case.precision}, {other:.4g} ms in {plain['precision']} ({boundary})"
    if not own[f"{boundary}_low_ms"] > plain[f"{boundary}_high_ms"]:
        return Clear(words)
    lost = (mine - other) * NS_PER_MS
    finding = Finding(
        subject=case.precision,
        bottleneck="kernels",
        share=frames.share(lost),
        reason=f"quantized, it is slower than plain: {words}.",
        evidence={"quantized_ms": float(mine), "plain_ms": float(other)},
        source="records",
        gain=Gain(float(lost), float(lost)),
        advice=f"Use {plain['precision']}.",
        confidence="high",
        change=Change("precision", {"precision": str(plain["precision"])}),
    )
    return [finding]


@check("far_behind", "Far behind the model's other cases", "engine", ("gpu", "record"), by="profilers", scope="model")
def _far_behind(frames: Frames) -> list[Finding] | Clear:
    """FAR_BEHIND times as long on the device as the model's fastest case at this shape. Gain: 0 to the difference."""
    case = frames.case
    peers = frames.peers[frames.peers["shape"].eq(case.shape) & frames.peers["device_ms"].notna()]
    own = peer_of(peers, case)
    if own is None or len(peers) < 2:
        raise NotAssessed("device times of this case and of another one of the model at its shape")
    first = min(rows_of(peers), key=lambda row: float(row["device_ms"]))
    times = own["device_ms"] / first["device_ms"]
    name = "/".join(first[key] for key in ("precision", "backend", "variant"))
    words = f"on the device it takes {times:.3g} times as long as the fastest, {name}"
    if times < frames.limit(FAR_BEHIND):
        return Clear(words, {"times": float(times)})
    lost = (own["device_ms"] - first["device_ms"]) * NS_PER_MS
    finding = Finding(
        subject="",
        bottleneck="kernels",
        share=frames.share(lost),
        reason=f"{words}. Runtimes on one GPU differ by less without a cause.",
        evidence={"times": float(times), "fastest_ms": float(first["device_ms"])},
        source="records",
        gain=Gain(0.0, lost),
        advice="Find what falls back before anything is compared with it: ort_profile under `profilers:`.",
        confidence="low",
        acts=False,
    )
    return [finding]


@check("kernel_loops", "Loops of small kernels", "engine", ("gpu",), by="model")
def _loops(frames: Frames) -> list[Finding] | Clear:
    """Blocks of small kernels that run step by step (tables.nodes.kernel_loops).

    Gain: from all steps but one of their kernels, to the whole of the region, on the host or on the GPU.
    """
    trace = trace_of(frames)
    looping = loops(trace)
    if looping.empty:
        return Clear("no block of kernels runs several times in one execution of a region")
    return [_loop(frames, row, str(trace["tool"].iloc[0])) for row in rows_of(looping)]


def _loop(frames: Frames, row: Mapping[str, Any], tool: str) -> Finding:
    candidates = frames.documents.partition.in_loops if frames.documents.partition else []
    on_host = row["region_duration"] > row["duration"]
    time = max(row["region_duration"], row["duration"])
    body = f"{counted(row['steps'], 'step')} of {counted(row['kernels'], 'kernel')} of {row['mean'] / 1e3:.2f} µs"
    return Finding(
        subject=f"the loop of {candidates[0]}" if len(candidates) == 1 else f"a loop in {clipped(row['region'])}",
        bottleneck="launch" if on_host else "latency",
        share=frames.share(time),
        reason=f"an operator runs as a loop of {body}. A run has {counted(row['launches'], 'launch')}, "
        f"{row['duration'] / 1e3:.1f} µs of kernels and {row['region_duration'] / 1e3:.1f} µs of the host.",
        evidence={name: float(row[name]) for name in ("steps", "kernels", "launches", "duration", "region_duration")},
        source=tool,
        gain=Gain(float(row["duration"] * (1 - 1 / row["steps"])), float(time)),
        advice="Write it without a loop: CumSum as a product with a triangular matrix, a recurrence unrolled or "
        "replaced, a Scan by the operator that it spells out.",
        confidence="medium",
    )
