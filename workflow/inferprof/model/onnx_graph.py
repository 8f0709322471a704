"""What an ONNX file says of its inputs: names, types, and dimensions with symbols of letters."""

from __future__ import annotations

import functools
import graphlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferprof.case import BATCH
from inferprof.errors import UserError, failures_of
from inferprof.model.operators import dtype_name, is_quantized, nbytes

if TYPE_CHECKING:
    import onnx

Dims = tuple[int | str, ...]
UNNAMED = "unnamed"
"""How the symbol ends that is offered for an axis without a size and a name."""
FOLLOWS = re.compile(r"[*/+%()]|\s-\s")
"""What a name of a dimension has that is an expression of other names."""


def read(path: Path, *, external: bool = False) -> onnx.ModelProto:
    """Parse an ONNX file, its external data only where asked for, and put its nodes behind what they read.

    Raises UserError where it is missing, truncated or another's, and where its external data are not as it says.
    """
    import onnx

    if not path.is_file():
        raise UserError(f"{path}: no such file")
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:  # protobuf's DecodeError, whose module differs between its versions
        reason = " ".join(str(error).split())
        raise UserError(f"{path} is not a readable ONNX file ({reason}); copy it again") from None
    if not model.graph.node:
        raise UserError(f"{path} is not an ONNX model: its graph has no nodes; copy it again")
    if empty := [node.name or node.op_type for node in all_nodes(model.graph) if not any(node.output)]:
        raise UserError(f"{path} is not a valid ONNX model: node {empty[0]} has no output; export it again")
    check_external(model, path)
    if external:
        load_external(model, path)
    _sort(model.graph, path)
    return model


def check_external(model: onnx.ModelProto, path: Path) -> int:
    """The bytes of a model's weights that lie in other files.

    Raises UserError where a file is missing, cut short or outside of the model's folder.
    """
    total = 0
    for tensor in tensors(model.graph):
        if tensor.data_location == type(tensor).EXTERNAL:
            total += _external_bytes(tensor, path)
        elif lacks := _lacking(tensor):
            raise UserError(f"{path}: weights of {tensor.name} {lacks}; copy it again")
    return total


def _lacking(tensor: onnx.TensorProto) -> str | None:
    """What a tensor lacks of its data, or None. What it holds in fields by type is left to who reads it."""
    import onnx

    holds = tensor.ListFields()
    if math.prod(tensor.dims) and not any(field.name.endswith("_data") for field, _ in holds):
        return f"of dims {list(tensor.dims)} hold nothing"
    if not tensor.HasField("raw_data") or tensor.data_type not in onnx.helper.get_all_tensor_dtypes():
        return None
    expected = nbytes(dtype_name(tensor.data_type), tensor.dims)
    return f"hold {len(tensor.raw_data)} bytes, not {expected}" if len(tensor.raw_data) != expected else None


