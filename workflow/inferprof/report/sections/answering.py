"""Generative models under load: first tokens, further tokens, goodput, and which policy carries the most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from inferprof.documents.serving import Load
from inferprof.report import under_load
from inferprof.report.common import in_ms, optional
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Table, Text, number, words
from inferprof.report.numbers import three_digits
from inferprof.report.section import Section
from inferprof.report.under_load import FEW, HIGHEST, HIGHEST_NOTE, NO_RUN, Served

CHECKS: Final = frozenset({"serving_rate"})
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


def build(evidence: Evidence) -> Sequence[Block]:
    """Empty where no generative model was put under load."""
    served = under_load.served(evidence, generates=True)
    loads = under_load.loads(served)
    blocks: list[Block] = [*_most(served), *under_load.findings(evidence, CHECKS)]
    if loads:
        rows = tuple(_load(*pair) for pair in loads)
        blocks.append(Table("answering", "Predicted and measured", LOADS, rows, LOADS_NOTE, groups=3))
        blocks += under_load.refused(loads)
        rows = tuple(_tokens(*pair) for pair in loads)
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


def _load(served: Served, load: Load) -> tuple[Cell, ...]:
    name = f"p{served[1].percentile:g}"
    seen, foreseen = load.tokens, load.predicted
    predicted = {"ttft": foreseen.ttft, "tpot": foreseen.tpot, "e2e": foreseen.latency} if foreseen else {}
    ttft, tpot, itl = (seen.ttft, seen.tpot, seen.itl) if seen else ({}, {}, {})
    few = FEW if seen else NO_RUN
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


def _tokens(served: Served, load: Load) -> tuple[Cell, ...]:
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


SECTION = Section(name="answering", title="Generative models under load", place=29, build=build, needs=("served",))
