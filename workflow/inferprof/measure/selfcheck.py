"""What every run checks of itself: a number that fails one of these is no measurement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from inferprof.documents.record import SelfCheck
from inferprof.measure.lane import POISON, Lane

POISON_RUNS = 3
REPEATABILITY = 3e-2
"""Largest difference between two runs on the same inputs, relative to the largest output. Kernels that add in no
fixed order (atomics, split-K) differ in the last bits of a half-precision result (2**-11 = 5e-4), a chain of them in
more: 4e-3 after eight products, each of 32 such additions (GemLite on an H200), 1.2e-2 in bfloat16 (2**-8) after 16
layers at 64 sequences (torch on an H200). A result that is not there differs by its own size."""
CLOCK_RESOLUTION_NS = 1_000
"""Two events resolve 0.5 µs each (CUDA driver API, cuEventElapsedTime)."""

Arrays = Mapping[str, "np.ndarray[Any, Any]"]


def outputs_finite(outputs: Arrays) -> SelfCheck:
    """No output holds NaN or infinity."""
    bad = {name: int((~_finite(array)).sum()) for name, array in outputs.items()}
    words = [
        f"{name}: {count} of {outputs[name].size} values are NaN or infinite" for name, count in bad.items() if count
    ]
    return SelfCheck(not words, "; ".join(words) or f"{len(bad)} outputs")


def outputs_overwritten(lane: Lane) -> SelfCheck:
    """A run overwrites poisoned outputs with the same values, and they are there once the stream is synchronised.

    Catches a run that computes nothing, outputs that are never copied, and a backend that works on another stream or
    thread than the one that is waited for: its clock would stop too early.
    """
    lane.begin()
    expected = lane.finish()
    worst = 0.0
    for _ in range(POISON_RUNS):
        lane.poison()
        lane.begin()
        for name, array in lane.finish().items():
            if fault := _fault(array, expected[name]):
                return SelfCheck(False, f"output {name} {fault} after a synchronised run")
            worst = max(worst, _difference(array, expected[name]))
    if worst > REPEATABILITY:
        return SelfCheck(False, f"two runs on the same inputs differ by {worst:.2g} of the largest output")
    same = "bit for bit the same" if worst == 0 else f"not bit for bit the same: {worst:.2g} of the largest output"
    return SelfCheck(True, f"{POISON_RUNS} runs, {same}")


def call_not_below_device(call_ns: float, device_ns: float) -> SelfCheck:
    """A synchronised host call cannot take less time than the device's work in it.

    Both are medians in ns over the same inferences: between two loops the host's speed may move by several percent,
    and with it the time of a case that waits for its launches.
    """
    detail = f"call {call_ns / 1e3:.1f} µs, device {device_ns / 1e3:.1f} µs"
    return SelfCheck(call_ns >= device_ns - CLOCK_RESOLUTION_NS, detail)


def _finite(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Which elements are finite; integers, booleans and texts always are."""
    if array.dtype.kind in "biuSUO":
        return np.ones(array.shape, bool)
    finite: np.ndarray[Any, Any] = np.isfinite(array if array.dtype.kind in "fc" else array.astype(np.float64))
    return finite


def _fault(array: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> str | None:
    """What is wrong with an output in comparison to the expected one, beside rounding."""
    if array.shape != expected.shape:
        return f"has shape {array.shape} instead of {expected.shape}"
    left = _poisoned(array) & ~_poisoned(expected)
    if left.any():
        return f"still holds the poison in {int(left.sum())} of {array.size} values"
    return None


def _poisoned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Which elements consist of poison only."""
    as_bytes = np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(array.size, array.dtype.itemsize)
    poisoned: np.ndarray[Any, Any] = (as_bytes == POISON).all(axis=1)
    return poisoned


def _difference(array: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> float:
    """The largest difference, relative to the largest expected magnitude; 0 for the same bytes (NaN included)."""
    if array.tobytes() == expected.tobytes():
        return 0.0
    a, b = array.astype(np.float64), expected.astype(np.float64)
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return float("inf")
    scale = float(np.nanmax(np.abs(b), where=np.isfinite(b), initial=0.0)) or 1.0
    return float(np.nanmax(np.abs(a - b), where=np.isfinite(b), initial=0.0)) / scale
