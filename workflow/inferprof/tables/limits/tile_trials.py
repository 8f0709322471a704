"""Suggestions of tables.limits.tile_advice whose shape was measured too: whether they were right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from inferprof.tables.limits.tile_advice import SUGGESTION_COLUMNS
from inferprof.tables.records import frame_of, key_of, rows_of

if TYPE_CHECKING:
    import pandas as pd

Verdict = Literal["right", "more", "wrong", "undecided"]
"""right: half of the predicted gain or more is there, even at measured_low; more: more than twice of it is, so that
something else than tiles gained as well (launches that more images share); wrong: less than half, even at
measured_high; undecided: the intervals do not tell, or there is none, or no prediction."""
ENOUGH: Final = 0.5
MUCH: Final = 2.0
COLUMNS: Final = (*SUGGESTION_COLUMNS, "measured_gain", "measured_low", "measured_high", "verdict")


def tried(advice: pd.DataFrame, latency: pd.DataFrame) -> pd.DataFrame:
    """The suggestions whose shape was measured, with COLUMNS: what became of the device's time per item or token.

    measured_gain = 1 - (median / items)(then) / (median / items)(now); measured_low and measured_high from the ends
    of both medians' intervals. `verdict`: see Verdict.
    """
    device = latency[latency["boundary"].eq("device") & latency["not_measured"].isna()]
    medians = {key_of(row): row for row in rows_of(device)}
    rows = []
    for row in rows_of(advice[advice["suggested_shape"].notna()]):
        now = medians[key_of(row)]
        then = medians.get(key_of({**row, "shape": row["suggested_shape"]}))
        if then is not None:
            rows.append({**row, **_measured(row, now, then)})
    return frame_of(rows, list(COLUMNS))


def _measured(row: Mapping[str, Any], now: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, Any]:
    items = row["then"] / row["now"]
    bounded = None not in (now["low"], then["low"])
    low = 1 - then["high"] / now["low"] / items if bounded else None
    high = 1 - then["low"] / now["high"] / items if bounded else None
    return {
        "measured_gain": 1 - then["median"] / now["median"] / items,
        "measured_low": low,
        "measured_high": high,
        "verdict": _verdict(row["predicted_gain"], low, high),
    }


def _verdict(predicted: float | None, low: float | None, high: float | None) -> Verdict:
    if predicted is None or low is None or high is None:
        return "undecided"
    if low >= ENOUGH * predicted:
        return "more" if low > MUCH * predicted else "right"
    return "wrong" if high < ENOUGH * predicted else "undecided"
