"""Which nodes of a graph TensorRT would take and which would fall back, from the graph alone: no GPU is needed.

TensorRT-RTX's parser says what it takes. ONNX Runtime's TensorRT provider partitions by the same calls, so this is
what it would do with that version; another version of TensorRT knows other operators.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from inferprof.backends.tensorrt_parser import DEPTH, Answer, ask
from inferprof.backends.tensorrt_runtime import load
from inferprof.documents.graph import Left
from inferprof.grouping import grouped
from inferprof.model import onnx_graph, onnx_reader
from inferprof.model.operators import COLLECTIVE, dtype_name, full_name, is_foreign
from inferprof.words import NAMED, counted, some

if TYPE_CHECKING:
    import onnx

Shapes = Mapping[str, Sequence[int]]
"""Input → its shape."""
CONTEXT: Final = "EPContext"
"""A node of a compiled graph, which holds an engine in place of the nodes that a provider took."""
LOOPED: Final = frozenset({"CumSum", "GRU", "LSTM", "Loop", "RNN", "Scan"})
"""Operators that TensorRT turns into a loop, which runs its body's kernels once per step."""
CAUTION: Final = "caution: another domain's operator ({}); by its bare name the parser would take it for ONNX's"
NO_SIZES: Final = "no sizes were given; --spec has them, --shape the batch"


def partition(path: Path, shapes: Shapes | None) -> dict[str, Any]:
    """The partition of the graph as it is (`dynamic`, where sizes are open) and at `shapes` (`static`).

    Each: nodes, taken, subgraphs (their numbers of nodes), left (Left), edges (tensors between what is taken and
    what is left) and edge_bytes (None where a size is open); or not_measured, with the reason. `looped` lists the
    nodes, also of bodies, that become loops. A compiled graph has its partition in it, made `by` who is named.
    `collectives`: the nodes between GPUs, where there are some.
    """
    model = onnx_reader.read(path)
    nodes = list(onnx_graph.all_nodes(onnx_graph.inlined(model).graph))
    looped = [node.name or node.op_type for node in nodes if node.op_type in LOOPED]
    if compiled := [index for index, node in enumerate(model.graph.node) if node.op_type == CONTEXT]:
        fixed = _described(model, Answer([[index] for index in compiled], {}))
        as_it_is = {"not_measured": "the graph was compiled: its partition is fixed"}
        return {"by": _sources(model), "dynamic": as_it_is, "static": fixed, "looped": looped}
    trt = load("tensorrt_rtx")
    is_open = any(
        not value.type.tensor_type.HasField("shape") or any(d.dim_value < 1 for d in onnx_graph.dimensions(value))
        for value in onnx_graph.inputs(model)
    )
    dynamic: dict[str, Any] = {"not_measured": "all sizes of the graph are fixed"}
    if is_open:
        dynamic = _asked(trt, path, model)
        static = _asked(trt, path, _fixed(model, shapes)) if shapes else {"not_measured": NO_SIZES}
    else:
        static = _asked(trt, path, model)
    talking = [node.name or node.output[0] for node in nodes if node.op_type == COLLECTIVE]
    return {
        "by": f"TensorRT-RTX {trt.__version__}",
        "dynamic": dynamic,
        "static": static,
        "looped": looped,
        **({"collectives": talking} if talking else {}),
    }


def _sources(model: onnx.ModelProto) -> str:
    """The providers that compiled a graph, as its EPContext nodes name them."""
    nodes = (node for node in model.graph.node if node.op_type == CONTEXT)
    sources = {a.s.decode() for node in nodes for a in node.attribute if a.name == "source"}
    return ", ".join(sorted(sources)) or "a provider that is not named"


def _fixed(model: onnx.ModelProto, shapes: Shapes) -> onnx.ModelProto:
    """The model with its inputs at these shapes; what was known of other tensors is forgotten."""
    fixed = copy.deepcopy(model)
    del fixed.graph.value_info[:]
    for value in onnx_graph.inputs(fixed):
        sizes = onnx_graph.given(value, shapes)
        tensor = value.type.tensor_type
        if not tensor.HasField("shape") and value.name in shapes:
            tensor.shape.SetInParent()
            tensor.shape.dim.extend(type(tensor.shape).Dimension() for _ in sizes)
        for dim, size in zip(onnx_graph.dimensions(value), sizes, strict=False):
            dim.dim_value = size
    for value in fixed.graph.output:
        value.type.tensor_type.ClearField("shape")
    return fixed


def _asked(trt: Any, path: Path, model: onnx.ModelProto) -> dict[str, Any]:
    import onnx

    # ONNX gives up on operators of a domain that the file does not import: their neighbours keep what the file says.
    with contextlib.suppress(onnx.shape_inference.InferenceError):
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    asked, foreign = _under_full_names(model)
    answer = ask(trt, path, asked, DEPTH)
    answer.errors.update({i: ("operator", CAUTION.format(model.graph.node[i].domain)) for i in foreign})
    return _described(model, answer)


def _under_full_names(model: onnx.ModelProto) -> tuple[onnx.ModelProto, list[int]]:
    """The model with other domains' operators under names that are nobody's, and the indices of these nodes.

    The parser looks at the bare name alone: it would take `my.domain::Relu` for ONNX's. What it knows by a name that
    is none of ONNX's is a plugin, and local functions it takes apart.
    """
    import onnx

    own = {(function.domain, function.name) for function in model.functions}
    standard = {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}
    asked = copy.deepcopy(model)
    for node in onnx_graph.all_nodes(asked.graph):
        if is_foreign(node) and node.op_type in standard and (node.domain, node.op_type) not in own:
            node.op_type = full_name(node)
    pairs = zip(model.graph.node, asked.graph.node, strict=True)
    foreign = [index for index, (before, after) in enumerate(pairs) if before.op_type != after.op_type]
    return asked, foreign


