"""The launch configurations in a Kineto trace, whose kernels say their grid and block. They have no mangled names."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from inferprof.readers.kineto_json import NOT_KINETO, OPERATIONS, Event, events, not_kineto, times
from inferprof.readers.launch_configs import LaunchConfig
from inferprof.tables.trace.timeline import KERNEL

SIZES: Final = ("grid", "block")


def read(path: Path) -> list[LaunchConfig]:
    """The launch configurations of all kernels; traces of AMD GPUs have none."""
    try:
        return _of(events(path))
    except NOT_KINETO as error:
        raise not_kineto(path, error) from None


def _of(trace: Iterable[Event]) -> list[LaunchConfig]:
    durations: dict[tuple[Any, ...], list[int]] = {}
    seen = set()
    for event in trace:
        details = event.get("args") or {}
        if OPERATIONS.get(event.get("cat", "")) == KERNEL and all(size in details for size in SIZES):
            start, end = times(event)
            sizes = (",".join(map(str, details[size])) for size in SIZES)
            config = (str(event["name"]), int(details.get("device", 0)), *sizes)
            launch = (config, start, end, details.get("stream"), details.get("correlation"))
            if launch not in seen:  # an event that is there twice counts once
                seen.add(launch)
                durations.setdefault(config, []).append(end - start)
    return [
        LaunchConfig(name, None, device, grid, block, len(spent), sum(spent), min(spent), max(spent))
        for (name, device, grid, block), spent in durations.items()
    ]
