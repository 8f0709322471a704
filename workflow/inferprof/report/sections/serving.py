"""Cases under load: what was predicted and what came, the highest rate, which policy wins, and LoadGen's clock."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from inferprof.documents import Serving
from inferprof.documents.serving import Load, LoadGenRun, Quantile, ServingPolicy
from inferprof.queueing import theory
from inferprof.queueing.policy import Policy
from inferprof.queueing.served import curve_of, policy_of
from inferprof.report.common import NOT_RECORDED, optional, scaled
from inferprof.report.diagnosed import diagnosed
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Table, Text, missing, number, words
from inferprof.report.numbers import NS_PER_MS, milliseconds, significant, three_digits
from inferprof.report.section import Section

CHECKS: Final = frozenset({"batch_delay", "batch_cap", "serving_rate"})
RATES: Final = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Of what the largest batches carry: where the policies are compared."""
HEAD: Final = (
    Column("model", "model"),
    Column("case", "case"),
    Column("policy", "policy"),
)
LOADS: Final = (
    *HEAD,
    Column("rate_per_s", "rate/s", "number"),
    Column("load", "load", "number"),
    Column("mean_ms", "mean", "number"),
    Column("predicted_mean_ms", "predicted", "number"),
    Column("percentile", "percentile", hidden=True),
    Column("percentile_ms", "perc.", "number"),
    Column("low_ms", "from", "number", hidden=True),
    Column("high_ms", "to", "number", hidden=True),
    Column("predicted_percentile_ms", "predicted", "number"),
    Column("replayed_percentile_ms", "replayed", "number", hidden=True),
    Column("queue_ms", "queue", "number"),
    Column("service_ms", "service", "number"),
    Column("mean_batch", "batch", "number"),
    Column("busy_percent", "busy %", "number"),
    Column("lag_ms", "send lag p99 ms", "number", hidden=True),
    Column("delay_to_set_ms", "delay to set", "number"),
    Column("j_per_request", "J/request", "number"),
    Column("requests", "requests", "number", hidden=True),
    Column("refused", "why not to be used", hidden=True),
)
LOADS_NOTE: Final = (
    "ms from the moment at which a request was due to its answer. Perc.: the percentile of the policy's objective. "
    "Predicted: by the embedded Markov chain, of the curve of latency over the batch just before. Load: of what full "
    "batches carry. Delay to set: the one with the least predicted percentile at this rate. J: of the whole GPU, "
    "idle time too. *: refused, see below."
)
HIGHEST: Final = (
    *HEAD,
    Column("objective", "objective"),
    Column("rate_per_s", "highest rate/s", "number"),
    Column("fails_per_s", "fails at", "number"),
    Column("sure_within_per_s", "within", "number"),
    Column("sure_beyond_per_s", "beyond", "number"),
    Column("predicted_per_s", "predicted", "number"),
    Column("capacity_per_s", "capacity", "number"),
    Column("runs", "runs", "number"),
    Column("ended", "ended"),
)
HIGHEST_NOTE: Final = (
    "The highest rate whose percentile met the objective, and the least that did not. Within, beyond: the rates "
    "nearest to these whose interval of the percentile is wholly within or beyond it."
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
    *HEAD,
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
BRACKETED: Final = "bracketed"
FEW: Final = "too few requests for it"
NO_THEORY: Final = "the theory is of Poisson arrivals"
NO_RUN: Final = "it was not run"
Served = tuple[Serving, ServingPolicy, str]
"""A document, its policy, and its file."""


def build(evidence: Evidence) -> Sequence[Block]:
    """Empty where nothing was put under load."""
    served = [
        (document.content, document.content.policy, document.file)
        for document in evidence.served
        if document.content and document.content.policy
    ]
    loads = [(entry, load) for entry in served for load in entry[0].loads]
    highest = [entry for entry in served if entry[0].highest]
    runs = [(entry, run) for entry in served for run in entry[0].loadgen]
    blocks: list[Block] = [*_findings(evidence)]
    if loads:
        rows = tuple(_load(*pair) for pair in loads)
        blocks.append(Table("serving", "Predicted and measured", LOADS, rows, LOADS_NOTE, groups=3))
        blocks += [_refused(*pair) for pair in loads if pair[1].refused]
    if highest:
        rows = tuple(_highest(entry) for entry in highest)
        blocks.append(Table("serving_highest", "Highest rate", HIGHEST, rows, HIGHEST_NOTE, groups=2))
    if winners := tuple(_winners(served)):
        blocks.append(
            Table("serving_policies", "Which policy at which rate", WINNERS, winners, WINNERS_NOTE, groups=2)
        )
    if runs:
        rows = tuple(_loadgen(*pair) for pair in runs)
        blocks.append(Table("serving_loadgen", "LoadGen beside our clock", LOADGEN, rows, LOADGEN_NOTE, groups=3))
    return blocks


def _findings(evidence: Evidence) -> Iterator[Text]:
    """What the checks of serving found."""
    for case, document in diagnosed(evidence):
        for answer in document.answers or ():
            for finding in answer.findings if answer.check in CHECKS else ():
                where = f"{case['model']} {case['shape']}, {finding.subject}"
                yield Text(f"{where}: {finding.reason} {finding.advice}", "item", "warn")


def _head(served: Served) -> list[Cell]:
    document, policy, file = served
    assert document.case is not None
    case = document.case
    name = f"{case.precision}/{case.backend}/{case.variant} {case.shape}"
    return [words(case.model), words(name), Cell(policy.name, policy.name, file=file)]


def _load(served: Served, load: Load) -> tuple[Cell, ...]:
    _, policy, _ = served
    name = f"p{policy.percentile:g}"
    mean, value = load.latency.get("mean"), load.latency.get(name)
    predicted = load.predicted.latency if load.predicted else {}
    replayed = load.replayed.latency if load.replayed else {}
    batches = sum(load.batches.values())
    star = "*" if load.refused else ""
    busy = None if load.utilization is None else 100 * load.utilization
    return (
        *_head(served),
        Cell(three_digits(load.rate) + star, load.rate, "warn" if star else None),
        number(load.share, three_digits(load.share)),
        _ms(mean.value_ns if mean else None, NO_RUN),
        _ms(predicted.get("mean"), NO_THEORY if load.batches else NO_RUN),
        words(name),
        _ms(value.value_ns if value else None, FEW if load.batches else NO_RUN),
        *(_end(value, end) for end in ("low_ns", "high_ns")),
        _ms(predicted.get(name), NO_THEORY if load.batches else NO_RUN),
        _ms(replayed.get(name), FEW if load.batches else NO_RUN),
        _ms(load.queue_ns, NO_RUN),
        _ms(load.service_ns, NO_RUN),
        optional(load.requests / batches if batches else None, three_digits, NO_RUN),
        optional(busy, three_digits, NO_RUN),
        _ms(load.lag_ns, NO_RUN),
        _ms(load.advised_delay_ns, NO_THEORY if load.batches else NO_RUN),
        _energy(load),
        number(load.requests, f"{load.requests:,}"),
        words(load.refused or ""),
    )


def _energy(load: Load) -> Cell:
    if load.energy is None:
        return missing(NO_RUN if not load.batches else NOT_RECORDED)
    return optional(load.energy.j_per_inference, three_digits, load.energy.not_measured or NOT_RECORDED)


def _end(value: Quantile | None, end: str) -> Cell:
    return _ms(getattr(value, end) if value else None, FEW)


def _ms(ns: float | None, reason: str) -> Cell:
    return scaled(ns, NS_PER_MS, milliseconds, reason)


def _refused(served: Served, load: Load) -> Text:
    document, policy, _ = served
    model = document.case.model if document.case else ""
    return Text(f"{model}, {policy.name} at {three_digits(load.rate)}/s: {load.refused}.", "item", "warn")


def _highest(served: Served) -> tuple[Cell, ...]:
    document, policy, _ = served
    highest = document.highest
    assert highest is not None
    reason = highest.not_measured or highest.ended
    return (
        *_head(served),
        words(f"p{policy.percentile:g} ≤ {policy.slo_ms:g} ms"),
        *(
            optional(value, significant, why)
            for value, why in (
                (highest.rate, reason),
                (highest.fails, reason),
                (highest.low, "no interval was wholly within"),
                (highest.high, "no interval was wholly beyond"),
                (highest.predicted, "none by theory"),
                (document.capacity, reason),
            )
        ),
        number(len(highest.probes), str(len(highest.probes))),
        words(reason, None if reason == BRACKETED else "warn"),
    )


# --- which policy ----------------------------------------------------------------------------------------------


def _winners(served: Sequence[Served]) -> Iterator[tuple[Cell, ...]]:
    """Rows of each series of batches with several policies of the same percentile."""
    series: dict[tuple[str, ...], list[Served]] = {}
    for entry in served:
        assert entry[0].case is not None
        case = entry[0].case
        rest = case.shape.partition("_")[2]
        key = (
            case.model,
            f"{case.precision}/{case.backend}/{case.variant} {rest}".strip(),
            f"{entry[1].percentile:g}",
        )
        series.setdefault(key, []).append(entry)
    for (model, case_name, _), alike in series.items():
        if len(alike) > 1:
            yield from ((words(model), words(case_name), *cells) for cells in _compared(alike))


def _compared(served: Sequence[Served]) -> Iterator[tuple[Cell, ...]]:
    document, largest, _ = max(served, key=lambda entry: entry[1].max_batch)
    curve = curve_of(document)
    policies = {policy.name: policy_of(policy) for _, policy, _ in served}
    for share in RATES:
        rate = share * curve.capacity(largest.max_batch)
        values = {name: _foreseen(curve, policy, rate, largest.percentile) for name, policy in policies.items()}
        best = min(values, key=lambda name: values[name])
        others = ", ".join(f"{name} {_shown(values[name])}" for name in values if name != best)
        carried = math.isfinite(values[best])
        yield (
            number(rate, three_digits(rate)),
            words(best) if carried else missing("none carries the rate"),
            _ms(values[best] if carried else None, "none carries the rate"),
            words(others),
        )


def _foreseen(curve: Any, policy: Policy, rate: float, percent: float) -> float:
    try:
        return theory.predict(curve, policy, rate).percentile(percent)
    except theory.Unstable:
        return math.inf


def _shown(ns: float) -> str:
    return f"{milliseconds(ns)}" if math.isfinite(ns) else "–"


# --- LoadGen ---------------------------------------------------------------------------------------------------


def _loadgen(served: Served, run: LoadGenRun) -> tuple[Cell, ...]:
    reason = run.not_measured or "not in its summary"
    own = {name: each.value_ns for name, each in run.own.items()}
    summary = run.summary or {}
    return (
        *_head(served),
        words(run.scenario),
        optional(run.requests or None, lambda value: f"{value:,.0f}", reason),
        optional(run.per_second, three_digits, reason),
        _ms(own.get("mean"), reason),
        _ms(_of_summary(summary, "Mean latency (ns)"), reason),
        _ms(own.get("p90"), reason),
        _ms(_of_summary(summary, "90.00 percentile latency (ns)"), reason),
        words(summary["Result is"]) if "Result is" in summary else missing(reason),
    )


def _of_summary(summary: Mapping[str, str], name: str) -> float | None:
    try:
        value = float(summary.get(name, ""))
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


SECTION = Section(name="serving", title="Under load", place=75, build=build, needs=("served",))
