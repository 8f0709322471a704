"""Small ONNX models whose results are known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inferprof.case import Shape, Variant
from inferprof.device import Buffer
from inferprof.devices.cpu import CpuDevice
from inferprof.model import model_spec
from inferprof.plugins import OpenRequest


@pytest.fixture
def weight() -> np.ndarray[Any, Any]:
    """[4, 3]"""
    return np.arange(12, dtype=np.float32).reshape(4, 3)


@pytest.fixture
def small_model(tmp_path: Path, weight: np.ndarray[Any, Any]) -> Callable[..., Path]:
    """x [b, 4], float → the outputs (name, type, dims) of the nodes (operator, inputs, outputs, attributes)."""
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper

    def save(nodes: list[tuple[Any, ...]], outputs: list[tuple[str, str, list[Any]]]) -> Path:
        graph = helper.make_graph(
            [
                helper.make_node(op, inputs, results, name=f"node_{results[0]}", **attributes)
                for op, inputs, results, attributes in nodes
            ],
            "small",
            [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["b", 4])],
            [helper.make_tensor_value_info(name, onnx.TensorProto.DataType.Value(t), d) for name, t, d in outputs],
            [onnx.numpy_helper.from_array(weight, "w")],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(model, tmp_path / "small.onnx")
        return tmp_path / "small.onnx"

    return save


@pytest.fixture
def matmul(small_model: Callable[..., Path]) -> Path:
    """y [b, 3] = x · w"""
    return small_model([("MatMul", ["x", "w"], ["y"], {})], [("y", "FLOAT", ["b", 3])])


@pytest.fixture
def opening() -> Callable[..., OpenRequest]:
    """An OpenRequest on the CPU, for a bare ONNX file at batch 2."""

    def request(model: Path, **changes: Any) -> OpenRequest:
        spec = model_spec.load(model)
        shape = spec.resolve(Shape.parse("b2"))
        assert shape is not None
        fields: dict[str, Any] = {"precision": "fp32", "variant": Variant(), "device": CpuDevice(), "threads": 1}
        return OpenRequest(artifact=model, spec=spec, shape=shape, **{**fields, **changes})

    return request


@pytest.fixture
def x() -> np.ndarray[Any, Any]:
    """[2, 4]"""
    return np.arange(8, dtype=np.float32).reshape(2, 4)


@pytest.fixture
def host() -> Callable[[np.ndarray[Any, Any]], Buffer]:
    """An array as a host buffer."""
    return lambda array: Buffer("cpu", array.ctypes.data, array.shape, array.dtype, owner=array, array=array)
