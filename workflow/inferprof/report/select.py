"""Which cases get further rounds and captures, by what their first round shows."""

from __future__ import annotations

from collections.abc import Iterator

from inferprof.case import Case
from inferprof.report.evidence import Evidence
from inferprof.report.winner import Winner, find
from inferprof.selection import Choice
from inferprof.tables.records import CASE_KEY

OPEN = ("same", "undecided")
"""Verdicts that further rounds may change."""


def choices(evidence: Evidence) -> list[Choice]:
    """The winners of each model and shape, their ties and the baselines, in the study's order.

    The winner and the cases that it can't be told apart from get further rounds; so do the winner and the baseline
    where its speed-up is undecided. The winner and the baseline are captured.
    """
    reasons: dict[Case, dict[str, list[str]]] = {}
    for model in evidence.models:
        for winner in find(evidence, model):
            for name, what, reason in _wanted(evidence, winner):
                precision, backend, variant = name.split("/")
                case = Case(model, precision, backend, variant, winner.shape)
                said = reasons.setdefault(case, {"repeat": [], "capture": []})[what]
                said += [] if reason in said else [reason]
    order = [Case(*row) for row in evidence.outcomes.loc[evidence.outcomes["outcome"] == "ok", CASE_KEY].values]
    return [
        Choice(case, bool(why["repeat"]), bool(why["capture"]), "; ".join((*why["repeat"], *why["capture"])))
        for case in order
        if (why := reasons.get(case))
    ]


def _wanted(evidence: Evidence, winner: Winner) -> Iterator[tuple[str, str, str]]:
    """Of a winner (case, `repeat` or `capture`, why)."""
    yield winner.name, "capture", f"fastest by {winner.boundary}"
    if winner.ties:
        yield winner.name, "repeat", f"not told apart from {len(winner.ties)} by {winner.boundary}"
        for tie in winner.ties:
            yield tie, "repeat", f"not told apart from the fastest by {winner.boundary}"
    if evidence.baseline is None or winner.is_baseline:
        return
    yield evidence.baseline, "capture", "baseline"
    if winner.speed_up.get("verdict") in OPEN:
        for name in (winner.name, evidence.baseline):
            yield name, "repeat", "the speed-up of the fastest over the baseline is undecided"
