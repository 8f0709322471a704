"""The search for the best case of each model, step by step: what was predicted, what came, what was kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from inferprof.documents import Trail
from inferprof.documents.trail import Step
from inferprof.report import searched
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Mark, Table, Text, missing, number, words
from inferprof.report.section import section

COLUMNS: Final = (
    Column("model", "model"),
    Column("candidate", "candidate"),
    Column("incumbent", "against"),
    Column("decision", "it is"),
    Column("gain_percent", "saved %", "number"),
    Column("low_percent", "from", "number"),
    Column("high_percent", "to", "number"),
    Column("rounds", "rounds", "number"),
    Column("predicted_low_percent", "predicted %", "number"),
    Column("predicted_high_percent", "to", "number"),
    Column("check", "by", hidden=True),
    Column("reason", "why"),
)
NOTE: Final = (
    'Saved, and predicted to be saved: of the time of the case under "against". By rounds of fresh processes: those '
    "with an interval, of 95 %, took turns with as many of that case; the others were few, and nothing was kept by "
    "them. The last row of a model is its best case against the baseline, in new rounds."
)
MARKS: Final[Mapping[str, Mark]] = {"kept": "pass", "confirmed": "pass", "not confirmed": "fail"}
NOT_PREDICTED: Final = "no check predicted it"
NOT_MEASURED: Final = "it was not measured in a duel"


@section("best", "The search for the best case", place=41)
def build(evidence: Evidence) -> Sequence[Block]:
    """A sentence for each model that was searched, and a row for each step. Empty where none was."""
    trails = [search.content for search in evidence.searches if search.content]
    rows = [_row(trail, step) for trail in trails for step in trail.steps]
    said = [Text(_said(trail, evidence.machine)) for trail in trails]
    return [*said, *([Table("best", "", COLUMNS, tuple(rows), NOTE)] if rows else [])]


def _said(trail: Trail, machine: str) -> str:
    """`minilm b8, by end_to_end: fp16/ort_cpu/threads=2 takes 12.3 ms, 21 % less than fp32/ort_cpu/default (…).`"""
    by = f"{trail.boundary} per item" if trail.per == "item" else trail.boundary
    ideas = [f"{idea.change.by}: {idea.advice}" for idea in trail.yours if idea.gain]
    best = searched.described(trail, " takes ")
    said = f"{trail.model} {trail.shape}, by {by}: {best}. The search ended: {trail.stopped}."
    program = f" To run it: results/{machine}/best/{trail.model}.py." if trail.ended else ""
    return said + program + (f" What only you can change: {' '.join(ideas)}" if ideas else "")


def _row(trail: Trail, step: Step) -> tuple[Cell, ...]:
    predicted: tuple[float | None, ...] = (None, None)
    if step.predicted and step.incumbent_ns:
        predicted = tuple(bound / step.incumbent_ns for bound in (step.predicted.low_ns, step.predicted.high_ns))
    return (
        words(str(trail.model)),
        words(step.candidate),
        words(step.incumbent),
        words(step.decision, MARKS.get(step.decision)),
        *(_percent(share, NOT_MEASURED) for share in (step.gain, step.low, step.high)),
        number(step.rounds, str(step.rounds)),
        *(_percent(share, NOT_PREDICTED) for share in predicted),
        words(step.check or ""),
        words(step.reason),
    )


def _percent(share: float | None, reason: str) -> Cell:
    return missing(reason) if share is None else number(100 * share, f"{100 * share:.1f}")