def _external_bytes(tensor: onnx.TensorProto, path: Path) -> int:
    """The bytes of a tensor in another file, which has them."""
    told = {entry.key: entry.value for entry in tensor.external_data}
    location, where = told.get("location", ""), f"weights of {tensor.name}"
    try:
        offset, length = (int(told.get(key) or 0) for key in ("offset", "length"))
    except ValueError:
        offset = length = -1
    if offset < 0 or length < 0:
        raise UserError(
            f"{path}: external data {location} ({where}): offset {told.get('offset')}, length {told.get('length')}; "
            "allowed: whole numbers of 0 or more; export it again"
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
    return length


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
    for one in graphs(graph):
        yield from one.node


def taken_by(node: onnx.NodeProto) -> Iterator[str]:
    """The tensors that a node reads, those that its bodies take from around it among them."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        for body in bodies(attribute):
            inside = defined(body)
            yield from (name for inner in body.node for name in taken_by(inner) if name not in inside)
            yield from (value.name for value in body.output if value.name not in inside)


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
        nodes = [type(graph.node[0]).FromString(graph.node[index].SerializeToString()) for index in order]
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


def describe(path: Path) -> tuple[list[tuple[str, str, Dims]], int]:
    """Name, NumPy type and dimensions of each input of a file, and its opset.

    Raises UserError where it has no inputs, or one with a dimension that is not named.
    """
    model = read(path)
    values = inputs(model)
    if not values:
        raise UserError(f"{path} has no inputs, so there is nothing to run")
    if unshaped := [value.name for value in values if not value.type.tensor_type.HasField("shape")]:
        raise UserError(
            f"{path}: input {unshaped[0]} has no shape, or is no tensor; "
            f"describe the inputs in {path.with_suffix('.yaml')} (source: onnx, onnx: {path.name})"
        )
    symbols = _symbols(values)
    told = [(value.name, dtype(value), _dims(value, symbols)) for value in values]
    for value in values:
        for axis, dim in enumerate(dimensions(value)):
            if _is_unnamed(dim, axis, symbols):
                raise UserError(_unnamed(path, value, axis, told))
    return told, opset(model)


def _is_unnamed(dim: Any, axis: int, symbols: Mapping[str, str]) -> bool:
    """Whether an axis has neither a size nor a name of its own; without both the first one is the batch."""
    return dim.dim_value < 1 and dim.dim_param not in symbols and (axis > 0 or bool(dim.dim_param))


def _unnamed(path: Path, value: onnx.ValueInfoProto, axis: int, told: Sequence[tuple[str, str, Dims]]) -> str:
    """What to say of such an axis."""
    own = dimensions(value)[axis].dim_param
    lacks = f"follows from others ({own})" if own else "has neither a size nor a name"
    open_sizes = dict.fromkeys(str(dim) for _, _, dims in told for dim in dims if str(dim).endswith(UNNAMED))
    return (
        f"{path}: input {value.name}, axis {axis}, {lacks}; describe the inputs in {path.with_suffix('.yaml')}, "
        f"as in {stub(path, told, list(open_sizes))}"
    )


def stub(path: Path, told: Sequence[tuple[str, str, Dims]], open_sizes: Sequence[str]) -> str:
    """A description of an ONNX file to begin with, in YAML on one line; each open size is 128 in it."""
    inputs = ", ".join(
        f"{{name: {json.dumps(name)}, dtype: {dtype}, dims: [{', '.join(map(str, dims))}]"
        f"{'' if dtype.startswith('float') else ', data: integers:2'}}}"
        for name, dtype, dims in told
    )
    sizes = ", ".join(f"{symbol}: 128" for symbol in open_sizes)
    return f"{{source: onnx, onnx: {json.dumps(path.name)}, inputs: [{inputs}], sizes: {{{sizes}}}}}"


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
    """The sizes that `shapes` gives to an input, if any. Raises UserError where they don't fit it."""
    sizes = tuple(shapes.get(value.name, ()))
    own = [dim.dim_value or dim.dim_param or "?" for dim in dimensions(value)]
    fits = len(own) == len(sizes) and all(
        not isinstance(size, int) or size < 0 or size == wanted for size, wanted in zip(own, sizes, strict=True)
    )
    if value.name in shapes and value.type.tensor_type.HasField("shape") and not fits:
        raise UserError(f"input {value.name} has dims {own}, but {list(sizes)} is asked for; mend the description")
    return sizes


def _symbols(values: Iterable[onnx.ValueInfoProto]) -> dict[str, str]:
    """A graph's names of dimensions → symbols of letters only, no two names with one symbol.

    The batch is whatever has "batch" in its name, or else the first named axis 0. Digits are left out (`unk__214` →
    unk) unless two names would become one: then they turn into letters (s0, s1 → sa, sb). What follows from other
    sizes (`batch*4`) has no symbol.
    """
    named = [(axis, dim.dim_param) for value in values for axis, dim in enumerate(dimensions(value)) if dim.dim_param]
    named = [(axis, name) for axis, name in named if not FOLLOWS.search(name)]
    letters = {name: re.sub("[^a-z]", "", name.lower()) for _, name in named}
    first = [name for axis, name in named if axis == 0][:1]
    batches = [name for name, short in letters.items() if "batch" in short] or first
    symbols = dict.fromkeys(batches, BATCH)
    times = Counter(short for name, short in letters.items() if name not in symbols)
    for name, short in letters.items():
        if name in symbols:
            continue
        digits = "".join(chr(ord("a") + int(digit)) for digit in re.findall("[0-9]", name))
        symbol = short if short and times[short] == 1 else f"{short}{digits}"
        while not symbol or symbol in symbols.values():
            symbol += "x"
        symbols[name] = symbol
    return symbols


def _dims(value: onnx.ValueInfoProto, symbols: Mapping[str, str]) -> Dims:
    """Sizes and symbols of an input. An axis 0 without either is the batch; another one gets a symbol to offer."""
    dims: list[int | str] = []
    for axis, dim in enumerate(dimensions(value)):
        if dim.dim_value > 0:
            dims.append(dim.dim_value)
        elif _is_unnamed(dim, axis, symbols):
            dims.append(f"{'abcdefghijklmnopqrstuvwxyz'[axis % 26]}{UNNAMED}")
        else:
            dims.append(symbols.get(dim.dim_param, BATCH))
    return tuple(dims)
