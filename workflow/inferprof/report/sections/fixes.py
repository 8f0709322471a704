"""Fixes that the study tried: what the diagnosis of the case without one predicted, and what it gained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from inferprof.findings import END_TO_END
from inferprof.report.common import CASE_COLUMNS, FEW, by_case, case_cells, scaled
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Table, missing, number, words
from inferprof.report.numbers import NS_PER_MS, milliseconds
from inferprof.report.section import Section
from inferprof.tables.records import key_of, options_of, paired_without, rows_of

FIXES: Final[Mapping[tuple[str, str | bool], str]] = {
    ("cuda_graph", True): "cuda_graph",
    ("placement", "pinned"): "pageable_copies",
}
"""Option of a variant and its value → the check whose finding advises it."""
COLUMNS: Final = (
    *CASE_COLUMNS,
    Column("fix", "fix", hidden=True),
    Column("before_ms", "before", "number"),
    Column("after_ms", "after", "number"),
    Column("predicted_low_ms", "predicted", "number"),
    Column("predicted_high_ms", "to", "number"),
    Column("achieved_ms", "achieved", "number"),
    Column("achieved_low_ms", "from", "number", hidden=True),
    Column("achieved_high_ms", "to", "number", hidden=True),
    Column("judged", "achieved is"),
)
NOTE: Final = (
    "Each case with a fix beside the one that lacks nothing but it; end_to_end medians, ms. Predicted: the bounds of "
    "the finding about the case without it. Achieved: the difference of the medians, judged by the ends of their "
    "intervals; undecided where there is none, or it reaches beyond the prediction on both sides."
)


def build(evidence: Evidence) -> Sequence[Block]:
    """A row per pair of cases. Empty where no two cases differ in one such option alone."""
    rows = tuple(tuple(_row(evidence, *pair)) for pair in _pairs(evidence))
    return (Table("fixes", "", COLUMNS, rows, NOTE, groups=2),) if rows else ()


Case = dict[str, Any]
"""KEY and its end_to_end latency: `median`, `low`, `high` in ns."""


def _pairs(evidence: Evidence) -> Iterator[tuple[Case, Case, tuple[str, str | bool]]]:
    """The case without a fix, the case with it, and the fix."""
    latency = evidence.latency
    measured = rows_of(latency[latency["boundary"].eq(END_TO_END) & latency["median"].notna()])
    cases = {key_of(row): row for row in by_case(measured, evidence.order)}
    options = {key: given for key, given in options_of(evidence.records).items() if key in cases}
    paired = {option: paired_without(option, options) for option, _ in FIXES}
    for key, after in cases.items():
        for option, value in FIXES:
            if options[key].get(option) == value:
                yield from ((cases[before], after, (option, value)) for before in paired[option].get(key, ()))


def _row(evidence: Evidence, before: Case, after: Case, fix: tuple[str, str | bool]) -> list[Cell]:
    predicted = _predicted(evidence, before, FIXES[fix])
    achieved = before["median"] - after["median"]
    bounded = before["low"] is not None and after["low"] is not None
    bounds = (before["low"] - after["high"], before["high"] - after["low"]) if bounded else None
    option, value = fix
    return [
        *case_cells(after),
        words(f"{option}: {str(value).lower()}"),
        *(number(case["median"] / NS_PER_MS, milliseconds(case["median"])) for case in (before, after)),
        *([missing(predicted)] * 2 if isinstance(predicted, str) else [_ms(bound) for bound in predicted]),
        _ms(achieved),
        *(scaled(bound, NS_PER_MS, milliseconds, FEW) for bound in bounds or (None, None)),
        missing(predicted) if isinstance(predicted, str) else words(_judged(predicted, bounds)),
    ]


def _ms(ns: float) -> Cell:
    return number(ns / NS_PER_MS, milliseconds(ns))


def _predicted(evidence: Evidence, case: Case, check: str) -> tuple[float, float] | str:
    """The bounds of the gain that a check's findings give together, ns; or why there are none."""
    diagnosis = evidence.diagnoses.get(key_of(case))
    if diagnosis is None or diagnosis.content is None:
        return "the case without the fix was not diagnosed"
    (answer,) = (candidate for candidate in diagnosis.content.answers or () if candidate.check == check)
    if answer.verdict != "found":
        return f"{check} was {answer.verdict}: {answer.reason}"
    gains = [finding.gain for finding in answer.findings if finding.gain]
    if not gains:
        return f"{check} gave no bounds of the gain"
    return sum(gain.low_ns for gain in gains), sum(gain.high_ns for gain in gains)


def _judged(predicted: tuple[float, float], achieved: tuple[float, float] | None) -> str:
    """Where the interval of what was achieved lies; None is one that could not be told."""
    if achieved is None or (achieved[0] < predicted[0] and achieved[1] > predicted[1]):
        return "undecided"
    if achieved[1] < predicted[0]:
        return "less"
    return "more" if achieved[0] > predicted[1] else "as predicted"


SECTION = Section(
    name="fixes",
    title="Fixes: predicted against achieved",
    place=40,
    build=build,
)
