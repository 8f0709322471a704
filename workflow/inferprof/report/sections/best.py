"""The search for the best case of each model, step by step: what was predicted, what came, what was kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from inferprof.documents import Trail
from inferprof.documents.trail import Step
from inferprof.report.common import scaled
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Mark, Table, Text, missing, number, words
from inferprof.report.numbers import NS_PER_MS, milliseconds
from inferprof.report.section import Section

COLUMNS: Final = (
    Column("model", "model"),
    Column("candidate", "candidate"),
    Column("incumbent", "against"),
    Column("decision", "it is"),
    Column("gain_percent", "saved %", "number"),
    Column("low_percent", "from", "number"),
    Column("high_percent", "to", "number"),
    Column("rounds", "rounds", "number"),
    Column("predicted_low_ms", "predicted ms", "number"),
    Column("predicted_high_ms", "to", "number"),
    Column("check", "by", hidden=True),
    Column("reason", "why"),
)
NOTE: Final = (
    "Saved: of the incumbent's time, in rounds of fresh processes that took turns, with its 95 % interval; of one "
    "round there is none. The last row of a model is its best case against the baseline, in new rounds."
)
MARKS: Final[Mapping[str, Mark]] = {"kept": "pass", "confirmed": "pass", "not confirmed": "fail"}
NOT_PREDICTED: Final = "no check predicted it"
NOT_MEASURED: Final = "it was not measured in a duel"


def build(evidence: Evidence) -> Sequence[Block]:
    """A sentence for each model that was searched, and a row for each step. Empty where none was."""
    trails = [search.content for search in evidence.searches if search.content]
    rows = [_row(str(trail.model), step) for trail in trails for step in trail.steps]
    return [*map(_said, trails), *([Table("best", "", COLUMNS, tuple(rows), NOTE)] if rows else [])]


def _said(trail: Trail) -> Text:
    """`minilm b8: fp16/ort_cpu/threads=2, 12.3 ms (11.9 to 12.8): …`."""
    took = "" if trail.median_ns is None else f", {milliseconds(trail.median_ns)} ms"
    if trail.low_ns and trail.high_ns:
        took += f" ({milliseconds(trail.low_ns)} to {milliseconds(trail.high_ns)})"
    ideas = [f"{idea.change.by}: {idea.advice}" for idea in trail.yours if idea.gain]
    yours = f" Yours to do: {' '.join(ideas)}" if ideas else ""
    by = f"{trail.boundary} per item" if trail.per == "item" else trail.boundary
    return Text(f"{trail.model} {trail.shape}, by {by}: {trail.best}{took}. Ended: {trail.stopped}.{yours}")


def _row(model: str, step: Step) -> tuple[Cell, ...]:
    shares = [
        missing(NOT_MEASURED) if share is None else number(100 * share, f"{100 * share:.1f}")
        for share in (step.gain, step.low, step.high)
    ]
    bounds = (step.predicted.low_ns, step.predicted.high_ns) if step.predicted else (None, None)
    return (
        words(model),
        words(step.candidate),
        words(step.incumbent),
        words(step.decision, MARKS.get(step.decision)),
        *shares,
        number(step.rounds, str(step.rounds)),
        *(scaled(bound, NS_PER_MS, milliseconds, NOT_PREDICTED) for bound in bounds),
        words(step.check or ""),
        words(step.reason),
    )


SECTION = Section(
    name="best",
    title="The search for the best case",
    place=41,
    build=build,
)
