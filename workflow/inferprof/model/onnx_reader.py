"""ONNX files as they are read: whole and in order. What no file may be is refused before anything trusts it."""

from __future__ import annotations

import copy
import functools
import graphlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from inferprof.errors import UserError, require_file
from inferprof.model import onnx_graph
from inferprof.model.operators import STANDARD_DOMAINS, bits, dtype_name, nbytes

if TYPE_CHECKING:
    import onnx

MAX_BYTES = 2**31 - 1
"""What one protobuf message may hold."""
VALUES = ("raw_data", "float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")
"""The fields of a tensor that one of them has its elements in."""


def read(path: Path, *, external: bool = False) -> onnx.ModelProto:
    """Parse an ONNX file, its external data only where asked for, and put its nodes behind what they read.

    Raises UserError where it is missing, truncated or another's, and where its external data are not as it says.
    """
    import onnx

    require_file(path, MAX_BYTES)
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:  # protobuf's DecodeError, whose module differs between its versions
        reason = " ".join(str(error).split())
        raise UserError(f"{path} is not a readable ONNX file ({reason}); copy it again") from None
    if not model.graph.node:
        raise UserError(f"{path} is not an ONNX model: its graph has no nodes; copy it again")
    for node in onnx_graph.all_nodes(model.graph):
        if lacks := _malformed(node, onnx_graph.opset(model)):
            raise UserError(
                f"{path} is not a valid ONNX model: node {node.name or node.op_type} {lacks}; export it again"
            )
    calls = {
        (function.domain, function.name, function.overload): {
            (n.domain, n.op_type, n.overload) for n in function.node
        }
        for function in model.functions
    }
    try:
        graphlib.TopologicalSorter(calls).prepare()
    except graphlib.CycleError as error:
        name = ":".join(filter(None, error.args[1][0]))
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


def outline(path: Path) -> onnx.ModelProto:
    """The same without its weights' values, for those who only look: parsed once while the file stays as it is."""
    facts = path.stat() if path.is_file() else None
    return _outline(path, (facts.st_mtime_ns, facts.st_size) if facts else None)


@functools.cache
def _outline(path: Path, _facts: tuple[int, int] | None) -> onnx.ModelProto:
    model = read(path)
    for tensor in onnx_graph.tensors(model):
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
    external = (tensor for tensor in onnx_graph.tensors(model) if tensor.data_location == type(tensor).EXTERNAL)
    entries = (entry for tensor in external for entry in tensor.external_data if entry.key == "location")
    return list(dict.fromkeys(path.parent / entry.value for entry in entries))


def load_external(model: onnx.ModelProto, path: Path) -> None:
    """Load the weights that lie in other files."""
    import onnx

    try:
        onnx.external_data_helper.load_external_data_for_model(model, str(path.parent))
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        raise UserError(f"{path}: external data: {' '.join(str(error).split())}") from None


def _sort(graph: onnx.GraphProto, path: Path) -> None:
    """Put the nodes of a graph and of its bodies behind what they read; raises UserError where that is a circle."""
    makers = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    needs = {i: {makers[name] for name in onnx_graph.taken_by(n) if name in makers} for i, n in enumerate(graph.node)}
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
            for body in onnx_graph.bodies(attribute):
                _sort(body, path)


@functools.cache  # a plan asks for it once per case
def quantized_nodes_of(path: Path) -> tuple[str, ...]:
    """The same of a file. Raises UserError where it can't be read."""
    return tuple(onnx_graph.quantized_nodes(read(path)))


def no_baseline(path: Path, nodes: Sequence[str]) -> str:
    """What to say of a file that is quantized already, in these nodes."""
    more = f" and {len(nodes) - 1} more nodes" if len(nodes) > 1 else ""
    return (
        f"{path.name} is quantized already ({nodes[0]}{more}): there is no fp32 baseline in it, and nothing was "
        f"quantized; name the float graph under onnx: in {path.with_suffix('.yaml').name}, and this one there under "
        f"variants: by its precision (variants: {{int8: {path.name}}})"
    )


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


def lacks_opset(model: onnx.ModelProto) -> bool:
    """Whether a file names no opset of ONNX's own operators and has some; one of trees alone does without."""
    nodes = onnx_graph.all_nodes(model.graph)
    return not onnx_graph.opset(model) and any(node.domain in STANDARD_DOMAINS for node in nodes)


def _unmade(graph: onnx.GraphProto, around: set[str]) -> str | None:
    """The first tensor that a graph or a body of it needs and nothing makes or feeds, or None."""
    there = around | onnx_graph.defined(graph)
    for node in graph.node:
        if lacking := [name for name in node.input if name and name not in there]:
            return f"node {node.name or node.op_type} reads {lacking[0]!r}, which nothing makes"
        for attribute in node.attribute:
            for body in onnx_graph.bodies(attribute):
                if lacks := _unmade(body, there):
                    return lacks
    lost = [value.name for value in graph.output if value.name not in there]
    return f"its output {lost[0]!r} is made by nothing" if lost else None


def check_external(model: onnx.ModelProto, path: Path) -> int:
    """The bytes of a model's weights that lie in other files.

    Raises UserError where a file is missing, cut short or outside of the model's folder.
    """
    total = 0
    for tensor in onnx_graph.tensors(model):
        if impossible := _impossible(tensor):
            raise UserError(f"{path}: {_named(tensor)} {impossible}; export it again")
        if tensor.data_location == type(tensor).EXTERNAL:
            total += _external_bytes(tensor, path)
        elif lacks := _lacking(tensor):
            raise UserError(f"{path}: {_named(tensor)} {lacks}; copy it again")
    return total


def _named(tensor: onnx.TensorProto) -> str:
    return f"weights of {tensor.name or 'a Constant'}"


def _impossible(tensor: onnx.TensorProto) -> str | None:
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
    location, where = entries.get("location", ""), _named(tensor)
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
    if not location:
        raise UserError(f"{path}: external data ({where}) name no file (location); export it again")
    if Path(location).is_absolute() or ".." in Path(location).parts:
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
