"""Launch configurations as rows of the tidy table: which kernel ran with which grid and block, and how long.

They tell Nsight Compute which launches differ, and are what its durations are held against.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from inferprof.tables.records import frame_of
from inferprof.tables.schema import conform

COLUMNS: Final = ("level", "name", "device", "launch", "instances", "metric", "value", "text")


@dataclass(frozen=True)
class LaunchConfig:
    """All launches of one kernel with one grid and block (`x,y,z`) on one device; durations in ns.

    `symbol` is the mangled name, None where the capture has none.
    """

    name: str
    symbol: str | None
    device: int
    grid: str
    block: str
    instances: int
    total: int
    least: int
    most: int


def rows(configs: Iterable[LaunchConfig], tool: str) -> pd.DataFrame:
    """Level launch_config: `launch` numbers them, the longest in total first; duration_* in ns over the capture."""
    ordered = sorted(configs, key=lambda config: (-config.total, config.name, config.grid, config.block))
    found = [row for number, config in enumerate(ordered) for row in _rows(number, config)]
    return conform(frame_of(found, list(COLUMNS)), tool)


def _rows(number: int, config: LaunchConfig) -> Iterator[dict[str, Any]]:
    place = {
        "level": "launch_config",
        "name": config.name,
        "device": config.device,
        "launch": number,
        "instances": config.instances,
    }
    times = {"total": config.total, "mean": config.total / config.instances, "min": config.least, "max": config.most}
    for metric, value in times.items():
        yield {**place, "metric": f"duration_{metric}", "value": value}
    for metric, text in {"grid": config.grid, "block": config.block, "symbol": config.symbol}.items():
        if text is not None:
            yield {**place, "metric": metric, "text": text}
