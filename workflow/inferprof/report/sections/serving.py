"""Cases under load: what was predicted and what came, the highest rate, which policy wins, and LoadGen's clock."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from inferprof.documents.serving import Load, LoadGenRun
from inferprof.grouping import grouped
from inferprof.queueing import theory
from inferprof.queueing.policy import Policy, curve_of, policy_of
from inferprof.report import serving_gaps, under_load
from inferprof.report.common import NOT_RECORDED, in_ms, optional
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Table, Text, missing, number, words
from inferprof.report.numbers import milliseconds, three_digits
from inferprof.report.section import section
from inferprof.report.under_load import FEW, HIGHEST, HIGHEST_NOTE, NO_RUN, Served
from inferprof.units import NS_PER_MS

CHECKS: Final = ("batch_delay", "batch_cap", "serving_rate")
RATES: Final = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Of what the largest batches carry: where the policies are compared."""
LOADS: Final = (
    *under_load.HEAD,
    Column("rate_per_s", "rate/s", "number"),
    Column("load", "load", "number"),
    Column("mean_ms", "mean", "number"),
    Column("predicted_mean_ms", "pred.", "number"),
    Column("percentile", "percentile", hidden=True),
    Column("percentile_ms", "perc.", "number"),
    Column("low_ms", "from", "number", hidden=True),
    Column("high_ms", "to", "number", hidden=True),
    Column("predicted_percentile_ms", "pred.", "number"),
    Column("replayed_mean_ms", "mean replayed", "number", hidden=True),
    Column("replayed_percentile_ms", "replayed", "number", hidden=True),
    Column("drift_percent", "drift %", "number"),
    Column("delay_to_set_ms", "delay to set", "number"),
    Column("refused", "why not to be used", hidden=True),
)
LOADS_NOTE: Final = (
    "ms from the moment at which a request was due to its answer. Perc.: the percentile of the policy's objective. "
    "Pred.: by the embedded Markov chain, of what batches cost in a rehearsal of the rate. Drift: how much longer "
    "services took than then, which no prediction could know. Load: of what full batches carry. Delay to set: the "
    "one with the least predicted percentile at this rate. *: refused, see below."
)
SERVER: Final = (
    *under_load.HEAD,
    Column("rate_per_s", "rate/s", "number"),
    Column("queue_ms", "queue ms", "number"),
    Column("service_ms", "service ms", "number"),
    Column("mean_batch", "batch", "number"),
    Column("busy_percent", "busy %", "number"),
    Column("lag_ms", "send lag p99 ms", "number"),
    Column("j_per_request", "J/request", "number"),
    Column("requests", "requests", "number"),
)
SERVER_NOTE: Final = (
    "Queue and service: means of requests, until their batch started and from then on. Send lag: how late the client "
    "was. J: of the whole GPU, idle time too."
)
WINNERS: Final = (
    Column("model", "model"),
    Column("case", "case"),
    Column("rate_per_s", "rate/s", "number"),
    Column("policy", "best policy"),
    Column("percentile_ms", "perc. ms", "number"),
    Column("others", "others"),
)
WINNERS_NOTE: Final = "By theory, from the curve of the policy with the largest batch. –: it cannot carry the rate."
LOADGEN: Final = (
    *under_load.HEAD,
    Column("scenario", "scenario"),
    Column("requests", "requests", "number"),
    Column("per_second", "requests/s", "number"),
    Column("own_mean_ms", "our mean", "number"),
    Column("loadgen_mean_ms", "its mean", "number"),
    Column("own_p90_ms", "our p90", "number"),
    Column("loadgen_p90_ms", "its p90", "number"),
    Column("result", "its result"),
)
LOADGEN_NOTE: Final = (
    "Ours: from the moment at which LoadGen hands a query over. LoadGen's: from the moment at which it was due. "
    "INVALID: its own rules ask for runs of ten minutes."
)


