"""A CUDA device by the driver API: memory, copies, events and graphs on one stream.

The driver API alone (cuda.bindings.driver), because the CUDA runtime that a backend brings may be of another major
version. The primary context is shared with the runtimes: torch, ONNX Runtime and TensorRT compute in the same one.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from inferprof.device import Buffer, Where
from inferprof.errors import CaseFailed, SystemRefusal, UserError
from inferprof.units import NS_PER_MS

NOT_CAPTURED = "the inference cannot be captured as a CUDA graph"


MACHINE_FAULTS = frozenset(
    f"CUDA_ERROR_{name}"
    for name in (
        *("NO_DEVICE", "INVALID_DEVICE", "DEVICE_UNAVAILABLE", "DEVICE_NOT_LICENSED", "DEINITIALIZED"),
        *(
            "ECC_UNCORRECTABLE",
            "NVLINK_UNCORRECTABLE",
            "SYSTEM_NOT_READY",
            "SYSTEM_DRIVER_MISMATCH",
            "HARDWARE_STACK_ERROR",
        ),
    )
)
"""Driver errors that no case causes: the job breaks, and is tried again when the GPU is back."""


class CudaError(RuntimeError):
    """A driver call that failed for another reason than memory: the call, and the driver's name and text for it."""


class CudaDevice:
    """Implements device.Device on CUDA's device `ordinal`, counted within CUDA_VISIBLE_DEVICES.

    The stream does not wait for the legacy default stream: a backend that works there by mistake shows up as one
    that does not synchronise. Raises UserError where there is no driver or no such device.
    """

    where: Where = "cuda"

    def __init__(self, ordinal: int = 0) -> None:
        self._driver, self._context = _primary_context(ordinal)
        self._handle = self._do("cuStreamCreate", self._driver.CUstream_flags.CU_STREAM_NON_BLOCKING)
        self.stream: int | None = int(self._handle)
        self._events: list[tuple[Any, Any]] = []

    def _do(self, function: str, *arguments: Any) -> Any:
        """Call the driver and return its value. Raises CaseFailed out of memory, CudaError otherwise."""
        error, *values = getattr(self._driver, function)(*arguments)
        if error != self._driver.CUresult.CUDA_SUCCESS:
            raise _failure(self._driver, function, arguments, error)
        return values[0] if len(values) == 1 else tuple(values)

    # --- memory ---

    def allocate(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Buffer:
        """Device memory, uninitialised, freed with the Buffer. Raises CaseFailed where there isn't enough."""
        address = self._do("cuMemAlloc", max(_nbytes(shape, dtype), 1))
        owner = _Allocation(int(address), lambda: self._driver.cuMemFree(address))
        return Buffer("cuda", owner.ptr, tuple(shape), np.dtype(dtype), owner)

    def allocate_host(self, shape: Sequence[int], dtype: np.dtype[Any], pinned: bool) -> Buffer:
        """Host memory, page-locked on request; a NumPy view of it keeps it alive. Raises CaseFailed out of memory."""
        if not pinned:
            array = np.full(tuple(shape), 0, dtype)  # written, so that no page is faulted in while a clock runs
            return Buffer("cpu", array.ctypes.data, array.shape, array.dtype, owner=array, array=array)
        size = max(_nbytes(shape, dtype), 1)
        address = int(self._do("cuMemHostAlloc", size, 0))
        owner = _HostAllocation(address, size, lambda: self._driver.cuMemFreeHost(address))
        view = np.asarray(owner)[: _nbytes(shape, dtype)].view(dtype).reshape(tuple(shape))
        return Buffer("cpu", address, view.shape, view.dtype, owner, array=view)

    def copy(self, target: Buffer, source: Buffer) -> None:
        """Queue a copy that has the device on at least one side; with pageable memory the driver may wait.

        Raises ValueError where the sizes differ.
        """
        size = source.nbytes
        if target.nbytes != size:
            raise ValueError(f"cannot copy {size} bytes to a buffer of {target.nbytes}")
        function = _COPIES[source.where, target.where]
        self._do(function, target.ptr, source.ptr, size, self._handle)

    def fill(self, target: Buffer, byte: int) -> None:
        """Queue a memset of device memory."""
        self._do("cuMemsetD8Async", target.ptr, byte, target.nbytes, self._handle)

    def memory_used(self) -> int | None:
        """Bytes in use on the device by all processes."""
        free, total = self._do("cuMemGetInfo")
        return int(total) - int(free)

    # --- time ---

    def synchronize(self) -> None:
        """Wait for the stream. Raises CudaError for what went wrong on it."""
        self._do("cuStreamSynchronize", self._handle)

    def drain(self) -> None:
        """Wait for all streams of the context. Raises CudaError for what went wrong on one of them."""
        self._do("cuCtxSynchronize")

    def timed(self, work: Callable[[], None]) -> Callable[[], float]:
        """Queue `work` between two events; the returned function waits and gives the nanoseconds between them.

        Call it once: it hands the events back for the next time. They resolve about 0.5 µs (cuEventElapsedTime).
        """
        start, stop = events = self._events.pop() if self._events else (self._event(), self._event())
        record, stream = self._driver.cuEventRecord, self._handle
        record(start, stream)
        work()
        record(stop, stream)

        def elapsed() -> float:
            self._do("cuEventSynchronize", stop)
            milliseconds = self._do("cuEventElapsedTime", start, stop)
            self._events.append(events)
            return float(milliseconds) * NS_PER_MS

        return elapsed

    def _event(self) -> Any:
        return self._do("cuEventCreate", self._driver.CUevent_flags.CU_EVENT_DEFAULT)

    # --- graphs ---

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """Capture what `work` queues on the stream into a graph; the returned function queues that graph.

        `work` must have run before, so that nothing is allocated or loaded in it. Raises CaseFailed where something
        in it cannot be captured.
        """
        modes = self._driver.CUstreamCaptureMode
        self._do("cuStreamBeginCapture", self._handle, modes.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
        try:
            work()
        except CudaError as error:
            raise CaseFailed(f"{NOT_CAPTURED}: {error}") from error
        finally:
            failed, graph = self._driver.cuStreamEndCapture(self._handle)
        if failed != self._driver.CUresult.CUDA_SUCCESS:
            raise CaseFailed(f"{NOT_CAPTURED}: {_text(self._driver, failed)}")
        executable = self._do("cuGraphInstantiate", graph, 0)
        self._do("cuGraphDestroy", graph)
        owner = _Allocation(int(executable), lambda: self._driver.cuGraphExecDestroy(executable))

        def launch(keeps_alive: _Allocation = owner) -> None:
            self._do("cuGraphLaunch", executable, self._handle)

        return launch


_COPIES = {
    ("cpu", "cuda"): "cuMemcpyHtoDAsync",
    ("cuda", "cpu"): "cuMemcpyDtoHAsync",
    ("cuda", "cuda"): "cuMemcpyDtoDAsync",
}


class _Allocation:
    """Something of the driver's that is released when nothing refers to it any more.

    Not at the interpreter's exit: there the driver releases everything itself, maybe before us.
    """

    def __init__(self, ptr: int, release: Callable[[], Any]) -> None:
        self.ptr = ptr
        weakref.finalize(self, release).atexit = False


class _HostAllocation(_Allocation):
    """Page-locked host memory that NumPy can view as bytes."""

    def __init__(self, ptr: int, size: int, release: Callable[[], Any]) -> None:
        super().__init__(ptr, release)
        self.__array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (ptr, False), "version": 3}


def _primary_context(ordinal: int) -> tuple[Any, Any]:
    """The driver module, and the device's primary context, made current in this thread."""
    try:
        from cuda.bindings import driver
    except ImportError:
        raise UserError(
            "cuda.bindings is not installed, which GPU backends need: pip install cuda-bindings"
        ) from None
    try:
        (error,) = driver.cuInit(0)
    except RuntimeError as no_driver:  # the library that cuda.bindings loads at the first call
        raise SystemRefusal(f"no CUDA driver: {' '.join(str(no_driver).split())}; run CPU backends only") from None
    context = None
    if error == driver.CUresult.CUDA_SUCCESS:
        error, device = driver.cuDeviceGet(ordinal)
    if error == driver.CUresult.CUDA_SUCCESS:
        error, context = driver.cuDevicePrimaryCtxRetain(device)
    if error == driver.CUresult.CUDA_SUCCESS:
        (error,) = driver.cuCtxSetCurrent(context)
    if error != driver.CUresult.CUDA_SUCCESS:
        raise SystemRefusal(f"CUDA device {ordinal} cannot be used: {_text(driver, error)}; see CUDA_VISIBLE_DEVICES")
    return driver, context


def _failure(driver: Any, function: str, arguments: tuple[Any, ...], error: Any) -> Exception:
    """The exception for a driver error: where the machine is at fault, the case must not be blamed."""
    if error == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
        wanted = f"{arguments[0]} bytes" if function in ("cuMemAlloc", "cuMemHostAlloc") else function
        return CaseFailed(f"out of memory on the GPU ({wanted})")
    if error.name in MACHINE_FAULTS:
        return SystemRefusal(f"{function}: {_text(driver, error)}: look at the driver's log (dmesg, nvidia-smi)")
    return CudaError(f"{function}: {_text(driver, error)}")


def _text(driver: Any, error: Any) -> str:
    """`CUDA_ERROR_INVALID_VALUE (invalid argument)`."""
    status, text = driver.cuGetErrorString(error)
    described = text.decode() if status == driver.CUresult.CUDA_SUCCESS and text else "no description"
    return f"{error.name} ({described})"


def _nbytes(shape: Sequence[int], dtype: np.dtype[Any]) -> int:
    return int(np.prod(tuple(shape), dtype=np.int64)) * np.dtype(dtype).itemsize
