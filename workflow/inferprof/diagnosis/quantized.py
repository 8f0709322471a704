"""Weights that torch quantized: what they gain or cost beside the same case without, and where that time goes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import pandas as pd

from inferprof.case import QUANTIZE
from inferprof.diagnosis.kernel_time import options_of, roofs_of
from inferprof.diagnosis.times import RECORDS, compared_by, peer_of, percent
from inferprof.documents.record import Record
from inferprof.findings import Bottleneck, Clear, Finding, Frames, Gain, NotAssessed, PairedCase, Threshold
from inferprof.plugins import check
from inferprof.tables.trace.kernel_class import classify
from inferprof.tables.trace.kernel_compare import by_name
from inferprof.units import MEGA, NS_PER_MS
from inferprof.words import counted, ms

PRODUCT: Final = "gemm"
CAUSE: Final = Threshold(
    "quantized_cause", 0.1, "of what quantization costs", "ours: a smaller part is not why a case is slower"
)


@dataclass(frozen=True)
class _Compared:
    """A case beside the one with plain weights: words for both, whether it is slower for sure, and by how many ns."""

    words: str
    evidence: dict[str, float]
    slower: bool
    lost_ns: float


@dataclass(frozen=True)
class _Part:
    """A part of what quantization costs: ns of an inference, and what they are in."""

    subject: str
    bottleneck: Bottleneck
    ns: float
    words: str
    advice: str


@check(
    "quantized_weights", "Quantized weights that cost time", "engine", ("gpu", "record"), by="model", scope="model"
)
def _weights(frames: Frames) -> list[Finding] | Clear:
    """Slower than the same case with plain weights, and the parts of that which are CAUSE of it or more: kernels
    beside the products, the products, and what no kernel explains (the host). Gain: 0 to the part.

    Products are what kernel_class calls gemm.
    """
    if QUANTIZE not in options_of(frames):
        return Clear("no weights are quantized in torch")
    paired = frames.unquantized
    if paired is None:
        raise NotAssessed(f"a measurement of the same case without `{QUANTIZE}`")
    compared = _compared(frames, paired)
    kernels = _kernels(frames, paired)
    if kernels is not None:
        compared = replace(compared, words=f"{compared.words}; {_traced(kernels)}")
    if not compared.slower:
        return Clear(compared.words, compared.evidence)
    if kernels is None:
        parts = [_Part("quantized weights", "kernels", compared.lost_ns, "is where no trace of both tells", TRACE)]
    else:
        parts = _parts(compared.lost_ns, kernels)
    least = frames.limit(CAUSE) * compared.lost_ns
    large = [part for part in parts if part.ns >= least]
    return [_finding(frames, compared, part, first=part is large[0]) for part in large]


TRACE: Final = "Trace both cases: nsys or kineto under `profilers:`."
LOOK: Final = ("quantized weights", "other products")
"""Parts whose advice only finds out more."""


def _compared(frames: Frames, paired: PairedCase) -> _Compared:
    """On the device where both were measured there, else end to end; with the bytes of the weights, and how long the
    memory takes to read them once. Raises NotAssessed where one has no interval."""
    own, plain = (peer_of(frames.peers, case) for case in (frames.case, paired.case))
    if own is None or plain is None:
        raise NotAssessed(f"a measurement of {frames.case if own is None else paired.case}")
    boundary = compared_by(own, plain)
    mine, other = own[f"{boundary}_ms"] * NS_PER_MS, plain[f"{boundary}_ms"] * NS_PER_MS
    low, high = own[f"{boundary}_low_ms"], plain[f"{boundary}_high_ms"]
    if math.isnan(low) or math.isnan(high):
        raise NotAssessed("enough samples of both cases for an interval")
    sizes = [_weight_bytes(record) for record in (frames.record, paired.record)]
    evidence = {"quantized_ns": mine, "plain_ns": other, "quantized_bytes": sizes[0], "plain_bytes": sizes[1]}
    words = f"{ms(mine)} instead of {ms(other)} ({boundary}), {mine / other:.3g} times, with weights of "
    words += f"{sizes[0] / MEGA:,.0f} MB instead of {sizes[1] / MEGA:,.0f} MB"
    if bandwidth := roofs_of(frames).bandwidth:
        floors = [size / bandwidth.value * 1e9 for size in sizes]
        evidence |= {"quantized_floor_ns": floors[0], "plain_floor_ns": floors[1]}
        words += f", which take {ms(floors[0])} and {ms(floors[1])} to read once"
    return _Compared(words, {name: float(value) for name, value in evidence.items()}, low > high, mine - other)


def _weight_bytes(record: Record) -> int:
    """The bytes of the weights. Raises NotAssessed where the record does not say."""
    weights = record.memory.runtime.get("weights") if record.memory else None
    if not isinstance(weights, int):
        raise NotAssessed("the bytes of the weights in the records of both cases")
    return weights


def _kernels(frames: Frames, paired: PairedCase) -> pd.DataFrame | None:
    """kernel_compare.by_name of the case (a) and the paired case (b), and `product`; None if no tool traced both."""
    rows = paired.profiles[paired.profiles["tool"] == frames.tool]
    if frames.tool is None or rows.empty:
        return None
    table = by_name(frames.timeline, rows)
    return table.assign(product=table["kernel_class"].eq(PRODUCT))


def _traced(kernels: pd.DataFrame) -> str:
    """`28 kernels of 1.8 ms an inference instead of 22 of 0.2 ms`."""
    (count, own), (plain_count, plain) = (
        (float(kernels[f"launches_{side}"].sum()), float(kernels[f"duration_{side}"].sum())) for side in "ab"
    )
    return f"{counted(count, 'kernel')} of {ms(own)} an inference instead of {plain_count:.0f} of {ms(plain)}"


def _parts(lost_ns: float, kernels: pd.DataFrame) -> list[_Part]:
    """Where the time goes, the longest first."""
    products, others = kernels[kernels["product"]], kernels[~kernels["product"]]
    more = float((others["launches_a"] - others["launches_b"]).sum())
    time = float(products["duration_a"].sum())
    kept = float(products.loc[products["status"] == "both", "duration_a"].sum())
    same = f"; {percent(kept / time)} of the products' time is in kernels of plain weights too" if time else ""
    changes = [float(part["change"].sum()) * -1 for part in (products, others)]
    parts = [
        _Part(
            "converted weights",
            "memory",
            changes[1],
            f"is in kernels beside the products, {more:.0f} more an inference{same}",
            "Use a runtime that multiplies quantized weights as they are, or converts them inside of the product "
            "(torch.compile). It pays where the weights are what the memory is busy with.",
        ),
        _Part(
            "other products",
            "kernels",
            changes[0],
            f"is in the products themselves{same}; on tensor cores, as far as their names tell, is "
            f"{_on_tensor_cores(products, 'a')} of it instead of {_on_tensor_cores(products, 'b')}",
            "See which kernels took the place of the plain ones, and whether they use tensor cores.",
        ),
        _Part(
            "the host",
            "launch",
            lost_ns - sum(changes),
            "is in no kernel: the GPU waits for the host, which has more to dispatch",
            "Use a CUDA graph, which compiled models have with `compile_mode: reduce-overhead`. Quantized "
            "weights are a tensor subclass, which is dispatched in Python.",
        ),
    ]
    return sorted(parts, key=lambda part: -part.ns)


def _on_tensor_cores(products: pd.DataFrame, side: str) -> str:
    """Share of the products' time in kernels whose name says that they use tensor cores."""
    time, names = products[f"duration_{side}"], products["name"]
    used = names.map(lambda name: classify(str(name)).tensor_cores is True).astype(bool)
    return percent(float(time[used].sum() / time.sum()) if time.sum() else None)


def _finding(frames: Frames, compared: _Compared, part: _Part, first: bool) -> Finding:
    """Of a part; what is said of the whole case stands in the first one alone."""
    whole = f"slower than with plain weights: {compared.words}. " if first else "slower than with plain weights. "
    return Finding(
        subject=part.subject,
        bottleneck=part.bottleneck,
        share=frames.share(part.ns),
        reason=f"{whole}{ms(part.ns)} more than with those {part.words}.",
        evidence={**compared.evidence, "part_ns": part.ns},
        source=f"{RECORDS}, {frames.tool or 'no timeline'}",
        gain=Gain(0.0, part.ns),
        advice=part.advice,
        confidence="medium",
        acts=part.subject not in LOOK,
    )
