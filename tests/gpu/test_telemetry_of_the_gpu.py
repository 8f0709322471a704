"""Telemetry of a real GPU under load."""

from __future__ import annotations

import time

import numpy as np
import pytest

from inferprof.devices.cuda import CudaDevice
from inferprof.measure.telemetry import Telemetry

pytestmark = pytest.mark.gpu


def test_a_loaded_gpu_is_sampled_and_its_energy_told():
    device = CudaDevice()
    source, target = (device.allocate((1 << 28,), np.dtype(np.uint8)) for _ in range(2))
    with Telemetry() as run:
        time.sleep(1)  # the sampler starts
        begin, count = time.perf_counter_ns(), 0
        while time.perf_counter_ns() - begin < 2_000_000_000:
            device.copy(target, source)
            device.synchronize()
            count += 1
        span = begin, time.perf_counter_ns()
    loop = {"span_ns": span, "samples_ns": [(span[1] - span[0]) / count]}
    record = run.record({"boundaries": {"call": loop}, "throughput": {"back_to_back": {**loop, "inferences": count}}})
    call = record["boundaries"]["call"]
    assert call["samples"] >= 20
    assert 200 < call["sm_mhz"]["median"] < 4000
    assert call["median_cycles"] > 0
    energy = record["energy"]
    if "not_measured" not in energy:
        assert energy["mean_w"] == pytest.approx(call["power_w"]["median"], rel=0.5)
        assert energy["j_per_inference"] * count == pytest.approx(energy["mean_w"] * (span[1] - span[0]) / 1e9)
