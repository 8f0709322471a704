"""Launch configurations as rows of the tidy table: which kernel ran with which grid and block, and how long.

They tell Nsight Compute which launches differ, and are what its durations are held against.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pandas as pd

from inferprof.tables.records import frame_of
from inferprof.tables.schema import conform
from inferprof.tables.trace.aggregate import durations, grouped
from inferprof.tables.trace.timeline import NOT_TOLD, Timeline

COLUMNS: Final = ("level", "name", "device", "launch", "instances", "metric", "value", "text")


def rows(timeline: Timeline, tool: str) -> pd.DataFrame:
    """Level launch_config: a kernel with one grid and block (`x,y,z`) on one device; duration_* in ns.

    `launch` numbers them, the longest in total first. No rows where the capture tells no grids.
    """
    records = [row for number, config in enumerate(_configs(timeline)) for row in _rows(number, config)]
    return conform(frame_of(records, list(COLUMNS)), tool)


def _configs(timeline: Timeline) -> list[dict[str, Any]]:
    ops = timeline.ops
    if "launched" not in ops:
        return []
    launched = ops["launched"].to_numpy() != NOT_TOLD
    group, keys = grouped({key: ops[key].to_numpy()[launched] for key in ("name", "launched", "device")})
    summed = keys.join(durations(group, (ops["end"] - ops["start"]).to_numpy()[launched]))
    configs = [
        {**row, "name": timeline.names[row["name"]], **vars(timeline.launches[row["launched"]])}
        for row in summed.to_dict("records")
    ]
    return sorted(
        configs, key=lambda config: (-config["duration_total"], config["name"], config["grid"], config["block"])
    )


def _rows(number: int, config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    place = {
        "level": "launch_config",
        "name": config["name"],
        "device": config["device"],
        "launch": number,
        "instances": config["instances"],
    }
    times = {
        "total": config["duration_total"],
        "mean": config["duration_mean"],
        "min": config["duration_min"],
        "max": config["duration_max"],
    }
    for metric, value in times.items():
        yield {**place, "metric": f"duration_{metric}", "value": value}
    for metric in ("grid", "block", "symbol"):
        if (text := config[metric]) is not None:
            yield {**place, "metric": metric, "text": text}
