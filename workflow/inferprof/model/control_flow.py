"""A graph with the bodies of its If, Loop and Scan nodes in it, and how often an inference runs each node.

Types and shapes inside of a body follow from what the node gives to it: the states of a Loop at their first sizes,
where the body keeps them, and the slices of what a Scan goes through.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from inferprof.model import inference, onnx_graph
from inferprof.model.inference import Dims, Inferred, Tensor
from inferprof.model.operators import integers

FLOW = frozenset(("If", "Loop", "Scan"))
"""Operators that only say what runs, and how often; all work is in their bodies."""

BATCHED_SCAN = 8
"""The opset in which a Scan has a batch in front, and the lengths of its sequences come first."""


@dataclass(frozen=True)
class Branches:
    """An If whose branch only a run tells: the node, and branch → the first outputs of the nodes in it."""

    node: str
    outputs: Mapping[str, frozenset[str]]


@dataclass
class Flat:
    """The nodes of a graph and of all bodies in it, whose own tensors are named PARENT/BODY/TENSOR."""

    nodes: list[Any] = field(default_factory=list)
    weights: dict[str, Any] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    times: dict[str, int | None] = field(default_factory=dict)
    """First output of a node → how often an inference runs it; None where only a run tells. 1 for what isn't here."""
    branches: list[Branches] = field(default_factory=list)
    """The inner ones first."""


@dataclass(frozen=True)
class _Around:
    """What surrounds a body: the model, what is known there, how often the body runs, and how its names begin.

    `names` has the tensors of what surrounds it under the names that they have in the whole.
    """

    model: Any
    inferred: Inferred
    times: int | None
    scope: str
    names: Mapping[str, str]


@dataclass(frozen=True)
class _Body:
    """A body of a node, what it is given for its formal inputs, and how often one run of the node runs it."""

    name: str
    graph: Any
    given: Mapping[str, Tensor]
    trips: int | None


def flatten(model: Any, given: Mapping[str, Tensor]) -> Flat:
    """The graph of a model at the inputs `given`."""
    flat = Flat()
    _add(flat, model.graph, given, (), _Around(model, Inferred(), 1, "", {}))
    return flat


def _add(flat: Flat, graph: Any, given: Mapping[str, Tensor], constants: Sequence[Any], around: _Around) -> Inferred:
    """Put a graph and what is in it into `flat`; what is known of its tensors, under their own names."""
    bare = inference.skeleton(around.model, graph, given, constants)
    flows = any(node.op_type in ("Loop", "If") and not node.domain for node in graph.node)
    inferred = inference.infer(bare, fold=flows)
    own = {name: f"{around.scope}{name}" for name in onnx_graph.defined(graph)}
    names = {**around.names, **own}
    for node in graph.node:
        flat.nodes.append(_renamed(node, names))
        if around.times != 1 and node.output:
            flat.times[flat.nodes[-1].output[0]] = around.times
        learned = _add_bodies(flat, node, replace(around, inferred=inferred, names=names))
        if news := {name: tensor for name, tensor in learned.items() if name not in inferred.shapes}:
            del bare.graph.value_info[:]
            bare.graph.value_info.extend(inference.value_info(name, tensor) for name, tensor in news.items())
            inferred = _joined(inferred, inference.infer(bare, fold=flows))
    flat.weights |= {own[weight.name]: weight for weight in _weights(graph)}
    flat.types |= {own[name]: dtype for name, dtype in inferred.types.items() if name in own}
    flat.shapes |= {own[name]: shape for name, shape in inferred.shapes.items() if name in own}
    return inferred


def _joined(old: Inferred, new: Inferred) -> Inferred:
    return Inferred(
        {**old.types, **new.types},
        {**old.numbers, **new.numbers},
        {**old.shapes, **new.shapes},
        {**old.values, **new.values},
    )


def _weights(graph: Any) -> Iterator[Any]:
    """The constants that a graph stores: initializers, and what its Constant nodes hold."""
    yield from graph.initializer
    yield from map(onnx_graph.dense, graph.sparse_initializer)
    yield from (_named(held, node.output[0]) for node in graph.node if (held := onnx_graph.constant(node)))


def _renamed(node: Any, names: Mapping[str, str]) -> Any:
    """A copy of a node under other names of tensors, without its bodies."""
    renamed = copy.deepcopy(node)
    renamed.input[:] = [names.get(name, name) for name in node.input]
    renamed.output[:] = [names.get(name, name) for name in node.output]
    kept = [attribute for attribute in renamed.attribute if not onnx_graph.bodies(attribute)]
    del renamed.attribute[:]
    renamed.attribute.extend(kept)
    return renamed


