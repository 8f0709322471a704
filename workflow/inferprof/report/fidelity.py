"""The accuracy of a number format of a model, as the sections quote it, and the standing of cases by it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from inferprof.case import REFERENCE
from inferprof.documents import Accuracy
from inferprof.documents.graph import BESIDE_VARIATION, NAN_IN_FP32, NOT_IN
from inferprof.report.documents import TORCH_ALONE, Document
from inferprof.report.evidence import Evidence
from inferprof.report.model import Mark
from inferprof.report.numbers import three_digits
from inferprof.tables.limits import pareto
from inferprof.tables.records import KEY, rows_of

RANDOM_WEIGHTS = "numerical fidelity only (random weights)"
NO_REFERENCE = "{} and there is no reference"


@dataclass(frozen=True)
class Fidelity:
    """The worst output's distance from fp32. An SQNR of None beside an outcome means: identical, or no number."""

    outcome: Literal["pass", "warn", "fail", "reference", "not measured"]
    reason: str
    sqnr_db: float | None = None
    cosine: float | None = None
    """The smallest cosine over samples and outputs."""
    max_abs_error: float | None = None
    pretrained: bool | None = None
    random_inputs: tuple[str, ...] = ()

    @property
    def mark(self) -> Mark | None:
        """The outcome as a mark; None where nothing was to be judged."""
        return self.outcome if self.outcome in ("pass", "warn", "fail") else None

    @property
    def acceptable(self) -> bool:
        """Whether a case may be recommended: not where its accuracy is known to fail."""
        return self.outcome != "fail"

    @property
    def identical(self) -> bool:
        """Whether the outputs equal those of fp32 to the bit."""
        return self.max_abs_error == 0

    @property
    def sentence(self) -> str:
        """`SQNR 62.1 dB, cosine 0.999999, pass; numerical fidelity only (random weights)`."""
        if self.outcome in ("reference", "not measured"):
            return f"{self.outcome}: {self.reason}"
        numbers = [self.sqnr, f"cosine {cosine_text(self.cosine)}" if self.cosine is not None else ""]
        text = ", ".join([*(part for part in numbers if part), self.outcome])
        text = (
            f"{text} ({self.reason})"
            if self.outcome == "fail" or self.reason.startswith((NOT_IN, NAN_IN_FP32, BESIDE_VARIATION))
            else text
        )
        if self.pretrained is False:
            return f"{text}; {RANDOM_WEIGHTS}"
        return f"{text}; by random inputs: name yours with `data:`" if self.random_inputs else text

    @property
    def sqnr(self) -> str:
        """`SQNR 62.1 dB`, `identical to fp32`, or nothing where there is no number."""
        if self.identical:
            return "identical to fp32"
        return "" if self.sqnr_db is None else f"SQNR {three_digits(self.sqnr_db)} dB"


def of(evidence: Evidence, model: str, precision: str) -> Fidelity:
    """What the accuracy run of a model in a number format found."""
    return read(evidence.documents[model, precision, "accuracy"], precision)


def of_case(evidence: Evidence, row: Mapping[str, Any]) -> Fidelity:
    """The accuracy of the graph of a case of Evidence.measured; of weights that torch quantizes there is none."""
    if row["variant"] in evidence.quantized:
        return Fidelity("not measured", quantized(row["variant"]))
    return of(evidence, row["model"], row["precision"])


def quantized(variants: str) -> str:
    """Why the accuracy of variants whose weights torch quantizes is not measured."""
    return NO_REFERENCE.format(TORCH_ALONE.format(f"{variants}, whose weights it quantizes"))


def read(document: Document[Accuracy], precision: str) -> Fidelity:
    """The content of .accuracy.json; fp32 needs none, since it is the reference."""
    content = document.content
    if content is None:
        if document.why:
            return Fidelity("not measured", NO_REFERENCE.format(document.why))
        if precision == REFERENCE:
            return Fidelity("reference", "what the others are compared with")
        return Fidelity("not measured", document.lacking)
    outputs = (content.outputs or {}).values()
    errors = [output.max_abs_error for output in outputs]
    largest = max(_known(errors), default=None)
    return Fidelity(
        outcome=content.outcome or "not measured",
        reason=content.reason or "",
        sqnr_db=min(_known(output.sqnr_db for output in outputs), default=None),
        cosine=min(_known(output.cosine_min for output in outputs), default=None),
        max_abs_error=None if None in errors else largest,
        pretrained=content.pretrained,
        random_inputs=tuple(content.random_inputs or ()),
    )


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def cosine_text(value: float) -> str:
    """Six decimals, and never rounded up to 1."""
    return "1" if value == 1 else f"{min(value, 0.999999):.6f}"


def standings(evidence: Evidence) -> pd.DataFrame:
    """tables.join.measured of these cases with `sqnr_db`, `identical`, `accuracy`, and tables.limits.pareto.

    fp32 is what the others are compared with, and so identical.
    """
    frame = evidence.measured
    fidelities = [of_case(evidence, row) for row in rows_of(frame)]
    frame = frame.assign(
        sqnr_db=[math.nan if result.sqnr_db is None else result.sqnr_db for result in fidelities],
        identical=[result.identical or result.outcome == "reference" for result in fidelities],
        accuracy=[result.outcome for result in fidelities],
    )
    frame = frame[(frame["sqnr_db"].notna() | frame["identical"]) & frame[f"{pareto.BOUNDARY}_ms"].notna()]
    points = frame.assign(db=frame["sqnr_db"].where(~frame["identical"].astype(bool), math.inf))
    table = pareto.of_cases(points, evidence.boundaries, evidence.doubts)
    return frame.merge(table, on=KEY, how="left", validate="one_to_one")
