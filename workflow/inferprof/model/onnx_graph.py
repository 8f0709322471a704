"""ONNX files as they are read: whole, in order, and what is in them."""

from __future__ import annotations

import copy
import functools
import graphlib
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferprof.errors import UserError, failures_of, no_file
from inferprof.model.operators import STANDARD_DOMAINS, bits, dtype_name, is_quantized, nbytes

if TYPE_CHECKING:
    import onnx


def read(path: Path, *, external: bool = False) -> onnx.ModelProto:
    """Parse an ONNX file, its external data only where asked for, and put its nodes behind what they read.

    Raises UserError where it is missing, truncated or another's, and where its external data are not as it says.
    """
    import onnx

    if not path.is_file():
        raise no_file(path)
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:  # protobuf's DecodeError, whose module differs between its versions
        reason = " ".join(str(error).split())
        raise UserError(f"{path} is not a readable ONNX file ({reason}); copy it again") from None
    if not model.graph.node:
        raise UserError(f"{path} is not an ONNX model: its graph has no nodes; copy it again")
    for node in all_nodes(model.graph):
        if lacks := _malformed(node, opset(model)):
            raise UserError(
                f"{path} is not a valid ONNX model: node {node.name or node.op_type} {lacks}; export it again"
            )
    calls = {
        (function.domain, function.name): {(node.domain, node.op_type) for node in function.node}
        for function in model.functions
    }
    try:
        graphlib.TopologicalSorter(calls).prepare()
    except graphlib.CycleError as error:
        name = ":".join(error.args[1][0])
        raise UserError(
            f"{path} is not a valid ONNX model: its function {name} calls itself; export it again"
        ) from None
    check_external(model, path)
    if external:
        load_external(model, path)
    if lacks := _unmade(model.graph, set()):
        raise UserError(f"{path} is not a valid ONNX model: {lacks}; export it again")
    _sort(model.graph, path)
    return model


def _malformed(node: onnx.NodeProto, version: int) -> str | None:
    """What a node lacks of inputs, outputs or attributes that its operator can't do without, or None."""
    import onnx

    if not any(node.output):
        return "has no output"
    if node.domain not in STANDARD_DOMAINS or not onnx.defs.has(node.op_type, version, ""):
        return None
    schema = onnx.defs.get_schema(node.op_type, version, "")
    if len(node.input) < schema.min_input:
        return f"has {len(node.input)} inputs, not {schema.min_input}"
    given = {attribute.name for attribute in node.attribute}
    lacking = [name for name, attribute in schema.attributes.items() if attribute.required and name not in given]
    return f"has no attribute {lacking[0]}" if lacking else None


def _unmade(graph: onnx.GraphProto, around: set[str]) -> str | None:
    """The first tensor that a graph or a body of it needs and nothing makes or feeds, or None."""
    known = around | defined(graph)
    for node in graph.node:
        if lacking := [name for name in node.input if name and name not in known]:
            return f"node {node.name or node.op_type} reads {lacking[0]!r}, which nothing makes"
        for attribute in node.attribute:
            for body in bodies(attribute):
                if lacks := _unmade(body, known):
                    return lacks
    unmade = [value.name for value in graph.output if value.name not in known]
    return f"its output {unmade[0]!r} is made by nothing" if unmade else None


def check_external(model: onnx.ModelProto, path: Path) -> int:
    """The bytes of a model's weights that lie in other files.

    Raises UserError where a file is missing, cut short or outside of the model's folder.
    """
    total = 0
    for tensor in tensors(model.graph):
        if told := _untold(tensor):
            raise UserError(f"{path}: weights of {tensor.name} {told}; export it again")
        if tensor.data_location == type(tensor).EXTERNAL:
            total += _external_bytes(tensor, path)
        elif lacks := _lacking(tensor):
            raise UserError(f"{path}: weights of {tensor.name} {lacks}; copy it again")
    return total


def weight_files(path: Path) -> list[Path]:
    """The other files in which weights of an ONNX file lie, as its tensors name them. Raises UserError as `read`."""
    external = (tensor for tensor in tensors(read(path).graph) if tensor.data_location == type(tensor).EXTERNAL)
    entries = (entry for tensor in external for entry in tensor.external_data if entry.key == "location")
    return list(dict.fromkeys(path.parent / entry.value for entry in entries))