# --- bodies ----------------------------------------------------------------------------------------------------


def _add_bodies(flat: Flat, node: Any, around: _Around) -> dict[str, Tensor]:
    """Put the bodies of a node into `flat`; what they tell of its outputs."""
    bodies = _bodies(node, around.inferred, around.model)
    outputs: dict[str, frozenset[str]] = {}
    results: list[dict[str, Tensor]] = []
    for body in bodies:
        first = len(flat.nodes)
        times = body.trips if around.times == 1 else _times(around.times, body.trips)
        label = next((name for name in node.output if name), node.name)  # names of nodes may be anything
        inside = replace(around, times=times, scope=f"{around.scope}{label}/{body.name}/")
        results.append(_add_body(flat, node, body, inside))
        outputs[body.name] = frozenset(added.output[0] for added in flat.nodes[first:] if added.output)
    if node.op_type == "If" and all(body.trips for body in bodies):
        flat.branches.append(Branches(node.name or node.output[0], outputs))
    alike = bool(results) and all(result == results[0] for result in results)
    return results[0] if alike else {}


def _times(outer: int | None, inner: int | None) -> int | None:
    """A body that never runs doesn't, however often what surrounds it does."""
    if 0 in (outer, inner):
        return 0
    return None if outer is None or inner is None else outer * inner


def _bodies(node: Any, inferred: Inferred, model: Any) -> list[_Body]:
    """The bodies of a node. Those of an operator that is not known run as often as nobody here can tell."""
    graphs = [(a.name, graph) for a in node.attribute for graph in onnx_graph.bodies(a)]
    if node.domain or node.op_type not in FLOW:
        return [_Body(name, graph, _declared(graph), None) for name, graph in graphs]
    if node.op_type == "If":
        taken = onnx_graph.scalar(inferred.values.get(node.input[0]))
        return [
            _Body(name, graph, {}, 1 if taken is None else int(bool(taken) == (name == "then_branch")))
            for name, graph in graphs
        ]
    return [
        (_loop if node.op_type == "Loop" else _scan)(node, name, graph, inferred, model) for name, graph in graphs
    ]


def _loop(node: Any, name: str, graph: Any, inferred: Inferred, model: Any) -> _Body:
    """A Loop: (count, condition, states…). It runs `count` times where its condition always holds."""
    given = _declared(graph)
    formal = [value.name for value in graph.input]
    states = dict(zip(formal[2:], node.input[2:], strict=False))
    given |= {inside: _tensor(inferred, outside, given[inside]) for inside, outside in states.items()}
    given |= {inside: replace(given[inside], dims=()) for inside in formal[:2]}
    count, condition = [*node.input, "", ""][:2]
    trips = onnx_graph.scalar(inferred.values.get(count))
    held = True if not condition else onnx_graph.scalar(inferred.values.get(condition))
    if held is not None and not held:
        return _Body(name, graph, given, 0)
    goes_on = _always_true(graph, formal[1] if len(formal) > 1 else "")
    return _Body(name, graph, given, max(0, int(trips)) if trips is not None and held and goes_on else None)


def _always_true(graph: Any, condition: str) -> bool:
    """Whether the condition that a Loop's body gives back is the one that it got, or a constant that holds."""
    import onnx

    producers = {name: node for node in graph.node for name in node.output}
    constants = {weight.name: weight for weight in _weights(graph)}
    name = graph.output[0].name if graph.output else ""
    while name != condition and name in producers and producers[name].op_type == "Identity":
        name = producers[name].input[0]
    return name == condition or (name in constants and bool(onnx.numpy_helper.to_array(constants[name]).all()))


def _scan(node: Any, name: str, graph: Any, inferred: Inferred, model: Any) -> _Body:
    """A Scan: (states…, sequences…), whose body gets a slice of each sequence."""
    batched = onnx_graph.opset(model) == BATCHED_SCAN
    actual = node.input[1:] if batched else node.input
    given = _declared(graph)
    pairs = [(value.name, inferred.shapes.get(name), name) for value, name in zip(graph.input, actual, strict=False)]
    first, axes = _scanned(node, len(pairs))
    trips: int | None = None
    for place, (inside, shape, outside) in enumerate(pairs):
        tensor = _tensor(inferred, outside, given[inside])
        if shape and batched:
            shape = shape[1:]
        if shape and place >= first:
            axis = axes[place - first] % len(shape)
            trips, shape = shape[axis], shape[:axis] + shape[axis + 1 :]
        given[inside] = replace(tensor, dims=given[inside].dims if shape is None else shape)
    if batched and trips is not None:
        batch = next(inferred.shapes[name][0] for _, shape, name in pairs if shape)
        trips *= batch
    return _Body(name, graph, given, trips)


