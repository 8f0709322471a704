"""Which case of a model is the fastest at each shape, by the boundary of the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pandas as pd

from inferprof.plugins import Boundary
from inferprof.report import fidelity
from inferprof.report.common import factor, name_of
from inferprof.report.evidence import Evidence
from inferprof.report.fidelity import Fidelity
from inferprof.report.model import Cell, missing, number, without_number
from inferprof.report.numbers import ratio
from inferprof.tables import summary
from inferprof.tables.records import KEY, key_of, rows_of

FAR: Final = 2.0
"""Ours: where every sample of a case is so many times as slow as each of another, no interval is needed to tell the
two apart. A rented host varied in speed by 1.9."""
DISPUTED: Final = 1.25
"""Ours: a case in doubt that was measured so many times as fast as the fastest of the others speaks against it."""
NO_SPEED_UP: Mapping[str, Any] = {"speed_up": None, "not_measured": "there is no baseline"}


@dataclass(frozen=True)
class Winner:
    """The fastest case of a model at a shape that may be recommended: accurate, settled, of no rebuilt engine."""

    row: Mapping[str, Any]
    """The case's row of Evidence.measured."""
    boundary: Boundary
    fidelity: Fidelity
    speed_up: Mapping[str, Any]
    """The case's row of Evidence.speed_ups_by."""
    is_baseline: bool
    rejected: Mapping[str, Any] | None
    """The fastest case of all, where its accuracy fails."""
    doubted: Mapping[str, Any] | None
    """The fastest case of all, where its measurement is in doubt."""
    ties: tuple[str, ...]
    """Cases that are measured slower, but not by more than could be chance."""

    @property
    def name(self) -> str:
        """precision/backend/variant."""
        return name_of(self.row)

    @property
    def shape(self) -> str:
        """The label of the shape."""
        return str(self.row["shape"])

    @property
    def median_ms(self) -> float:
        """The median by `boundary`."""
        return float(self.row[f"{self.boundary}_ms"])

    @property
    def disputed(self) -> bool:
        """Whether a case in doubt was measured so much faster that this one may not be called the fastest."""
        return self.doubted is not None and self.median_ms >= DISPUTED * self.doubted[f"{self.boundary}_ms"]

    @property
    def items_per_s(self) -> float:
        """Batch / median."""
        return float(self.row["batch"]) / self.median_ms * 1e3


def find(evidence: Evidence, model: str) -> list[Winner]:
    """The winners of a model, shape by shape, where there is one."""
    winners = (_winner(evidence, ranked(evidence, model, shape)) for name, shape in evidence.order if name == model)
    return [winner for winner in winners if winner]


def ranked(evidence: Evidence, model: str, shape: str) -> list[Mapping[str, Any]]:
    """The measured cases of a model at a shape, without rebuilt engines, the fastest first."""
    column = f"{evidence.boundary}_ms"
    cases = evidence.measured
    own = cases[cases["model"].eq(model) & cases["shape"].eq(shape) & cases[column].notna()]
    rows = rows_of(own.sort_values(column, kind="stable"))
    return [row for row in rows if key_of(row) not in evidence.controls]


def speed_up_cells(best: Winner, baseline: str | None) -> tuple[Cell, Cell]:
    """The speed-up over the baseline, and ± how much; why there is none."""
    if baseline is None or best.is_baseline:
        return without_number("baseline" if best.is_baseline else "–"), without_number("")
    value, low, high = (best.speed_up[key] for key in ("speed_up", "low", "high"))
    if value is None:
        return missing(best.speed_up["not_measured"]), without_number("")
    if best.speed_up["flag"]:
        return without_number("flagged"), without_number("")
    if best.speed_up["in_doubt"]:
        decided = best.speed_up["verdict"] != summary.NO_VERDICT
        return number(value, f"≈ {ratio(value)}") if decided else missing(best.speed_up["reason"]), without_number("")
    times, spread = factor(value, low, high)
    doubtful = best.speed_up["verdict"] in ("same", "undecided") and not times.missing
    return replace(times, text=f"≈ {times.text}") if doubtful else times, spread


def _winner(evidence: Evidence, rows: list[Mapping[str, Any]]) -> Winner | None:
    """The fastest case that may be recommended; None where there is none."""
    boundary = evidence.boundary
    judged = [(row, fidelity.of_case(evidence, row)) for row in rows]
    doubted = next((row for row, _ in judged[:1] if row[f"{boundary}_doubt"]), None)
    accepted = [(row, accuracy) for row, accuracy in judged if accuracy.acceptable and not row[f"{boundary}_doubt"]]
    if not accepted:
        return None
    row, accuracy = accepted[0]
    others = [name_of(other) for other, _ in accepted[1:]]
    failing = [other for other, result in judged if not result.acceptable]
    return Winner(
        row=row,
        boundary=boundary,
        fidelity=accuracy,
        speed_up=_speed_up(evidence, row),
        is_baseline=name_of(row) == evidence.baseline,
        rejected=next((other for other in failing if rows.index(other) < rows.index(row)), None),
        doubted=doubted,
        ties=_ties(evidence, row, others) if others else (),
    )


def _speed_up(evidence: Evidence, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row of the speed-ups of a case."""
    if not evidence.baseline:
        return NO_SPEED_UP
    frame = evidence.once(Evidence.speed_ups_by, evidence.boundary)
    for key in KEY:
        frame = frame[frame[key] == row[key]]
    return NO_SPEED_UP if frame.empty else rows_of(frame)[0]


def _ties(evidence: Evidence, row: Mapping[str, Any], others: list[str]) -> tuple[str, ...]:
    """Which of the other cases are not slower than `row` by a verdict."""
    frame = _beside(evidence.boundaries, row, evidence.boundary)
    names = frame["precision"] + "/" + frame["backend"] + "/" + frame["variant"]
    chosen = frame[names.isin([name_of(row), *others])]
    verdicts = rows_of(summary.speed_ups(chosen, name_of(row), by=evidence.boundary))
    latency = {name_of(case): case for case in rows_of(_beside(evidence.latency, row, evidence.boundary))}
    slowest = latency[name_of(row)]["max"]
    ties = (name_of(other) for other in verdicts if other["verdict"] in ("same", "undecided"))
    return tuple(name for name in ties if latency[name]["min"] < FAR * slowest)


def _beside(frame: pd.DataFrame, row: Mapping[str, Any], boundary: Boundary) -> pd.DataFrame:
    """What a frame has, by one boundary, of the cases at the row's machine, model and shape."""
    for key in summary.PEERS:
        frame = frame[frame[key] == row[key]]
    return frame[frame["boundary"] == boundary]
