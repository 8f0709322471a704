"""Decode steps on a KV cache: does the host hold them up, does a prefill block them, does memory bound the batch?

The second and third cost requests time, and no inference: such findings have no share, and the bounds of their gain
are among their numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

from inferprof.case import BATCH, CONTEXT, TOKENS, Shape
from inferprof.diagnosis.times import RECORDS, percent
from inferprof.documents import Environment
from inferprof.findings import Change, Clear, Finding, Frames, Gain, NotAssessed, Threshold, Tried
from inferprof.plugins import check
from inferprof.tables import roofs
from inferprof.tables.limits import generation
from inferprof.tables.limits.generation import Step
from inferprof.tables.records import rows_of
from inferprof.units import MIB, NS_PER_MS
from inferprof.words import ms

DECODE_HOST: Final = Threshold("decode_host", 0.1, "share of a decode step", "ours: as for launch_bound")
PREFILL_STEPS: Final = Threshold(
    "prefill_steps", 5.0, "decode steps", "ours: a reader of a stream of tokens notices that it stops"
)
BATCH_ROOM: Final = Threshold("batch_room", 0.1, "fewer tokens/s than the roofs allow", "ours: as for batch_cap")
USABLE: Final = 0.9
"""Of a memory: the rest is the runtime's. As vLLM's gpu_memory_utilization is unless it is given:
https://docs.vllm.ai/en/latest/configuration/engine_args.html"""
NOT_DECODE: Final = "a decode step: a shape with a context alone, as b8_c512"
NO_GRAPH: Final = "the same case with cuda_graph: true, or compile_mode: reduce-overhead"
_NEEDS: Final = ("record", "cache")


def _decode(frames: Frames) -> Step:
    """The case as a decode step. Raises NotAssessed for anything else."""
    given = frames.documents
    machine = roofs.of_machine(given.environment, given.ceilings, given.bandwidth)
    (step, *_) = generation.steps(frames.records, frames.latency, machine) or (None,)
    if step is None or step.op != "decode":
        raise NotAssessed(NOT_DECODE)
    return step


# --- the host --------------------------------------------------------------------------------------------------


@check("host_bound_decode", "The host holds decode steps up", "host", _NEEDS, by="variant")
def _host(frames: Frames) -> list[Finding] | Clear:
    """A CUDA graph of the same step was measured, and takes DECODE_HOST off: nothing but the host's launches differs.

    Gain: the interval of what the graph saved.
    """
    _decode(frames)
    if frames.record.protocol.get("graph") or frames.record.options.get("compile_mode", "default") != "default":
        return Clear("the step is one CUDA graph already")
    pairs = list(_graphs(frames))
    if not pairs or frames.total is None:
        raise NotAssessed(NO_GRAPH)
    options, tried = max(pairs, key=lambda pair: pair[1].achieved_ns or 0.0)
    saved, low, high = tried.achieved_ns or 0.0, tried.low_ns or 0.0, tried.high_ns or 0.0
    share = saved / frames.total.ns
    reason = f"a step takes {ms(frames.total.ns)}, with a CUDA graph {ms(saved)} less ({percent(share)})"
    evidence = {"saved_ns": saved, "low_ns": low, "high_ns": high}
    if share < frames.limit(DECODE_HOST) or low <= 0:
        return Clear(reason, evidence)
    gain = Gain(low, max(high, saved))
    advice = f"Capture the step: variant {tried.variant}, with a static cache as here."
    change = Change("variant", options)
    return [Finding("", "launch", share, f"{reason}.", evidence, RECORDS, gain, advice, "high", change=change)]


def _graphs(frames: Frames) -> Iterator[tuple[dict[str, Any], Tried]]:
    """What graphs of the case came to, where that was measured."""
    for (option, value), tried in frames.tries.items():
        if option in generation.GRAPHS and tried.achieved_ns is not None and not tried.in_doubt:
            yield {option: value}, tried


# --- the prefill -----------------------------------------------------------------------------------------------