def _scanned(node: Any, inputs: int) -> tuple[int, list[int]]:
    """The place of a Scan's first sequence among its inputs, and the axis that each sequence is cut along."""
    attributes = {a.name: a for a in node.attribute}
    count = attributes["num_scan_inputs"].i
    given = attributes.get("scan_input_axes")
    return inputs - count, list(given.ints) if given else [0] * count


def _declared(graph: Any) -> dict[str, Tensor]:
    """What a graph says of its own inputs."""
    values = {value.name: value.type.tensor_type for value in graph.input}
    return {
        name: Tensor(
            tensor.elem_type,
            [dim.dim_value if dim.dim_value > 0 else None for dim in tensor.shape.dim]
            if tensor.HasField("shape")
            else None,
        )
        for name, tensor in values.items()
    }


def _tensor(inferred: Inferred, name: str, declared: Tensor) -> Tensor:
    """What is known of a tensor outside; else what the body declares."""
    number = inferred.numbers.get(name) or declared.number
    return Tensor(number, inferred.shapes.get(name, declared.dims))


def _add_body(flat: Flat, node: Any, body: _Body, around: _Around) -> dict[str, Tensor]:
    """Put one body into `flat`; what it tells of the node's outputs."""
    outer = around.inferred
    names = dict.fromkeys(onnx_graph.captured(body.graph))
    captured = [name for name in names if name in outer.numbers or name in outer.values]
    constants = [_named(outer.values[name], name) for name in captured if name in outer.values]
    taken = {
        name: Tensor(outer.numbers[name], outer.shapes.get(name)) for name in captured if name not in outer.values
    }
    given = dict(body.given)
    if states := _states(node, body.graph):
        scratch = _add(Flat(), body.graph, taken | given, constants, around)
        given |= {
            before: replace(given[before], dims=_agreed(given[before].dims, scratch.shapes.get(after)))
            for before, after in states
        }
    return _results(node, body, _add(flat, body.graph, taken | given, constants, around))


def _named(weight: Any, name: str) -> Any:
    named = copy.deepcopy(weight)
    named.name = name
    return named


def _states(node: Any, graph: Any) -> list[tuple[str, str]]:
    """(input, output) of each state in a body."""
    if node.op_type == "Loop":
        count = len(node.input) - 2
        return list(
            zip([v.name for v in graph.input[2 : 2 + count]], [v.name for v in graph.output[1:]], strict=False)
        )
    if node.op_type == "Scan":
        count = len(graph.input) - integers(node)["num_scan_inputs"]
        return list(zip([v.name for v in graph.input[:count]], [v.name for v in graph.output], strict=False))
    return []


def _agreed(first: Dims | None, second: Dims | None) -> Dims | None:
    """The sizes that two shapes share; None for those that they don't."""
    if first is None or second is None or len(first) != len(second):
        return None
    return [a if a == b else None for a, b in zip(first, second, strict=True)]


def _results(node: Any, body: _Body, inferred: Inferred) -> dict[str, Tensor]:
    """The outputs of a node whose shapes its body tells: of a loop the states, and a slice of the rest per trip."""
    names = [value.name for value in body.graph.output]
    if node.op_type == "Loop":
        names = names[1:]
    kept = {after for before, after in _states(node, body.graph)}
    if node.op_type == "Scan" and (body.trips is None or _lays_out(node)):
        return {}
    tensors: dict[str, Tensor] = {}
    for outside, inside in zip(node.output, names, strict=False):
        shape = inferred.shapes.get(inside)
        if not outside or shape is None or inside not in inferred.numbers:
            continue
        if node.op_type != "If" and inside not in kept:
            if body.trips is None:
                continue
            shape = (body.trips, *shape)
        tensors[outside] = Tensor(inferred.numbers[inside], shape)
    return tensors


def _lays_out(node: Any) -> bool:
    """Whether a Scan says itself where the trips stand among the sizes of its outputs."""
    return any(a.name == "scan_output_axes" and any(a.ints) for a in node.attribute)