def _described(model: onnx.ModelProto, answer: Answer) -> dict[str, Any]:
    taken = {index for subgraph in answer.taken for index in subgraph}
    edges = _edges(model, taken)
    sizes = [_bytes(model, tensor) for tensor in edges]
    return {
        "nodes": len(model.graph.node),
        "taken": len(taken),
        "subgraphs": [len(subgraph) for subgraph in answer.taken],
        "left": [
            msgspec.to_builtins(_left(model, index, answer))
            for index in range(len(model.graph.node))
            if index not in taken
        ],
        "edges": len(edges),
        "edge_bytes": None if None in sizes else sum(size or 0 for size in sizes),
    }


def _left(model: onnx.ModelProto, index: int, answer: Answer) -> Left:
    why, words = answer.errors.get(index, ("not told", ""))
    words = words or f"the parser gives no reason; it takes {_types(model, model.graph.node[index])}"
    return Left(_name(model, index), model.graph.node[index].op_type, why, words)


def _types(model: onnx.ModelProto, node: onnx.NodeProto) -> str:
    """`string, int64`: the types of what a node takes, where the graph tells them."""
    values = {value.name: value for value in (*model.graph.value_info, *model.graph.input)}
    numbers = (values[name].type.tensor_type.elem_type for name in node.input if name in values)
    return ", ".join(map(dtype_name, numbers)) or "nothing of a known type"


def _name(model: onnx.ModelProto, index: int) -> str:
    node = model.graph.node[index]
    return str(node.name) or f"{node.op_type} {index}"


# --- between what is taken and what is left --------------------------------------------------------------------


def _edges(model: onnx.ModelProto, taken: set[int]) -> list[str]:
    """Tensors that one side computes and the other reads: each is a copy where the other side is the CPU."""
    side = {name: index in taken for index, node in enumerate(model.graph.node) for name in node.output if name}
    crossing = (
        name
        for index, node in enumerate(model.graph.node)
        for name in onnx_graph.taken_by(node)
        if name in side and side[name] != (index in taken)
    )
    return list(dict.fromkeys(crossing))


def _bytes(model: onnx.ModelProto, tensor: str) -> int | None:
    """The size of a tensor; None where one of its dimensions is open or its type is not known."""
    import onnx

    value = next((value for value in (*model.graph.value_info, *model.graph.output) if value.name == tensor), None)
    if value is None or not value.type.tensor_type.HasField("shape"):
        return None
    dims = onnx_graph.dimensions(value)
    if any(dim.WhichOneof("value") != "dim_value" for dim in dims):
        return None
    item = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type).itemsize
    return math.prod(int(dim.dim_value) for dim in dims) * int(item)


def render(result: Mapping[str, Any]) -> str:
    """A partition as text for the screen."""
    lines = [f"by {result['by']}"]
    for label in ("dynamic", "static"):
        lines += _lines(label, result[label])
    if result["looped"]:
        lines.append(f"* run as loops of kernels: {', '.join(result['looped'])}")
    if collectives := result.get("collectives"):
        lines.append(f"* between GPUs, one process each (TensorRT 10.16 or newer): {', '.join(collectives)}")
    return "\n".join(lines)


def _lines(label: str, part: Mapping[str, Any]) -> list[str]:
    if "not_measured" in part:
        return [f"{label:8} not asked: {part['not_measured']}"]
    copied = "of open size" if part["edge_bytes"] is None else f"of {counted(part['edge_bytes'], 'byte')}"
    parts = f", in {_sizes(part['subgraphs'])}" if part["subgraphs"] else ""
    lines = [f"{label:8} takes {part['taken']} of {part['nodes']} nodes{parts}"]
    if part["left"]:
        crossing = f"{counted(part['edges'], 'tensor')} {copied} {'cross' if part['edges'] != 1 else 'crosses'} to "
        lines.append(f"         {crossing if part['edges'] else ''}what is left:")
    reasons = grouped(((node["why"], node["words"]), node) for node in part["left"])
    return [*lines, *(f"         {_together(nodes)}: {why} ({words})" for (why, words), nodes in reasons.items())]


def _sizes(subgraphs: Sequence[int]) -> str:
    """`subgraphs of 3, 1`; of many how many there are, and the smallest and largest."""
    if len(subgraphs) <= NAMED:
        return f"subgraphs of {', '.join(map(str, subgraphs))}"
    ends = dict.fromkeys((min(subgraphs), max(subgraphs)))
    return f"{len(subgraphs)} subgraphs of {' to '.join(map(str, ends))}"


def _together(nodes: Sequence[Mapping[str, Any]]) -> str:
    """A node with its operator; of several that are left for one reason how many of each operator, and the first."""
    if len(nodes) == 1:
        return f"{nodes[0]['op_type']} {nodes[0]['node']}"
    operators = Counter(node["op_type"] for node in nodes)
    of = ", ".join(f"{count} {operator}" for operator, count in operators.most_common())
    return f"{of} ({some([node['node'] for node in nodes])})"
