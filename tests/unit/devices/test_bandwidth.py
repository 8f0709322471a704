from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from tests.unit.made_records import document

from inferprof.device import Buffer, Where
from inferprof.devices import bandwidth


class Link:
    """A simulated GPU: 5 µs a copy, 50 GB/s from pinned memory, 25 from pageable, 1000 on it, 4000 in its cache."""

    where: Where = "cuda"
    stream: int | None = 1

    def __init__(self) -> None:
        self.ns = 0.0
        self.allocated: list[int] = []

    def __call__(self) -> int:
        return int(self.ns)

    def allocate(self, shape: Any, dtype: np.dtype[Any]) -> Buffer:
        self.allocated.append(shape[0])
        return Buffer("cuda", 1, tuple(shape), dtype, owner=None)

    def allocate_host(self, shape: Any, dtype: np.dtype[Any], pinned: bool) -> Buffer:
        return Buffer("cpu", 1, tuple(shape), dtype, owner="pinned" if pinned else "pageable")

    def copy(self, target: Buffer, source: Buffer) -> None:
        owners = {target.owner, source.owner}
        memory = 4000 if source.nbytes < 1 << 25 else 1000
        rate = memory if owners == {None} else 50 if "pinned" in owners else 25
        self.ns += 5_000 + source.nbytes / rate

    def fill(self, target: Buffer, byte: int) -> None:
        raise AssertionError("nothing is filled here")

    def synchronize(self) -> None:
        pass

    def drain(self) -> None:
        raise AssertionError("nothing is poisoned here")

    def timed(self, work):
        begin = self.ns
        work()
        elapsed = self.ns - begin
        return lambda: elapsed

    def capture(self, work):
        raise AssertionError("nothing is captured here")

    def memory_used(self) -> int | None:
        return None

    def copy_on_host(self, target: Buffer, source: Buffer) -> None:
        """8 GB/s, and 40 in a cache."""
        assert (target.owner, source.owner) == ("pinned", "pageable")
        self.ns += source.nbytes / (40 if source.nbytes < 1 << 25 else 8)


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> Link:
    simulated = Link()
    monkeypatch.setattr(bandwidth, "copy_on_host", simulated.copy_on_host)
    return simulated


@pytest.fixture
def measured(link: Link) -> dict[str, Any]:
    return bandwidth.measure(link, clock=link)


def test_the_link_has_a_bandwidth_per_direction_and_kind_of_memory(measured):
    for direction in ("h2d", "d2h"):
        assert measured[direction]["pinned"]["gb_per_s"] == pytest.approx(50, rel=0.002)
        assert measured[direction]["pageable"]["gb_per_s"] == pytest.approx(25, rel=0.002)
        assert measured[direction]["pinned"]["latency_ns"] == pytest.approx(5_000 + 4096 / 50)


def test_a_byte_copied_on_the_device_is_read_and_written_and_caches_do_not_count(measured):
    assert measured["d2d"]["gb_per_s"] == pytest.approx(2000, rel=0.01)


def test_every_size_is_kept_with_its_median(measured):
    by_size = measured["h2d"]["pinned"]["by_size"]
    assert list(by_size) == ["4096", "65536", "1048576", "16777216", "268435456"]
    assert by_size["1048576"] == pytest.approx(5_000 + 1048576 / 50)
    assert "median" in measured["method"]
    json.dumps(measured, allow_nan=False)


def test_the_hosts_own_copy_is_what_no_cache_helps(measured):
    assert measured["h2h"]["gb_per_s"] == pytest.approx(8)
    assert measured["h2h"]["by_size"]["1048576"] == pytest.approx(1048576 / 40, rel=0.001)


def test_it_takes_less_than_five_seconds(link):
    bandwidth.measure(link, clock=link)
    assert link.ns < 5e9


def test_the_floor_of_a_copy_is_latency_and_bytes_over_bandwidth(measured):
    content, nbytes = document("bandwidth", measured), 100_000_000
    assert bandwidth.floor_ns(content, "h2d", nbytes) == pytest.approx(2_000_000 + 5_000, rel=0.002)
