"""What a product of a graph is to a kernel."""

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from inferprof.documents.graph import Gemm  # noqa: E402
from inferprof.model import typed_graph  # noqa: E402
from inferprof.model.products import gemm_of  # noqa: E402

node = onnx.helper.make_node


def gemm(product: Any, left: list[Any], right: list[Any], weight: bool, batch: int = 8) -> Gemm | None:
    """The GEMM of a node of x and y."""
    inputs = [onnx.helper.make_tensor_value_info("x", 1, left)]
    weights = []
    if weight:
        weights = [onnx.numpy_helper.from_array(np.ones(right, "float32"), "y")]
    else:
        inputs.append(onnx.helper.make_tensor_value_info("y", 1, right))
    outputs = [onnx.helper.make_tensor_value_info("z", 1, None)]
    graph = onnx.helper.make_graph([product], "test", inputs, outputs, weights)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    return gemm_of(product, typed_graph.analyse(model, {"b": batch}))


def test_a_layer_sees_batch_and_sequence_as_rows_of_one_matrix():
    found = gemm(node("MatMul", ["x", "y"], ["z"]), ["b", 197, 768], [768, 3072], weight=True)
    assert found == Gemm(m=1576, n=3072, k=768, count=1, batch_in="m")


def test_products_of_activations_are_one_each_per_item_and_head():
    found = gemm(node("MatMul", ["x", "y"], ["z"]), ["b", 12, 197, 64], ["b", 12, 64, 197], weight=False)
    assert found == Gemm(m=197, n=197, k=64, count=96, batch_in="count")


def test_a_convolution_is_its_implicit_gemm():
    patches = node("Conv", ["x", "y"], ["z"], kernel_shape=[16, 16], strides=[16, 16])
    found = gemm(patches, ["b", 3, 224, 224], [768, 3, 16, 16], weight=True)
    assert found == Gemm(m=8 * 14 * 14, n=768, k=3 * 16 * 16, count=1, batch_in="m")


def test_each_group_of_a_convolution_is_a_product_of_its_own():
    depthwise = node("Conv", ["x", "y"], ["z"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], group=32)
    found = gemm(depthwise, ["b", 32, 28, 28], [32, 1, 3, 3], weight=True)
    assert found == Gemm(m=8 * 28 * 28, n=1, k=9, count=32, batch_in="m")


def test_a_transposed_weight_is_multiplied_the_way_that_the_node_says():
    found = gemm(node("Gemm", ["x", "y"], ["z"], transB=1), ["b", 768], [1000, 768], weight=True)
    assert found == Gemm(m=8, n=1000, k=768, count=1, batch_in="m")


def test_what_is_no_product_has_none():
    assert gemm(node("Add", ["x", "y"], ["z"]), ["b", 8], [8], weight=True) is None
