"""Sparse and 4-bit weights: what is added to a graph, what is padded, and what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tests.unit.planted import TOY_INT8, WIDTH, Residual, request

from inferprof.errors import CaseFailed
from inferprof.model import accuracy
from inferprof.plugins import ConvertRequest
from inferprof.precisions import int4, results, sparse


def asked(model: Any, tmp_path: Path, **options: Any) -> ConvertRequest:
    return dataclasses.replace(request(model, tmp_path), options={"samples": 4, "exclude": [], **options})


def test_a_result_that_nothing_quantizes_gets_a_quantizer_with_the_calibrated_scale(tmp_path: Path) -> None:
    given = asked(Residual(2).model(), tmp_path)
    TOY_INT8.convert(given)
    before = onnx.load(given.out)
    pairs = sum(node.op_type == "QuantizeLinear" for node in before.graph.node)
    assert results.quantize(given) == 2
    after = onnx.load(given.out)
    assert sum(node.op_type == "QuantizeLinear" for node in after.graph.node) == pairs + 2
    sample = {"x": np.random.default_rng(5).normal(size=(4, 4, WIDTH)).astype(np.float32)}
    exact, rounded = (accuracy.session(graph).run(None, sample)[0] for graph in (before, after))
    error = float(((exact - rounded) ** 2).sum() / (exact**2).sum())
    assert 0 < error < 1e-3
    assert results.quantize(given) == 0


def test_a_sparse_graph_is_proven_behind_its_quantization(tmp_path: Path) -> None:
    given = asked(Residual(2).model(), tmp_path, results=True)
    facts = sparse.convert(given, TOY_INT8_FACTS)
    assert facts["proof"] == {"products": 2, "fours": 2 * WIDTH * WIDTH // 4, "broken": 0}
    assert facts["results_quantized"] == 2


def test_a_conversion_that_loses_the_zeros_fails_with_the_product(tmp_path: Path) -> None:
    def spoils(inner: ConvertRequest) -> dict[str, Any]:
        facts = TOY_INT8_FACTS.convert(inner)
        model = onnx.load(inner.out)
        weight = next(w for w in model.graph.initializer if len(w.dims) == 2)
        array = onnx.numpy_helper.to_array(weight).copy()
        array[np.nonzero(array == 0)[0][0], np.nonzero(array == 0)[1][0]] = 1
        array[tuple(np.argwhere(array)[-1])] = 0
        weight.CopyFrom(onnx.numpy_helper.from_array(array, weight.name))
        onnx.save(model, inner.out)
        return facts

    with pytest.raises(CaseFailed):
        sparse.convert(asked(Residual(2).model(), tmp_path), dataclasses.replace(TOY_INT8, convert=spoils))


def _with_method(inner: ConvertRequest) -> dict[str, Any]:
    TOY_INT8.convert(inner)
    return {"method": "a toy"}


TOY_INT8_FACTS = dataclasses.replace(TOY_INT8, convert=_with_method)


@pytest.mark.parametrize(
    ("made", "weight"),
    [
        (onnx.helper.make_node("MatMul", ["x", "w"], ["y"], "p"), (50, 8)),
        (onnx.helper.make_node("Gemm", ["x", "w"], ["y"], "p"), (50, 8)),
        (onnx.helper.make_node("Gemm", ["x", "w"], ["y"], "p", transB=1), (8, 50)),
    ],
    ids=["MatMul", "Gemm", "Gemm transposed"],
)
def test_a_reduction_that_a_block_does_not_divide_is_padded_with_the_same_result(made: Any, weight: Any) -> None:
    random = np.random.default_rng(0)
    values = [onnx.helper.make_tensor_value_info(n, 1, ["b", w]) for n, w in (("x", 50), ("y", 8))]
    stored = onnx.numpy_helper.from_array(random.normal(size=weight).astype(np.float32), "w")
    body = onnx.helper.make_graph([made], "t", values[:1], values[1:], [stored])
    model = onnx.helper.make_model(body, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)
    sample = {"x": random.normal(size=(3, 50)).astype(np.float32)}
    expected = accuracy.session(model).run(None, sample)[0]
    assert int4.fit(model, 32) == (["p"], [])
    assert [[*w.dims] for w in model.graph.initializer if len(w.dims) == 2] == [[64, 8]]
    np.testing.assert_allclose(accuracy.session(model).run(None, sample)[0], expected, rtol=1e-5, atol=1e-5)


def test_a_weight_on_the_left_is_left_and_named() -> None:
    values = [onnx.helper.make_tensor_value_info(n, 1, [s, 4]) for n, s in (("x", 64), ("y", 8))]
    stored = onnx.numpy_helper.from_array(np.ones((8, 64), np.float32), "w")
    product = onnx.helper.make_node("MatMul", ["w", "x"], ["y"], "p")
    model = onnx.helper.make_model(onnx.helper.make_graph([product], "t", values[:1], values[1:], [stored]))
    assert int4.fit(model, 32) == ([], ["p"])
