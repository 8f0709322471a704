"""CudaDevice on a driver that only records its calls: what is called, in which order, and what errors become."""

from __future__ import annotations

import ctypes
import gc
import types
from enum import Enum

import numpy as np
import pytest
from tests.unit.facts import naming

from inferprof.devices import cuda
from inferprof.errors import CaseFailed, UserError


class CUresult(Enum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_ILLEGAL_ADDRESS = 700
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901


class Driver:
    """The driver API with memory in the host and events 2.5 ms apart."""

    CUresult = CUresult
    CUstream_flags = types.SimpleNamespace(CU_STREAM_NON_BLOCKING=1)
    CUevent_flags = types.SimpleNamespace(CU_EVENT_DEFAULT=0)
    CUstreamCaptureMode = types.SimpleNamespace(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL=1)

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.memory: dict[int, ctypes.Array[ctypes.c_char]] = {}
        self.fails: dict[str, CUresult] = {}

    def __getattr__(self, name: str):
        values = {
            "cuDeviceGet": 0,
            "cuStreamCreate": 77,
            "cuEventElapsedTime": 2.5,
            "cuMemGetInfo": (30, 100),
            "cuGetErrorString": b"in words",
            "cuStreamEndCapture": 5,
            "cuGraphInstantiate": 6,
        }

        def call(*arguments):
            self.calls.append((name, *arguments))
            error = self.fails.get(name, CUresult.CUDA_SUCCESS)
            if name in ("cuMemAlloc", "cuMemHostAlloc"):
                block = ctypes.create_string_buffer(arguments[0])
                self.memory[ctypes.addressof(block)] = block
                return error, ctypes.addressof(block)
            if name == "cuEventCreate":
                return error, len(self.calls)
            value = values.get(name)
            return (error,) if value is None else (error, *value) if isinstance(value, tuple) else (error, value)

        return call

    def names(self) -> list[object]:
        return [name for name, *_ in self.calls]


@pytest.fixture
def driver(monkeypatch) -> Driver:
    fake = Driver()
    monkeypatch.setattr(cuda, "_primary_context", lambda ordinal: (fake, None))
    return fake


@pytest.fixture
def device(driver) -> cuda.CudaDevice:
    made = cuda.CudaDevice()
    driver.calls.clear()
    return made


F32 = np.dtype(np.float32)


def test_the_stream_is_an_address_for_the_runtimes(device):
    assert device.stream == 77


def test_copies_go_the_way_of_their_buffers_on_the_stream(driver, device):
    on_host = device.allocate_host((2, 3), F32, pinned=False)
    a, b = device.allocate((2, 3), F32), device.allocate((2, 3), F32)
    driver.calls.clear()
    device.copy(a, on_host)
    device.copy(b, a)
    device.copy(on_host, b)
    assert driver.calls == [
        ("cuMemcpyHtoDAsync", a.ptr, on_host.ptr, 24, 77),
        ("cuMemcpyDtoDAsync", b.ptr, a.ptr, 24, 77),
        ("cuMemcpyDtoHAsync", on_host.ptr, b.ptr, 24, 77),
    ]


def test_a_copy_between_different_sizes_is_refused(device):
    with pytest.raises(ValueError, match=naming("cannot", "copy", "12", "8")):
        device.copy(device.allocate((2,), F32), device.allocate((3,), F32))


def test_fill_sets_all_bytes_of_the_buffer(driver, device):
    buffer = device.allocate((2, 3), F32)
    device.fill(buffer, 0xFF)
    assert driver.calls[-1] == ("cuMemsetD8Async", buffer.ptr, 0xFF, 24, 77)


def test_pinned_memory_is_a_numpy_array_at_the_locked_address(driver, device):
    buffer = device.allocate_host((2, 3), np.dtype(np.int16), pinned=True)
    assert driver.calls == [("cuMemHostAlloc", 12, 0)]
    assert buffer.array is not None
    assert (buffer.array.shape, buffer.array.dtype, buffer.array.ctypes.data) == ((2, 3), np.int16, buffer.ptr)
    buffer.array[...] = 7
    assert driver.memory[buffer.ptr].raw == b"\x07\x00" * 6


def test_memory_is_freed_with_the_last_reference_even_if_that_is_a_view(driver, device):
    view = device.allocate_host((4,), F32, pinned=True).array
    gc.collect()
    assert "cuMemFreeHost" not in driver.names()
    del view
    gc.collect()
    assert driver.names()[-1] == "cuMemFreeHost"
    device.allocate((4,), F32)
    gc.collect()
    assert driver.names()[-1] == "cuMemFree"


def test_an_empty_tensor_still_has_an_address(driver, device):
    buffer = device.allocate((0, 5), F32)
    assert driver.calls == [("cuMemAlloc", 1)]
    assert buffer.nbytes == 0


def test_work_is_timed_between_two_events_in_nanoseconds(driver, device):
    elapsed = device.timed(lambda: driver.calls.append(("work",)))
    assert driver.names() == ["cuEventCreate", "cuEventCreate", "cuEventRecord", "work", "cuEventRecord"]
    assert elapsed() == 2.5e6


def test_events_are_used_again_but_not_before_they_were_read(driver, device):
    first, second = device.timed(lambda: None), device.timed(lambda: None)
    assert driver.names().count("cuEventCreate") == 4
    first()
    second()
    device.timed(lambda: None)
    assert driver.names().count("cuEventCreate") == 4


def test_a_captured_graph_is_launched_on_the_stream(driver, device):
    launch = device.capture(lambda: driver.calls.append(("work",)))
    assert driver.names()[:3] == ["cuStreamBeginCapture", "work", "cuStreamEndCapture"]
    launch()
    assert driver.calls[-1] == ("cuGraphLaunch", 6, 77)


def test_a_failed_capture_fails_the_case(driver, device):
    driver.fails["cuStreamEndCapture"] = CUresult.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
    with pytest.raises(CaseFailed, match=naming("cannot", "CUDA", "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED")):
        device.capture(lambda: None)


def test_work_that_a_graph_cannot_hold_fails_the_case(driver, device):
    driver.fails["cuStreamSynchronize"] = CUresult.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
    with pytest.raises(
        CaseFailed, match=naming("CUDA graph", "cuStreamSynchronize", "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED")
    ):
        device.capture(device.synchronize)
    assert "cuStreamEndCapture" in driver.names()


def test_work_that_raises_does_not_leave_the_stream_capturing(driver, device):
    with pytest.raises(ZeroDivisionError):
        device.capture(lambda: 1 / 0)
    assert driver.names()[-1] == "cuStreamEndCapture"


def test_out_of_memory_fails_the_case_and_other_errors_are_the_drivers(driver, device):
    driver.fails["cuMemAlloc"] = CUresult.CUDA_ERROR_OUT_OF_MEMORY
    with pytest.raises(CaseFailed, match=naming("out of memory", "GPU", "4 bytes")):
        device.allocate((1,), F32)
    driver.fails["cuStreamSynchronize"] = CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(cuda.CudaError, match=r"cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS \(in words\)"):
        device.synchronize()


def test_used_memory_is_what_is_not_free(device):
    assert device.memory_used() == 70


def test_without_a_driver_the_user_is_told_in_one_line(monkeypatch):
    import cuda.bindings.driver as bindings

    def missing(flags):
        raise RuntimeError("libcuda.so.1\nnot found")

    monkeypatch.setattr(bindings, "cuInit", missing)
    with pytest.raises(UserError, match=naming("no", "CUDA", "libcuda.so.1", "not", "CPU", "only")):
        cuda.CudaDevice()


def test_without_a_device_the_user_is_told_where_to_look(monkeypatch):
    import cuda.bindings.driver as bindings

    fake = Driver()
    fake.fails["cuDeviceGet"] = CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    for name in ("cuInit", "cuDeviceGet", "cuGetErrorString"):
        monkeypatch.setattr(bindings, name, getattr(fake, name))
    monkeypatch.setattr(bindings, "CUresult", CUresult)
    with pytest.raises(UserError, match=naming("CUDA", "device", "0", "cannot", "CUDA_ERROR_ILLEGAL_ADDRESS")):
        cuda.CudaDevice()
