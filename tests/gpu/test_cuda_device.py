"""CudaDevice on a real GPU."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.facts import naming

from inferprof.devices.cuda import CudaDevice
from inferprof.errors import CaseFailed
from inferprof.units import MIB

pytestmark = pytest.mark.gpu
BYTES = np.dtype(np.uint8)


@pytest.fixture(scope="module")
def device() -> CudaDevice:
    return CudaDevice()


@pytest.mark.parametrize("pinned", [True, False])
def test_bytes_come_back_as_they_went(device, pinned):
    values = np.random.default_rng(0).integers(0, 256, 5 * MIB + 3, dtype=np.uint8)
    source = device.allocate_host(values.shape, BYTES, pinned)
    target = device.allocate_host(values.shape, BYTES, pinned)
    first, second = device.allocate(values.shape, BYTES), device.allocate(values.shape, BYTES)
    source.array[...] = values
    device.copy(first, source)
    device.copy(second, first)
    device.copy(target, second)
    device.synchronize()
    np.testing.assert_array_equal(target.array, values)


def fill_sets_every_byte(device: CudaDevice) -> bool:
    buffer = device.allocate((1000,), np.dtype(np.float32))
    host = device.allocate_host((1000,), np.dtype(np.float32), pinned=True)
    device.fill(buffer, 0xFF)
    device.copy(host, buffer)
    device.synchronize()
    assert host.array is not None
    return bool(np.isnan(host.array).all())


def test_fill_sets_every_byte(device):
    assert fill_sets_every_byte(device)


def test_a_pinned_copy_returns_before_it_is_done(device):
    import time

    size = 512 * MIB
    source, target = device.allocate_host((size,), BYTES, pinned=True), device.allocate((size,), BYTES)
    device.copy(target, source)
    device.synchronize()
    start = time.perf_counter_ns()
    device.copy(target, source)
    queued = time.perf_counter_ns()
    device.synchronize()
    done = time.perf_counter_ns()
    assert queued - start < (done - start) / 10


def test_events_agree_with_the_host_clock_on_long_work(device):
    import time

    size = 512 * MIB
    source, target = device.allocate_host((size,), BYTES, pinned=True), device.allocate((size,), BYTES)
    elapsed = device.timed(lambda: device.copy(target, source))
    elapsed()
    start = time.perf_counter_ns()
    by_events = device.timed(lambda: device.copy(target, source))()
    by_host = time.perf_counter_ns() - start
    assert by_events == pytest.approx(by_host, rel=0.02)


def test_a_captured_graph_replays_the_work(device):
    source = device.allocate_host((1000,), np.dtype(np.float32), pinned=True)
    on_device = device.allocate((1000,), np.dtype(np.float32))
    target = device.allocate_host((1000,), np.dtype(np.float32), pinned=True)

    def work() -> None:
        device.copy(on_device, source)
        device.copy(target, on_device)

    launch = device.capture(work)
    for value in (1.0, 2.0):
        source.array[...] = value
        launch()
        device.synchronize()
        assert (target.array == value).all()


def test_work_that_cannot_be_captured_fails_the_case_and_leaves_the_device_usable(device):
    with pytest.raises(CaseFailed, match=naming("cannot be captured", "CUDA graph")):
        device.capture(device.synchronize)
    assert fill_sets_every_byte(device)


def test_memory_in_use_grows_by_what_is_allocated_and_shrinks_again(device):
    before = device.memory_used()
    buffer = device.allocate((256 * MIB,), BYTES)
    assert device.memory_used() - before >= 256 * MIB
    del buffer
    assert device.memory_used() - before < 256 * MIB


def test_more_memory_than_there_is_fails_the_case_and_leaves_the_device_usable(device):
    with pytest.raises(CaseFailed, match=naming("out of memory", "GPU")):
        device.allocate((1 << 45,), BYTES)
    assert fill_sets_every_byte(device)


def test_torch_computes_in_the_same_context(device):
    torch = pytest.importorskip("torch")
    stream = torch.cuda.ExternalStream(device.stream)
    with torch.cuda.stream(stream):
        ones = torch.ones(1000, device="cuda")
        elapsed = device.timed(lambda: ones.mul_(3))
    host = device.allocate_host((1000,), np.dtype(np.float32), pinned=True)
    from inferprof.device import Buffer

    device.copy(host, Buffer("cuda", ones.data_ptr(), (1000,), np.dtype(np.float32), owner=ones))
    device.synchronize()
    assert (host.array == 3).all()
    assert elapsed() > 0
