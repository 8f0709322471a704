"""ONNX files as they are read: whole, in order, and what is in them."""

from __future__ import annotations

import contextlib
import copy
import functools
import graphlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferprof.errors import UserError, failures_of, require_file
from inferprof.model.operators import STANDARD_DOMAINS, is_quantized

if TYPE_CHECKING:
    import onnx

VALUES = ("raw_data", "float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")
"""The fields of a tensor that one of them has its elements in."""
_NUMBERS = {
    "value_float": 1,
    "value_floats": 1,
    "value_int": 7,
    "value_ints": 7,
    "value_string": 8,
    "value_strings": 8,
}
"""Attributes of a Constant that hold no tensor → TensorProto's number of their type."""


def read(path: Path, *, external: bool = False) -> onnx.ModelProto:
    """Parse an ONNX file, its external data only where asked for, and put its nodes behind what they read.

    Raises UserError where it is missing, truncated or another's, and where its external data are not as it says.
    """
    import onnx

    from inferprof.model import validity  # which walks through graphs by this module

    require_file(path, validity.MAX_BYTES)
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:  # protobuf's DecodeError, whose module differs between its versions
        raise UserError(f"{path} is {validity.unparsed(path, error)}") from None
    _name_standard_domain(model)
    if not model.graph.node:
        raise UserError(f"{path} is not an ONNX model: its graph has no nodes; copy it again")
    for node in all_nodes(model.graph):
        if lacks := validity.malformed(node, opset(model)):
            raise UserError(
                f"{path} is not a valid ONNX model: node {node.name or node.op_type} {lacks}; export it again"
            )
    if name := validity.calls_itself(model):
        raise UserError(f"{path} is not a valid ONNX model: its function {name} calls itself; export it again")
    validity.check_external(model, path)
    if external:
        load_external(model, path)
    if lacks := validity.unmade(model.graph, set()) or validity.made_twice(model.graph):
        raise UserError(f"{path} is not a valid ONNX model: {lacks}; export it again")
    _sort(model.graph, path)
    return model


def _name_standard_domain(model: onnx.ModelProto) -> None:
    """Call ONNX's own operators' domain by its empty name: ai.onnx is another, which shape inference doesn't know."""
    parts = [model.graph, *model.functions]
    for item in (*model.opset_import, *(i for function in model.functions for i in function.opset_import)):
        item.domain = "" if item.domain in STANDARD_DOMAINS else item.domain
    for node in itertools.chain.from_iterable(body.node for part in parts for body in graphs(part)):
        node.domain = "" if node.domain in STANDARD_DOMAINS else node.domain


def outline(path: Path) -> onnx.ModelProto:
    """The same without its weights' values, for those who only look: parsed once while the file stays as it is."""
    facts = path.stat() if path.is_file() else None
    return _outline(path, (facts.st_mtime_ns, facts.st_size) if facts else None)


@functools.cache
def _outline(path: Path, _facts: tuple[int, int] | None) -> onnx.ModelProto:
    model = read(path)
    for tensor in tensors(model):
        for name in VALUES:
            tensor.ClearField(name)
    return model


def weight_files(path: Path) -> list[Path]:
    """The other files in which weights of an ONNX file lie, as its tensors name them.

    None of a file that cannot be read: its export fails and says why, and the rest of the study goes on.
    """
    try:
        model = outline(path)
    except UserError:
        return []
    external = (tensor for tensor in tensors(model) if tensor.data_location == type(tensor).EXTERNAL)
    entries = (entry for tensor in external for entry in tensor.external_data if entry.key == "location")
    return list(dict.fromkeys(path.parent / entry.value for entry in entries))


def load_external(model: onnx.ModelProto, path: Path) -> None:
    """Load the weights that lie in other files."""
    import onnx

    try:
        onnx.external_data_helper.load_external_data_for_model(model, str(path.parent))
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        raise UserError(f"{path}: external data: {' '.join(str(error).split())}") from None


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


def _sort(graph: onnx.GraphProto, path: Path) -> None:
    """Put the nodes of a graph and of its bodies behind what they read; raises UserError where that is a circle."""
    makers = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    needs = {i: {makers[name] for name in taken_by(n) if name in makers} for i, n in enumerate(graph.node)}
    if any(index >= place for place, before in needs.items() for index in before):
        try:
            order = list(graphlib.TopologicalSorter(needs).static_order())
        except graphlib.CycleError as error:
            name = graph.node[error.args[1][0]].name or graph.node[error.args[1][0]].op_type
            raise UserError(f"{path}: node {name} needs its own output; export it again") from None
        nodes = [copy.deepcopy(graph.node[index]) for index in order]
        del graph.node[:]
        graph.node.extend(nodes)
    for node in graph.node:
        for attribute in node.attribute:
            for body in bodies(attribute):
                _sort(body, path)


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


@functools.cache  # a plan asks for it once per case
def quantized_nodes_of(path: Path) -> tuple[str, ...]:
    """The same of a file. Raises UserError where it can't be read."""
    return tuple(quantized_nodes(read(path)))


def no_baseline(path: Path, nodes: Sequence[str]) -> str:
    """What to say of a file that is quantized already, in these nodes."""
    more = f" and {len(nodes) - 1} more nodes" if len(nodes) > 1 else ""
    return (
        f"{path.name} is quantized already ({nodes[0]}{more}): there is no fp32 baseline in it, and nothing was "
        f"quantized; name the float graph under onnx: in {path.with_suffix('.yaml').name}, and this one there under "
        f"variants: by its precision (variants: {{int8: {path.name}}})"
    )


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


def flag(node: Any, name: str) -> bool:
    """Whether an attribute of a node that is 0 or 1 is set."""
    return any(attribute.name == name and attribute.i for attribute in node.attribute)