@check("prefill_blocks_decode", "A prefill blocks decode steps", "host", _NEEDS, scope="model")
def _prefill(frames: Frames) -> list[Finding] | Clear:
    """The longest measured prefill of the same case takes PREFILL_STEPS decode steps and more: that long all requests
    that decode get no token, where a scheduler runs a prompt as a whole.

    Gain of the longest ITL: from nothing to what the longest prefill takes beyond that of the chunk that is advised.
    """
    step = _decode(frames)
    prefills = _prefills(frames)
    if not prefills:
        raise NotAssessed("a prefill of the same model, format, runtime and variant: a shape as b1_p512")
    label, longest = max(prefills.items(), key=lambda item: item[1])
    steps, limit = longest / step.ns, frames.limit(PREFILL_STEPS)
    reason = f"the prefill {label} takes {ms(longest)}, as long as {steps:.3g} decode steps of {ms(step.ns)}"
    evidence = {"prefill_ns": longest, "step_ns": step.ns, "steps": steps}
    if steps < limit:
        return Clear(reason, evidence)
    within = {name: took for name, took in prefills.items() if took < limit * step.ns}
    chunk = max(within, key=lambda name: within[name]) if within else min(prefills, key=lambda name: prefills[name])
    sizes = Shape.parse(chunk).as_dict()
    tokens = sizes[BATCH] * sizes[TOKENS]
    evidence |= {"chunk_tokens": float(tokens), "chunk_ns": prefills[chunk]}
    evidence |= {"gain_low_ns": 0.0, "gain_high_ns": longest - prefills[chunk]}
    advice = f"Prefill in chunks of {tokens:,} tokens beside the decode steps, or on another GPU"
    if chunk == label:
        advice = f"Measure shorter prompts than {label}, and prefill in such chunks beside the decode steps"
    worst = f"Until it ends, a request that decodes waits {ms(longest + step.ns)} for its next token"
    takes = f"That takes up to {ms(longest - prefills[chunk])} from the longest ITL."
    return [_finding(f"{reason}. {worst}.", evidence, f"{advice}. {takes if chunk != label else ''}".strip())]


def _prefills(frames: Frames) -> dict[str, float]:
    """Shape → ns of the prefills that differ from the case in nothing else."""
    prefills: dict[str, float] = {}
    for row in rows_of(frames.peers):
        symbols = Shape.parse(row["shape"]).as_dict()
        same = all(row[name] == getattr(frames.case, name) for name in ("precision", "backend", "variant"))
        if same and TOKENS in symbols and CONTEXT not in symbols and not math.isnan(row[f"{generation.BOUNDARY}_ms"]):
            prefills[row["shape"]] = row[f"{generation.BOUNDARY}_ms"] * NS_PER_MS
    return prefills


# --- the memory ------------------------------------------------------------------------------------------------


@check("memory_bounds_batch", "Memory bounds the batch of decode", "device", _NEEDS)
def _memory(frames: Frames) -> list[Finding] | Clear:
    """The rows whose cache fits into memory are so few that they carry BATCH_ROOM fewer tokens per second, at the
    roofs, than any number of rows would.

    Gain of the tokens per second: from nothing to what a cache of half the bytes carries more, at the roofs.
    """
    step = _decode(frames)
    memory = _bytes(frames.documents.environment)
    if memory is None or step.roof is None:
        raise NotAssessed("the size of the memory and its bandwidth: inferprof probe, inferprof ceilings")
    free = USABLE * memory - step.operation.weights_read
    fits = int(free * step.batch // step.cache_bytes)
    if fits < 1:
        raise NotAssessed(f"a memory that holds the weights and a row: {memory:,} bytes")
    rate, most, narrow = step.tokens_per_s(fits), step.tokens_per_s(None), step.tokens_per_s(2 * fits, 0.5)
    assert rate is not None and most is not None and narrow is not None
    context = step.operation.context
    reason = f"{fits:,} rows of {context:,} tokens fit into memory: at the roofs {rate:,.4g} tokens/s of {most:,.4g}"
    evidence = {"rows": float(fits), "tokens_per_s": rate, "most_per_s": most}
    if rate >= (1 - frames.limit(BATCH_ROOM)) * most:
        return Clear(reason, evidence)
    evidence |= {"gain_low_per_s": 0.0, "gain_high_per_s": narrow - rate}
    advice = f"Keep the cache in 8 bits, or less of it: twice the rows carry up to {narrow:,.4g} tokens/s"
    return [_finding(f"{reason}.", evidence, f"{advice}.")]


def _bytes(environment: Environment | None) -> int | None:
    """The memory of the GPU in use, or of the host where there is none."""
    gpu = roofs.gpu_in_use(environment)
    cpu = environment.cpu if environment else None
    size = gpu.memory_mib if gpu else cpu.memory_mib if cpu else None
    return size * MIB if isinstance(size, int) else None


def _finding(reason: str, evidence: dict[str, float], advice: str) -> Finding:
    change = Change("caller")
    return Finding("", "capacity", None, reason, evidence, RECORDS, None, advice, "medium", change=change)
