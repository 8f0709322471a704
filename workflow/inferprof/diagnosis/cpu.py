"""Cases on the CPU: their threads, the limits of the CPU, the operators that take longest, and conversions."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping
from typing import Final

import pandas as pd
from msgspec.structs import replace

from inferprof import registry
from inferprof.case import REFERENCE
from inferprof.diagnosis.kernel_time import roofs_of
from inferprof.diagnosis.times import RECORDS, Peer, peer_of, percent
from inferprof.documents import Environment
from inferprof.documents.record import Threads
from inferprof.findings import (
    OF_ONNX_RUNTIME,
    Bottleneck,
    Change,
    Clear,
    Finding,
    Frames,
    Gain,
    NotAssessed,
    Threshold,
)
from inferprof.plugins import check
from inferprof.tables.nodes.providers import by_type, computed_on_cpu, first_run_alone, per_run
from inferprof.tables.roofs import Roofs
from inferprof.tables.schema import of_first
from inferprof.units import GIGA, NS_PER_MS
from inferprof.words import ms

WORKING: Final = 0.1
"""Ours, of the time: a thread that is at work for less does not take part."""
CORE_WAITED: Final = Threshold(
    "core_waited", 0.05, "of the threads' time", "ours: five times the interval that a median is measured to"
)
IDLE_CORES: Final = Threshold("idle_cores", 0.5, "of the usable cores", "ours: twice as many would fit")
CPU_LIMIT: Final = Threshold(
    "cpu_limit", 0.5, "share of the total", "ours: good libraries reach 60 to 80 % of a roof"
)
OPERATORS: Final = Threshold(
    "cpu_operators", 0.3, "of the operators' time", "ours: less than a third is no one cause"
)
CONVERSIONS: Final = Threshold("cpu_conversions", 0.1, "of the operators' time", "ours: the noise of a busy host")
CREDIBLE: Final = 1.1
"""Ours: a roof so many times as slow as what was measured below it was not the machine's when the case ran."""
CONVERTING: Final = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "Cast")
PRODUCTS: Final = ("MatMul", "Gemm", "Conv", "Attention", "Fused", "MultiHeadAttention", "QLinear", "QGemm")
"""How the names of operators begin that multiply matrices, on a CPU."""
OTHERS_WORK: Final = "Leave the cores to it: other work has them."
IDLE_ADVICE: Final = "Use them: a larger batch, several callers, or more `threads:` where a variant limits them."
LIMIT_ADVICE: Final[Mapping[Bottleneck, str]] = {
    "memory": "Weights in fewer bits, or a larger batch, which reads them once for all.",
    "compute": "Less work, a narrower format, or other hardware: csv/gpu_floors.csv has the least times on GPUs.",
}
NODES: Final = "csv/all_operators.csv of a report names the nodes."
MULTIPLY_LESS: Final = "Fewer products, or a format that this CPU multiplies faster, take less."
FUSE: Final = "ONNX Runtime's transformer optimizer or a newer export may fuse them."
LESS: Final = "Fewer or smaller ones, or another operator that does the same, take less."
FUSED: Final = frozenset(
    (
        *("Add", "Mul", "Sub", "Div", "Pow", "Sqrt", "Erf", "Tanh", "Gelu", "ReduceMean", "Softmax", "Where"),
        *("LayerNormalization", "SimplifiedLayerNormalization", "Gather", "Transpose", "Reshape", "Concat", "Slice"),
    )
)
"""What ONNX Runtime's transformer optimizer makes attention, embeddings, GELU and normalisations of."""


# --- threads ---------------------------------------------------------------------------------------------------
_NEEDS: Final = ("cpu", "record")


