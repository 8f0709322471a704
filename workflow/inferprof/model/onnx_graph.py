"""What is in an ONNX graph, its bodies and local functions."""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from inferprof.errors import UserError, failures_of
from inferprof.model.operators import STANDARD_DOMAINS, is_quantized

if TYPE_CHECKING:
    import onnx

_NUMBERS = {
    "value_float": 1,
    "value_floats": 1,
    "value_int": 7,
    "value_ints": 7,
    "value_string": 8,
    "value_strings": 8,
}
"""Attributes of a Constant that hold no tensor → TensorProto's number of their type."""


def dense(sparse: onnx.SparseTensorProto) -> onnx.TensorProto:
    """A sparse weight with its zeros."""
    import numpy as np
    import onnx

    values, places = (onnx.numpy_helper.to_array(tensor) for tensor in (sparse.values, sparse.indices))
    array = np.zeros(tuple(sparse.dims), values.dtype)
    array[np.unravel_index(places, array.shape) if places.ndim == 1 else tuple(places.T)] = values
    return onnx.numpy_helper.from_array(array, sparse.values.name)


def constant(node: onnx.NodeProto) -> onnx.TensorProto | None:
    """What a Constant node holds, in whichever of its attributes; None of any other node."""
    import onnx

    if node.op_type != "Constant" or node.domain not in STANDARD_DOMAINS or not node.attribute:
        return None
    value = onnx.helper.get_attribute_value(node.attribute[0])
    if isinstance(value, onnx.SparseTensorProto):
        return dense(value)
    if isinstance(value, onnx.TensorProto):
        return value
    number = _NUMBERS.get(node.attribute[0].name)
    if number is None:
        return None
    many = isinstance(value, Sequence) and not isinstance(value, bytes)
    return onnx.helper.make_tensor(node.output[0], number, [len(value)] if many else [], value if many else [value])


def scalar(weight: onnx.TensorProto | None) -> Any:
    """The value of a constant with one element; None of any other, and of none."""
    import onnx

    if weight is None or math.prod(weight.dims) != 1:
        return None
    return onnx.numpy_helper.to_array(weight).item()


def tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor of a model: initializers and constants of its graph, local functions, and the bodies in these."""
    for graph in itertools.chain.from_iterable(map(graphs, (model.graph, *model.functions))):
        yield from getattr(graph, "initializer", ())  # a function has none
        for item in getattr(graph, "sparse_initializer", ()):
            yield from (item.values, item.indices)
        for attribute in (attribute for node in graph.node for attribute in node.attribute):
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors


def bodies(attribute: onnx.AttributeProto) -> list[onnx.GraphProto]:
    """The graphs that an attribute holds."""
    return [attribute.g] if attribute.HasField("g") else list(attribute.graphs)


def graphs(graph: Any) -> Iterator[Any]:
    """A graph, or a local function, and the bodies in it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for body in bodies(attribute):
                yield from graphs(body)


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph and of the bodies in it."""
    for body in graphs(graph):
        yield from body.node


def in_bodies(graph: onnx.GraphProto) -> dict[str, int]:
    """Each node of a graph that has bodies, with its operator → how many nodes are in these."""
    inside = {}
    for node in graph.node:
        count = sum(len(list(all_nodes(body))) for attribute in node.attribute for body in bodies(attribute))
        if count:
            inside[f"{node.name or node.output[0]} ({node.op_type})"] = count
    return inside


def taken_by(node: onnx.NodeProto) -> Iterator[str]:
    """The tensors that a node reads, those that its bodies take from around it among them."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        for body in bodies(attribute):
            yield from captured(body)


def captured(graph: onnx.GraphProto) -> Iterator[str]:
    """The tensors that a graph takes from around it."""
    inside = defined(graph)
    yield from (name for node in graph.node for name in taken_by(node) if name not in inside)
    yield from (value.name for value in graph.output if value.name not in inside)


