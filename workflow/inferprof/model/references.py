"""What the outputs of fp32 themselves say against a verdict that is drawn from a comparison with them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from inferprof.documents.graph import BESIDE_VARIATION, NAN_IN_FP32
from inferprof.plugins import Tolerance

Array = np.ndarray[Any, Any]
LEAST_DB: Final = 10.0
"""Ours: an error of more than a tenth of the variance over samples hides what tells one sample from another. Of a
format whose tolerance fails from a lower SQNR on, it is that one."""
ROUNDING: Final = 1e-6
"""Ours: what varies less, of the size of the values, is float32's rounding, and the output a constant."""


def variation_db(expected: Array, actual: Array) -> float | None:
    """10 log10(Σ (expected − its mean over samples)² / Σ (expected − actual)²), of finite arrays, samples first.

    None where fp32 is the same for every sample, or has only one, and where there is no error.
    """
    varied = float(((expected - expected.mean(axis=0)) ** 2).sum())
    error = float(((expected - actual) ** 2).sum())
    if not error or not varied > ROUNDING**2 * float((expected**2).sum()):
        return None
    return 10 * math.log10(varied / error)


def cautioned(
    outcome: str,
    reason: str,
    expected: Mapping[str, Array],
    distances: Mapping[str, Mapping[str, Any]],
    tolerance: Tolerance,
) -> tuple[str, str]:
    """The outcome and reason of a comparison with these outputs: no plain pass where fp32 itself gives NaN, or where
    the error hides what the input changes.

    NaN is no result of any model. Infinite values may be one, as in a mask, so of these only the reason tells.
    """
    if outcome != "fail":
        outcome, reason = _beside_variation(outcome, reason, distances, min(LEAST_DB, tolerance.warns))
    nans = {name: int(np.isnan(array).sum()) for name, array in expected.items()}
    if skipped := sum(array.size - int(np.isfinite(array).sum()) for array in expected.values()):
        reason += f"; {skipped:,} values of fp32 are NaN or infinite, and not compared"
    if not any(nans.values()):
        return outcome, reason
    where = ", ".join(
        f"{count:,} of {expected[name].size:,} values of output {name}" for name, count in nans.items() if count
    )
    return "warn" if outcome == "pass" else outcome, f"{NAN_IN_FP32} in {where}: {reason}"


def _beside_variation(
    outcome: str, reason: str, distances: Mapping[str, Mapping[str, Any]], least_db: float
) -> tuple[str, str]:
    """SQNR counts what is the same for every sample as signal: a format that lost the rest may have a high one."""
    shares = {
        name: 10 ** (-decibels / 20)
        for name, distance in distances.items()
        if (decibels := distance["variation_db"]) is not None and decibels < least_db
    }
    if not shares:
        return outcome, reason
    where = ", ".join(
        f"{share:.0%} of the standard deviation over samples of output {name}" for name, share in shares.items()
    )
    return "warn", f"{BESIDE_VARIATION}, {where}: {reason}"
