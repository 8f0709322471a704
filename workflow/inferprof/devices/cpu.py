"""The CPU as a device: host memory, copies that are done at once, no clock of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from inferprof.device import Buffer, Where


class CpuDevice:
    """Implements device.Device."""

    where: Where = "cpu"
    stream: int | None = None

    def allocate(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Buffer:
        """Host memory."""
        array = np.empty(tuple(shape), dtype)
        return Buffer("cpu", array.ctypes.data, tuple(shape), array.dtype, owner=array, array=array)

    def allocate_host(self, shape: Sequence[int], dtype: np.dtype[Any], pinned: bool) -> Buffer:
        """Host memory; pages are not locked, since nothing but the CPU reads them."""
        return self.allocate(shape, dtype)

    def copy(self, target: Buffer, source: Buffer) -> None:
        """Copy at once."""
        assert target.array is not None and source.array is not None
        np.copyto(target.array, source.array, casting="no")

    def fill(self, target: Buffer, byte: int) -> None:
        """Set every byte at once."""
        assert target.array is not None
        target.array.view(np.uint8)[...] = byte

    def synchronize(self) -> None:
        """Nothing is ever pending."""

    def drain(self) -> None:
        """Nothing is ever pending."""

    def timed(self, work: Callable[[], None]) -> Callable[[], float]:
        """Raise: the CPU has no clock apart from the host's."""
        raise NotImplementedError("the CPU has no device clock")

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """Raise: a graph of launches is CUDA's."""
        raise NotImplementedError("the CPU has no graphs")

    def memory_used(self) -> int | None:
        """Not told: the process's own memory is in the record (host RSS)."""
        return None
