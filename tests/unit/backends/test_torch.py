from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from tests.unit.facts import facts

from inferprof.backends import inductor
from inferprof.backends import torch as backend
from inferprof.case import Shape, Variant
from inferprof.device import Buffer
from inferprof.devices.cpu import CpuDevice
from inferprof.model import export, model_spec, torch_source
from inferprof.plugins import OpenRequest

pytestmark = pytest.mark.slow

FACTORY = """
import torch

class Scale(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x, ids):
        return self.linear(x) + ids.sum()

def make():
    return Scale()
"""
YAML = """
source: python
python: {module}:make
inputs:
  - {{name: x, dtype: float32, dims: [b, 4]}}
  - {{name: ids, dtype: int64, dims: [2], data: zeros}}
"""


@pytest.fixture
def opened(tmp_path: Path) -> Callable[..., OpenRequest]:
    (tmp_path / "scale_model.py").write_text(FACTORY)
    (tmp_path / "scale.yaml").write_text(YAML.format(module="scale_model"))
    spec = model_spec.load(tmp_path / "scale.yaml")

    def request(precision: str = "fp32", **options: Any) -> OpenRequest:
        variant = Variant("v", options)
        return OpenRequest(spec.path, spec, precision, Shape.parse("b2"), variant, CpuDevice(), threads=1)

    return request


def inputs(host: Callable[..., Buffer], x: np.ndarray[Any, Any]) -> dict[str, Buffer]:
    return {"ids": host(np.array([1, 2])), "x": host(x)}  # in another order than the model's


@pytest.mark.parametrize(("precision", "tolerance"), [("fp16", 1e-2), ("bf16", 1e-1)])
def test_a_cast_model_takes_and_gives_what_the_onnx_graph_does(
    opened: Callable[..., OpenRequest], host: Callable[..., Buffer], x: Any, precision: str, tolerance: float
) -> None:
    results = {}
    for name in ("fp32", precision):
        with backend.open_eager(opened(name)) as session:
            assert session.outputs() == {}
            session.bind(inputs(host, x))
            session.enqueue()
            (output,) = session.outputs().values()
            assert output.array is not None and output.array.dtype == np.float32
            results[name] = output.array.copy()
    np.testing.assert_allclose(results[precision], results["fp32"], atol=tolerance, rtol=tolerance)
    assert not np.array_equal(results[precision], results["fp32"])


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # torch.compile's own imports
def test_a_compiled_model_gives_what_the_eager_one_does(
    opened: Callable[..., OpenRequest], host: Callable[..., Buffer], x: Any
) -> None:
    if not any(shutil.which(name) for name in backend.COMPILERS):
        pytest.skip("no C++ compiler")
    results = []
    for opening in (backend.open_eager, backend.open_compile):
        with opening(opened()) as session:
            session.bind(inputs(host, x))
            session.enqueue()
            (output,) = session.outputs().values()
            assert output.array is not None
            results.append(output.array.copy())
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5)


def test_inputs_are_read_where_they_lie(
    opened: Callable[..., OpenRequest], host: Callable[..., Buffer], x: Any
) -> None:
    with backend.open_eager(opened()) as session:
        session.bind(inputs(host, x))
        session.enqueue()
        before = session.outputs()["output"].array
        assert before is not None
        x += 1
        session.enqueue()
        after = session.outputs()["output"].array
        assert after is not None and not np.array_equal(before, after)


def test_sessions_of_a_pipeline_share_the_weights_and_nothing_else(
    opened: Callable[..., OpenRequest], host: Callable[..., Buffer], x: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = Mock(side_effect=export.torch_module)
    monkeypatch.setattr(export, "torch_module", load)
    with backend.open_eager(opened()) as one, backend.open_eager(opened()) as two:
        for session, array in ((one, x), (two, x + 1)):
            session.bind(inputs(host, array))
            session.enqueue()
        first, second = (session.outputs()["output"].array for session in (one, two))
    assert load.call_count == 1
    assert first is not None and second is not None and not np.array_equal(first, second)
    with backend.open_eager(opened()):
        assert load.call_count == 2, "the model of closed sessions is still held"


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # torch.compile's own imports
def test_what_was_compiled_before_needs_no_compiling_processes(
    opened: Callable[..., OpenRequest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._inductor import config

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(inductor, "cache", lambda: {"hits": 0, "misses": 1})
    threads = []
    with config.patch(compile_threads=8):
        for request in (opened(), opened(), opened(tf32=True)):
            with backend.open_compile(request):
                threads.append(config.compile_threads)
        assert config.compile_threads == 8
    assert threads == [8, 1, 8]


def test_compiled_models_with_graphs_of_their_own_take_no_turns() -> None:
    assert inductor.graphs_share_memory(Variant()) is None
    reason = inductor.graphs_share_memory(Variant("v", {"compile_mode": "reduce-overhead"}))
    assert facts(reason, "memory", "reduce-overhead") == ["CUDA", "compile_mode", "reduce-overhead", "one", "memory"]


def test_tf32_is_off_unless_asked_for() -> None:
    import torch

    torch_source.set_tf32(False)
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == ("highest", False)
    torch_source.set_tf32(True)
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == ("high", True)
    torch_source.set_tf32(False)
