"""Copies against the link that carries them: bytes, bandwidth, and the share of what the link was measured to do."""

from __future__ import annotations

from typing import Final, get_args

import pandas as pd

from inferprof.devices.bandwidth import floor_ns
from inferprof.documents import Bandwidth
from inferprof.documents.machine import Direction
from inferprof.tables.records import KEY
from inferprof.units import NS_PER_MS

_LINKS: Final[dict[str, Direction]] = {"HtoD": "h2d", "DtoH": "d2h"}
COLUMNS: Final = (
    *KEY,
    "tool",
    "direction",
    "host_memory",
    "copies",
    "bytes",
    "duration_ns",
    "gb_per_s",
    "link_gb_per_s",
    "link_share",
)


def against_link(frame: pd.DataFrame, bandwidth: Bandwidth | None) -> pd.DataFrame:
    """One row per profile, direction (HtoD, DtoH, DtoD, …) and host memory (pageable, pinned; missing: not told).

    frame: tidy tables of any cases. bandwidth: the machine's bandwidth.json, or None. `gb_per_s` = bytes / duration
    with GB = 10^9 bytes. `link_share` = gb_per_s / link_gb_per_s, where the link is what page-locked memory reached,
    for pageable copies too: their distance from it is what page-locking would gain. On the device each byte is
    read and written, so the memory's bandwidth counts it twice. Missing where the machine was not measured, and
    `bytes` with all that follows from them where the tool leaves out those of any of the copies.
    """
    rows = frame[frame["level"] == "memcpy"]
    named = rows["name"].str.split(" ", n=1, expand=True).reindex(columns=[0, 1])
    rows = rows.assign(direction=named[0], host_memory=named[1])
    keys = [*KEY, "tool", "direction", "host_memory"]
    sizes = rows[rows["metric"] == "bytes_total"].groupby(keys, dropna=False)
    times = rows[rows["metric"] == "duration_total"].groupby(keys, dropna=False)
    table = times.agg(copies=("instances", "sum"), duration_ns=("value", "sum"))
    sized = sizes.agg(bytes=("value", "sum"), sized=("instances", "sum"))
    table = table.join(sized).reset_index()
    table["bytes"] = table["bytes"].where((table["sized"] == table["copies"]).fillna(False))
    table["gb_per_s"] = table["bytes"] / table["duration_ns"].where(table["duration_ns"] > 0)
    table["link_gb_per_s"] = [_link(direction, bandwidth) for direction in table["direction"]]
    table["link_gb_per_s"] = table["link_gb_per_s"].astype("Float64")
    table["link_share"] = table["gb_per_s"] / table["link_gb_per_s"]
    return table[list(COLUMNS)]


def floors(stages: pd.DataFrame, traffic: pd.DataFrame, bandwidth: Bandwidth | None) -> pd.DataFrame:
    """One row per case whose inputs or outputs cross the link; for each direction D, h2d and d2h:

    `D_ms`, the stage's median; `D_bytes`; and `D_floor_ms`, the least that the link needs for so many bytes, as one
    copy of page-locked memory (devices.bandwidth.floor_ns). stages: join.stage_medians; traffic: records.traffic.
    Missing where it was not measured or not recorded.
    """
    directions = get_args(Direction)
    times, sizes = ([f"{direction}_{part}" for direction in directions] for part in ("ms", "bytes"))
    per_case = traffic.groupby(KEY, sort=False)[sizes].first().reset_index()
    table = stages[[*KEY, *times]].merge(per_case, on=KEY, how="left", validate="one_to_one")
    for direction, size in zip(directions, sizes, strict=True):
        table[f"{direction}_floor_ms"] = [_floor_ms(direction, nbytes, bandwidth) for nbytes in table[size]]
    numbers = dict.fromkeys(table.columns.drop(KEY), float)
    return table[table[times].notna().any(axis=1)].astype(numbers).reset_index(drop=True)


def _floor_ms(direction: Direction, nbytes: float, bandwidth: Bandwidth | None) -> float | None:
    if bandwidth is None or pd.isna(nbytes):
        return None
    return floor_ns(bandwidth, direction, int(nbytes)) / NS_PER_MS


def _link(direction: str, bandwidth: Bandwidth | None) -> float | None:
    """What a copy's bytes can reach, in GB/s."""
    if bandwidth is None:
        return None
    if direction == "DtoD":
        return None if bandwidth.d2d is None else bandwidth.d2d.gb_per_s / 2
    return bandwidth.link(_LINKS[direction]).pinned.gb_per_s if direction in _LINKS else None
