"""The launch configurations in an export of Nsight Systems, summed by SQLite: few, however many the launches."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final

from inferprof.readers.launch_configs import LaunchConfig
from inferprof.readers.nsys_sqlite import ENDED, PROCESS, database_of

TABLE: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
SIZES: Final = tuple(f"{what}{axis}" for what in ("grid", "block") for axis in "XYZ")


def read(path: Path, processes: Collection[int] | None = None) -> list[LaunchConfig]:
    """The launch configurations of all kernels, or of those of some processes; none where the export has no kernels
    one by one."""
    with database_of(path) as database:
        known = {row[1] for row in database.execute(f"PRAGMA table_info({TABLE})")}
        if not set(SIZES) <= known:
            return []
        name = "demangledName" if "demangledName" in known else "shortName"
        symbol = "mangledName" if "mangledName" in known else "NULL"
        sizes = ", ".join(SIZES)
        mine = "" if processes is None else f" AND ({PROCESS}) IN ({', '.join(map(str, sorted(processes)))})"
        found = database.execute(
            f"""
            SELECT names.value, symbols.value, deviceId, {sizes}, instances, total, least, most FROM (
                SELECT {name} AS name, {symbol} AS symbol, deviceId, {sizes}, COUNT(*) AS instances,
                    SUM(end - start) AS total, MIN(end - start) AS least, MAX(end - start) AS most
                FROM (SELECT DISTINCT start, end, {name}, {symbol}, deviceId, {sizes}, streamId, correlationId
                    FROM {TABLE} WHERE {ENDED}{mine})
                GROUP BY 1, 2, deviceId, {sizes}
            )
            JOIN StringIds AS names ON names.id = name LEFT JOIN StringIds AS symbols ON symbols.id = symbol
            """
        ).fetchall()
    return [
        LaunchConfig(name, symbol, device, _size(sizes[:3]), _size(sizes[3:]), *times)
        for name, symbol, device, *rest in found
        for sizes, times in [(rest[:6], rest[6:])]
    ]


def _size(axes: list[int]) -> str:
    return ",".join(map(str, axes))
