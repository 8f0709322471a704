"""End-to-end iterations of a lane for a profiler to watch: warm-up, and each in named ranges."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

from inferprof.errors import CaseFailed
from inferprof.measure.lane import Lane

WARM_UPS: Final = 10
Named = Callable[[str], AbstractContextManager[Any]]
"""Opens a named range."""


def warm_up(lane: Lane, *, graph: bool) -> None:
    """Run until nothing is done for the first time, and capture the CUDA graph where one is asked for."""
    for _ in range(WARM_UPS):
        lane.begin()
        lane.finish()
    if graph:
        if not lane.session.capture_graph():
            raise CaseFailed("the runtime cannot capture this model as a CUDA graph")
        lane.begin()
        lane.finish()


def once(lane: Lane, named: Named) -> int:
    """One iteration; how long it took, ns."""
    start = time.perf_counter_ns()
    with named("iteration"):
        _pass(lane, named)
    return time.perf_counter_ns() - start


def _pass(lane: Lane, named: Named) -> None:
    """From host arrays to host arrays, with a range per stage and one wait, as end_to_end has it."""
    for stage, step in lane.steps.items():
        if stage == "extract":
            lane.device.synchronize()
        with named(f"stage:{stage}"):
            step()
