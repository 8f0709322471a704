"""How good the predicted gains are: what a check said, against what the study measured when its fix was tried."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any, Final, Literal

from inferprof.findings import Answer, Gain, Tried
from inferprof.grouping import grouped

Judged = Literal["as predicted", "less", "more", "undecided"]
Bounds = tuple[float, float]
FILE: Final = "calibration.csv"
COLUMNS: Final = ("study", "case", "fix", "check", "low_ns", "high_ns", "saved_ns", "saved_low_ns", "saved_high_ns")
"""Of FILE: a row per check and try that is in no doubt, written by benchmarks/calibration.py."""


def predicted(answers: Iterable[Answer], check: str) -> Bounds | str:
    """The bounds of the gain that a check's findings give together, ns, also where it was clear; or why none.

    Where a variant comes to less than a caller could, its own bounds are in the evidence.
    """
    answer = next((candidate for candidate in answers if candidate.check == check), None)
    if answer is None:
        return f"{check} was not asked"
    if answer.verdict == "clear" and answer.gain:
        return answer.gain.low_ns, answer.gain.high_ns
    if answer.verdict != "found":
        return f"{check} was {answer.verdict}: {answer.reason}"
    gains = [_of_variant(finding.evidence, finding.gain) for finding in answer.findings if finding.gain]
    if not gains:
        return f"{check} gave no bounds of the gain"
    return sum(low for low, _ in gains), sum(high for _, high in gains)


def _of_variant(evidence: Mapping[str, float], gain: Gain) -> Bounds:
    return evidence.get("variant_low_ns", gain.low_ns), evidence.get("variant_high_ns", gain.high_ns)


def judged(bounds: Bounds, tried: Tried) -> Judged:
    """Where the interval of what was achieved lies; undecided where it is none, in doubt, or beyond both bounds."""
    low, high = tried.low_ns, tried.high_ns
    if low is None or high is None or tried.in_doubt or (low < bounds[0] and high > bounds[1]):
        return "undecided"
    if high < bounds[0]:
        return "less"
    return "more" if low > bounds[1] else "as predicted"


def published() -> list[dict[str, Any]]:
    """Per check: the tries of the reference studies, how many came out inside the bounds, and how wide these were."""
    text = (files("inferprof.diagnosis") / FILE).read_text(encoding="utf-8")
    return summary(list(csv.DictReader(text.splitlines())))


def summary(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The same of rows of COLUMNS, the check with the most tries first."""
    by_check = grouped((row["check"], row) for row in rows)
    ranked = sorted(by_check.items(), key=lambda item: (-len(item[1]), item[0]))
    return [
        {
            "check": check,
            "tries": len(own),
            "inside": sum(float(row["low_ns"]) <= float(row["saved_ns"]) <= float(row["high_ns"]) for row in own),
            "width": _width([(float(row["low_ns"]), float(row["high_ns"])) for row in own]),
        }
        for check, own in ranked
    ]


def _width(bounds: Sequence[Bounds]) -> float | None:
    """The median of upper over lower end; None where the middle one has a lower end of no gain."""
    width = statistics.median(high / low if low > 0 else float("inf") for low, high in bounds)
    return None if width == float("inf") else width
