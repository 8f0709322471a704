"""Memory, copies and the clock: what a device is to those who measure on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    import numpy as np

Where = Literal["cpu", "cuda"]


@dataclass(frozen=True)
class Buffer:
    """Memory that a device allocated: `ptr` is an address on `where`; `owner` keeps it alive.

    `array` is the NumPy view of a host buffer (pageable or pinned) and None for device memory.
    """

    where: Where
    ptr: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    owner: Any = field(repr=False)
    array: np.ndarray[Any, Any] | None = field(default=None, repr=False)

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        count = 1
        for size in self.shape:
            count *= size
        return count * self.dtype.itemsize


class Device(Protocol):
    """Memory, copies and clock of what a backend runs on. One stream; everything is queued on it."""

    where: Where
    stream: int | None
    """cudaStream_t as an integer; None on the CPU."""

    def allocate(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Buffer:
        """Memory where the backend computes (device memory; host memory on the CPU)."""

    def allocate_host(self, shape: Sequence[int], dtype: np.dtype[Any], pinned: bool) -> Buffer:
        """Host memory, page-locked on request."""

    def copy(self, target: Buffer, source: Buffer) -> None:
        """Queue a copy on the stream; returns before it is done where the memory allows that."""

    def fill(self, target: Buffer, byte: int) -> None:
        """Queue a memset on the stream."""

    def synchronize(self) -> None:
        """Wait until everything queued on the stream is done."""

    def drain(self) -> None:
        """Wait until everything that the process queued on the device is done, on whatever stream."""

    def timed(self, work: Callable[[], None]) -> Callable[[], float]:
        """Queue `work` between two events; the returned function waits and gives the nanoseconds between them.

        Raises NotImplementedError on the CPU, which has no clock apart from the host's.
        """

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """Capture what `work` queues on the stream into a CUDA graph; the returned function launches it there.

        Raises CaseFailed where `work` does what a graph cannot hold, NotImplementedError on the CPU.
        """

    def memory_used(self) -> int | None:
        """Bytes in use on the device by all processes; None where it cannot be read."""
