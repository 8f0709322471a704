"""Settings of ONNX Runtime and torch: what a variant says reaches the runtime."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.facts import naming

from inferprof import registry
from inferprof.backends import ort_options
from inferprof.case import Variant
from inferprof.errors import UserError
from inferprof.runtime_option import RuntimeOption


@pytest.mark.parametrize("backend", ["ort_cpu", "ort_cuda", "torch_eager", "torch_compile"])
def test_each_setting_has_a_source_and_tries_what_it_allows(backend: str) -> None:
    options = registry.runtime_options(backend)
    assert options
    for option in options.values():
        assert option.source.startswith("https://")
        assert all(option.given(Variant("v", {option.name: value})) is not None for value in option.tries)
        assert not option.values or next(iter(option.values)) not in option.tries
    assert options.keys() <= registry.options_of(registry.backends()[backend]).keys()


def test_settings_reach_the_session() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    name = "arena=false+dynamic_blocks=4+execution=parallel+graph_optimization=basic+spinning=false"
    ort_options.apply(options, Variant.read(name))
    assert options.graph_optimization_level == onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    assert options.execution_mode == onnxruntime.ExecutionMode.ORT_PARALLEL
    assert options.enable_cpu_mem_arena is False and options.enable_mem_pattern is True
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert options.get_session_config_entry("session.dynamic_block_base") == "4"


def test_tunable_operators_tune_where_they_are_on() -> None:
    variant = Variant("v", {"tunable_op": True, "conv_search": "heuristic"})
    assert ort_options.of_cuda(variant) == {
        "cudnn_conv_algo_search": "HEURISTIC",
        "tunable_op_enable": "1",
        "tunable_op_tuning_enable": "1",
    }
    assert ort_options.of_cuda(Variant()) == {}


@pytest.mark.parametrize("value", ["fast", 3, ["all"]])
def test_a_value_that_a_setting_lacks_is_refused_with_those_that_it_has(value: str | int | list[str]) -> None:
    with pytest.raises(UserError, match=naming("graph_optimization", "all", "basic")):
        ort_options.GRAPH_OPTIMIZATION.given(Variant("v", {"graph_optimization": value}))


def test_channels_last_is_refused_of_a_model_without_images(repository: Path) -> None:
    from inferprof.machine.hardware import Machine
    from inferprof.model.model_spec import load

    option: RuntimeOption = registry.runtime_options("torch_eager")["memory_format"]
    machine = Machine(gpu=None)
    assert option.refuses(load(repository / "models/minilm.yaml"), machine)
    assert option.refuses(load(repository / "models/vit_tiny.yaml"), machine) is None


def test_channels_last_gives_what_contiguous_gives() -> None:
    torch = pytest.importorskip("torch")
    from inferprof.backends import torch_options

    module = torch.nn.Conv2d(3, 4, 3).eval()
    images = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        plain = module(images)
        other = torch_options.formatted(module, Variant("v", {"memory_format": "channels_last"}))(images)
    assert torch.allclose(plain, other, atol=1e-5)
    assert module.weight.is_contiguous(memory_format=torch.channels_last)


def test_a_variant_named_by_its_options_is_read_again() -> None:
    variant = Variant.spelled({"threads": 2, "spinning": False, "compile_mode": "max-autotune"})
    assert variant.name == "compile_mode=max-autotune+spinning=false+threads=2"
    assert Variant.read(variant.name).options == variant.options


@pytest.mark.parametrize("name", ["fast", "a=", "=1", "a=1+", "a=b/c", "A=1"])
def test_other_names_are_no_options(name: str) -> None:
    with pytest.raises(UserError):
        Variant.read(name)
