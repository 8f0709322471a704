"""What every join of kernels with layers, operators or modules returns, and the share of time that it explains.

A join is a frame with the columns COLUMNS: each launch, or each group of launches with the same owner, is in it once
per `owner_level`. A launch that belongs to nobody at that level has a missing `owner` and a missing `confidence`: it
is counted as unattributed and never spread over others. A join may carry further columns behind these.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

import pandas as pd

OwnerLevel = Literal["layer", "op", "module"]
"""layer: of an engine; op: a node of the ONNX graph or an operator of torch; module: of torch."""
COLUMNS: Final[dict[str, str]] = {
    "kernel": "str",
    "duration_ns": "int64",
    "instances": "int64",
    "owner": "str",
    "owner_level": "str",
    "confidence": "float64",
}
"""Column → dtype. `duration_ns` is the sum over `instances` launches. `confidence` is 1 where a tool ties the launch
to its owner (a range, a correlation id), and less where names, order or kinds of work suggest it."""
_NAMES: Final = {"name": "kernel", "value": "duration_ns"}
_SHARES: Final = ("total_ns", "attributed_ns", "unattributed_ns", "attributed_share", "unattributed_share")


def conform(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with COLUMNS first and typed. Raises ValueError where it contradicts itself: a bug of the join."""
    unknown = set(frame["owner_level"]) - set(get_args(OwnerLevel))
    if unknown:
        raise ValueError(f"unknown owner levels {unknown}")
    if not frame["confidence"].dropna().between(0, 1).all():
        raise ValueError("a confidence is not between 0 and 1")
    if (frame["owner"].isna() != frame["confidence"].isna()).any():
        raise ValueError("an owner without a confidence, or the other way round")
    further = [column for column in frame if column not in COLUMNS]
    return frame[[*COLUMNS, *further]].astype(COLUMNS).reset_index(drop=True)


def launched(frame: pd.DataFrame) -> pd.DataFrame:
    """kernel, owner, duration_ns and instances of the kernels of a case that a join watched, all ranges together."""
    rows = frame[(frame["level"] == "kernel") & (frame["metric"] == "duration_total")]
    keys = ["name", "device", "stream", "owner"]
    summed = rows.groupby(keys, sort=False, dropna=False, observed=True)[["value", "instances"]].sum()
    return summed.reset_index().rename(columns=_NAMES)[[*_NAMES.values(), "owner", "instances"]]


def shares(frame: pd.DataFrame, at_least: float = 0.0) -> pd.DataFrame:
    """Per owner_level (the index): total_ns, attributed_ns, unattributed_ns, attributed_share, unattributed_share.

    Attributed is what has an owner with a confidence of `at_least` or more. Shares are of the level's kernel time;
    missing where that is 0.
    """
    sure = frame["owner"].notna() & (frame["confidence"] >= at_least)
    attributed = frame["duration_ns"].where(sure, 0)
    table = frame.assign(attributed_ns=attributed).groupby("owner_level", sort=False)
    summed = table.agg(total_ns=("duration_ns", "sum"), attributed_ns=("attributed_ns", "sum"))
    summed["unattributed_ns"] = summed["total_ns"] - summed["attributed_ns"]
    time = summed["total_ns"].where(summed["total_ns"] > 0)
    summed["attributed_share"] = summed["attributed_ns"] / time
    summed["unattributed_share"] = summed["unattributed_ns"] / time
    return summed[list(_SHARES)]


def by_owner(frame: pd.DataFrame, level: OwnerLevel, at_least: float = 0.0) -> pd.DataFrame:
    """Of one level, a row per owner, longest first: owner, duration_ns, instances, share of all of the level's time.

    The row of what is unattributed, where there is any, has a missing owner.
    """
    rows = frame[frame["owner_level"] == level]
    owner = rows["owner"].where(rows["confidence"] >= at_least)
    table = rows.assign(owner=owner).groupby("owner", sort=False, dropna=False)
    summed = table.agg(duration_ns=("duration_ns", "sum"), instances=("instances", "sum")).reset_index()
    summed["share"] = summed["duration_ns"] / summed["duration_ns"].sum()
    return summed.sort_values("duration_ns", ascending=False, kind="stable", ignore_index=True)
