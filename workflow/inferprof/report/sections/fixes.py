"""Fixes that the study tried: what each came to, and what the diagnosis of the case without it predicted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from inferprof.diagnosis import calibration
from inferprof.findings import Tried
from inferprof.report.common import CASE_COLUMNS, FEW, case_cells, in_ms
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Mark, Table, missing, number, words
from inferprof.report.numbers import milliseconds
from inferprof.report.section import section
from inferprof.tables import tries
from inferprof.tables.records import KEY, Key, options_of
from inferprof.units import NS_PER_MS

COLUMNS: Final = (
    *CASE_COLUMNS,
    Column("fix", "fix", hidden=True),
    Column("before_ms", "before", "number"),
    Column("after_ms", "after", "number"),
    Column("achieved_ms", "saved", "number"),
    Column("achieved_low_ms", "from", "number"),
    Column("achieved_high_ms", "to", "number"),
    Column("outcome", "it is"),
    Column("predicted_low_ms", "predicted", "number"),
    Column("predicted_high_ms", "to", "number"),
    Column("judged", "saved is"),
    Column("reason", "reason", hidden=True),
)
NOTE: Final = (
    "Each case with a fix beside the one that lacks nothing but it, by end_to_end. Saved: by the paired rounds, with "
    "its interval. Undecided: one of the two is in doubt, or has no interval. Predicted: by the check that advises."
)
MARKS: Final[Mapping[str, Mark]] = {"better": "pass", "backfired": "fail"}
CALIBRATION: Final = (
    Column("check", "check"),
    Column("tries", "tries", "number"),
    Column("inside", "inside", "number"),
    Column("inside_percent", "%", "number"),
    Column("width", "bounds", "number"),
)
CALIBRATION_NOTE: Final = (
    "Of fixes that studies tried, whose measurements are in no doubt: how many saved as much as predicted. Bounds: "
    "their upper end over their lower one, the middle of all; none where a loss was predicted possible."
)


@section("fixes", "Fixes that were tried", place=40)
def build(evidence: Evidence) -> Sequence[Block]:
    """A row per pair of cases, and how good the predictions were elsewhere. Empty where no fix was tried."""
    pairs = sorted(tries.pairs(options_of(evidence.records)), key=lambda pair: _place(evidence, pair[1]))
    judged = [_judged(evidence, *pair) for pair in pairs if pair[0] in evidence.medians]
    if not judged:
        return ()
    return (Table("fixes", "", COLUMNS, tuple(map(_row, judged)), NOTE, groups=2), _calibration())


def _place(evidence: Evidence, key: Key) -> tuple[Any, ...]:
    names = dict(zip(KEY, key, strict=True))
    return evidence.order[names["model"], names["shape"]], key


def _judged(evidence: Evidence, before: Key, after: Key, fix: tuple[str, Any]) -> dict[str, Any]:
    """What the row of a pair is made of."""
    tried = tries.of_pair(evidence, before, after)
    diagnosis = evidence.diagnoses.get(before)
    predicted: Any = "the case without the fix was not diagnosed"
    if diagnosis is not None and diagnosis.content is not None:
        predicted = calibration.predicted(diagnosis.content.answers or (), tries.FIXES[fix][0])
    return {
        **dict(zip(KEY, after, strict=True)),
        "fix": f"{fix[0]}: {str(fix[1]).lower()}",
        "before": evidence.medians.get(before),
        "after": evidence.medians.get(after),
        "tried": tried,
        "predicted": predicted,
    }


def _row(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    tried: Tried = row["tried"]
    predicted = row["predicted"]
    no_bounds = isinstance(predicted, str)
    judged = missing(predicted) if no_bounds else words(calibration.judged(predicted, tried))
    return (
        *case_cells(row),
        words(row["fix"]),
        *(in_ms(row[side], tried.reason) for side in ("before", "after")),
        in_ms(tried.achieved_ns, tried.reason),
        *(in_ms(bound, FEW) for bound in (tried.low_ns, tried.high_ns)),
        words(tried.outcome, MARKS.get(tried.outcome)),
        *([missing(predicted)] * 2 if no_bounds else [number(b / NS_PER_MS, milliseconds(b)) for b in predicted]),
        judged,
        words(tried.reason),
    )


def _calibration() -> Table:
    """The tries of all studies that this version was calibrated with."""
    rows = tuple(tuple(_calibrated(row)) for row in calibration.published())
    title = "How good these predictions were in the reference studies"
    return Table("calibration", title, CALIBRATION, rows, CALIBRATION_NOTE)


def _calibrated(row: Mapping[str, Any]) -> Iterator[Cell]:
    yield words(row["check"])
    yield number(row["tries"], str(row["tries"]))
    yield number(row["inside"], str(row["inside"]))
    yield number(100 * row["inside"] / row["tries"], f"{100 * row['inside'] / row['tries']:.0f}")
    yield missing("a loss was possible") if row["width"] is None else number(row["width"], f"{row['width']:.2f}×")
