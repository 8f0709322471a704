"""Ceilings with a torch that is made up: what is recorded, and what is not measured and why."""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.unit.facts import facts, mentions, reason_alone

from inferprof.devices import ceilings

RATE = 100e12
READ = 2e12


class Gpu:
    """A GPU on which the made-up torch's work takes its time; the clock is its own."""

    stream = 1

    def __init__(self) -> None:
        self.ns = 0.0

    def __call__(self) -> int:
        return int(self.ns)

    def timed(self, work: Any) -> Any:
        begin = self.ns
        work()
        took = self.ns - begin
        return lambda: took

    def work(self, ns: float) -> None:
        self.ns += ns


class Array:
    def __init__(self, *shape: int, **_: Any) -> None:
        self.shape = shape

    def t(self) -> Array:
        return self

    def to(self, dtype: Any) -> Array:
        return self


def refused(*_: Any, **__: Any) -> None:
    raise RuntimeError("_int_mm is not for this build\nand more")


def fake_torch(capability: tuple[int, int], gpu: Gpu) -> Any:
    def product(a: Array, *_: Any, **__: Any) -> None:
        gpu.work(2 * a.shape[0] ** 3 / RATE * 1e9)

    cuda = SimpleNamespace(
        is_available=lambda: True,
        get_device_capability=lambda: capability,
        get_device_name=lambda: "NVIDIA Sample",
        get_device_properties=lambda: SimpleNamespace(L2_cache_size=50 << 20),
        ExternalStream=lambda stream: stream,
        stream=lambda stream: contextlib.nullcontext(),
    )
    asked: list[str] = []
    return SimpleNamespace(
        __version__="2.11.0",
        cuda=cuda,
        asked=asked,
        OutOfMemoryError=MemoryError,
        get_float32_matmul_precision=lambda: "before",
        set_float32_matmul_precision=asked.append,
        randn=Array,
        ones=Array,
        randint=lambda low, high, shape, **_: Array(*shape),
        matmul=product,
        _int_mm=refused,
        _scaled_mm=product,
        sum=lambda vector: gpu.work(ceilings.VECTOR_BYTES / READ * 1e9),
        add=lambda b, c, alpha, out: gpu.work(3 * ceilings.VECTOR_BYTES / READ * 1e9),
        **dict.fromkeys(
            ("float32", "float16", "bfloat16", "int8", "uint8", "float8_e4m3fn", "float8_e8m0fnu"), np.float32
        ),
    )


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    gpu = Gpu()
    torch = fake_torch((8, 9), gpu)
    monkeypatch.setitem(sys.modules, "torch", torch)
    result = ceilings.measure(gpu, clock=gpu)  # type: ignore[arg-type]
    return {**result, "asked": torch.asked, "seconds": gpu.ns / 1e9}


def test_a_square_product_is_two_n_cubed_flops(measured):
    assert measured["gemm"]["fp16"]["flops_per_s"] == pytest.approx(RATE)
    assert measured["gemm"]["fp16"]["by_size"] == {
        "4096": pytest.approx(2 * 4096**3 / 1e5),
        "8192": pytest.approx(2 * 8192**3 / 1e5),
    }
    assert measured["gemm"]["fp8"]["flops_per_s"] == pytest.approx(RATE)


def test_the_fastest_sample_is_the_ceiling(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu()
    torch = fake_torch((8, 9), gpu)
    products = itertools.count()

    def throttled(a: Array, _: Array) -> None:
        """A fifth of the samples at the full clock."""
        full = next(products) // ceilings.IN_A_ROW % 5 == 0
        gpu.work(2 * a.shape[0] ** 3 / RATE * 1e9 * (1 if full else 1.3))

    torch.matmul = throttled
    monkeypatch.setitem(sys.modules, "torch", torch)
    found = ceilings.measure(gpu, clock=gpu)  # type: ignore[arg-type]
    assert found["gemm"]["fp16"]["flops_per_s"] == pytest.approx(RATE)


def test_fp32_is_measured_with_tf32_off_and_tf32_with_it_on(measured):
    assert measured["asked"][:4] == ["highest", "highest", "high", "high"]
    assert measured["asked"][-1] == "before"


def test_what_the_gpu_lacks_and_what_torch_refuses_has_a_reason(measured):
    assert facts(reason_alone(measured["gemm"]["fp4"]), "compute") == ["compute", "8.9", "fp4", "10.0"]
    assert facts(reason_alone(measured["gemm"]["int8"])) == ["torch", "2.11.0", "_int_mm", "not"]


def test_memory_is_bytes_read_and_of_a_triad_three_vectors(measured):
    assert measured["memory"]["read"]["bytes_per_s"] == pytest.approx(READ)
    assert measured["memory"]["triad"]["bytes_per_s"] == pytest.approx(READ)


def test_it_is_short_and_what_it_says_is_json(measured):
    assert measured["seconds"] < 15
    assert {"method", "gpu", "torch"} <= set(measured)
    assert measured["l2_bytes"] == 50 << 20
    json.dumps(measured, allow_nan=False)


def test_without_a_gpu_or_torch_the_file_says_so_and_no_job_breaks(monkeypatch):
    torch = fake_torch((8, 9), Gpu())
    torch.cuda.is_available = lambda: False
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert facts(reason_alone(ceilings.measure(Gpu()))) == ["torch", "2.11.0", "no", "CUDA", "device"]  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "torch", None)
    found = ceilings.measure(Gpu())  # type: ignore[arg-type]
    assert mentions(reason_alone(found), "torch is not installed")


def test_a_full_memory_leaves_the_products(monkeypatch):
    gpu = Gpu()
    torch = fake_torch((8, 9), gpu)

    def full(*shape: Any, **_: Any) -> Array:
        if shape == (ceilings.VECTOR_BYTES // 4,):
            raise MemoryError
        return Array(*shape)

    torch.ones = full
    monkeypatch.setitem(sys.modules, "torch", torch)
    found = ceilings.measure(gpu, clock=gpu)  # type: ignore[arg-type]
    assert mentions(reason_alone(found["memory"]["read"]), "out of memory", "1610612736 bytes")
    assert found["gemm"]["fp16"]["flops_per_s"] == pytest.approx(RATE)