@section("serving", "Under load", place=26, needs=("served",))
def build(evidence: Evidence) -> Sequence[Block]:
    """Empty where nothing was put under load."""
    served = under_load.served(evidence, generates=False)
    loads = under_load.loads(served)
    runs = [(entry, run) for entry in served for run in entry[0].loadgen]
    compared = list(_compared(served))
    blocks: list[Block] = [*(_best(*each) for each in compared), *under_load.findings(evidence, *CHECKS)]
    blocks += serving_gaps.summary(loads)
    if loads:
        rows = tuple(_load(*pair) for pair in loads)
        blocks.append(Table("serving", "Predicted and measured", LOADS, rows, LOADS_NOTE, groups=3))
        blocks += under_load.refused(loads)
        blocks += serving_gaps.table(loads)
        rows = tuple(_server(*pair) for pair in loads)
        blocks.append(Table("serving_server", "What the server did", SERVER, rows, SERVER_NOTE, groups=3))
    if rows := under_load.highest(served):
        blocks.append(Table("serving_highest", "Highest rate", HIGHEST, rows, HIGHEST_NOTE, groups=2))
    if winners := tuple(row for each in compared for row in _winners(*each)):
        blocks.append(
            Table("serving_policies", "Which policy at which rate", WINNERS, winners, WINNERS_NOTE, groups=2)
        )
    if runs:
        rows = tuple(_loadgen(*pair) for pair in runs)
        blocks.append(Table("serving_loadgen", "LoadGen beside our clock", LOADGEN, rows, LOADGEN_NOTE, groups=3))
    return blocks


def _load(served: Served, load: Load) -> tuple[Cell, ...]:
    _, policy, _ = served
    name = f"p{policy.percentile:g}"
    value = load.latency.get(name)
    predicted = load.predicted.latency if load.predicted else {}
    replayed = load.replayed.latency if load.replayed else {}
    theory_ = NO_RUN if not load.batches else under_load.NO_PREDICTION
    few = FEW if load.batches else NO_RUN
    return (
        *under_load.head(served),
        under_load.rate(load),
        number(load.share, three_digits(load.share)),
        under_load.value(load.latency.get("mean"), NO_RUN),
        in_ms(predicted.get("mean"), theory_),
        words(name),
        under_load.value(value, few),
        *(in_ms(getattr(value, end) if value else None, FEW) for end in ("low_ns", "high_ns")),
        in_ms(predicted.get(name), theory_),
        in_ms(replayed.get("mean"), NO_RUN),
        in_ms(replayed.get(name), few),
        optional(
            load.drift and 100 * (load.drift - 1), under_load.signed, NO_RUN if not load.batches else NOT_RECORDED
        ),
        in_ms(load.advised_delay_ns, theory_),
        words(load.refused or ""),
    )


def _server(served: Served, load: Load) -> tuple[Cell, ...]:
    batches = sum(load.batches.values())
    return (
        *under_load.head(served),
        under_load.rate(load),
        in_ms(load.queue_ns, NO_RUN),
        in_ms(load.service_ns, NO_RUN),
        optional(load.requests / batches if batches else None, three_digits, NO_RUN),
        optional(None if load.utilization is None else 100 * load.utilization, three_digits, NO_RUN),
        in_ms(load.lag_ns, NO_RUN),
        under_load.energy(load),
        number(load.requests, f"{load.requests:,}"),
    )


# --- which policy ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """What each policy comes to at a rate, by theory: name → ns, infinite where it cannot carry it."""

    rate: float
    values: Mapping[str, float]

    @property
    def best(self) -> str | None:
        """The policy with the least; None where none carries the rate."""
        name = min(self.values, key=lambda each: self.values[each])
        return name if math.isfinite(self.values[name]) else None


