"""Suggestions of tables.limits.tile_advice whose shape was measured too: whether they were right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import pandas as pd

from inferprof.tables.limits.tile_advice import SUGGESTION_COLUMNS
from inferprof.tables.records import frame_of, key_of, rows_of

Verdict = Literal["right", "more", "wrong", "undecided", "a caller loses"]
"""a caller loses: items take longer end to end, by measured intervals, whatever the device gains;
right: half of the predicted gain or more is there, even at measured_low; more: more than twice of it is, so that
something else than tiles gained as well (launches that more images share); wrong: less than half, even at
measured_high; undecided: the intervals do not tell, or there is none, or no prediction."""
ENOUGH: Final = 0.5
MUCH: Final = 2.0
MEASURED: Final = ("gain", "low", "high")
COLUMNS: Final = (
    *SUGGESTION_COLUMNS,
    *(f"measured_{part}" for part in MEASURED),
    *(f"caller_{part}" for part in MEASURED),
    "verdict",
)


def tried(advice: pd.DataFrame, latency: pd.DataFrame) -> pd.DataFrame:
    """The suggestions whose shape was measured, with COLUMNS: what became of the device's time per item or token.

    measured_gain = 1 - (median / items)(then) / (median / items)(now) by device; measured_low and measured_high from
    the ends of both medians' intervals; caller_…: the same by end_to_end. `verdict`: see Verdict.
    """
    medians = {(*key_of(row), row["boundary"]): row for row in rows_of(latency[latency["not_measured"].isna()])}
    rows = []
    for row in rows_of(advice[advice["suggested_shape"].notna()]):
        other = key_of({**row, "shape": row["suggested_shape"]})
        device, caller = (
            _gains(row, medians.get((*key_of(row), boundary)), medians.get((*other, boundary)))
            for boundary in ("device", "end_to_end")
        )
        if device["gain"] is not None:
            measured = {
                f"{whose}_{part}": gains[part]
                for whose, gains in (("measured", device), ("caller", caller))
                for part in MEASURED
            }
            rows.append({**row, **measured, "verdict": _verdict(row["predicted_gain"], device, caller)})
    return frame_of(rows, list(COLUMNS))


def _gains(
    row: Mapping[str, Any], now: Mapping[str, Any] | None, then: Mapping[str, Any] | None
) -> dict[str, float | None]:
    """What an item's time lost by one boundary: the gain, and its ends where both medians have an interval."""
    if now is None or then is None:
        return dict.fromkeys(MEASURED)
    items = row["then"] / row["now"]
    bounded = None not in (now["low"], then["low"]) and now["doubt"] is None and then["doubt"] is None
    return {
        "gain": 1 - then["median"] / now["median"] / items,
        "low": 1 - then["high"] / now["low"] / items if bounded else None,
        "high": 1 - then["low"] / now["high"] / items if bounded else None,
    }


def _verdict(
    predicted: float | None, device: Mapping[str, float | None], caller: Mapping[str, float | None]
) -> Verdict:
    low, high = device["low"], device["high"]
    if caller["high"] is not None and caller["high"] < 0:
        return "a caller loses"
    if predicted is None or low is None or high is None:
        return "undecided"
    if low >= ENOUGH * predicted:
        return "more" if low > MUCH * predicted else "right"
    return "wrong" if high < ENOUGH * predicted else "undecided"
