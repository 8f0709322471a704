"""Quantized torch models: which a machine refuses, what their weights take, and that sessions do not mix them up."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.unit.facts import facts, naming

from inferprof import registry
from inferprof.backends import torch as backend
from inferprof.backends import torch_quantize
from inferprof.case import Case, Shape, Variant
from inferprof.device import Buffer
from inferprof.devices.cpu import CpuDevice
from inferprof.errors import UserError
from inferprof.machine.hardware import Gpu, Machine
from inferprof.model import data, export, model_spec
from inferprof.plugins import OpenRequest, Quantizer

REPOSITORY = Path(__file__).resolve().parents[3]
BF16 = Case("m", "bf16", "torch_eager", "q", "b1")
FACTORY = "import torch\n\ndef make():\n    return torch.nn.Linear(64, 32, bias=False)\n"
YAML = "source: python\npython: linear_model:make\ninputs: [{name: x, dtype: float32, dims: [b, 64]}]\n"


def machine(capability: tuple[int, int] | None = (9, 0), **packages: str) -> Machine:
    gpu = Gpu("a GPU", capability, None, "GPU-0", "580") if capability else None
    return Machine(gpu, packages=packages)


def refusal(name: str, machine: Machine, case: Case = BF16) -> str | None:
    return torch_quantize.refuses_variant(Variant("q", {"quantize": name}), case, machine)


@pytest.mark.parametrize("name", ["float8_weight_only", "float8_dynamic", "int8_weight_only"])
def test_a_missing_torchao_is_refused_with_how_to_install_it(name: str) -> None:
    assert facts(refusal(name, machine(torch="2.11.0")), "torchao") == [
        "torchao",
        "not",
        "--no-deps",
        "requirements/puzzles.txt",
    ]
    assert refusal(name, machine(torchao="0.18.0")) is None


def test_products_in_fp8_want_a_gpu_that_has_them() -> None:
    assert facts(refusal("float8_dynamic", machine((8, 0), torchao="0.18.0")), "compute") == [
        "no",
        "FP8",
        "compute",
        "8.0",
        "8.9",
    ]
    assert facts(refusal("float8_dynamic", machine(None, torchao="0.18.0")), "compute") == [
        "no",
        "GPU",
        "FP8",
        "compute",
        "8.9",
    ]
    assert refusal("float8_weight_only", machine((8, 0), torchao="0.18.0")) is None
    assert refusal("float8_weight_only", machine(None, torchao="0.18.0")) is None


def test_weights_are_quantized_from_half_precision() -> None:
    fp32 = dataclasses.replace(BF16, precision="fp32")
    assert facts(refusal("int8_weight_only", machine(torchao="0.18.0"), fp32), "weights") == [
        "weights",
        "bf16",
        "fp16",
        "not",
        "fp32",
    ]


def test_an_unknown_quantizer_is_named_and_without_the_option_there_is_none() -> None:
    with pytest.raises(
        UserError, match=naming("unknown", "quantizers", "float9", "float8_dynamic", "float8_weight_only")
    ):
        torch_quantize.asked(Variant("q", {"quantize": "float9"}))
    assert torch_quantize.asked(Variant("plain", {})) is None
    assert torch_quantize.refuses_variant(Variant("plain", {}), BF16, machine()) is None


class Tensor:
    """As much of a tensor as its size takes: bytes, or the tensors that a subclass is made of."""

    def __init__(self, nbytes: int, **parts: Tensor) -> None:
        self.nbytes = nbytes
        if parts:
            self.__dict__ |= {**parts, "__tensor_flatten__": lambda: (list(parts), None)}


def test_a_quantized_tensor_takes_what_it_is_made_of() -> None:
    packed = Tensor(4096, numbers=Tensor(2048), scale=Tensor(128))
    module: Any = SimpleNamespace(parameters=lambda: [Tensor(4096, inner=packed)], buffers=lambda: [Tensor(16)])
    assert torch_quantize.size(module) == 2048 + 128 + 16


@pytest.fixture
def opened(tmp_path: Path) -> Callable[..., OpenRequest]:
    (tmp_path / "linear_model.py").write_text(FACTORY)
    (tmp_path / "linear.yaml").write_text(YAML)
    spec = model_spec.load(tmp_path / "linear.yaml")

    def request(**options: Any) -> OpenRequest:
        return OpenRequest(spec.path, spec, "bf16", Shape.parse("b2"), Variant("v", options), CpuDevice(), threads=1)

    return request


def result(session: backend.TorchSession, x: Buffer) -> np.ndarray[Any, Any]:
    session.bind({"x": x})
    session.enqueue()
    (output,) = session.outputs().values()
    assert output.array is not None
    return output.array.copy()


@pytest.mark.slow
def test_open_sessions_share_a_module_only_where_it_is_quantized_alike(
    opened: Callable[..., OpenRequest], host: Callable[..., Buffer], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")

    def zero(module: Any) -> None:
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.zero_()

    zeros = Quantizer("zeros", "Weights of no bits", zero, lambda case, machine: None)
    monkeypatch.setattr(registry, "quantizers", lambda: {"zeros": zeros})
    x = host(np.ones((2, 64), np.float32))
    with backend.open_eager(opened()) as plain, backend.open_eager(opened(quantize="zeros")) as quantized:
        assert not result(quantized, x).any()
        assert result(plain, x).any()
        assert plain.memory() == quantized.memory() == {"weights": 64 * 32 * 2}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torchao's own
@pytest.mark.parametrize(("name", "decibels"), [("float8_weight_only", 25), ("int8_weight_only", 35)])
def test_torchao_halves_the_weights_and_keeps_the_result(
    opened: Callable[..., OpenRequest], host: Callable[..., Buffer], name: str, decibels: float
) -> None:
    pytest.importorskip("torchao", reason="torchao is not installed: requirements/puzzles.txt")
    x = host(np.random.default_rng(0).standard_normal((2, 64), np.float32))
    with backend.open_eager(opened()) as plain, backend.open_eager(opened(quantize=name)) as quantized:
        expected, got = result(plain, x), result(quantized, x)
        assert 64 * 32 < quantized.memory()["weights"] < 1.1 * 64 * 32
    noise = 10 * np.log10((expected**2).sum() / ((got - expected) ** 2).sum())
    assert noise > decibels


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torchao's own
@pytest.mark.parametrize("name", [None, "float8_weight_only", "float8_dynamic", "int8_weight_only"])
def test_no_tensor_is_made_on_another_device_than_the_model_so_that_a_cuda_graph_can_hold_it(
    opened: Callable[..., OpenRequest], name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    away: list[str] = []

    class Watched(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            tensors = [item for item in tree_leaves((args, kwargs, result)) if isinstance(item, torch.Tensor)]
            away.extend(str(function) for item in tensors if item.device.type != "meta")
            return result

    spec = model_spec.load(REPOSITORY / "models/bert_tiny.yaml") if name is None else opened().spec
    module = backend._cast(export.torch_module(spec, attention="sdpa"), "bf16").to("meta")
    if name:
        pytest.importorskip("torchao", reason="torchao is not installed: requirements/puzzles.txt")
        from torchao.quantization import quant_api

        monkeypatch.setattr(quant_api, "is_sm_at_least_89", lambda: True)
        monkeypatch.setattr(quant_api, "_check_hardware_support", lambda granularity: None)
        torch_quantize.quantize(module, registry.quantizers()[name])
    feeds = data.feeds(spec, Shape.parse("b2_s16" if name is None else "b2"), 1, 0)[0]
    inputs = [torch.from_numpy(array).to("meta") for array in feeds.values()]
    with torch.inference_mode(), Watched():
        assert module(*inputs).device.type == "meta"
    assert away == []
