"""Planted causes are found first on graphs of odd forms: other opsets, weights on the left, tied, apart, bodies."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.unit.planted import TOY_INT8, WIDTH, Residual, request

from inferprof import sensitivity
from inferprof.model import audit
from inferprof.plugins import Precision
from inferprof.precisions.fp16 import FP16
from inferprof.precisions.int8 import INT8
from inferprof.sensitivity import answer

FAR = 7
"""The channel that is stretched."""


def scaled() -> Any:
    gain = np.ones(WIDTH)
    gain[FAR] = 300
    return gain


def left_constant(graph: Residual) -> str:
    """W · x: the channels of x are its rows."""
    gain = scaled()[:4]
    gain[3] = 300
    stretched = graph.node("Mul", graph.node("Abs", graph.last), graph.constant(gain[:, None]))
    weight = graph.random.normal(size=(4, 4)) / gain
    graph.last = graph.node("MatMul", graph.constant(weight), stretched, name="planted")
    return "channel 3 of input 1"


def turned_gemm(graph: Residual) -> str:
    """Gemm with transB, whose result is added to what is much larger than the other units' own."""
    rows = graph.node("Reshape", graph.last, graph.integers([-1, WIDTH]))
    bias = graph.constant(np.ones(WIDTH))
    large = graph.node("Gemm", rows, graph.weight(1000), bias, name="planted", transB=1)
    small = graph.node("Gemm", rows, graph.weight(), bias, transB=1)
    graph.last = graph.node("Reshape", graph.node("Add", large, small), graph.integers([-1, 4, WIDTH]))
    return "large results"


def tied(graph: Residual) -> str:
    """One weight for three products, two of them in the branches of an If."""
    weight = graph.weight()
    graph.last = graph.node("Tanh", graph.node("MatMul", graph.last, weight))
    stretched = graph.node("Mul", graph.last, graph.constant(scaled()))
    outlier = graph.constant(graph.random.normal(size=(WIDTH, WIDTH)) / scaled()[:, None])
    graph.last = graph.node("Add", graph.last, graph.node("MatMul", stretched, outlier, name="planted"))
    branches = {}
    for name, op in (("then_branch", "Relu"), ("else_branch", "Tanh")):
        nodes = [helper.make_node("MatMul", [graph.last, weight], [f"{name}/product"])]
        nodes.append(helper.make_node(op, [f"{name}/product"], [f"{name}/out"]))
        out = helper.make_tensor_value_info(f"{name}/out", TensorProto.FLOAT, None)
        branches[name] = helper.make_graph(nodes, name, [], [out])
    mean = graph.node("ReduceMean", graph.last, keepdims=0)
    graph.last = graph.node("If", graph.node("Greater", mean, graph.constant(0)), **branches)
    return f"channel {FAR} of input 0"


def looped(graph: Residual) -> str:
    """A product whose results overflow, in front of a loop."""
    product = graph.node("MatMul", graph.last, graph.weight(1e6), name="planted")
    graph.last = graph.node("Add", graph.last, graph.node("Tanh", product))
    weight = graph.weight()
    nodes = [
        helper.make_node("Identity", ["go"], ["goes"]),
        helper.make_node("MatMul", ["state", weight], ["product"]),
        helper.make_node("Tanh", ["product"], ["next"]),
    ]
    values = {
        name: helper.make_tensor_value_info(name, dtype, shape)
        for name, dtype, shape in (
            ("turn", TensorProto.INT64, []),
            ("go", TensorProto.BOOL, []),
            ("state", TensorProto.FLOAT, None),
            ("goes", TensorProto.BOOL, []),
            ("next", TensorProto.FLOAT, None),
        )
    }
    body = helper.make_graph(
        nodes, "body", [values[name] for name in ("turn", "go", "state")], [values["goes"], values["next"]]
    )
    graph.last = graph.node("Loop", graph.integers([3]), "", graph.last, body=body)
    return "overflow"


