"""Generative models: prefill and decode by themselves, and under load, where policies answer requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from inferprof.documents.serving import Load
from inferprof.report import under_load
from inferprof.report.common import CASE_COLUMNS, FEW, in_mib, in_ms, name_of, optional, scaled
from inferprof.report.diagnosed import findings
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Table, Text, missing, number, words
from inferprof.report.numbers import ratio, three_digits
from inferprof.report.section import section
from inferprof.report.under_load import HIGHEST, HIGHEST_NOTE, NO_RUN, Served
from inferprof.tables.limits import generation, saturation
from inferprof.tables.limits.generation import Requests, Step
from inferprof.tables.records import CASE_KEY

STEP_CHECKS: Final = ("host_bound_decode", "prefill_blocks_decode", "memory_bounds_batch")
NO_BANDWIDTH: Final = "the bandwidth of this machine's memory is not known: inferprof ceilings"
NO_PEAK: Final = "the peak of this format on this machine is not known: inferprof ceilings"
STEPS: Final = (
    *CASE_COLUMNS,
    Column("op", "op"),
    Column("call_ms", "ms", "number"),
    Column("low_ms", "from", "number", hidden=True),
    Column("high_ms", "to", "number", hidden=True),
    Column("tokens_per_s", "tokens/s", "number"),
    Column("weights_mib", "weights MiB", "number", hidden=True),
    Column("kv_mib", "KV MiB", "number"),
    Column("gflop", "GFLOP", "number", hidden=True),
    Column("memory_ms", "bytes ms", "number"),
    Column("compute_ms", "FLOPs ms", "number"),
    Column("roof_percent", "of roof %", "number"),
    Column("bound", "bound by"),
    Column("graphed_ms", "with a graph ms", "number", hidden=True),
)
STEPS_NOTE: Final = (
    "ms: from the host's call until its result is there, inputs on the device. Bytes: weights and cache, moved once "
    "at the machine's bandwidth; FLOPs: of the products, at its peak; of roof: the longer of the two over ms. Bound "
    "by: launch, where a CUDA graph saves a tenth and more; else that roof, where half of it is reached; not told: "
    "no graph was measured."
)
REQUESTS: Final = (
    *(column for column in CASE_COLUMNS if column.key != "shape"),
    *(Column(key, key.replace("_", " "), "number") for key in ("batch", "prompt", "new_tokens")),
    Column("ttft_ms", "TTFT ms", "number"),
    Column("first_itl_ms", "ITL from", "number"),
    Column("last_itl_ms", "to", "number"),
    Column("tpot_ms", "TPOT ms", "number"),
    Column("e2e_ms", "E2E ms", "number"),
    Column("tokens_per_s", "tokens/s", "number"),
)
REQUESTS_NOTE: Final = (
    "A batch of requests by itself: TTFT is its prefill, ITL the decode step at the prompt's length and at the last "
    "context, TPOT = (E2E − TTFT) / (new tokens − 1). Without queue, sampling and text. Goodput is not measured: no "
    "load."
)
GAINS: Final = (
    *CASE_COLUMNS,
    Column("w8", "weights 8 bit", "number"),
    Column("w4", "weights 4 bit", "number"),
    Column("kv8", "KV 8 bit", "number"),
    Column("w4_kv8", "w 4 and KV 8", "number"),
    Column("compute_from", "compute-bound from batch", "number"),
)
GAINS_NOTE: Final = (
    "Decode steps: at most so many times as fast, if the same share of the roof is reached and scales cost nothing; "
    "what the host takes stays. Products stay in the format of the case. Compute-bound: FLOPs take longer than bytes."
)
NEVER: Final = "the cache grows with the batch and takes longer than the products at any"


@section("generation", "Prefill and decode", place=28, needs=("records",))
def prefill_and_decode(evidence: Evidence) -> Sequence[Block]:
    """Empty where no model has a KV cache."""
    steps = generation.steps(evidence.ok, evidence.latency, evidence.roofs)
    if not steps:
        return ()
    steps.sort(key=lambda step: (evidence.models.index(step.key[1]), step.op != "prefill", step.series))
    blocks: list[Block] = [*_findings(evidence), *map(_turns, generation.turns(steps))]
    blocks.append(Table("generation", "Against the roofs", STEPS, tuple(map(_step, steps)), STEPS_NOTE, groups=1))
    if rows := tuple(map(_requests, generation.requests(steps))):
        blocks.append(Table("generation_requests", "Requests", REQUESTS, rows, REQUESTS_NOTE, groups=4))
    if decoding := [step for step in steps if step.op == "decode"]:
        title = "What narrower weights and caches could gain"
        blocks.append(Table("generation_gains", title, GAINS, tuple(map(_gains, decoding)), GAINS_NOTE, groups=1))
    return blocks


def _findings(evidence: Evidence) -> Iterator[Text]:
    """What the checks of generation found."""
    for case, finding in findings(evidence, *STEP_CHECKS):
        name = f"{case['model']} {name_of(case)} {case['shape']}"
        yield Text(f"{name}: {finding.reason} {finding.advice}", "item", "warn")


def _turns(turn: tuple[Any, int, Sequence[Any]]) -> Text:
    """`llm bf16/torch_eager/eager, decode at context 512: launch b1 to b8, memory b16 to b64`."""
    (_, model, *case), context, by_batch = turn
    stretches = saturation.in_words(saturation.turns(by_batch))
    return Text(f"{model} {'/'.join(case)}, decode at context {context:,}: {stretches}.", "item")


def _case(step: Step) -> list[Cell]:
    named = dict(zip(CASE_KEY, step.key[1:], strict=True))
    return [words(named[column.key]) for column in CASE_COLUMNS]


def _step(step: Step) -> tuple[Cell, ...]:
    operation, roof = step.operation, step.roof
    no_flops = operation.not_counted or NO_PEAK
    rate = step.batch * operation.tokens / step.ns * 1e9
    return (
        *_case(step),
        words(step.op),
        in_ms(step.ns, ""),
        *(in_ms(end, FEW) for end in (step.low_ns, step.high_ns)),
        number(rate, three_digits(rate)),
        *(in_mib(size) for size in (operation.weights_read, step.cache_bytes)),
        scaled(operation.flops, 1e9, lambda flops: three_digits(flops / 1e9), no_flops),
        in_ms(step.memory_ns, NO_BANDWIDTH),
        in_ms(step.compute_ns, no_flops),
        missing(NO_BANDWIDTH if step.memory_ns is None else no_flops)
        if roof is None
        else number(share := 100 * roof[1] / step.ns, three_digits(share)),
        words(step.bound),
        in_ms(step.graphed_ns, "the case is not measured with a CUDA graph, or has one"),
    )


def _requests(entry: Requests | tuple[Step, str]) -> tuple[Cell, ...]:
    prefill = entry.prefill if isinstance(entry, Requests) else entry[0]
    _, model, *case = prefill.series
    prompt = prefill.operation.tokens
    head = (
        *map(words, (model, *case)),
        *(number(size, f"{size:,}") for size in (prefill.batch, prompt)),
    )
    ttft = in_ms(prefill.ns, "")
    if not isinstance(entry, Requests):
        nothing = missing(entry[1])
        return (*head, nothing, ttft, *[nothing] * (len(REQUESTS) - len(head) - 2))
    times = (entry.first.ns, entry.last.ns, entry.tpot_ns, entry.e2e_ns)
    return (
        *head,
        number(entry.new_tokens, f"{entry.new_tokens:,}"),
        ttft,
        *(in_ms(ns, "") for ns in times),
        number(entry.tokens_per_s, three_digits(entry.tokens_per_s)),
    )


def _gains(step: Step) -> tuple[Cell, ...]:
    why = (
        "the weights are quantized already" if step.quantized else NO_BANDWIDTH if step.memory_ns is None else NO_PEAK
    )
    turn = NEVER if step.roof else why
    return (
        *_case(step),
        *(optional(step.gain(name), ratio, why) for name in generation.NARROWED),
        optional(step.compute_from, lambda batch: f"{batch:,.0f}", turn),
    )


LOADS: Final = (
    *under_load.HEAD,
    Column("rate_per_s", "rate/s", "number"),
    Column("load", "load", "number", hidden=True),
    Column("percentile", "percentile", hidden=True),
    Column("ttft_mean_ms", "mean TTFT", "number", hidden=True),
    Column("predicted_ttft_mean_ms", "mean TTFT predicted", "number", hidden=True),
    Column("ttft_ms", "TTFT", "number"),
    Column("predicted_ttft_ms", "pred.", "number"),
    Column("tpot_ms", "TPOT", "number"),
    Column("predicted_tpot_ms", "pred.", "number"),
    Column("itl_ms", "ITL", "number"),
    Column("e2e_ms", "E2E", "number"),
    Column("predicted_e2e_ms", "pred.", "number"),
    Column("refused", "why not to be used", hidden=True),
)
LOADS_NOTE: Final = (
    "ms, at the percentile of the objective. TTFT: from the moment at which a request was due to its first token. "
    "TPOT: (last token − first) / (tokens − 1) of a request; ITL: from one token to the next; E2E: to the last. "
    "Pred.: by simulation, of times of steps measured just before. *: refused, see below."
)
TOKENS: Final = (
    *under_load.HEAD,
    Column("rate_per_s", "rate/s", "number"),
    Column("tokens_per_s", "tokens/s", "number"),
    Column("per_step", "tokens a step", "number"),
    Column("good_per_s", "good/s", "number"),
    Column("good_percent", "good %", "number"),
    Column("queue_ms", "queue ms", "number"),
    Column("steps", "steps", "number", hidden=True),
    Column("lag_ms", "send lag p99 ms", "number", hidden=True),
    Column("j_per_request", "J/request", "number"),
    Column("requests", "requests", "number"),
)
TOKENS_NOTE: Final = (
    "Good: requests that met both objectives, one meaning of goodput; the other is the highest rate, below. Queue: "
    "the mean until a request was begun with. J: of the whole GPU, idle time too."
)


@section("answering", "Generative models under load", place=29, needs=("served",))
def answering(evidence: Evidence) -> Sequence[Block]:
    """Empty where no generative model was put under load."""
    served = under_load.served(evidence, generates=True)
    loads = under_load.loads(served)
    blocks: list[Block] = [*_most(served), *under_load.findings(evidence, "serving_rate")]
    if loads:
        rows = tuple(_answered(*pair) for pair in loads)
        blocks.append(Table("answering", "Predicted and measured", LOADS, rows, LOADS_NOTE, groups=3))
        blocks += under_load.refused(loads)
        rows = tuple(_tokens_of(*pair) for pair in loads)
        blocks.append(Table("answering_tokens", "Tokens and goodput", TOKENS, rows, TOKENS_NOTE, groups=3))
    if rows := under_load.highest(served):
        blocks.append(Table("answering_highest", "Highest rate", HIGHEST, rows, HIGHEST_NOTE, groups=2))
    return blocks


def _most(served: Sequence[Served]) -> Iterator[Text]:
    """`llm …: within p95: TTFT ≤ 1000 ms, continuous carries 4.1 requests/s, static 1.2: use continuous.`"""
    alike: dict[tuple[str, ...], dict[str, float]] = {}
    for document, policy, _ in served:
        if document.highest and document.highest.rate:
            key = (*under_load.series(document), policy.objective)
            alike.setdefault(key, {})[policy.name] = document.highest.rate
    for (model, case, objective), rates in alike.items():
        if len(rates) > 1:
            ranked = sorted(rates, key=lambda name: -rates[name])
            carried = ", ".join(f"{name} {three_digits(rates[name])}" for name in ranked)
            yield Text(f"{model} {case}, {objective}: requests/s at most: {carried}. Use {ranked[0]}.", "item")


def _answered(served: Served, load: Load) -> tuple[Cell, ...]:
    name = f"p{served[1].percentile:g}"
    seen, foreseen = load.tokens, load.predicted
    predicted = {"ttft": foreseen.ttft, "tpot": foreseen.tpot, "e2e": foreseen.latency} if foreseen else {}
    ttft, tpot, itl = (seen.ttft, seen.tpot, seen.itl) if seen else ({}, {}, {})
    few = under_load.FEW if seen else NO_RUN
    return (
        *under_load.head(served),
        under_load.rate(load),
        number(load.share, three_digits(load.share)),
        words(name),
        under_load.value(ttft.get("mean"), NO_RUN),
        _predicted(predicted, "ttft", "mean"),
        under_load.value(ttft.get(name), few),
        _predicted(predicted, "ttft", name),
        under_load.value(tpot.get(name), few),
        _predicted(predicted, "tpot", name),
        under_load.value(itl.get(name), few),
        under_load.value(load.latency.get(name), few),
        _predicted(predicted, "e2e", name),
        words(load.refused or ""),
    )


def _tokens_of(served: Served, load: Load) -> tuple[Cell, ...]:
    seen = load.tokens
    return (
        *under_load.head(served),
        under_load.rate(load),
        optional(seen.per_s if seen else None, three_digits, NO_RUN),
        optional(seen.per_step if seen else None, three_digits, NO_RUN),
        optional(seen.good_per_s if seen else None, three_digits, NO_RUN),
        optional(100 * seen.good_share if seen else None, three_digits, NO_RUN),
        in_ms(load.queue_ns, NO_RUN),
        optional(seen.steps if seen else None, lambda steps: f"{steps:,}", NO_RUN),
        in_ms(load.lag_ns, NO_RUN),
        under_load.energy(load),
        number(load.requests, f"{load.requests:,}"),
    )


def _predicted(predicted: Mapping[str, Mapping[str, float]], what: str, name: str) -> Cell:
    return in_ms(predicted.get(what, {}).get(name), NO_RUN)
