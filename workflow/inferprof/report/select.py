"""Which cases get further rounds and captures, by what their first round shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from inferprof.case import Case
from inferprof.report import winner
from inferprof.report.common import name_of
from inferprof.report.evidence import Evidence
from inferprof.report.winner import Winner
from inferprof.selection import Choice
from inferprof.tables.records import CASE_KEY

OPEN = ("same", "undecided")
"""Verdicts that further rounds may change."""


def choices(evidence: Evidence) -> list[Choice]:
    """The winners of each model and shape, their ties and the baselines, in the study's order.

    The winner and the cases not distinguishable from it get further rounds; so do the winner and the baseline
    where its speed-up is undecided, and the cases in doubt that were measured faster. After a brief first pass every
    winner does. The winner and the baseline are captured; where all cases are in doubt, and none wins, the fastest as
    it was measured.
    """
    reasons: dict[Case, dict[str, list[str]]] = {}
    for model in evidence.models:
        winners = {best.shape: best for best in winner.find(evidence, model)}
        for shape in (shape for name, shape in evidence.order if name == model):
            best = winners.get(shape)
            for name, what, reason in _wanted(evidence, best) if best else _measured(evidence, model, shape):
                precision, backend, variant = name.split("/")
                case = Case(model, precision, backend, variant, shape)
                said = reasons.setdefault(case, {"repeat": [], "capture": []})[what]
                said += [] if reason in said else [reason]
    order = [Case(*row) for row in evidence.outcomes.loc[evidence.outcomes["outcome"] == "ok", CASE_KEY].values]
    return [
        Choice(case, bool(why["repeat"]), bool(why["capture"]), "; ".join((*why["repeat"], *why["capture"])))
        for case in order
        if (why := reasons.get(case))
    ]


def further_runs(evidence: Evidence, choices: Iterable[Choice]) -> Iterator[Sequence[str]]:
    """How the verbs of the further rounds begin: one of each runtime and round."""
    config = evidence.config.content
    on_gpu = any(record.environment.gpu for record in evidence.records["record"])  # environment.json comes later
    rounds = config.protocol.get("rounds" if on_gpu else "cpu_rounds", 1) if config else 1
    for backend in sorted({choice.case.backend for choice in choices if choice.repeat}):
        for number in range(1, rounds):
            yield "run", backend, "--round", str(number)


def _measured(evidence: Evidence, model: str, shape: str) -> Iterator[tuple[str, str, str]]:
    """The same where no case wins."""
    names = [name_of(row) for row in winner.ranked(evidence, model, shape)]
    for name in names[:1]:
        for what in ("repeat", "capture"):
            yield name, what, f"fastest by {evidence.boundary} of cases that are all in doubt"
    if evidence.baseline in names:
        yield evidence.baseline, "capture", "baseline"


def _wanted(evidence: Evidence, best: Winner) -> Iterator[tuple[str, str, str]]:
    """Of a winner (case, `repeat` or `capture`, why)."""
    yield best.name, "capture", f"fastest by {best.boundary}"
    if any(record.protocol.get("first_pass") for record in evidence.records["record"]):
        yield best.name, "repeat", "its first round was brief"
    if best.ties:
        yield best.name, "repeat", f"not distinguishable from {len(best.ties)} by {best.boundary}"
        for tie in best.ties:
            yield tie, "repeat", f"not distinguishable from the fastest by {best.boundary}"
    for row in winner.ranked(evidence, best.row["model"], best.shape):
        if name_of(row) == best.name:
            break
        if row[f"{best.boundary}_doubt"]:
            yield name_of(row), "repeat", f"measured faster than the fastest by {best.boundary}, but in doubt"
    if evidence.baseline is None or best.is_baseline:
        return
    yield evidence.baseline, "capture", "baseline"
    if best.speed_up.get("verdict") in OPEN:
        for name in (best.name, evidence.baseline):
            yield name, "repeat", "the speed-up of the fastest over the baseline is undecided"
