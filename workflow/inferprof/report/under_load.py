"""What the sections about cases under load share: whose numbers a row has, the highest rate, and what was refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from inferprof.documents import Serving
from inferprof.documents.serving import Load, Quantile, ServingPolicy
from inferprof.report import diagnosed
from inferprof.report.common import NOT_RECORDED, in_ms, optional
from inferprof.report.evidence import Evidence
from inferprof.report.model import Cell, Column, Text, missing, number, words
from inferprof.report.numbers import significant, three_digits

Served = tuple[Serving, ServingPolicy, str]
"""A document, its policy, and its file."""
HEAD: Final = (
    Column("model", "model"),
    Column("case", "case"),
    Column("policy", "policy"),
)
HIGHEST: Final = (
    *HEAD,
    Column("objective", "objective"),
    Column("rate_per_s", "highest rate/s", "number"),
    Column("low_per_s", "from", "number"),
    Column("high_per_s", "to", "number"),
    Column("change_percent", "speed ±%", "number"),
    Column("predicted_per_s", "predicted", "number"),
    Column("capacity_per_s", "capacity", "number"),
    Column("runs", "runs", "number"),
    Column("ended", "ended"),
)
HIGHEST_NOTE: Final = (
    "The highest rate whose percentile meets the objective. From, to: where a repeated search will land. "
    "Speed: how much slower services were in the slowest run than in the fastest; the interval covers it."
)
BRACKETED: Final = "bracketed"
NO_RUN: Final = "it was not run"
NO_PREDICTION: Final = "the theory needs Poisson arrivals, and a rate below the capacity in the rehearsal"
FEW: Final = "too few requests for it"


def served(evidence: Evidence, *, generates: bool) -> list[Served]:
    """What came of policies, of generative models or of others."""
    return [
        (document.content, document.content.policy, document.file)
        for document in evidence.served
        if document.content and document.content.policy and document.content.policy.generates == generates
    ]


def loads(entries: Iterable[Served]) -> list[tuple[Served, Load]]:
    """Each rate of each."""
    return [(entry, load) for entry in entries for load in entry[0].loads]


def series(document: Serving) -> tuple[str, str]:
    """The model, and the case without its batch: policies of different batches have that in common."""
    assert document.case is not None
    case, rest = document.case, document.case.shape.partition("_")[2]
    return case.model, f"{case.precision}/{case.backend}/{case.variant} {rest}".strip()


def head(entry: Served) -> list[Cell]:
    """The cells under HEAD."""
    document, policy, file = entry
    return [*map(words, series(document)), Cell(policy.name, policy.name, file=file)]


def rate(load: Load) -> Cell:
    """Marked where it was refused."""
    star = "*" if load.refused else ""
    return Cell(three_digits(load.rate) + star, load.rate, "warn" if star else None)


def signed(value: float) -> str:
    """A percentage with its sign."""
    return f"{value:+.0f}".replace("-", "−")


def value(quantile: Quantile | None, reason: str) -> Cell:
    """That of a quantile."""
    return in_ms(quantile.value_ns if quantile else None, reason)


def energy(load: Load) -> Cell:
    """Of a request."""
    if load.energy is None:
        return missing(NO_RUN if not load.batches else NOT_RECORDED)
    return optional(load.energy.j_per_inference, three_digits, load.energy.not_measured or NOT_RECORDED)


def refused(pairs: Iterable[tuple[Served, Load]]) -> Iterator[Text]:
    """Why the numbers of rates may not be used: of rates of a policy with one kind of reason the first."""
    alike: dict[tuple[str, str, str], list[Load]] = {}
    for (document, policy, _), load in pairs:
        if load.refused:
            key = (series(document)[0], policy.name, load.refused.partition(":")[0])
            alike.setdefault(key, []).append(load)
    for (model, name, _), own in alike.items():
        rates = ", ".join(three_digits(load.rate) for load in own)
        yield Text(f"{model}, {name} at {rates}/s: {own[0].refused}.", "item", "warn")


def highest(entries: Sequence[Served]) -> tuple[tuple[Cell, ...], ...]:
    """The rows of the highest rates, where any was looked for."""
    return tuple(_highest(entry) for entry in entries if entry[0].highest)


def _highest(entry: Served) -> tuple[Cell, ...]:
    document, policy, _ = entry
    highest_ = document.highest
    assert highest_ is not None
    reason = highest_.not_measured or highest_.ended
    return (
        *head(entry),
        words(policy.objective),
        *(
            optional(value_, significant, why)
            for value_, why in (
                (highest_.rate, reason),
                (highest_.low, reason),
                (highest_.high, reason),
                (None if highest_.change is None else 100 * highest_.change, NOT_RECORDED),
                (highest_.predicted, "none by theory"),
                (document.capacity, reason),
            )
        ),
        number(len(highest_.probes), str(len(highest_.probes))),
        words(reason, None if reason == BRACKETED else "warn"),
    )


def findings(evidence: Evidence, *checks: str) -> Iterator[Text]:
    """What some checks found of cases under load."""
    for case, finding in diagnosed.findings(evidence, *checks):
        where = f"{case['model']} {case['shape']}, {finding.subject}"
        yield Text(f"{where}: {finding.reason} {finding.advice}", "item", "warn")
