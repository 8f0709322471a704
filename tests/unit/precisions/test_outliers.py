"""Outlier channels apart: the same results in float, fewer errors in INT8."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tests.unit.planted import WIDTH, Residual, quantized, request

from inferprof import precisions, registry
from inferprof.errors import UserError
from inferprof.model import accuracy
from inferprof.plugins import ConvertRequest
from inferprof.precisions import outliers


def massive() -> Any:
    """A usual product, and a MatMul and a Gemm of which two channels are 300 times the others in both operands."""
    graph = Residual(1)
    gain = np.ones(WIDTH)
    gain[[5, 9]] = 300
    stretched = graph.node("Mul", graph.last, graph.constant(gain))
    products = [graph.node("MatMul", stretched, graph.constant(graph.weights[graph.weight()] * gain[:, None] / 30))]
    flat = graph.node("Reshape", stretched, graph.integers([-1, WIDTH]))
    turned = graph.constant((graph.weights[graph.weight()] * gain[:, None]).T)
    products.append(graph.node("Reshape", graph.node("Gemm", flat, turned, transB=1), graph.integers([-1, 4, WIDTH])))
    graph.last = graph.node("Add", graph.last, graph.node("Add", *products))
    return graph.model()


def asked(tmp_path: Path, times: Any) -> ConvertRequest:
    given = request(massive(), tmp_path)
    return ConvertRequest(given.onnx, given.spec, {"samples": 16, "outliers": times}, given.out)


def sqnr(request: ConvertRequest, reference: Path) -> float:
    """Of INT8 of the request's graph, where the outliers are 0 and the others are what is left."""
    quantized(request)
    x = np.random.default_rng(5).normal(size=(32, 4, WIDTH)).astype(np.float32)
    x[..., [5, 9]] /= 300
    actual, expected = (accuracy.session(str(path)).run(None, {"x": x})[0] for path in (request.out, reference))
    return float(accuracy.distance(expected, actual)["sqnr_db"])


def test_a_graph_with_outliers_apart_computes_the_same_and_loses_less_in_int8(tmp_path: Path) -> None:
    plain = asked(tmp_path, 8)
    apart = outliers.apart(plain, tmp_path)
    x = {"x": np.random.default_rng(3).normal(size=(2, 4, WIDTH)).astype(np.float32)}
    same, expected = (accuracy.session(str(each.onnx)).run(None, x)[0] for each in (apart, plain))
    np.testing.assert_allclose(same, expected, rtol=1e-3, atol=1e-3)
    added = [node.op_type for node in onnx.load(apart.onnx).graph.node if outliers.APART in node.name]
    assert {op: added.count(op) for op in added} == {"Gather": 4, "Clip": 2, "Mul": 4, "Add": 4}
    assert sqnr(apart, plain.onnx) > sqnr(plain, plain.onnx) + 5


def test_what_is_apart_reads_no_tensor_that_was_quantized_for_another_node(tmp_path: Path) -> None:
    apart = outliers.apart(asked(tmp_path, 8), tmp_path)
    model = onnx.load(apart.onnx)
    read = next(node.input[0] for node in model.graph.node if node.op_type == "Clip")
    readers = [node for node in model.graph.node if read in node.input]
    scale = [onnx.numpy_helper.from_array(array, name) for array, name in ((np.float32(0.1), "s"), (np.int8(0), "z"))]
    model.graph.initializer.extend(scale)
    for reader in readers:
        reader.input[:] = [f"{read}/dq" if name == read else name for name in reader.input]
    pair = [
        onnx.helper.make_node("QuantizeLinear", [read, "s", "z"], [f"{read}/q"]),
        onnx.helper.make_node("DequantizeLinear", [f"{read}/q", "s", "z"], [f"{read}/dq"]),
    ]
    model.graph.node.extend(pair)
    outliers.in_high_precision(model)
    left = [node.name for node in model.graph.node if f"{read}/dq" in node.input]
    assert left
    assert not any(outliers.APART in name for name in left)
    assert {name for node in readers if outliers.APART in node.name for name in node.input} >= {read}


def test_nothing_is_apart_unless_asked(tmp_path: Path) -> None:
    plain = asked(tmp_path, 0)
    assert outliers.apart(plain, tmp_path) is plain


@pytest.mark.parametrize("times", [-1, 0.5, 1, "much", True])
def test_a_reach_that_no_outlier_can_have_is_refused(times: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="int8: outliers"):
        precisions.convert(registry.precisions()["int8"], asked(tmp_path, times))


def test_channels_that_reach_far_are_outliers_where_few_of_them_shorten_the_reach() -> None:
    reach = np.ones(32)
    reach[[3, 4]] = 9, 7
    assert outliers.outliers(reach, 8) == [3]
    reach[:5] = 9
    assert outliers.outliers(reach, 8) == []
    reach[[1, 2, 5, 6]] = 40, 50, 30, 20
    assert outliers.outliers(reach, 8) == [1, 2, 5, 6]
    assert outliers.outliers(np.zeros(4), 8) == []
