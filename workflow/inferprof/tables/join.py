"""Joins what was planned, measured and compared into frames with one row per case. Keys, never positions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from inferprof.case import STAGES, Shape
from inferprof.plugins import BOUNDARIES
from inferprof.tables.records import KEY, frame_of, key_of, rows_of, sound

MODES = ("back_to_back", "pipelined")
NO_RECORD = "no record"
"""The reason of a case without any, which the end of its job's log tells better."""


def outcomes(cases: pd.DataFrame, records: pd.DataFrame) -> pd.DataFrame:
    """cases.csv with what became of each case: `outcome` is ok, failed, refused or broken; `reason` says why.

    Also `batch`, `rounds` (the records that are ok) and `files`. A case with a failed round is failed; one of which
    no record can be read is broken.
    """
    records_of = dict(iter(records.groupby(KEY, sort=False)))
    rows = [
        {**case, "batch": Shape.parse(case["shape"]).batch, **_outcome(case, records_of.get(key_of(case)))}
        for case in rows_of(cases)
    ]
    return frame_of(rows, [*KEY, "outcome", "reason", "batch", "rounds", "files"])


def measured(outcome: pd.DataFrame, latency: pd.DataFrame, throughput: pd.DataFrame) -> pd.DataFrame:
    """One row per case that is ok, as the plots want it; what wasn't measured is missing.

    For each boundary B: `B_ms`, `B_low_ms`, `B_high_ms`, `B_n`, `B_doubt` (gate.doubt); for each mode of throughput
    M: `M_items_per_s`, which is batch × inferences / seconds, the median over rounds.
    """
    frame = outcome[outcome["outcome"] == "ok"].reset_index(drop=True)
    for boundary in BOUNDARIES:
        part = latency[(latency["boundary"] == boundary) & latency["not_measured"].isna()]
        columns = {"median": f"{boundary}_ms", "low": f"{boundary}_low_ms", "high": f"{boundary}_high_ms"}
        said = {"n": f"{boundary}_n", "doubt": f"{boundary}_doubt"}
        part = part[[*KEY, *columns, *said]].rename(columns=columns | said)
        part = part.astype(dict.fromkeys(columns.values(), float))
        part[[*columns.values()]] /= 1e6
        frame = frame.merge(part, on=KEY, how="left", validate="one_to_one")
        doubt = frame[f"{boundary}_doubt"].astype(object)
        frame[f"{boundary}_doubt"] = doubt.where(doubt.notna(), None)  # what was not measured is in no doubt
    for mode in MODES:
        frame = frame.merge(_items(throughput, mode, outcome), on=KEY, how="left", validate="one_to_one")
    return frame


def stage_medians(stages: pd.DataFrame) -> pd.DataFrame:
    """One row per case: `{stage}_ms`, the median over the samples of all rounds; what wasn't measured is missing."""
    measured = stages[stages["not_measured"].isna()]

    def medians(case: pd.DataFrame) -> dict[str, float]:
        groups = case.groupby("stage")["samples"]
        return {f"{stage}_ms": float(np.median(np.concatenate(list(group)))) / 1e6 for stage, group in groups}

    rows = [{**dict(zip(KEY, key, strict=True)), **medians(case)} for key, case in measured.groupby(KEY, sort=False)]
    columns = [f"{stage}_ms" for stage in STAGES]
    return frame_of(rows, [*KEY, *columns]).astype(dict.fromkeys(columns, float))


def _items(throughput: pd.DataFrame, mode: str, outcome: pd.DataFrame) -> pd.DataFrame:
    """KEY and `{mode}_items_per_s`."""
    part = throughput[(throughput["mode"] == mode) & throughput["not_measured"].isna()]
    part = part.astype({"inferences_per_s": float})
    rate = part.groupby(KEY)["inferences_per_s"].median().reset_index()
    rate = rate.merge(outcome[[*KEY, "batch"]], on=KEY, validate="one_to_one")
    rate[f"{mode}_items_per_s"] = rate["inferences_per_s"] * rate["batch"].astype(float)
    return rate.drop(columns=["inferences_per_s", "batch"])


def _outcome(case: dict[str, Any], rounds: pd.DataFrame | None) -> dict[str, Any]:
    """What the records make of a planned case."""
    if case["outcome"] != "run":
        return {"rounds": 0, "files": []}
    if rounds is None:
        return {"outcome": "broken", "reason": NO_RECORD, "rounds": 0, "files": []}
    readable = sound(rounds)
    if readable.empty:
        return {
            "outcome": "broken",
            "reason": "; ".join(rounds["reason"]),
            "rounds": 0,
            "files": list(rounds["file"]),
        }
    failed = readable[readable["status"] != "ok"]
    facts: dict[str, Any] = {"rounds": len(readable) - len(failed), "files": list(readable["file"])}
    if failed.empty:
        return {"outcome": "ok", "reason": "", **facts}
    return {"outcome": "failed", "reason": failed["reason"].iloc[0] or "the record gives no reason", **facts}
