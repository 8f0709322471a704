"""The link and memory bandwidth of a real GPU, against what no machine can exceed."""

from __future__ import annotations

import time

import pytest
from tests.unit.made_records import document

from inferprof.devices import bandwidth
from inferprof.devices.cuda import CudaDevice

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def measured():
    start = time.perf_counter()
    result = bandwidth.measure(CudaDevice())
    result["seconds"] = time.perf_counter() - start
    return result


def test_it_is_short(measured):
    assert measured["seconds"] < 8


def test_pinned_memory_is_faster_than_pageable_and_the_device_faster_than_the_link(measured):
    for direction in ("h2d", "d2h"):
        pinned, pageable = measured[direction]["pinned"]["gb_per_s"], measured[direction]["pageable"]["gb_per_s"]
        assert pinned > pageable * 0.95
        assert pinned < measured["d2d"]["gb_per_s"]


def test_no_copy_of_a_run_beats_its_floor_by_more_than_noise(measured):
    content = document("bandwidth", measured)
    for size, median in measured["h2d"]["pinned"]["by_size"].items():
        assert median > 0.8 * (
            bandwidth.floor_ns(content, "h2d", int(size)) - measured["h2d"]["pinned"]["latency_ns"]
        )
