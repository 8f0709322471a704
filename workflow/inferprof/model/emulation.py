"""Half precision on a CPU, as the graph says it: every float16 or bfloat16 result is rounded where it arises.

ONNX Runtime's CPU provider computes float16 nodes in float32 and drops the Casts between them, so that it hides an
overflow (60000 × 100 stays finite), and it has no bfloat16 kernels at all. Here such a graph becomes a float32 graph
with a pair of Casts, down and up again, behind each node whose result is half precision.
"""

from __future__ import annotations

import copy
from typing import Any

_MOVES = """
Concat Expand Flatten Gather GatherElements Identity Pad Reshape Slice Split Squeeze Tile Transpose Unsqueeze
"""
MOVES = frozenset(_MOVES.split())
"""Operators whose results are copies of inputs, which are rounded already."""
DTYPE_ATTRIBUTES = frozenset(("to", "dtype", "output_dtype"))


def half_types() -> frozenset[int]:
    """TensorProto's numbers of the half precisions."""
    from onnx import TensorProto

    return frozenset((TensorProto.FLOAT16, TensorProto.BFLOAT16))


def uses_half(model: Any) -> bool:
    """Whether a float16 or bfloat16 tensor is anywhere in the graph of an onnx.ModelProto."""
    return bool(set(value_types(model).values()) & half_types())


def value_types(model: Any) -> dict[str, int]:
    """Name of a tensor → its element type (a TensorProto number), as far as ONNX's inference knows it."""
    import onnx

    graph = onnx.shape_inference.infer_shapes(model).graph
    values = (*graph.input, *graph.output, *graph.value_info)
    types = {value.name: value.type.tensor_type.elem_type for value in values}
    return types | {weight.name: weight.data_type for weight in graph.initializer}


def rounded_in_float32(model: Any) -> Any:
    """A float32 copy of an onnx.ModelProto that rounds as the original does. Inputs and outputs become float32 too.

    Raises NotImplementedError for a graph with subgraphs (If, Loop, Scan).
    """
    import onnx

    types = value_types(model)
    result = copy.deepcopy(model)
    graph = result.graph
    del graph.value_info[:]
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type in half_types():
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    for weight in graph.initializer:
        _widen(weight)
    nodes = [new for node in graph.node for new in _rounded(node, types)]
    del graph.node[:]
    graph.node.extend(nodes)
    return result


def _widen(tensor: Any) -> None:
    """Make a half-precision TensorProto float32, which is exact."""
    import onnx

    if tensor.data_type in half_types():
        array = onnx.numpy_helper.to_array(tensor).astype("float32")
        tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))


def _rounded(node: Any, types: dict[str, int]) -> list[Any]:
    """The node in float32, followed by the Casts that round its half-precision results."""
    import onnx

    for attribute in node.attribute:
        if attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
            raise NotImplementedError(f"node {node.name} ({node.op_type}) has a subgraph")
        if attribute.name in DTYPE_ATTRIBUTES and attribute.i in half_types():
            attribute.i = onnx.TensorProto.FLOAT
        if attribute.type == onnx.AttributeProto.TENSOR:
            _widen(attribute.t)
    casts = []
    for index, name in enumerate(node.output):
        if node.op_type in MOVES or types.get(name) not in half_types():
            continue
        node.output[index] = f"{name}/float32"
        casts += [
            onnx.helper.make_node("Cast", [f"{name}/float32"], [f"{name}/rounded"], to=types[name]),
            onnx.helper.make_node("Cast", [f"{name}/rounded"], [name], to=onnx.TensorProto.FLOAT),
        ]
    return [node, *casts]
