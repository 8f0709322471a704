"""Ratios on a real GPU's clock: a case against itself, and a slow-down of 3 % that was planted."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from inferprof import stats
from inferprof.devices.cuda import CudaDevice
from inferprof.measure import loop

pytestmark = pytest.mark.gpu
REPEATS = 20
ROUNDS = 5
PROTOCOL = loop.Protocol(budget_s=0.2, min_s=0.05, interval=0.003)


@pytest.fixture(scope="module")
def device() -> CudaDevice:
    return CudaDevice()


def products(device: CudaDevice, count: int) -> Callable[[], None]:
    """A graph launch of so many matrix products in a row, about 10 µs each."""
    torch = pytest.importorskip("torch")
    stream = torch.cuda.ExternalStream(device.stream)
    with torch.cuda.stream(stream):
        weight = torch.randn(1024, 1024, device="cuda", dtype=torch.float16) * 1024**-0.5
        x, y = torch.randn_like(weight), torch.empty_like(weight)

        def work() -> None:
            with torch.cuda.stream(stream):
                for _ in range(count):
                    torch.mm(x, weight, out=y)

        work()
        device.synchronize()
        return device.capture(work)


def compare(device: CudaDevice, a: Callable[[], None], b: Callable[[], None]) -> stats.Ratio:
    """The ratio of b to a over rounds, of which every second one goes the other way."""

    def samples(work: Callable[[], None]) -> tuple[int, ...]:
        return loop.run("device", lambda: device.timed(work)(), PROTOCOL, time.perf_counter_ns).samples_ns

    of_a, of_b = [], []
    for i in range(ROUNDS):
        if i % 2:
            of_b.append(samples(b))
        of_a.append(samples(a))
        if not i % 2:
            of_b.append(samples(b))
    return stats.ratio(of_a, of_b)


def test_the_ratio_of_a_case_to_itself_contains_1_in_17_of_20_repeats(device):
    work = products(device, 100)
    ratios = [compare(device, work, work) for _ in range(REPEATS)]
    assert sum(r.low <= 1 <= r.high for r in ratios) >= 17, ratios
    assert sum(r.verdict in ("faster", "slower") for r in ratios) <= 1, ratios


def test_a_planted_slow_down_of_3_percent_is_found(device):
    ratio = compare(device, products(device, 100), products(device, 103))
    assert ratio.verdict == "slower", ratio
    assert ratio.estimate == pytest.approx(1.03, abs=0.01)
