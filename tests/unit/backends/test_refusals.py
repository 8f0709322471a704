from __future__ import annotations

from typing import Any

import pytest
from tests.unit.facts import facts

from inferprof import registry
from inferprof.backends import refusals, torch
from inferprof.case import Case
from inferprof.machine.hardware import Gpu, Machine

PACKAGES = {"onnxruntime-gpu": "1.31.1", "torch": "2.11.0", "tensorrt": "10.13.3.9", "tensorrt-rtx": "1.7.1.116"}


def machine(compute_capability: tuple[int, int] | None = (9, 0), **changes: Any) -> Machine:
    gpu = Gpu("NVIDIA Test", compute_capability, 1 << 30, "GPU-1", "580.1") if compute_capability else None
    return Machine(**{"gpu": gpu, "packages": PACKAGES, "nvinfer": frozenset({10}), **changes})


def refusal(backend: str, on: Machine, precision: str = "fp16") -> str | None:
    case = Case("model", precision, backend, "default", "b1")
    return registry.backends()[backend].refuses(case, on)


@pytest.mark.parametrize("backend", ["ort_cuda", "ort_tensorrt", "tensorrt", "tensorrt_rtx", "ort_tensorrt_rtx"])
def test_without_a_gpu_only_the_cpu_runtimes_run(backend: str) -> None:
    assert refusal(backend, machine(None)) == "no GPU"
    assert refusal("ort_cpu", machine(None)) is None
    assert refusal("torch_eager", machine(None)) is None


@pytest.mark.parametrize("backend", ["ort_cuda", "ort_tensorrt", "tensorrt"])
def test_an_h100_with_everything_installed_runs_all_but_rtx(backend: str) -> None:
    assert refusal(backend, machine()) is None


def test_rtx_names_the_gpus_that_it_runs_on() -> None:
    expected = "TensorRT-RTX does not run on compute capability 9.0: supports 7.5, 8.0, 8.6, 8.9, 12.0, 12.1"
    assert refusal("tensorrt_rtx", machine()) == expected
    assert refusal("tensorrt_rtx", machine((12, 0))) is None


@pytest.mark.parametrize(
    ("capability", "rtx"), [((10, 0), False), ((10, 3), False), ((11, 0), False), ((12, 0), True), ((12, 1), True)]
)
def test_gpus_of_the_blackwell_generation_are_told_apart(capability: tuple[int, int], rtx: bool) -> None:
    dotted = ".".join(map(str, capability))
    reason = refusal("tensorrt_rtx", machine(capability))
    assert (reason is None) == rtx
    assert rtx or {"TensorRT-RTX", dotted} <= set(str(reason).replace(":", "").split())
    assert refusal("tensorrt", machine(capability)) is None
    assert machine(capability).slug.split("-sm")[1].startswith(dotted.replace(".", ""))


def test_the_plug_in_of_rtx_names_its_own_needs() -> None:
    plugin = {"onnxruntime-ep-nv-tensorrt-rtx": "0.5.0"}
    missing = "onnxruntime-ep-nv-tensorrt-rtx is not installed"
    assert refusal("ort_tensorrt_rtx", machine((12, 0))) == missing
    old = machine((12, 0), packages={**plugin, "onnxruntime-gpu": "1.23.2"})
    assert facts(refusal("ort_tensorrt_rtx", old), "onnxruntime-gpu") == ["onnxruntime-gpu", "1.23.2", "1.24"]
    ampere = machine((8, 0), packages={**PACKAGES, **plugin})
    expected = "the plug-in of TensorRT-RTX does not run on compute capability 8.0: supports 8.6, 8.9, 12.0, 12.1"
    assert refusal("ort_tensorrt_rtx", ampere) == expected
    assert refusal("ort_tensorrt_rtx", machine((12, 0), packages={**PACKAGES, **plugin})) is None


def test_what_is_missing_is_named() -> None:
    assert refusal("tensorrt", machine(packages={})) == "tensorrt is not installed"
    assert refusal("tensorrt_rtx", machine(packages={})) == "tensorrt-rtx is not installed"
    assert refusal("ort_cpu", machine(packages={})) == "onnxruntime-gpu is not installed"
    assert refusal("torch_eager", machine(packages={})) == "torch is not installed"


def test_tensorrt_below_the_floor_is_refused() -> None:
    old = machine(packages={**PACKAGES, "tensorrt": "10.7.0"})
    assert facts(refusal("tensorrt", old)) == ["tensorrt", "10.7.0", "10.8"]


def test_onnx_runtime_wants_tensorrt_10() -> None:
    newer = machine(packages={**PACKAGES, "tensorrt": "11.0.0"}, nvinfer=frozenset({11}))
    assert facts(refusal("ort_tensorrt", newer)) == ["ONNX", "Runtime", "libnvinfer.so.10", "libnvinfer.so.11"]
    without = machine(packages={"onnxruntime-gpu": "1.31.1"}, nvinfer=frozenset())
    assert facts(refusal("ort_tensorrt", without)) == ["ONNX", "Runtime", "libnvinfer.so.10", "none"]


def test_fp8_needs_the_hardware_for_it() -> None:
    fp8 = registry.precisions()["fp8"]
    assert fp8.needs_compute_capability == (8, 9)
    assert facts(refusal("tensorrt", machine((8, 0)), "fp8"), "compute") == ["fp8", "compute", "8.0", "8.9"]
    assert refusal("tensorrt", machine((9, 0)), "fp8") is None


def test_torch_runs_the_precisions_that_it_can_cast_to() -> None:
    assert torch.TORCH_EAGER.precisions == frozenset({"fp32", "fp16", "bf16"})
    assert torch.TORCH_COMPILE.precisions == torch.TORCH_EAGER.precisions


def test_torch_compile_needs_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    expected = "torch.compile needs a C++ compiler; install one of c++, g++, clang++"
    assert refusal("torch_compile", machine()) == expected


def test_torch_compile_is_not_studied_on_a_cpu() -> None:
    expected = "no GPU: on the CPU it compiles for about a minute a case"
    assert refusal("torch_compile", machine(None)) == expected


def test_the_first_reason_wins() -> None:
    assert refusals.first(None, "a", "b") == "a"
    assert refusals.first(None, None) is None
