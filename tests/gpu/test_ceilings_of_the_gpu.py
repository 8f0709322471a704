"""The measured ceilings of a real GPU, against its datasheet."""

from __future__ import annotations

import time

import pytest

pytest.importorskip("torch")

from inferprof.devices import bandwidth, ceilings
from inferprof.devices.cuda import CudaDevice
from inferprof.machine import hardware, peaks

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def measured():
    start = time.perf_counter()
    result = ceilings.measure(CudaDevice())
    result["seconds"] = time.perf_counter() - start
    return result


@pytest.fixture(scope="module")
def peak():
    gpu = hardware.detect_gpu()
    assert gpu is not None
    found = peaks.of(gpu.name, gpu.memory, mig=gpu.mig)
    if found is None:
        pytest.skip(f"no datasheet of a {gpu.name} is on file")
    return found


def test_it_is_short(measured):
    assert measured["seconds"] < 30


@pytest.mark.parametrize("kind", [kind.name for kind in ceilings.GEMMS])
def test_a_ceiling_lies_between_two_fifths_of_the_datasheet_and_a_little_above(measured, peak, kind):
    """The lowest seen: INT8 products of cuBLASLt, 47 % of what an H200 promises."""
    found = measured["gemm"][kind]
    promised = peak.flops.get("fp8" if kind == "mxfp8" else kind)
    if "not_measured" in found:
        pytest.skip(found["not_measured"])
    if promised is None:
        pytest.skip(f"the datasheet states no {kind}")
    assert 0.4 * promised < found["flops_per_s"] < 1.05 * promised


def test_a_type_that_the_datasheet_has_faster_is_faster(measured, peak):
    """Also that fp32 is not TF32 in disguise, and TF32 not fp32."""
    found = {kind: entry["flops_per_s"] for kind, entry in measured["gemm"].items() if "flops_per_s" in entry}
    pairs = [("fp32", "tf32"), ("tf32", "fp16"), ("fp16", "fp8"), ("fp8", "fp4")]
    known = [pair for pair in pairs if all(kind in found and kind in peak.flops for kind in pair)]
    assert known
    for slow, fast in known:
        if peak.flops[fast] > 1.5 * peak.flops[slow]:
            assert found[fast] > 1.2 * found[slow], (slow, fast)


def test_memory_is_no_faster_than_the_datasheet_and_the_copy_agrees_with_the_triad(measured, peak):
    triad = measured["memory"]["triad"]["bytes_per_s"]
    copy = bandwidth.measure(CudaDevice())["d2d"]["gb_per_s"] * 1e9
    assert 0.6 * peak.bandwidth < triad < 1.02 * peak.bandwidth
    assert 0.8 < copy / triad < 1.25
