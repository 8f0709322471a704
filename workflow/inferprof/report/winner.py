"""Which case of a model is the fastest at each shape."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from inferprof.plugins import Boundary
from inferprof.report import fidelity
from inferprof.report.common import name_of
from inferprof.report.evidence import Evidence
from inferprof.report.fidelity import Fidelity
from inferprof.report.numbers import three_digits
from inferprof.tables import summary
from inferprof.tables.records import KEY, rows_of

if TYPE_CHECKING:
    import pandas as pd

FAR: Final = 2.0
"""Ours: where every sample of a case is so many times as slow as each of another, no interval is needed to tell the
two apart. A rented host varied in speed by 1.9."""
NO_SPEED_UP: Mapping[str, Any] = {"speed_up": None, "not_measured": "there is no baseline"}


@dataclass(frozen=True)
class Winner:
    """The fastest case of a model at a shape by one boundary, among those whose accuracy does not fail."""

    row: Mapping[str, Any]
    """The case's row of Evidence.measured."""
    boundary: Boundary
    fidelity: Fidelity
    speed_up: Mapping[str, Any]
    """The case's row of Evidence.speed_ups."""
    is_baseline: bool
    rejected: Mapping[str, Any] | None
    """The fastest case of all, where its accuracy fails."""
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
    def times(self) -> str:
        """`0.609 ms (end_to_end), 0.381 ms (device)`, the ranking boundary first."""
        names = [self.boundary, *(b for b in ("end_to_end", "device") if b != self.boundary)]
        times = [(name, self.row[f"{name}_ms"]) for name in names]
        return ", ".join(f"{three_digits(ms)} ms ({name})" for name, ms in times if not math.isnan(ms))

    @property
    def items_per_s(self) -> float:
        """Batch / median."""
        return float(self.row["batch"]) / self.median_ms * 1e3


def find(evidence: Evidence, model: str) -> list[Winner]:
    """The winners of a model, shape by shape.

    Where every case of the model has `device`, the cases are ranked by it. Where a CPU takes part, be it at one shape
    only, they are ranked by `end_to_end`, and the GPU cases among them once more by `device`: so shapes compare.
    """
    cases = evidence.measured[evidence.measured["model"] == model]
    on_gpu = len(cases) and cases["device_ms"].notna().all()
    boundaries: tuple[Boundary, ...] = ("device",) if on_gpu else ("end_to_end", "device")
    shapes = (shape for name, shape in evidence.order if name == model)
    winners = (_winner(evidence, cases[cases["shape"] == shape], by) for shape in shapes for by in boundaries)
    return [winner for winner in winners if winner]


def _winner(evidence: Evidence, cases: pd.DataFrame, boundary: Boundary) -> Winner | None:
    """The fastest acceptable case; None where none was measured."""
    column = f"{boundary}_ms"
    ranked = rows_of(cases[cases[column].notna()].sort_values(column, kind="stable"))
    judged = [(row, fidelity.of_case(evidence, row)) for row in ranked]
    accepted = [(row, result) for row, result in judged if result.acceptable]
    if not accepted:
        return None
    row, accuracy = accepted[0]
    others = [name_of(other) for other, _ in accepted[1:]]
    return Winner(
        row=row,
        boundary=boundary,
        fidelity=accuracy,
        speed_up=_speed_up(evidence, row),
        is_baseline=name_of(row) == evidence.baseline,
        rejected=ranked[0] if ranked[0] is not row else None,
        ties=_ties(evidence, row, boundary, others) if others else (),
    )


def _speed_up(evidence: Evidence, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row of speed_ups of a case."""
    frame = evidence.speed_ups
    for key in KEY:
        frame = frame[frame[key] == row[key]]
    return NO_SPEED_UP if frame.empty else rows_of(frame)[0]


def _ties(evidence: Evidence, row: Mapping[str, Any], boundary: Boundary, others: list[str]) -> tuple[str, ...]:
    """Which of the other cases are not slower than `row` by a verdict."""
    frame = _beside(evidence.boundaries, row, boundary)
    names = frame["precision"] + "/" + frame["backend"] + "/" + frame["variant"]
    verdicts = rows_of(summary.speed_ups(frame[names.isin([name_of(row), *others])], name_of(row)))
    latency = {name_of(case): case for case in rows_of(_beside(evidence.latency, row, boundary))}
    slowest = latency[name_of(row)]["max"]
    ties = (name_of(other) for other in verdicts if other["verdict"] in ("same", "undecided"))
    return tuple(name for name in ties if latency[name]["min"] < FAR * slowest)


def _beside(frame: pd.DataFrame, row: Mapping[str, Any], boundary: Boundary) -> pd.DataFrame:
    """What a frame has, by one boundary, of the cases at the row's machine, model and shape."""
    for key in summary.PEERS:
        frame = frame[frame[key] == row[key]]
    return frame[frame["boundary"] == boundary]
