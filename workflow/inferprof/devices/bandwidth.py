"""How fast the link and the device's memory are, measured: from it the floor of each copy of a run.

Takes about 4 s. GB are 10^9 bytes. The link is measured with pageable and with page-locked host memory, since the
driver copies pageable memory by way of page-locked buffers of its own; and the host by itself, since whoever fills a
page-locked buffer from other memory pays for that copy.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from inferprof.device import Buffer, Device
from inferprof.documents import Bandwidth
from inferprof.documents.machine import Direction

LINK_SIZES = tuple(1 << power for power in (12, 16, 20, 24, 28))
"""4 KiB to 256 MiB: from where latency rules to where bandwidth does."""
DEVICE_SIZES = tuple(1 << power for power in (20, 24, 28, 30))
"""1 MiB to 1 GiB. The largest lies far beyond the L2 cache of any GPU, which smaller ones may fit in."""
HOST_SIZES = LINK_SIZES[2:]
SECONDS_PER_SIZE = 0.1
MIN_COPIES = 5
MAX_COPIES = 500
METHOD = (
    "one copy at a time on one stream, 3 warm-ups, median; page-locked and on the device by events, pageable by the "
    "host's clock until the stream is done; device memory counts each byte twice (read and written). h2h: one thread "
    "of the host, from pageable to page-locked memory"
)

Copy = Callable[[], float]
"""Makes one copy and returns its nanoseconds."""


def measure(device: Device, clock: Callable[[], int] = time.perf_counter_ns) -> dict[str, Any]:
    """The bandwidths of a GPU, for results/{machine}/bandwidth.json.

    `h2d` and `d2h` hold `pageable` and `pinned`; these, `d2d` and `h2h` hold `gb_per_s` (the link's best of all
    sizes, a memory's at the largest size, which no cache holds), `latency_ns` (of the smallest copy) and `by_size`:
    bytes → median ns. Raises CaseFailed where the device's memory is full.
    """
    result: dict[str, Any] = {"method": METHOD}
    for direction in ("h2d", "d2h"):
        result[direction] = {
            kind: _curve({size: _link(device, direction, size, kind == "pinned", clock) for size in LINK_SIZES})
            for kind in ("pageable", "pinned")
        }
    on_device = {size: _on_device(device, size, clock) for size in DEVICE_SIZES}
    largest = max(DEVICE_SIZES)
    result["d2d"] = {**_curve(on_device), "gb_per_s": 2 * largest / on_device[largest]}
    on_host = {size: _on_host(device, size, clock) for size in HOST_SIZES}
    result["h2h"] = {**_curve(on_host), "gb_per_s": max(HOST_SIZES) / on_host[max(HOST_SIZES)]}
    return result


def floor_ns(bandwidth: Bandwidth, direction: Direction, nbytes: int) -> float:
    """The least time that a copy of so many bytes takes on this link: latency + bytes / bandwidth.

    The link's own floor is the pinned one, whichever memory a run used.
    """
    curve = bandwidth.link(direction).pinned
    return curve.latency_ns + nbytes / curve.gb_per_s


def _curve(medians: Mapping[int, float]) -> dict[str, Any]:
    """Bandwidth and latency of the medians (ns) by size; bytes per ns are GB/s."""
    return {
        "gb_per_s": max(size / ns for size, ns in medians.items()),
        "latency_ns": medians[min(medians)],
        "by_size": {str(size): ns for size, ns in medians.items()},
    }


def _link(device: Device, direction: str, size: int, pinned: bool, clock: Callable[[], int]) -> float:
    """The median of copies over the link."""
    host = device.allocate_host((size,), np.dtype(np.uint8), pinned)
    on_device = device.allocate((size,), np.dtype(np.uint8))
    target, source = (on_device, host) if direction == "h2d" else (host, on_device)
    copy = _by_events(device, target, source) if pinned else _by_host_clock(device, target, source, clock)
    return statistics.median(samples_ns(copy, clock))


def _on_device(device: Device, size: int, clock: Callable[[], int]) -> float:
    """The median of copies from device memory to device memory."""
    source, target = (device.allocate((size,), np.dtype(np.uint8)) for _ in range(2))
    return statistics.median(samples_ns(_by_events(device, target, source), clock))


def _on_host(device: Device, size: int, clock: Callable[[], int]) -> float:
    """The median of copies from pageable to page-locked memory, as timing's staging of inputs makes them."""
    source, target = (device.allocate_host((size,), np.dtype(np.uint8), pinned) for pinned in (False, True))

    def copy() -> float:
        start = clock()
        copy_on_host(target, source)
        return clock() - start

    return statistics.median(samples_ns(copy, clock))


def copy_on_host(target: Buffer, source: Buffer) -> None:
    """A copy by the thread that calls."""
    assert target.array is not None and source.array is not None
    np.copyto(target.array, source.array)


def _by_events(device: Device, target: Buffer, source: Buffer) -> Copy:
    return lambda: device.timed(lambda: device.copy(target, source))()


def _by_host_clock(device: Device, target: Buffer, source: Buffer, clock: Callable[[], int]) -> Copy:
    def copy() -> float:
        start = clock()
        device.copy(target, source)
        device.synchronize()
        return clock() - start

    return copy


def samples_ns(work: Copy, clock: Callable[[], int], seconds: float = SECONDS_PER_SIZE) -> list[float]:
    """As many copies (or whatever else returns its nanoseconds) as the time for a size allows, after three more."""
    for _ in range(3):
        work()
    samples: list[float] = []
    end = clock() + seconds * 1e9
    while len(samples) < MIN_COPIES or (len(samples) < MAX_COPIES and clock() < end):
        samples.append(work())
    return samples
