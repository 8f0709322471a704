"""Results of generators of load: where the time of a request goes, as far as client and server tell."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from inferprof.errors import UserError, in_one_line
from inferprof.files import unpacked
from inferprof.findings import Answer, Bottleneck, Finding, Total
from inferprof.readers import load_results
from inferprof.readers.kind import Capture, Kind, Lack, says
from inferprof.readers.load_results import Answered, Served
from inferprof.units import NS_PER_MS
from inferprof.words import ms

TOOL: Final = "load"
SHOWN: Final = 6
FIRST: Final = 0.5
"""Ours: from this share of a request on the wait for the first token is what to work on."""
_STAGES: Final[Mapping[str, tuple[str, Bottleneck, str]]] = {
    "queue": (
        "waiting in the server's queue",
        "idle",
        "more instances of the model (instance_group), dynamic_batching, or a lower load",
    ),
    "compute input": (
        "taking the inputs to the model",
        "copy",
        "shared memory between client and server (--shared-memory=cuda), page-locked memory, narrower inputs",
    ),
    "compute infer": (
        "the model",
        "kernels",
        "the model itself: trace the server under this load (nsys profile --trace=cuda,nvtx …), then explain that",
    ),
    "compute output": (
        "taking the outputs away",
        "copy",
        "shared memory between client and server (--shared-memory=cuda), fewer or narrower outputs",
    ),
    "overhead": ("the server's overhead", "idle", "a faster host, fewer models in the ensemble"),
}
_BETWEEN: Final = "between client and server"
_ADVICE: Final[Mapping[str, tuple[Bottleneck, str]]] = {
    **{part: (bottleneck, advice) for part, bottleneck, advice in _STAGES.values()},
    _BETWEEN: ("copy", "a client on the same host, gRPC, shared memory, fewer bytes a request"),
}
_TRACE: Final = Lack(
    "what the GPU does in that time", "nsys profile --trace=cuda,nvtx … around the server, under the same load"
)


def read(path: Path) -> Capture:
    """What the results of the last load say. Raises UserError where there are none."""
    text = unpacked(path).decode("utf-8-sig", errors="replace")
    if loads := load_results.served(text):
        return _of_server(loads)
    try:
        results = [result for result in load_results.answered(text) if result.request or result.first or result.per_s]
    except ValueError as error:
        raise UserError(f"{path} is cut short or damaged ({in_one_line(error)}): copy it again") from None
    if not results:
        raise UserError(f"{path} holds results of a load, and no times of requests: copy them as a whole")
    notes = [f"load {number} of {len(results)}: {_line(result)}" for number, result in enumerate(results, 1)]
    return _of_tokens(results[-1], notes if results[1:] else [])


def _line(result: Answered) -> str:
    said = (
        result.per_s is not None and f"{_plain(result.per_s)} requests/s",
        result.tokens_per_s is not None and f"{_plain(result.tokens_per_s)} tokens/s",
        result.request is not None and f"a request {ms(result.request * NS_PER_MS)}",
        result.first is not None and f"its first token {ms(result.first * NS_PER_MS)}",
        result.token is not None and f"each further one {ms(result.token * NS_PER_MS)}",
    )
    return ", ".join(part for part in said if part)


def _plain(number: float) -> str:
    return f"{number:,.0f}" if number >= 1000 else f"{number:.3g}"


def _of_tokens(result: Answered, notes: list[str]) -> Capture:
    """A language model's answers: the first token, and the others."""
    first, request = result.first, result.request
    parts: dict[str, float] = {}
    findings = []
    if first is not None and request:
        first = min(first, request)
        parts = {"until the first token": first * NS_PER_MS, "the tokens after it": (request - first) * NS_PER_MS}
        findings = [_of_first(result, first / request) if first >= FIRST * request else _of_further(result)]
    at_once = result.per_s * request / 1e3 if result.per_s and request else None
    under_way = [f"on average {_plain(at_once)} requests were under way at once"] if at_once else []
    lacks = [] if first is not None else [Lack("when the first token came", "the same load with --streaming")]
    metric = "the server's own metrics, as vllm:request_queue_time_seconds"
    lacks += [Lack("how long requests queue before their prefill", metric), _TRACE]
    return Capture(
        TOOL,
        ["results of a load", *([_line(result)] if _line(result) else [])],
        total=Total(request * NS_PER_MS, result.by) if request and parts else None,
        parts=parts,
        answers=[Answer("load", "host", "found", findings=tuple(findings))] if findings else [],
        notes=[*under_way, *notes[-SHOWN:]],
        lacks=lacks,
    )


def _of_first(result: Answered, share: float) -> Finding:
    waited = ms((result.first or 0.0) * NS_PER_MS)
    reason = (
        f"a request waits {waited} for its first token, {100 * share:.0f} % of its time: prefill, and the "
        "queue before it"
    )
    advice = (
        "a lower load (--max-concurrency, --request-rate) tells the two apart; then prefix caching, chunked prefill, "
        "more GPUs"
    )
    return Finding("", "idle", share, reason, {"share": share}, TOOL, None, advice, "medium")


def _of_further(result: Answered) -> Finding:
    share = 1 - (result.first or 0.0) / (result.request or 1.0)
    each = f", {ms(result.token * NS_PER_MS)} each" if result.token is not None else ""
    reason = f"the tokens after the first take {100 * share:.0f} % of a request{each}: decode"
    advice = (
        "each step reads all weights and the KV cache: narrower ones, CUDA graphs, speculative decoding, more GPUs; "
        "for throughput alone more requests at once"
    )
    return Finding("", "memory", share, reason, {"share": share}, TOOL, None, advice, "low")


def _of_server(loads: list[Served]) -> Capture:
    """What perf_analyzer says of the last load, with a line of each."""
    last = loads[-1]
    parts = {_STAGES[name][0]: us * 1e3 for name, us in last.stages.items() if name in _STAGES and us}
    if (rest := last.request * 1e3 - sum(parts.values())) > 0 and parts:
        parts[_BETWEEN] = rest
    lines = [f"{load.load}: {load.per_s:,.5g} inferences/s, {ms(load.request * 1e3)}" for load in loads[-SHOWN:]]
    findings = [_longest(last, parts)] if parts else []
    lacks = (
        [_TRACE]
        if parts
        else [Lack("where a request spends its time", "perf_analyzer against Triton, not --service-kind=…")]
    )
    return Capture(
        TOOL,
        ["perf_analyzer", last.load, f"{last.per_s:,.5g} inferences/s"],
        total=Total(max(last.request * 1e3, sum(parts.values())), "a request by the client's clock"),
        parts=parts,
        answers=[Answer("load", "host", "found", findings=tuple(findings))] if findings else [],
        notes=lines if loads[1:] else [],
        lacks=lacks,
    )


def _longest(load: Served, parts: Mapping[str, float]) -> Finding:
    name = max(parts, key=lambda name: parts[name])
    share = parts[name] / max(load.request * 1e3, sum(parts.values()))
    bottleneck, advice = _ADVICE[name]
    reason = f"{ms(parts[name])} of a request of {ms(load.request * 1e3)}, {100 * share:.0f} %"
    return Finding(name, bottleneck, share, reason, {"share": share}, TOOL, None, advice, "medium")


LOAD_RESULTS: Final = Kind(
    name="load_results",
    title="results of a generator of load",
    recognises=says(load_results.HEADINGS, load_results.BLOCK, load_results.TABLE),
    read=read,
    rank=13,
)
