"""Outputs that are no result at all, whatever their distance from fp32's."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def of(expected: Array, actual: Array) -> str | None:
    """Why an output is no result at all (another shape, NaN, overflow, constant), or None."""
    if (why := without_numbers(expected, actual)) or not actual.size:
        return why
    expected, actual = np.atleast_1d(expected), np.atleast_1d(actual)
    if np.ptp(actual.astype(np.float64)) == 0 and np.ptp(expected.astype(np.float64)) > 0:
        return f"constant: every value is {actual.flat[0]:g}"
    if len(actual) > 1 and (actual == actual[0]).all() and not (expected == expected[0]).all():
        return "constant: the same for every sample"
    return None


def without_numbers(expected: Array, actual: Array) -> str | None:
    """Why an output has another shape, or no numbers where fp32 has some; None where it has as many."""
    if actual.shape != expected.shape:
        return f"shape {list(actual.shape)}, not {list(expected.shape)}"
    if not actual.size:
        return None
    if not (was_finite := np.isfinite(expected)).any():
        return "fp32 itself gives no finite value"
    if np.isnan(actual).all():
        return "all NaN"
    if nans := int((np.isnan(actual) & ~np.isnan(expected)).sum()):
        return f"NaN in {nans} of {actual.size} values"
    if overflows := int((np.isinf(actual) & was_finite).sum()):
        return f"overflow: infinite in {overflows} of {actual.size} values"
    return None
