"""Named ranges for a profiler, and the window in which it collects."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Final

from inferprof.device import Device

CLOCK: Final = "clock"
"""Range around one look at the host's clock; what it showed is the name of the range behind it, `clock=<ns>`."""
LOOKS: Final = 10
"""Looks at the clock at one moment: the shortest range ties the clocks best."""


def nvtx_range(name: str) -> AbstractContextManager[Any]:
    """A push-pop range of this thread, which nsys and ncu show under `name`."""
    import nvtx

    annotation: AbstractContextManager[Any] = nvtx.annotate(name)
    return annotation


def mark_clock(named: Callable[[str], AbstractContextManager[Any]], now: Callable[[], int] = time.time_ns) -> None:
    """Tie the capture's clock to the host's CLOCK_REALTIME, so that what was written by the latter can be placed."""
    for _ in range(LOOKS):
        with named(CLOCK):
            shown = now()
        with named(f"{CLOCK}={shown}"):
            pass


@contextlib.contextmanager
def collected(device: Device) -> Iterator[None]:
    """The window that nsys' `--capture-range=cudaProfilerApi` and ncu's `--profile-from-start off` wait for."""
    if device.where == "cpu":
        yield
        return
    from cuda.bindings import driver

    driver.cuProfilerStart()
    try:
        yield
    finally:
        device.synchronize()
        driver.cuProfilerStop()
