"""Samples to statements: the latency of each case at each boundary, and its speed-up over the baseline."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from inferprof import stats
from inferprof.plugins import Boundary
from inferprof.tables.records import KEY, frame_of, rows_of

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

PEERS = ["machine", "model", "shape"]
"""What a case and its baseline have in common."""
LATENCY_COLUMNS = [
    *(field.name for field in dataclasses.fields(stats.Summary)),
    "low",
    "high",
    "rounds",
    "stopped_by",
    "settled",
    "drift",
    "not_measured",
]
SPEED_UP_COLUMNS = [
    "boundary",
    "speed_up",
    "low",
    "high",
    "detectable",
    "rounds",
    "verdict",
    "reason",
    "not_measured",
]
Rounds = Mapping[int, "np.ndarray[Any, Any]"]
"""Round → samples in ns."""


def latency(boundaries: pd.DataFrame) -> pd.DataFrame:
    """One row per case and boundary: stats.Summary of the samples of all rounds, in ns.

    `low` and `high` are the 95 % interval of the median; `stopped_by` and `settled` name each distinct answer of
    the rounds; `drift` is the largest relative change within a round where one was found. `not_measured` has the
    reason where no round has samples.
    """
    rows = [
        {**dict(zip([*KEY, "boundary"], key, strict=True)), **_latency(group)}
        for key, group in boundaries.groupby([*KEY, "boundary"], sort=False)
    ]
    return frame_of(rows, [*KEY, "boundary", *LATENCY_COLUMNS])


def speed_ups(boundaries: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """One row per case: time of the baseline / time of the case, with its 95 % interval, paired by round.

    `baseline` is `precision/backend/variant`; each case is compared with that of its own model and shape. `boundary`
    is `device` where both have one, so GPU against GPU, and else `end_to_end`. `verdict` is about the case.
    `not_measured` says why there is no speed-up. The baseline itself has no row.
    """
    samples = {key: _rounds(group) for key, group in boundaries.groupby([*KEY, "boundary"], sort=False)}
    cases = boundaries[KEY].drop_duplicates()
    named = cases["precision"] + "/" + cases["backend"] + "/" + cases["variant"] == baseline
    peers = {tuple(case[peer] for peer in PEERS): case for case in rows_of(cases[named])}
    rows = []
    for case in rows_of(cases[~named]):
        reference = peers.get(tuple(case[peer] for peer in PEERS))
        rows.append({**case, **_speed_up(samples, case, reference, baseline)})
    return frame_of(rows, [*KEY, *SPEED_UP_COLUMNS])


def compared_by(a: Mapping[str, Rounds], b: Mapping[str, Rounds]) -> Boundary:
    """The boundary that two cases are compared by: `device` on two GPUs, `end_to_end` where a CPU takes part."""
    return "device" if a.get("device") and b.get("device") else "end_to_end"


def _latency(rounds: pd.DataFrame) -> dict[str, Any]:
    import numpy as np

    measured = rounds[rounds["not_measured"].isna()]
    if measured.empty:
        return {"not_measured": "; ".join(dict.fromkeys(rounds["not_measured"])), "rounds": 0}
    summary = stats.summarize(np.concatenate(list(measured["samples"])))
    low, high = summary.interval or (None, None)
    drifts = [found.change for samples in measured["samples"] if (found := stats.drift(samples)) and found.found]
    return {
        **dataclasses.asdict(summary),
        "low": low,
        "high": high,
        "rounds": len(measured),
        "stopped_by": ", ".join(sorted({str(how) for how in measured["stopped_by"]})),
        "settled": bool(all(measured["settled"])),
        "drift": max(drifts, key=abs, default=None),
    }


def _rounds(group: pd.DataFrame) -> Rounds:
    return {row["round"]: row["samples"] for row in rows_of(group) if row["not_measured"] is None}


def _speed_up(
    samples: Mapping[tuple[Any, ...], Rounds], case: dict[str, Any], reference: dict[str, Any] | None, baseline: str
) -> dict[str, Any]:
    if reference is None:
        return {"not_measured": f"the baseline {baseline} was not measured for this model and shape"}
    of = [
        {b: samples.get((*(c[k] for k in KEY), b), {}) for b in ("device", "end_to_end")} for c in (reference, case)
    ]
    boundary = compared_by(*of)
    base, this = (by_boundary[boundary] for by_boundary in of)
    common = sorted(set(base) & set(this))
    if not common:
        return {"boundary": boundary, "not_measured": f"no round has {boundary} for both this case and the baseline"}
    ratio = stats.ratio([base[r] for r in common], [this[r] for r in common])
    bounded = math.isfinite(ratio.high) and ratio.low > 0
    return {
        "boundary": boundary,
        "speed_up": 1 / ratio.estimate,
        "low": 1 / ratio.high if bounded else None,
        "high": 1 / ratio.low if bounded else None,
        "detectable": ratio.detectable if math.isfinite(ratio.detectable) else None,
        "rounds": ratio.rounds,
        "verdict": ratio.verdict,
        "reason": ratio.reason,
    }
