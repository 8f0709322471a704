"""What of an iteration, a run or a capture the time goes to, in parts that add up to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from inferprof.explain.foreign import Foreign
from inferprof.tables.limits import waterfall
from inferprof.tables.trace import derived
from inferprof.tables.trace.idle import IDLE_CAUSES, STARTING
from inferprof.tables.trace.kernel_compare import ITERATION

IDLE_WORDS: Final[Mapping[str, str]] = {
    "launch": "waiting for the host's launches",
    "sync": "waiting while the host synchronises",
    "copy": "waiting for copy calls",
    "queued": "idle after the launch",
    "end": "idle at the end",
    "unknown": "waiting, for what is not told",
    "other_process": "computing for another process",
}


def parts_of(foreign: Foreign) -> tuple[str, float, dict[str, float]] | None:
    """Of what, how long it is in ns, and its parts, which add up to it."""
    range_rows = waterfall.of_ranges(foreign.frames.timeline) if foreign.frames.tool else {}
    if ITERATION in range_rows:
        whole_and_parts = _of_range(range_rows[ITERATION])
        return ("an iteration under a profiler", *whole_and_parts) if whole_and_parts else None
    if foreign.choice is not None:
        return _of_capture(foreign)
    capture = next((capture for capture in foreign.captures if capture.parts), None)
    if capture is None:
        return None
    whole = sum(capture.parts.values())
    total = capture.total or foreign.total
    return (total.of if total else "a run"), whole, dict(capture.parts)


def _of_capture(foreign: Foreign) -> tuple[str, float, dict[str, float]] | None:
    """Of the whole capture, on the device that was busiest."""
    rows = foreign.rows
    own = rows[rows["level"].eq("run") & rows["name"].eq(derived.WHOLE_CAPTURE) & rows["value"].notna()]
    busy = own[own["metric"].eq("kernel_busy")].sort_values("value")
    if busy.empty:
        return None
    device = busy["device"].iloc[-1]
    busiest = own[own["device"].eq(device)]
    values = dict(zip(map(str, busiest["metric"]), busiest["value"].astype(float), strict=True))
    whole_and_parts = _of_range(values)
    return ("the whole capture", *whole_and_parts) if whole_and_parts else None


def _of_range(values: Mapping[str, float]) -> tuple[float, dict[str, float]] | None:
    if "gpu_busy" not in values:
        return None
    idle = {cause: values.get(f"idle_{cause}", 0.0) for cause in (*IDLE_CAUSES, "other_process")}
    starting = values.get(STARTING, 0.0)  # behind the launching call's return, so that it is the host's no more
    idle |= {"launch": idle["launch"] - starting, "queued": idle["queued"] + starting}
    parts = {
        "kernels": values["kernel_busy"],
        "copies": values["gpu_busy"] - values["kernel_busy"],
        **{IDLE_WORDS[cause]: ns for cause, ns in idle.items()},
    }
    return sum(parts.values()), parts