def defined(graph: onnx.GraphProto) -> set[str]:
    """The tensors that a graph defines itself."""
    stored = {item.name for item in graph.initializer} | {item.values.name for item in graph.sparse_initializer}
    made = {name for node in graph.node for name in node.output if name}
    return {value.name for value in graph.input} | stored | made


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its local functions taken apart, also those of another opset; itself where it has none."""
    import onnx.inliner

    if not model.functions:
        return model
    with failures_of("onnx's inliner of local functions"):
        flat = onnx.inliner.inline_local_functions(model)
        if flat.functions:  # of another opset; converting them takes the types of what they are given
            flat.graph.value_info.extend(
                onnx.helper.make_tensor_value_info(weight.name, weight.data_type, weight.dims)
                for weight in flat.graph.initializer
            )
            with contextlib.suppress(RuntimeError, onnx.shape_inference.InferenceError):
                typed = onnx.shape_inference.infer_shapes(flat)
                flat = onnx.inliner.inline_local_functions(typed, convert_version=True)
        return flat


def read_by_any(graph: onnx.GraphProto) -> set[str]:
    """The tensors that a node takes or that leave the graph."""
    return {name for node in graph.node for name in taken_by(node)} | {value.name for value in graph.output}


def drop_unread_weights(graph: onnx.GraphProto) -> None:
    """Remove the weights that nothing reads."""
    read = read_by_any(graph)
    weights = [weight for weight in graph.initializer if weight.name in read]
    del graph.initializer[:]
    graph.initializer.extend(weights)


def replace_nodes(model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto]) -> None:
    """Put `nodes`, of which some may be the graph's own, in the place of the graph's."""
    copies = copy.deepcopy(nodes)
    del model.graph.node[:]
    model.graph.node.extend(copies)


def opset(model: onnx.ModelProto) -> int:
    """The opset of ONNX's own operators; 0 where the file names none."""
    return max((item.version for item in model.opset_import if item.domain in ("", "ai.onnx")), default=0)


def inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """What has to be fed: old files list their weights among the inputs as well."""
    weights = {item.name for item in model.graph.initializer}
    weights |= {item.values.name for item in model.graph.sparse_initializer}
    return [value for value in model.graph.input if value.name not in weights]


def quantized_nodes(model: onnx.ModelProto) -> list[str]:
    """The nodes of a graph, of its bodies and local functions that quantize or work on what is quantized."""
    types: dict[str, int] = {}
    for graph in graphs(model.graph):
        types |= {item.name: item.data_type for item in graph.initializer}
        types |= {value.name: value.type.tensor_type.elem_type for value in graph.input}
    nodes = [*all_nodes(model.graph), *(node for function in model.functions for node in function.node)]
    types |= {node.output[0]: held.data_type for node in nodes if (held := constant(node))}
    return [node.name or node.output[0] for node in nodes if is_quantized(node, types)]


def dtype(value: onnx.ValueInfoProto) -> str:
    """The type of an input as NumPy calls it; `not a tensor` for sequences and maps."""
    import onnx

    element = value.type.tensor_type.elem_type
    if not value.type.HasField("tensor_type") or element not in onnx.helper.get_all_tensor_dtypes():
        return "not a tensor"
    return str(onnx.helper.tensor_dtype_to_np_dtype(element))


def dimensions(value: onnx.ValueInfoProto) -> list[Any]:
    """The dimensions of an input or output as ONNX has them."""
    return list(value.type.tensor_type.shape.dim)


def given(value: onnx.ValueInfoProto, shapes: Mapping[str, Sequence[int]]) -> tuple[int, ...]:
    """The sizes that `shapes` gives to an input, if any. Raises UserError where they don't fit it, or are of other
    inputs and leave its sizes open."""
    sizes = tuple(shapes.get(value.name, ()))
    own = [dim.dim_value or dim.dim_param or "?" for dim in dimensions(value)]
    if shapes and value.name not in shapes and not all(isinstance(size, int) and size > 0 for size in own):
        raise UserError(f"input {value.name} is none of the description's: {', '.join(shapes)}; fix the description")
    fits = len(own) == len(sizes) and all(
        not isinstance(size, int) or size < 0 or size == wanted for size, wanted in zip(own, sizes, strict=True)
    )
    if value.name in shapes and value.type.tensor_type.HasField("shape") and not fits:
        raise UserError(f"input {value.name} has dims {own}, but {list(sizes)} is asked for; fix the description")
    return sizes
