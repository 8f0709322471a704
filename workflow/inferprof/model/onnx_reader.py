"""ONNX files as they are read: whole, valid and in order."""

from __future__ import annotations

import copy
import functools
import graphlib
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from inferprof.errors import UserError, require_file
from inferprof.model import onnx_graph, validity
from inferprof.model.operators import STANDARD_DOMAINS

if TYPE_CHECKING:
    import onnx

VALUES = ("raw_data", "float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")
"""The fields of a tensor that one of them has its elements in."""


def read(path: Path, *, external: bool = False) -> onnx.ModelProto:
    """Parse an ONNX file, its external data only where asked for, and put its nodes behind what they read.

    Raises UserError where it is missing, truncated or another's, and where its external data are not as it says.
    """
    import onnx

    require_file(path, validity.MAX_BYTES)
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:  # protobuf's DecodeError, whose module differs between its versions
        raise UserError(f"{path} is {validity.unparsed(path, error)}") from None
    _name_standard_domain(model)
    if not model.graph.node:
        raise UserError(f"{path} is not an ONNX model: its graph has no nodes; copy it again")
    for node in onnx_graph.all_nodes(model.graph):
        if lacks := validity.malformed(node, onnx_graph.opset(model)):
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
        if item.domain and item.domain in STANDARD_DOMAINS:  # a field that is not set stays so
            item.domain = ""
    bodies = itertools.chain.from_iterable(onnx_graph.graphs(part) for part in parts)
    for node in itertools.chain.from_iterable(body.node for body in bodies):
        if node.domain and node.domain in STANDARD_DOMAINS:
            node.domain = ""


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
