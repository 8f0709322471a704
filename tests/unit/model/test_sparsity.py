"""2:4 sparse weights: made, counted four by four in a graph, and what keeps a sparse kernel from using them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from inferprof.model import sparsity, typed_graph

FLOAT, INT8, E4M3, E2M1 = 1, 3, 17, 23
node = onnx.helper.make_node
RANDOM = np.random.default_rng(0).normal(size=(512, 512)).astype(np.float32)


def graph(nodes: list[Any], weights: dict[str, Any], width: int = 512) -> typed_graph.TypedGraph:
    values = [onnx.helper.make_tensor_value_info(name, FLOAT, ["b", width]) for name in ("x", "y")]
    stored = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()]
    body = onnx.helper.make_graph(nodes, "test", values[:1], values[1:], stored)
    model = onnx.helper.make_model(body, opset_imports=[onnx.helper.make_opsetid("", 23)])
    return typed_graph.analyse(model, {})


def in_8_bits(weight: Any, *, quantized: bool) -> typed_graph.TypedGraph:
    """Both operands in INT8, then a bias and a Softmax, with a quantizer between them or none."""
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
        node("QuantizeLinear", ["w", "s", "z"], ["wq"]),
        node("DequantizeLinear", ["wq", "s", "z"], ["wd"]),
        node("MatMul", ["xd", "wd"], ["h"], "product"),
        node("Add", ["h", "bias"], ["biased"]),
        node("QuantizeLinear", ["biased", "s", "z"], ["bq"]),
        node("DequantizeLinear", ["bq", "s", "z"], ["bd"]),
        node("Softmax", ["bd" if quantized else "biased"], ["y"]),
    ]
    kept = nodes if quantized else [n for n in nodes if n.output[0] not in ("bq", "bd")]
    scale = {"s": np.float32(0.1), "z": np.int8(0), "bias": np.ones(512, np.float32)}
    return graph(kept, {"w": weight, **scale})


@pytest.mark.parametrize("axis", [0, 1])
def test_of_each_four_along_the_reduction_the_two_largest_stay(axis: int) -> None:
    weight = np.array([[1, -9, 3, 4, 0, 0, 0, 5]], np.float32)
    weight = weight if axis else weight.T
    kept = sparsity.pruned(weight, axis)
    assert kept.ravel().tolist() == [0, -9, 0, 4, 0, 0, 0, 5]
    assert kept.dtype == np.float32


def test_pairs_of_neighbours_stay_or_go_together() -> None:
    weight = np.array([[1, -9, 5, 4, 2, 2, 3, 0]], np.float32)
    assert sparsity.pruned(weight, 1, 2).tolist() == [[1, -9, 0, 0, 0, 0, 3, 0]]


def test_a_convolution_is_pruned_along_its_input_channels() -> None:
    weight = RANDOM[:, :8].reshape(8, 32, 4, 4)
    kept = sparsity.pruned(weight, sparsity.reduction_axis(node("Conv", ["x", "w"], ["y"])))
    assert (np.count_nonzero(kept.reshape(8, 8, 4, 16), axis=2) == 2).all()


@pytest.mark.parametrize(
    ("made", "weight"),
    [
        (node("MatMul", ["x", "w"], ["y"], "p"), sparsity.pruned(RANDOM, 0)),
        (node("Gemm", ["x", "w"], ["y"], "p"), sparsity.pruned(RANDOM, 0)),
        (node("Gemm", ["x", "w"], ["y"], "p", transB=1), sparsity.pruned(RANDOM, 1)),
    ],
    ids=["MatMul", "Gemm", "Gemm transposed"],
)
def test_every_four_is_counted_and_one_weight_too_many_is_seen(made: Any, weight: Any) -> None:
    (row,) = sparsity.products(graph([made], {"w": weight}))
    assert (row["fours"], row["broken"], row["k"], row["n"]) == (512 * 128, 0, 512, 512)
    assert sparsity.is_sparse(made, graph([made], {"w": weight}))
    spoilt = weight.copy()
    places = np.argwhere(spoilt == 0)
    spoilt[tuple(places[7])], spoilt[tuple(np.argwhere(weight)[-1])] = 1, 0
    (row,) = sparsity.products(graph([made], {"w": spoilt}))
    assert row["broken"] == 1
    assert not sparsity.is_sparse(made, graph([made], {"w": spoilt}))


def test_zeros_along_the_other_axis_are_no_2_4_pattern() -> None:
    product = node("MatMul", ["x", "w"], ["y"], "p")
    (row,) = sparsity.products(graph([product], {"w": sparsity.pruned(RANDOM, 1)}))
    assert row["broken"] > 10_000


def test_a_dense_weight_is_no_row() -> None:
    assert sparsity.products(graph([node("MatMul", ["x", "w"], ["y"], "p")], {"w": RANDOM})) == []


def test_in_float32_there_is_no_sparse_kernel() -> None:
    (row,) = sparsity.products(graph([node("MatMul", ["x", "w"], ["y"], "p")], {"w": sparsity.pruned(RANDOM, 0)}))
    assert [text for text in row["obstacles"] if "float32" in text]


def test_an_8_bit_product_wants_its_result_quantized_behind_its_bias() -> None:
    sparse = sparsity.pruned(RANDOM, 0)
    (row,) = sparsity.products(in_8_bits(sparse, quantized=True))
    assert (row["dtype"], row["obstacles"]) == ("int8", [])
    left = in_8_bits(sparse, quantized=False)
    assert sparsity.unquantized_results(left) == [("biased", "product")]
    assert len(sparsity.products(left)[0]["obstacles"]) == 1


def test_small_and_odd_sizes_are_told() -> None:
    sparse = sparsity.pruned(RANDOM[:, :100], 0)
    sparse = np.concatenate([sparse, np.zeros((4, 100), np.float32)]).astype(np.float16)
    values = [onnx.helper.make_tensor_value_info(n, 10, ["b", w]) for n, w in (("x", 516), ("y", 100))]
    body = onnx.helper.make_graph(
        [node("MatMul", ["x", "w"], ["y"], "p")],
        "t",
        values[:1],
        values[1:],
        [onnx.numpy_helper.from_array(sparse, "w")],
    )
    (row,) = sparsity.products(typed_graph.analyse(onnx.helper.make_model(body), {}))
    assert (row["k"], row["n"]) == (516, 100)
    assert [any(number in text for text in row["obstacles"]) for number in ("516", "100")] == [True, True]


@pytest.mark.parametrize(("neighbours", "obstacles"), [(1, 1), (2, 0)])
def test_4_bit_zeros_have_to_come_in_pairs(neighbours: int, obstacles: int) -> None:
    import ml_dtypes

    sparse = sparsity.pruned(RANDOM, 0, neighbours).astype(ml_dtypes.float4_e2m1fn)
    nodes = [
        node("QuantizeLinear", ["x", "s"], ["xq"], output_dtype=E2M1),
        node("DequantizeLinear", ["xq", "s"], ["xd"]),
        node("DequantizeLinear", ["w", "s"], ["wd"]),
        node("MatMul", ["xd", "wd"], ["y"], "product"),
    ]
    (row,) = sparsity.products(graph(nodes, {"w": sparse, "s": np.float32(1)}))
    assert row["dtype"] == "float4e2m1"
    assert len(row["obstacles"]) == obstacles
