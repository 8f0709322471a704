"""The launch configurations in a Kineto trace, whose kernels say their grid and block. They have no mangled names."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from inferprof.tables.trace.kineto_json import events, times
from inferprof.tables.trace.launch_configs import LaunchConfig

SIZES: Final = ("grid", "block")


def read(path: Path) -> list[LaunchConfig]:
    """The launch configurations of all kernels; traces of AMD GPUs have none."""
    durations: dict[tuple[Any, ...], list[int]] = {}
    for event in events(path):
        details = event.get("args", {})
        if event.get("cat") == "kernel" and all(size in details for size in SIZES):
            start, end = times(event)
            sizes = (",".join(map(str, details[size])) for size in SIZES)
            durations.setdefault((event["name"], int(details.get("device", 0)), *sizes), []).append(end - start)
    return [
        LaunchConfig(name, None, device, grid, block, len(spent), sum(spent), min(spent), max(spent))
        for (name, device, grid, block), spent in durations.items()
    ]