def in_pieces(graph: Residual) -> str:
    """A normalization by a product with itself and a reciprocal root."""
    large = graph.node("Mul", graph.last, graph.constant(500))
    square = graph.node("Mul", large, large, name="planted")
    root = graph.node("Sqrt", graph.node("Add", graph.node("ReduceMean", square), graph.constant(1e-5)))
    graph.last = graph.node("Mul", large, graph.node("Reciprocal", root))
    return "normalization in pieces"


@pytest.mark.parametrize(
    ("planted", "precision", "opset"),
    [
        *((planted, TOY_INT8, opset) for planted in (left_constant, turned_gemm) for opset in (13, 17)),
        *((tied, INT8, opset) for opset in (9, 17)),
        *((planted, FP16, opset) for planted in (looped, in_pieces) for opset in (9, 13, 17)),
    ],
)
def test_a_planted_cause_is_found_first_on_a_graph_of_odd_form(
    planted: Callable[[Residual], str], precision: Precision, opset: int, tmp_path: Path
) -> None:
    graph = Residual(2)
    cause = planted(graph)
    graph.block()
    model = graph.model()
    model.opset_import[0].version = opset
    asked = request(model, tmp_path)
    model = onnx.load(asked.onnx)
    onnx.save(model, asked.onnx, save_as_external_data=True, location="weights.bin", size_threshold=0)
    options: dict[str, Any] = {"calibration": "max", "samples": 8} if precision is INT8 else {}
    first = sensitivity.analyse(dataclasses.replace(asked, options=options), precision, 16)["units"][0]
    assert "planted" in first["nodes"]
    assert cause in (first["cause"] or "")


@pytest.mark.parametrize("operand", [0, 1])
@pytest.mark.parametrize("turned_b", [0, 1])
@pytest.mark.parametrize("turned_a", [0, 1])
def test_a_gemms_outlier_channel_is_that_of_its_sums_whichever_side_is_turned(
    turned_a: int, turned_b: int, operand: int, tmp_path: Path
) -> None:
    graph = Residual(2)
    gains = [scaled(), 1 / scaled()][:: 1 if operand == 0 else -1]
    rows = graph.node("Reshape", graph.last, graph.integers([-1, WIDTH]))
    rows = graph.node("Mul", rows, graph.constant(gains[0]))
    weight = graph.random.normal(size=(WIDTH, WIDTH)) / 10 * gains[1][:, None]
    left = graph.node("Transpose", rows, perm=[1, 0]) if turned_a else rows
    right = graph.constant(weight.T if turned_b else weight)
    product = graph.node("Gemm", left, right, name="planted", transA=turned_a, transB=turned_b)
    graph.last = graph.node("Add", graph.last, graph.node("Reshape", product, graph.integers([-1, 4, WIDTH])))
    graph.block()
    first = sensitivity.analyse(request(graph.model(), tmp_path), TOY_INT8, 16)["units"][0]
    assert first["nodes"] == ["planted"]
    assert f"channel {FAR} of input {operand}" in first["cause"]


@pytest.mark.parametrize(("planted", "op", "nodes"), [(tied, "If", 4), (looped, "Loop", 3)])
def test_nodes_in_bodies_are_counted_by_the_node_that_has_them_in_the_answer_and_the_audit(
    planted: Callable[[Residual], str], op: str, nodes: int, tmp_path: Path
) -> None:
    graph = Residual(1)
    planted(graph)
    name = f"{op}_{graph.last} ({op})"
    asked = request(graph.model(), tmp_path)
    result = sensitivity.analyse(asked, TOY_INT8, 16)
    assert result["in_bodies"] == {name: nodes}
    said = [line for line in answer.render(result).splitlines() if name in line]
    assert [line.split()[0] for line in said] == [str(nodes)]
    checked = audit.audit(asked.onnx, "int8", None)
    assert checked["in_bodies"] == {name: nodes}
    assert any(name in line and line.startswith(f"{nodes} ") for line in checked["advice"])
    assert not any(name in line for line in audit.audit(asked.onnx, "fp16", None)["advice"])
