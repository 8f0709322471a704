from __future__ import annotations

import onnx
import pytest

from inferprof.precisions import torch_graph

HALF, FLOAT = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT


def graph_of(*nodes: onnx.NodeProto) -> onnx.GraphProto:
    """Half inside, a float32 output `y`."""
    weight = onnx.helper.make_tensor("w", HALF, [4, 4], [0.5] * 16)
    value = onnx.helper.make_tensor_value_info
    return onnx.helper.make_graph(
        list(nodes), "g", [value("x", HALF, ["b", 4])], [value("y", FLOAT, ["b", 4])], [weight]
    )


@pytest.mark.parametrize("dropped", [False, True], ids=["ends in a Cast", "ModelOpt dropped the Cast"])
def test_the_last_product_is_cast_to_the_type_that_the_output_is_declared_in(dropped: bool) -> None:
    product = onnx.helper.make_node("MatMul", ["x", "w"], ["y" if dropped else "h"])
    cast = onnx.helper.make_node("Cast", ["h"], ["y"], to=FLOAT)
    graph = graph_of(product) if dropped else graph_of(product, cast)
    torch_graph._cast_outputs(graph)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    assert [node.op_type for node in graph.node] == ["MatMul", "Cast"]
    assert inferred.graph.output[0].type.tensor_type.elem_type == FLOAT


def test_an_output_that_is_used_inside_too_is_used_before_the_cast() -> None:
    product = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = graph_of(product, onnx.helper.make_node("Relu", ["y"], ["r"]))
    torch_graph._cast_outputs(graph)
    assert [list(node.input) for node in graph.node] == [["x", "w"], ["y/half"], ["y/half"]]


@pytest.mark.parametrize(
    ("node", "layer"),
    [
        ("/model/model/encoder.0/fc1/quantizer/Op", "model.model.encoder.0.fc1"),
        (
            "/model/model/layers/layers.0/fc1/quantizer/Op",
            "model.model.layers.0.fc1",
        ),  # called inside of a Sequential
        ("/model/a/a.b/fc1/quantizer/Op", "model.a.a.b.fc1"),  # what is really named so
    ],
)
def test_the_layer_of_a_quantizer_is_told_from_the_scopes_of_its_node(node: str, layer: str) -> None:
    layers = ["model.model.encoder.0.fc1", "model.model.layers.0.fc1", "model.a.a.b.fc1"]
    assert torch_graph._layer_of(node, layers) == layer
