"""A graph in which each unit's number format has a switch, an input of its own, so that one session serves all."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inferprof.grouping import grouped
from inferprof.model import accuracy, emulation, onnx_graph, typed_graph
from inferprof.model.operators import DEQUANTIZERS, MOVES, QUANTIZERS
from inferprof.model.products import FUSED, PRODUCTS
from inferprof.plugins import Chains

BEHIND_A_PRODUCT = MOVES | FUSED
"""What may stand between a product and what it is fused with."""
VIEWS = MOVES | frozenset(("Concat", "Split", "Pad", "Shape", "Size", "Tile", "Where"))
"""Operators that compute nothing: their results are rounded where they arise."""


@dataclass(frozen=True)
class Edge:
    """Where a tensor enters a node, or leaves it, and the nodes that put it into the format and back."""

    node: str
    """First output of the node."""
    place: int
    """Which of its inputs; of its outputs -1 - place."""
    tensor: str
    chain: tuple[Any, ...]
    """Nodes from `tensor`, the first input of the first, to what stands in its place, the output of the last."""


@dataclass(frozen=True)
class Unit:
    """A node, or a product and the node that its result is added in, with what is put into the format for it."""

    name: str
    op: str
    nodes: tuple[str, ...]
    """Names of all its nodes, the first of which it is called after."""
    edges: tuple[Edge, ...]


# --- units -----------------------------------------------------------------------------------------------------


def quantized_units(model: Any) -> list[Unit]:
    """The nodes of a graph that read what has just been dequantized, also through moves."""
    producers = {name: node for node in model.graph.node for name in node.output if name}
    readers = typed_graph.readers(model.graph.node)
    edges: dict[str, list[Edge]] = {}
    nodes: dict[str, Any] = {}
    for node in model.graph.node:
        if node.op_type in QUANTIZERS.keys() | DEQUANTIZERS:
            continue
        for place, name in enumerate(node.input):
            if pair := quantized_by(name, producers):
                owner = _owner(node, readers)
                nodes[owner.output[0]] = owner
                edges.setdefault(owner.output[0], []).append(Edge(node.output[0], place, pair[0].input[0], pair))
    members = grouped((_product(name, nodes, edges, producers), name) for name in nodes)
    return [_unit([nodes[name] for name in names], _all(edges, names)) for names in members.values()]


def _all(edges: Mapping[str, Sequence[Edge]], names: Sequence[str]) -> list[Edge]:
    return [edge for name in names for edge in edges[name]]


def _product(name: str, nodes: Mapping[str, Any], edges: Mapping[str, Sequence[Edge]], producers: Any) -> str:
    """The unit that another one is fused with, since it only adds to the result of that product; else itself."""
    if nodes[name].op_type in PRODUCTS:
        return name
    for edge in edges[name]:
        maker = producers.get(edge.tensor)
        while maker is not None and maker.op_type in BEHIND_A_PRODUCT and maker.output[0] not in nodes:
            computed = [made for made in (producers.get(tensor) for tensor in maker.input) if made is not None]
            maker = computed[0] if len(computed) == 1 else None
        if maker is not None and maker.op_type in PRODUCTS and maker.output[0] in nodes:
            return str(maker.output[0])
    return name


def block_units(model: Any, chains: Chains) -> list[Unit]:
    """The nodes of a float graph whose operands have chains."""
    units = []
    for node in model.graph.node:
        keys = [(place, (node.output[0], place)) for place in range(len(node.input)) if node.output]
        if edges := [Edge(*key, node.input[place], chains[key]) for place, key in keys if key in chains]:
            units.append(_unit([node], edges))
    return units


def rounded_units(model: Any, dtype: int) -> list[Unit]:
    """The nodes of a float32 graph that compute, each with its inputs and outputs rounded to a half precision."""
    import onnx

    types = emulation.value_types(model)
    units = []
    for node in model.graph.node:
        if node.op_type in VIEWS or not node.output or types.get(node.output[0]) != onnx.TensorProto.FLOAT:
            continue
        places = [place for place, name in enumerate(node.input) if types.get(name) == onnx.TensorProto.FLOAT]
        edges = [Edge(node.output[0], place, node.input[place], _casts(dtype)) for place in places]
        edges.append(Edge(node.output[0], -1, node.output[0], _casts(dtype)))
        units.append(_unit([node], edges))
    return units


def _casts(dtype: int) -> tuple[Any, ...]:
    import onnx

    pair = (("x", "half", dtype), ("half", "back", onnx.TensorProto.FLOAT))
    return tuple(onnx.helper.make_node("Cast", [given], [made], to=number) for given, made, number in pair)


def _unit(nodes: Sequence[Any], edges: Sequence[Edge]) -> Unit:
    names = tuple(node.name or node.output[0] for node in nodes)
    return Unit(names[0], nodes[0].op_type, names, tuple(edges))


def quantized_by(tensor: str, producers: Mapping[str, Any]) -> tuple[Any, Any] | None:
    """The quantizer and the dequantizer that a tensor comes out of."""
    dequantizer = producers.get(tensor)
    if dequantizer is None or dequantizer.op_type not in DEQUANTIZERS:
        return None
    quantizer = producers.get(dequantizer.input[0])
    return (quantizer, dequantizer) if quantizer is not None and quantizer.op_type in QUANTIZERS else None


def _owner(node: Any, readers: Mapping[str, Sequence[Any]]) -> Any:
    """The node that a move brings its tensor to, where that is one."""
    while node.op_type in MOVES and len(following := readers.get(node.output[0], ())) == 1:
        node = following[0]
    return node


# --- graphs ----------------------------------------------------------------------------------------------------


def only(model: Any, kept: Iterable[Unit]) -> Any:
    """A copy in which the units that are not `kept` read what their quantizers were given."""
    wanted = {(edge.node, edge.place) for unit in kept for edge in unit.edges}
    result = copy.deepcopy(model)
    left = {(e.node, e.place): e.tensor for unit in quantized_units(model) for e in unit.edges}
    for node in result.graph.node:
        for place in range(len(node.input)):
            key = (node.output[0] if node.output else "", place)
            if key in left and key not in wanted:
                node.input[place] = left[key]
    drop_unread(result.graph)
    return result


def drop_unread(graph: Any) -> None:
    """Remove the quantizers and dequantizers whose results nobody reads any more, and their scales."""
    for kinds in (DEQUANTIZERS, frozenset(QUANTIZERS)):
        read = onnx_graph.read_by_any(graph)
        kept = [n for n in graph.node if n.op_type not in kinds or read & {*n.output}]
        del graph.node[:]
        graph.node.extend(kept)
    onnx_graph.drop_unread_weights(graph)


def switchable(model: Any, units: Sequence[Unit], *, held: bool = False) -> Any:
    """A float graph with a boolean input `switch/N` for unit N, which puts it into its format where it is true.

    Of a weight both forms are stored, so that an evaluation quantizes activations alone. With `held` not even these:
    what the format adds to an activation is an input, of the name that `error` says.
    """
    import onnx

    result = copy.deepcopy(model)
    graph = result.graph
    weights = stored(model, units)
    graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in weights.items())
    at = grouped(
        ((edge.node, edge.place), (number, edge)) for number, unit in enumerate(units) for edge in unit.edges
    )
    nodes = []
    for node in graph.node:
        name = node.output[0] if node.output else ""
        for place in range(len(node.input)):
            chosen = at.get((name, place), ())  # of several formats one at most is switched on
            for index, (number, edge) in enumerate(chosen):
                out = f"{name}/{place}/switched/{number}"
                nodes.append(_choice(number, node.input[place] if index else edge.tensor, out, edge, weights, held))
                node.input[place] = out
        nodes.append(node)
        made = at.get((name, -1), ())
        for index, (number, edge) in enumerate(made):
            before = f"{name}/float/{index}"
            if not index:
                node.output[0] = before
            after = name if index == len(made) - 1 else f"{name}/float/{index + 1}"
            nodes.append(_choice(number, before, after, edge, weights, held))
    del graph.node[:], graph.value_info[:]
    graph.node.extend(nodes)
    drop_unread(graph)
    graph.input.extend(
        onnx.helper.make_tensor_value_info(switch(number), onnx.TensorProto.BOOL, []) for number in range(len(units))
    )
    if held:
        errors = dict.fromkeys(
            error(edge) for _, edge in itertools.chain(*at.values()) if stored_as(edge) not in weights
        )
        graph.input.extend(onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in errors)
    return result


def stored(model: Any, units: Sequence[Unit]) -> dict[str, Any]:
    """What becomes of each weight that a unit puts into its format."""
    weights = {weight.name: weight for weight in model.graph.initializer}
    edges = {stored_as(edge): edge for unit in units for edge in unit.edges if edge.tensor in weights}
    nodes = []
    for name, edge in edges.items():
        chain = list(chained(edge.chain, edge.tensor, name))
        chain[-1].output[0] = name
        nodes += chain
    return accuracy.of_weights(model, nodes, [*edges]) if nodes else {}


def assembled(model: Any, units: Sequence[Unit], *, recorded: bool = False) -> Any:
    """A copy of a float graph in which the units are in their formats, without switches.

    A tensor that several nodes read by one scale is quantized once. With `recorded` weights are stored in their
    formats, and what these add to each activation is a further output, of the name that `error` says.
    """
    import onnx

    result = copy.deepcopy(model)
    graph = result.graph
    weights = stored(model, units) if recorded else {}
    graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in weights.items())
    edges = {(edge.node, edge.place): edge for unit in units for edge in unit.edges}
    made = {name: name for name in weights}
    nodes: list[Any] = []
    for node in graph.node:
        for place in range(len(node.input)):
            if edge := edges.get((node.output[0] if node.output else "", place)):
                key = stored_as(edge)
                if key not in made:
                    nodes += chained(edge.chain, edge.tensor, f"{key}/put")
                    made[key] = nodes[-1].output[0]
                    if recorded:
                        added = error(edge)
                        nodes.append(onnx.helper.make_node("Sub", [made[key], edge.tensor], [added]))
                        output = onnx.helper.make_tensor_value_info(added, onnx.TensorProto.FLOAT, None)
                        graph.output.append(output)
                node.input[place] = made[key]
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    if recorded:
        del graph.value_info[:]
    drop_unread(graph)
    return result


def stored_as(edge: Edge) -> str:
    """The name of a tensor in its format: by its scale, or by what its last node gives."""
    first, *_, last = edge.chain
    return f"{edge.tensor}/{first.input[1] if len(first.input) > 1 else last.output[0]}"


def error(edge: Edge) -> str:
    """The input that holds what the format adds to a tensor."""
    return f"{stored_as(edge)}/error"


def switch(number: int) -> str:
    """The input that switches a unit."""
    return f"switch/{number}"


def _choice(number: int, tensor: str, out: str, edge: Edge, weights: Mapping[str, Any], held: bool) -> Any:
    """The If by which a unit's switch chooses what stands in the place of a tensor."""
    import onnx

    if stored_as(edge) in weights:
        inside = [onnx.helper.make_node("Identity", [stored_as(edge)], [f"{out}/in"])]
    elif held:
        inside = [onnx.helper.make_node("Add", [tensor, error(edge)], [f"{out}/in"])]
    else:
        inside = list(chained(edge.chain, tensor, f"{out}/in"))
    beside = [onnx.helper.make_node("Identity", [tensor], [f"{out}/as_is"])]
    branches = {}
    for name, nodes in (("then_branch", inside), ("else_branch", beside)):
        output = onnx.helper.make_tensor_value_info(nodes[-1].output[0], onnx.TensorProto.FLOAT, None)
        branches[name] = onnx.helper.make_graph(nodes, f"{out}/{name}", [], [output])
    return onnx.helper.make_node("If", [switch(number)], [out], **branches)


def chained(chain: Sequence[Any], tensor: str, prefix: str) -> Iterator[Any]:
    """Copies of the nodes of a chain, the first of which reads `tensor`, with outputs of their own."""
    renamed = {chain[0].input[0]: tensor}
    for index, node in enumerate(chain):
        clone = copy.deepcopy(node)
        clone.name = ""
        clone.input[:] = [renamed.get(name, name) for name in clone.input]
        for place, name in enumerate(clone.output):
            renamed[name] = clone.output[place] = f"{prefix}/{index}{f'.{place}' if place else ''}"
        yield clone
