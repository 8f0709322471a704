"""How fast each case could be at most, step by step, and what came of the steps that were taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from inferprof.grouping import grouped
from inferprof.report.common import CASE_COLUMNS, FEW, by_case, case_cells, in_ms
from inferprof.report.evidence import Evidence
from inferprof.report.fields import CASE, Field, csv_of, ms, table_of, text
from inferprof.report.model import Block, Cell, Column, Table, missing, number, words
from inferprof.report.numbers import milliseconds, percent, ratio
from inferprof.report.section import section
from inferprof.tables.limits import speed_ceiling
from inferprof.tables.records import key_of, options_of, rows_of
from inferprof.units import NS_PER_MS

STEP_TITLES: Final[Mapping[str, str]] = {
    "launches": "free launches",
    "copies": "free copies",
    "gaps": "no gaps",
    "fp8": "GEMMs in FP8",
    "fp4": "GEMMs in FP4",
}
COLUMNS: Final = (
    *CASE_COLUMNS,
    Column("total_ms", "end_to_end ms", "number"),
    *(Column(f"{step}_times", title, "number") for step, title in STEP_TITLES.items()),
    *(Column(f"{step}_gain_ms", f"{title}, gain ms", "number", hidden=True) for step, title in STEP_TITLES.items()),
)
ACHIEVED: Final = (
    *CASE,
    text("change"),
    text("other", "case after it", hidden=True),
    ms("predicted", "predicted ms", lambda row: row["not_known"] or ""),
    ms("achieved", "achieved ms"),
    ms("low", "low", FEW, hidden=True),
    ms("high", "high", FEW, hidden=True),
    Field(Column("of_predicted", "of predicted"), lambda row: _of_predicted(row)),
    text("verdict"),
)
IN_FIXES: Final = ("graph", "pinned")
"""Changes that stand in the section of fixes, against the findings that advised them."""
NOTE: Final = (
    "Each column: how many times as fast as measured the case would be with that step and all before it, which take "
    "away parts of its waterfall; matrix products in a narrower format take as much less time as their roofs differ. "
    "Bounds, not predictions: nothing is free."
)
ACHIEVED_NOTE: Final = (
    "Pairs of measured cases that differ in one change alone. Predicted: the part of the waterfall that it takes "
    "away; other parts may shrink with it. Achieved: end_to_end before less after, paired by round; minus: slower."
)


@section("speed_ceiling", "Speed-up ceiling", place=120, needs=("waterfall",))
def build(evidence: Evidence) -> Sequence[Block]:
    """The steps, then predicted against achieved; empty where there is no waterfall."""
    options = options_of(evidence.records)
    costs = {graph: cost.content for graph, cost in evidence.costs.items()}
    ceilings = speed_ceiling.of_cases(evidence.waterfall, evidence.profiles, costs, evidence.roofs, options)
    pairs = speed_ceiling.achieved(evidence.boundaries, ceilings, evidence.stages, evidence.floors, options)
    cases = grouped((key_of(row), row) for row in by_case(rows_of(ceilings), evidence.order))
    blocks: list[Block] = []
    if cases:
        rows = tuple(_case(steps) for steps in cases.values())
        blocks.append(Table("speed_ceiling", "", COLUMNS, rows, NOTE, groups=2))
    ordered = by_case(rows_of(pairs), evidence.order)
    if shown := [row for row in ordered if row["change"] not in IN_FIXES]:
        title = "Predicted and achieved, of number formats and inputs on the device"
        blocks.append(table_of("achieved_formats", title, ACHIEVED, shown, ACHIEVED_NOTE))
    if ordered:
        title = "Predicted by these steps and achieved, of every change"
        blocks.append(csv_of("achieved", title, ACHIEVED, ordered))
    return blocks


def _case(steps: list[dict[str, Any]]) -> tuple[Cell, ...]:
    first = steps[0]
    times = [missing(row["not_known"]) if row["not_known"] else _times(row["speed_up"]) for row in steps]
    gains = [in_ms(row["gain_ns"], row["not_known"] or "") for row in steps]
    return (
        *case_cells(first),
        number(first["total_ns"] / NS_PER_MS, milliseconds(first["total_ns"])),
        *times,
        *gains,
    )


def _times(speed_up: float | None) -> Cell:
    return missing("nothing is left of the case's time") if speed_up is None else number(speed_up, ratio(speed_up))


def _of_predicted(row: Mapping[str, Any]) -> Cell:
    predicted, done = row["predicted_ns"], row["achieved_ns"]
    if not predicted:
        return missing(row["not_known"] or "nothing was predicted")
    return words(percent(100 * done / predicted) if done > 0 else "none of it")
