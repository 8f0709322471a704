"""The launch configurations in an export of Nsight Systems: which kernel ran with which grid and block, and how long.

They tell Nsight Compute which launches differ, and are what its durations are held against. Summed by SQLite, since
there are few of them however many launches there were.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pandas as pd

from inferprof.tables.records import frame_of
from inferprof.tables.schema import conform

TABLE: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
SIZES: Final = tuple(f"{what}{axis}" for what in ("grid", "block") for axis in "XYZ")
COLUMNS: Final = ("level", "name", "device", "launch", "instances", "metric", "value", "text")


def rows(path: Path, tool: str) -> pd.DataFrame:
    """Level launch_config: `launch` numbers them, the longest in total first; duration_* in ns over the capture.

    grid, block and, where the export has it, symbol as text.
    """
    with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as database:
        found = [row for number, config in enumerate(_configs(database)) for row in _rows(number, config)]
    return conform(frame_of(found, list(COLUMNS)), tool)


def _configs(database: sqlite3.Connection) -> list[tuple[Any, ...]]:
    """(name, symbol, device, six sizes, instances, total, least, most) per configuration."""
    known = {row[1] for row in database.execute(f"PRAGMA table_info({TABLE})")}
    if not set(SIZES) <= known:
        return []
    name = "demangledName" if "demangledName" in known else "shortName"
    symbol = "mangledName" if "mangledName" in known else "NULL"
    sizes = ", ".join(SIZES)
    return database.execute(
        f"""
        SELECT names.value, symbols.value, deviceId, {sizes}, instances, total, least, most FROM (
            SELECT {name} AS name, {symbol} AS symbol, deviceId, {sizes}, COUNT(*) AS instances,
                SUM(end - start) AS total, MIN(end - start) AS least, MAX(end - start) AS most
            FROM {TABLE} GROUP BY 1, 2, deviceId, {sizes}
        )
        LEFT JOIN StringIds AS names ON names.id = name LEFT JOIN StringIds AS symbols ON symbols.id = symbol
        WHERE names.value IS NOT NULL ORDER BY total DESC, names.value, {sizes}
        """
    ).fetchall()


def _rows(number: int, config: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    name, symbol, device, *sizes, instances, total, least, most = config
    place = {"level": "launch_config", "name": name, "device": device, "launch": number, "instances": instances}
    for metric, value in (("total", total), ("mean", total / instances), ("min", least), ("max", most)):
        yield {**place, "metric": f"duration_{metric}", "value": value}
    words = {"grid": ",".join(map(str, sizes[:3])), "block": ",".join(map(str, sizes[3:])), "symbol": symbol}
    for metric, text in words.items():
        if text is not None:
            yield {**place, "metric": metric, "text": text}
