"""Mixes of number formats and sparse graphs on a GPU: ONNX Runtime CUDA gives what its CPU provider gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("modelopt")

from inferprof import precisions, registry  # noqa: E402
from inferprof.backends import ort  # noqa: E402
from inferprof.model import onnx_graph, onnx_reader  # noqa: E402
from inferprof.model.model_spec import InputSpec, ModelSpec  # noqa: E402
from inferprof.plugins import ConvertRequest, OpenRequest  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]
WIDTH, LAYERS = 256, 4
MIXES: list[tuple[str, dict[str, Any]]] = [
    ("int8", {"calibration": "max", "samples": 4}),
    ("fp8", {"samples": 4}),
    ("mixed", {"formats": ["int8", "fp16"], "samples": 4, "nodes": ["int8 product_[01]"]}),
    ("mixed", {"formats": ["fp8", "fp16"], "samples": 4, "nodes": ["fp8 product_[01]"]}),
    ("mixed", {"formats": ["int8", "fp8", "fp16"], "samples": 4, "nodes": ["int8 product_0", "fp8 product_1"]}),
    ("int8_sparse", {"calibration": "max", "samples": 4}),
    ("int4", {"calibration": "rtn", "samples": 1}),
]


@pytest.fixture(scope="module")
def layers(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    """x [b, 128, 256] → four times a product, a bias and a Relu."""
    random, helper = np.random.default_rng(0), onnx.helper
    nodes, weights, last = [], [], "x"
    for number in range(LAYERS):
        arrays = {
            "weight": random.normal(0, (2 / WIDTH) ** 0.5, (WIDTH, WIDTH)),
            "bias": random.normal(0, 0.1, WIDTH),
        }
        weights += [
            onnx.numpy_helper.from_array(a.astype(np.float32), f"{name}_{number}") for name, a in arrays.items()
        ]
        made = [f"{kind}_{number}" for kind in ("product", "sum", "relu")]
        nodes += [
            helper.make_node("MatMul", [last, f"weight_{number}"], [made[0]], made[0]),
            helper.make_node("Add", [made[0], f"bias_{number}"], [made[1]], made[1]),
            helper.make_node("Relu", [made[1]], [made[2]], made[2]),
        ]
        last = made[2]
    nodes.append(helper.make_node("Identity", [last], ["y"], "out"))
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["b", 128, WIDTH]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "layers", values[:1], values[1:], weights)
    path = tmp_path_factory.mktemp("mixes") / "layers.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    inputs = (InputSpec("x", "float32", ("b", 128, WIDTH), data="normal"),)
    return ModelSpec("layers", path.with_suffix(".yaml"), "onnx", inputs, options={"onnx": path.name})


@pytest.mark.parametrize(("name", "options"), MIXES)
def test_a_mix_gives_on_the_gpu_what_it_gives_on_the_cpu(
    name: str,
    options: dict[str, Any],
    layers: ModelSpec,
    opening: Callable[..., OpenRequest],
    infer: Callable[..., dict[str, np.ndarray[Any, Any]]],
    expected: Callable[..., dict[str, np.ndarray[Any, Any]]],
    feeds_of: Callable[[OpenRequest], Any],
    tmp_path: Path,
) -> None:
    out = tmp_path / f"{name}.onnx"
    source = layers.path.with_suffix(".onnx")
    precisions.convert(registry.precisions()[name], ConvertRequest(source, layers, options, out))
    assert onnx_graph.quantized_nodes(onnx_reader.read(out))
    request = opening(layers, "b8", out, name)
    feeds = feeds_of(request)
    with ort.open_cuda(request) as session:
        result = infer(session, request.device, feeds)["y"].astype(np.float64)
    reference = expected(out, request, feeds)["y"].astype(np.float64)
    error = ((result - reference) ** 2).sum() / (reference**2).sum()
    assert 10 * np.log10(1 / max(error, 1e-12)) > 25  # half precision, and 8 bits that round to the other side
