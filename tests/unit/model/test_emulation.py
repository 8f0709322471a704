"""Half precision on a CPU: rounded behind every node, so that an overflow shows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.unit.facts import naming

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from inferprof.model import emulation  # noqa: E402


def graph(nodes: list[Any], weights: dict[str, np.ndarray[Any, Any]]) -> Any:
    """A model x → y, both float32 of shape [4]."""
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4]) for name in "xy")
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
    body = onnx.helper.make_graph(nodes, "test", [x], [y], tensors)
    return onnx.helper.make_model(body, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)


def scaled(dtype: int, factor: float, back: float) -> Any:
    """y = (x × factor) × back, computed in half precision."""
    node = onnx.helper.make_node
    array = np.float16 if dtype == onnx.TensorProto.FLOAT16 else np.float32
    weights = {"factor": np.array(factor, array), "back": np.array(back, array)}
    nodes = [
        node("Cast", ["x"], ["half"], to=dtype),
        node("Cast", ["factor"], ["factor_half"], to=dtype),
        node("Cast", ["back"], ["back_half"], to=dtype),
        node("Mul", ["half", "factor_half"], ["large"]),
        node("Mul", ["large", "back_half"], ["small"]),
        node("Cast", ["small"], ["y"], to=onnx.TensorProto.FLOAT),
    ]
    return graph(nodes, weights)


def run(model: Any, values: list[float]) -> list[float]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found: list[float] = session.run(None, {"x": np.array(values, np.float32)})[0].tolist()
    return found


def test_an_overflow_of_float16_becomes_infinite_as_on_a_gpu() -> None:
    model = scaled(onnx.TensorProto.FLOAT16, 1024.0, 1 / 1024)
    assert run(model, [1.0, 100.0, 0.0, -100.0]) == [1.0, 100.0, 0.0, -100.0]  # ONNX Runtime's CPU alone hides it
    rounded = emulation.rounded_in_float32(model)
    assert run(rounded, [1.0, 100.0, 0.0, -100.0]) == [1.0, float("inf"), 0.0, float("-inf")]


def test_bfloat16_runs_and_rounds_to_eight_significant_bits() -> None:
    rounded = emulation.rounded_in_float32(scaled(onnx.TensorProto.BFLOAT16, 1.0, 1.0))
    assert run(rounded, [1.0, 1.01, 257.0, 3e38]) == [1.0, 1.0078125, 256.0, 226 * 2.0**120]


def test_a_float32_graph_is_left_alone() -> None:
    model = graph([onnx.helper.make_node("Relu", ["x"], ["y"])], {})
    assert not emulation.uses_half(model)
    assert emulation.uses_half(scaled(onnx.TensorProto.FLOAT16, 1.0, 1.0))


def test_a_graph_with_subgraphs_is_refused_by_the_name_of_the_node() -> None:
    identity = onnx.helper.make_node("Identity", ["x"], ["inner"])
    inner = onnx.helper.make_tensor_value_info("inner", onnx.TensorProto.FLOAT, [4])
    branch = onnx.helper.make_graph([identity], "branch", [], [inner])
    condition = np.array(True)
    node = onnx.helper.make_node("If", ["condition"], ["y"], "choice", then_branch=branch, else_branch=branch)
    with pytest.raises(NotImplementedError, match=naming("node choice (If)", "subgraph")):
        emulation.rounded_in_float32(graph([node], {"condition": condition}))