def _compared(served: Sequence[Served]) -> Iterator[tuple[list[Served], list[Row]]]:
    """Policies of a series that have a percentile in common, where there are several, and rows by rate."""
    alike = grouped(((*under_load.series(entry[0]), f"{entry[1].percentile:g}"), entry) for entry in served)
    for entries in alike.values():
        if len(entries) < 2:
            continue
        document, largest, _ = max(entries, key=lambda entry: entry[1].max_batch)
        curve = curve_of(document)
        policies = {policy.name: policy_of(policy) for _, policy, _ in entries}
        rates = [share * curve.capacity(largest.max_batch) for share in RATES]
        yield (
            entries,
            [
                Row(rate, {name: _foreseen(curve, each, rate, largest.percentile) for name, each in policies.items()})
                for rate in rates
            ],
        )


def _best(entries: list[Served], rows: list[Row]) -> Text:
    """`minilm …: for the least p95 use none to 29/s, dynamic from 48/s; dynamic: max_delay_ms 0 at 53/s`."""
    stretches = [(name, list(alike)) for name, alike in itertools.groupby(rows, key=lambda row: row.best) if name]
    parts = [
        f"{name} {'to' if place == 0 else 'from'} {three_digits(alike[-1 if place == 0 else 0].rate)} requests/s"
        for place, (name, alike) in enumerate(stretches)
    ]
    if len(stretches) == 1 and len(stretches[0][1]) == len(rows):
        parts = [f"{stretches[0][0]} at every rate"]
    model, case = under_load.series(entries[0][0])
    percent = f"p{entries[0][1].percentile:g}"
    text = f"{model} {case}: for the least {percent} use {', '.join(parts) or 'none of these policies'}"
    return Text(f"{text}{_delays(entries)}.", "item")


def _delays(entries: list[Served]) -> str:
    """The delays to set with the largest batch at the rates that were measured."""
    most = max(policy.max_batch for _, policy, _ in entries)
    advised = {
        load.rate: load.advised_delay_ns
        for document, policy, _ in entries
        for load in document.loads
        if policy.max_batch == most > 1 and load.advised_delay_ns is not None and not load.refused
    }
    delays = [f"{three_digits(advised[rate] / NS_PER_MS)} at {three_digits(rate)}/s" for rate in sorted(advised)]
    return f"; with max_batch {most} set max_delay_ms to {', '.join(delays)}" if delays else ""


def _winners(entries: list[Served], rows: list[Row]) -> Iterator[tuple[Cell, ...]]:
    model, case = under_load.series(entries[0][0])
    for row in rows:
        others = ", ".join(f"{name} {_shown(ns)}" for name, ns in row.values.items() if name != row.best)
        yield (
            words(model),
            words(case),
            number(row.rate, three_digits(row.rate)),
            words(row.best) if row.best else missing("none carries the rate"),
            in_ms(row.values[row.best] if row.best else None, "none carries the rate"),
            words(others),
        )


def _foreseen(curve: Any, policy: Policy, rate: float, percent: float) -> float:
    try:
        return theory.predict(curve, policy, rate).percentile(percent)
    except theory.Unstable:
        return math.inf


def _shown(ns: float) -> str:
    return milliseconds(ns) if math.isfinite(ns) else "–"


# --- LoadGen ---------------------------------------------------------------------------------------------------


def _loadgen(served: Served, run: LoadGenRun) -> tuple[Cell, ...]:
    reason = run.not_measured or "not in its summary"
    own = {name: each.value_ns for name, each in run.own.items()}
    summary = run.summary or {}
    return (
        *under_load.head(served),
        words(run.scenario),
        optional(run.requests or None, lambda value: f"{value:,.0f}", reason),
        optional(run.per_second, three_digits, reason),
        in_ms(own.get("mean"), reason),
        in_ms(_of_summary(summary, "Mean latency (ns)"), reason),
        in_ms(own.get("p90"), reason),
        in_ms(_of_summary(summary, "90.00 percentile latency (ns)"), reason),
        words(summary["Result is"]) if "Result is" in summary else missing(reason),
    )


def _of_summary(summary: Mapping[str, str], name: str) -> float | None:
    try:
        value = float(summary.get(name, ""))
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
