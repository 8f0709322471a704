"""What no ONNX file may be: checked where a file is read, before anything trusts it."""

from __future__ import annotations

import graphlib
import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from inferprof.errors import UserError, in_one_line
from inferprof.model import onnx_graph
from inferprof.model.operators import STANDARD_DOMAINS, bits, dtype_name, nbytes

if TYPE_CHECKING:
    import onnx

MAX_BYTES = 2**31 - 1
"""What one protobuf message may hold."""


LFS_POINTER = b"version https://git-lfs"
"""How what Git LFS leaves in place of a file begins."""


def unparsed(path: Path, error: Exception) -> str:
    """What a file is that protobuf could not parse, and what to do."""
    with path.open("rb") as file:
        if file.read(len(LFS_POINTER)) == LFS_POINTER:
            return "a Git LFS pointer, not the file itself: run `git lfs pull`"
    return f"not a readable ONNX file ({in_one_line(error)}); copy it again"


def calls_itself(model: onnx.ModelProto) -> str | None:
    """The first local function that calls itself, also by way of others, or None."""
    calls = {
        (function.domain, function.name, function.overload): {
            (n.domain, n.op_type, n.overload) for n in function.node
        }
        for function in model.functions
    }
    try:
        graphlib.TopologicalSorter(calls).prepare()
    except graphlib.CycleError as error:
        return ":".join(filter(None, error.args[1][0]))
    return None


def malformed(node: onnx.NodeProto, version: int) -> str | None:
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


def unmade(graph: onnx.GraphProto, around: set[str]) -> str | None:
    """The first tensor that a graph or a body of it needs and nothing makes or feeds, or None."""
    there = around | onnx_graph.defined(graph)
    for node in graph.node:
        if lacking := [name for name in node.input if name and name not in there]:
            return f"node {node.name or node.op_type} reads {lacking[0]!r}, which nothing makes"
        for attribute in node.attribute:
            for body in onnx_graph.bodies(attribute):
                if lacks := unmade(body, there):
                    return lacks
    lost = [value.name for value in graph.output if value.name not in there]
    return f"its output {lost[0]!r} is made by nothing" if lost else None


def made_twice(graph: onnx.GraphProto) -> str | None:
    """The first tensor that two nodes of a graph or of a body of it make, or two weights are named, or None: runtimes
    refuse it, or take one of the two without a word."""
    for part in onnx_graph.graphs(graph):
        by_nodes = Counter(name for node in part.node for name in node.output if name)
        by_weights = Counter([item.name for item in part.initializer])
        by_weights.update(item.values.name for item in part.sparse_initializer)
        for counts, said in ((by_nodes, "nodes make"), (by_weights, "weights are named")):
            if twice := next((name for name, count in counts.items() if count > 1), None):
                return f"{counts[twice]} {said} {twice!r}"
        if both := next((name for name in by_nodes if name in by_weights), None):
            return f"a node and a weight make {both!r}"
    return None


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