@check("cpu_threads", "Threads wait for cores, or leave them idle", "host", _NEEDS, by="variant")
def _threads(frames: Frames) -> list[Finding] | Clear:
    """Threads that wait for a core, for each other or for other work; or cores that the case leaves idle.

    By what each thread of the process was on a core, and waited for one, while the boundaries took turns. Gain: 0 to
    median - mean · (1 - share that they wait), since a few iterations that wait for long are not in the median; of
    idle cores 0 to what as many busy ones would save.
    """
    threads = frames.record.host.threads if frames.record.host else None
    if threads is None or threads.not_measured:
        raise NotAssessed("how long the case's threads were on a core")
    usable = _usable(frames.documents.environment)
    working, waited = _at_work(threads)
    cores = sum(threads.on_core or ()) / (threads.seconds or 1)
    evidence = {"threads": float(working), "usable_cores": usable, "busy_cores": cores, "waited": waited}
    said = (
        f"{cores:.1f} of {usable:g} usable cores are busy, with {working} thread{'s' if working > 1 else ''}. "
        f"Of the time of the case's own threads, all loops together, {percent(waited)} is waiting for a core"
    )
    if waited >= frames.limit(CORE_WAITED):
        in_median = _in_median(frames, waited)
        if in_median < frames.limit(CORE_WAITED):
            return Clear(f"{said}. Few iterations wait: of the median it is {percent(in_median)}", evidence)
        if working <= usable:
            return [_of_all(frames, in_median, said, evidence, OTHERS_WORK)]
        fitting = math.floor(usable) or 1
        crowded = _of_all(frames, in_median, said, evidence, f"A variant with `threads: {fitting}`, one a core.")
        return [replace(crowded, change=Change("variant", {"threads": fitting}))]
    if usable >= 2 and cores < frames.limit(IDLE_CORES) * usable:
        return [replace(_of_all(frames, 1 - cores / usable, said, evidence, IDLE_ADVICE), confidence="low")]
    return Clear(said, evidence)


def _in_median(frames: Frames, waited: float) -> float:
    """Which share of end_to_end's median is waiting, where so much of all its time is: an iteration without any takes
    mean · (1 - waited) on average."""
    boundaries = frames.record.boundaries
    boundary = boundaries.end_to_end if boundaries else None
    if not boundary or not boundary.samples_ns:
        return waited
    mean, median = statistics.fmean(boundary.samples_ns), statistics.median(boundary.samples_ns)
    return max(0.0, 1 - mean * (1 - waited) / float(median))


def _usable(environment: Environment | None) -> float:
    """The cores that the process may use, by affinity and quota."""
    cpu = environment.cpu if environment else None
    limits = (
        [limit for limit in (cpu.threads_usable, cpu.quota_cores) if isinstance(limit, int | float)] if cpu else []
    )
    if not limits:
        raise NotAssessed("the usable cores in environment.json: inferprof probe")
    return float(min(limits))


def _at_work(threads: Threads) -> tuple[int, float]:
    """How many threads took part, and which share of their time they waited for a core."""
    pairs = zip(threads.on_core or (), threads.waited or (), strict=True)
    part = [pair for pair in pairs if sum(pair) >= WORKING * (threads.seconds or 1)]
    spent = sum(map(sum, part))
    return len(part), sum(waited for _, waited in part) / spent if spent else 0.0


def _of_all(frames: Frames, share: float, said: str, evidence: Mapping[str, float], advice: str) -> Finding:
    gain = Gain(0.0, share * frames.total.ns) if frames.total else None
    return Finding("", "compute", share, f"{said}.", evidence, RECORDS, gain, advice, "medium")


# --- the limits of the CPU -------------------------------------------------------------------------------------


@check("cpu_limit", "Near the limit of the CPU", "device", _NEEDS, by="model")
def _limit(frames: Frames) -> list[Finding] | Clear:
    """CPU_LIMIT of the time is what the graph needs at least: for its products at the measured rate, or for its
    weights, inputs and outputs, each read or written once, at the measured bandwidth."""
    cost, limits = frames.documents.cost, roofs_of(frames)
    if cost is None or cost.moved is None:
        raise NotAssessed("the FLOPs and bytes of the graph: inferprof cost")
    if limits.bandwidth is None:
        raise NotAssessed("ceilings.json of the machine: inferprof ceilings")
    moving, computing = cost.moved / limits.bandwidth.value * 1e9, _computing(frames, limits)
    least = max(moving, computing or 0.0)
    if frames.total and least > CREDIBLE * frames.total.ns:
        raise NotAssessed(
            f"a ceiling that holds: by ceilings.json the graph takes {ms(least)} at least, and it took "
            f"{ms(frames.total.ns)}. Measure again while nobody else uses the machine: snakemake --forcerun ceilings"
        )
    share = frames.share(least)
    rate = f"{limits.bandwidth.value / GIGA:.3g} GB/s"
    products = f"{ms(computing)}" if computing else "an unknown time on this CPU"
    said = (
        f"the graph's {cost.moved / 1e6:,.0f} MB need {ms(moving)} at the measured {rate}, its matrix products "
        f"{products}. The larger is {percent(share)} of the time"
    )
    evidence = {"memory_ns": moving, **({"compute_ns": computing} if computing else {})}
    if share is None or share < frames.limit(CPU_LIMIT):
        return Clear(said, evidence)
    bound: Bottleneck = "memory" if least == moving else "compute"
    advice = LIMIT_ADVICE[bound]
    return [Finding("", bound, share, f"{said}.", evidence, "ceilings", None, advice, "medium", acts=False)]