def _untold(tensor: onnx.TensorProto) -> str | None:
    """What a tensor says of itself that no tensor is, or None."""
    if dtype_name(tensor.data_type) == "unknown":
        return f"are of the type number {tensor.data_type}, which ONNX does not have"
    return f"have the dims {list(tensor.dims)}" if any(size < 0 for size in tensor.dims) else None


def _lacking(tensor: onnx.TensorProto) -> str | None:
    """What a tensor lacks of its data, or None."""
    name, count = dtype_name(tensor.data_type), math.prod(tensor.dims)
    held = {field.name: value for field, value in tensor.ListFields() if field.name.endswith("_data")}
    if count and not held:
        return f"of dims {list(tensor.dims)} hold nothing"
    if "raw_data" in held:
        expected = nbytes(name, tensor.dims)
        return None if len(tensor.raw_data) == expected else f"hold {len(tensor.raw_data)} bytes, not {expected}"
    values = sum(map(len, held.values()))
    plain = not name.startswith("complex") and bits(name) >= 8  # others hold two values for one, or one for two
    return f"hold {values} values, not {count}" if plain and values != count else None


def _external_bytes(tensor: onnx.TensorProto, path: Path) -> int:
    """The bytes of a tensor in another file, which has them."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location, where = entries.get("location", ""), f"weights of {tensor.name}"
    try:
        offset, length = (int(entries.get(key) or 0) for key in ("offset", "length"))
    except ValueError:
        offset = length = -1
    if offset < 0 or length < 0:
        raise UserError(
            f"{path}: external data {location} ({where}): offset {entries.get('offset')}, "
            f"length {entries.get('length')}; allowed: whole numbers of 0 or more; export it again"
        )
    file = path.parent / location
    if not location or Path(location).is_absolute() or ".." in Path(location).parts:
        raise UserError(
            f"{path}: external data {location!r} ({where}) lie outside of the model's folder; "
            "copy them beside the .onnx and name them in it without a folder above"
        )
    if not file.is_file() or file.stat().st_size < offset + length:
        size = f"has {file.stat().st_size} bytes, not the {offset + length} expected" if file.is_file() else ""
        raise UserError(
            f"{path}: external data {location} ({where}) {size or 'is missing'}; copy it beside the .onnx"
        )
    held, expected = length or file.stat().st_size - offset, nbytes(dtype_name(tensor.data_type), tensor.dims)
    if held != expected:
        raise UserError(
            f"{path}: external data {location} ({where}) are {held} bytes, not the {expected} of "
            f"{dtype_name(tensor.data_type)} {list(tensor.dims)}; export it again"
        )
    return held


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


def scalar(weight: onnx.TensorProto | None) -> Any:
    """The value of a constant with one element; None of any other, and of none."""
    import onnx

    if weight is None or math.prod(weight.dims) != 1:
        return None
    return onnx.numpy_helper.to_array(weight).item()


def tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Every tensor of a graph: initializers, constants, and those of its subgraphs."""
    yield from graph.initializer
    for item in graph.sparse_initializer:
        yield from (item.values, item.indices)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for subgraph in bodies(attribute):
                yield from tensors(subgraph)


def bodies(attribute: onnx.AttributeProto) -> list[onnx.GraphProto]:
    """The graphs that an attribute holds."""
    return [attribute.g] if attribute.HasField("g") else list(attribute.graphs)


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """A graph and the bodies in it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for body in bodies(attribute):
                yield from graphs(body)


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph and of the bodies in it."""
    for body in graphs(graph):
        yield from body.node


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
    """The model with its local functions taken apart; itself where it has none."""
    import onnx.inliner

    if not model.functions:
        return model
    with failures_of("onnx's inliner of local functions"):
        return onnx.inliner.inline_local_functions(model)


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
    constants = [(node.output[0], a.t) for node in nodes if node.op_type == "Constant" for a in node.attribute]
    types |= {name: tensor.data_type for name, tensor in constants}
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
        raise UserError(f"input {value.name} is none of the description's: {', '.join(shapes)}; mend the description")
    fits = len(own) == len(sizes) and all(
        not isinstance(size, int) or size < 0 or size == wanted for size, wanted in zip(own, sizes, strict=True)
    )
    if value.name in shapes and value.type.tensor_type.HasField("shape") and not fits:
        raise UserError(f"input {value.name} has dims {own}, but {list(sizes)} is asked for; mend the description")
    return sizes


def flag(node: Any, name: str) -> bool:
    """Whether an attribute of a node that is 0 or 1 is set."""
    return any(attribute.name == name and attribute.i for attribute in node.attribute)
