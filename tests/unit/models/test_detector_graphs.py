"""The conversions at the ends of the detector's graph, on a graph of one Sigmoid."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

GRAPHS = runpy.run_path(str(Path(__file__).parents[3] / "models" / "detector_graphs.py"))
X = np.linspace(-8, 8, 33, dtype=np.float32).reshape(1, 33)
MAP = 1 / (1 + np.exp(-X))


def edited(name: str) -> tuple[onnx.ModelProto, Any]:
    """The graph after an edit, valid, and a session of it."""
    onnxruntime = pytest.importorskip("onnxruntime")
    x, y = (helper.make_tensor_value_info(tensor, TensorProto.FLOAT, ["b", 33]) for tensor in "xy")
    graph = helper.make_graph([helper.make_node("Sigmoid", ["x"], ["y"])], "g", [x], [y])
    model = GRAPHS[name](helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8))
    onnx.checker.check_model(model, full_check=True)
    return model, onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def test_a_half_input_is_cast_by_the_first_node_of_the_graph() -> None:
    model, session = edited("half_input")
    assert [node.op_type for node in model.graph.node] == ["Cast", "Sigmoid"]
    (y,) = session.run(None, {"x": X.astype(np.float16)})
    np.testing.assert_allclose(y, MAP, atol=1e-3)
    assert y.dtype == np.float32


def test_a_byte_map_has_each_probability_to_half_a_level() -> None:
    _, session = edited("byte_map")
    (y,) = session.run(None, {"x": X})
    assert y.dtype == np.uint8 and (y.min(), y.max()) == (0, 255)
    assert np.abs(y / 255 - MAP).max() <= 0.5 / 255 + 1e-6
