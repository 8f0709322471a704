"""Named ranges for a profiler, and the window in which it collects."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from inferprof.plugins import Device


def nvtx_range(name: str) -> AbstractContextManager[Any]:
    """A push-pop range of this thread, which nsys and ncu show under `name`."""
    import nvtx

    annotation: AbstractContextManager[Any] = nvtx.annotate(name)
    return annotation


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