def _computing(frames: Frames, limits: Roofs) -> float | None:
    """ns of the products at the measured rate; None where it is not known for one of their types."""
    nodes = frames.documents.cost.nodes if frames.documents.cost else None
    times = [limits.compute_s(node) for node in nodes or () if node.product and node.flops]
    at_rates = [seconds for seconds in times if seconds is not None]
    return 1e9 * sum(at_rates) if at_rates and len(at_rates) == len(times) else None


# --- operators -------------------------------------------------------------------------------------------------


@check("cpu_operators", "Operators that take longest on the CPU", "engine", ("cpu",), by="model")
def _operators(frames: Frames) -> list[Finding] | Clear:
    """The type of operator that takes longest, if it takes OPERATORS of all operators' time."""
    shares = _by_type(frames)
    first, share = str(shares.index[0]), float(shares.iloc[0])
    then = ", ".join(f"{name} {percent(part)}" for name, part in shares.iloc[1:3].items())
    said = f"it takes {percent(share)} of the operators' time{f', then {then}' if then else ''}"
    evidence = {f"{name}_share": float(part) for name, part in shares.head(5).items()}
    if share < frames.limit(OPERATORS) or first in CONVERTING:
        return Clear(f"{first}: {said}", evidence)
    of_transformer = first in FUSED and "MatMul" in shares.index
    advice = f"{NODES} {MULTIPLY_LESS if first.startswith(PRODUCTS) else FUSE if of_transformer else LESS}"
    return [Finding(first, "compute", share, f"{said}.", evidence, _tool(frames), None, advice, "medium", acts=False)]


def _tool(frames: Frames) -> str:
    return str(of_first(frames.profiles, registry.sessions())["tool"].iloc[0])


def _by_type(frames: Frames) -> pd.Series[float]:
    """Type of operator → its share of all operators' time, the largest first."""
    rows = of_first(frames.profiles, registry.sessions())
    if rows.empty and not frames.case.backend.startswith("ort_"):
        raise NotAssessed(OF_ONNX_RUNTIME)
    if rows.empty or first_run_alone(rows):
        raise NotAssessed("a profile of its operators: ort_profile under `profilers:`")
    own = computed_on_cpu(per_run(rows))
    if own.empty:
        raise NotAssessed("operators that the CPU computes: another provider has them all")
    return by_type(own)


# --- conversions -----------------------------------------------------------------------------------------------


@check("cpu_conversions", "Conversions cost more than they save", "engine", _NEEDS, by="model", scope="model")
def _conversions(frames: Frames) -> list[Finding] | Clear:
    """Conversions take CONVERSIONS of the operators' time, and the case is slower than the same in fp32, or may be.

    Gain: what fp32 was measured to save; else 0 to the conversions' time.
    """
    if frames.case.precision == REFERENCE:
        return Clear(f"the graph is in {REFERENCE}")
    share = float(_by_type(frames).reindex(CONVERTING).fillna(0.0).sum())
    evidence = {"conversions_share": share}
    said = f"conversions between formats take {percent(share)} of the operators' time"
    if share < frames.limit(CONVERSIONS) or frames.total is None:
        return Clear(said, evidence)
    own, plain = (_settled(frames, precision) for precision in (frames.case.precision, REFERENCE))
    if own is None or plain is None:
        advice, gain = f"Measure the same in {REFERENCE}.", Gain(0.0, share * frames.total.ns)
        return [Finding("", "compute", share, f"{said}.", evidence, _tool(frames), gain, advice, "low")]
    times = own["end_to_end_ms"] * NS_PER_MS, plain["end_to_end_ms"] * NS_PER_MS
    said = f"{said}. The same in {REFERENCE} takes {ms(times[1])} instead of {ms(times[0])}"
    evidence |= {"own_ns": times[0], "fp32_ns": times[1]}
    low = (own["end_to_end_low_ms"] - plain["end_to_end_high_ms"]) * NS_PER_MS
    high = (own["end_to_end_high_ms"] - plain["end_to_end_low_ms"]) * NS_PER_MS
    if not low > 0:
        return Clear(said, evidence)
    reason, lost = f"{said}: they cost more than the format saves.", frames.share(times[0] - times[1])
    advice = f"Use {REFERENCE} on this CPU."
    return [Finding("", "compute", lost, reason, evidence, RECORDS, Gain(low, high), advice, "high")]


def _settled(frames: Frames, precision: str) -> Peer | None:
    """The row of the same case in a format, where its measurement is in no doubt."""
    row = peer_of(frames.peers, dataclasses.replace(frames.case, precision=precision))
    return None if row is None or isinstance(row["end_to_end_doubt"], str) else row
