"""Why a unit loses accuracy in a format, out of what it reads and computes on real inputs."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from inferprof.model import accuracy, onnx_graph
from inferprof.model.operators import integers
from inferprof.model.products import PRODUCTS
from inferprof.plugins import Feeds
from inferprof.sensitivity.switches import Edge, Unit, chained, drop_unread

Array = np.ndarray[Any, Any]
OUTLIER = 8.0
"""How many times the median channel's largest value the largest channel's is, from which on it is an outlier."""
LOST = 0.25
"""Share of the values, zeros aside, that become zero: more, and the scale does not hold the small ones."""
INEXACT = 1 / 16
"""Of a tensor: how far a half precision may be off it; more, and its values are too small for that."""
IMAGES = frozenset(("Conv", "ConvTranspose"))
"""Operators whose channels are the second axis of what they read."""
CLIPPED = 2.0
"""How many times the largest value that the format holds the data are, from which on the scale is too small."""
DEEP = 4096
"""Terms of a sum in half precision from which on its rounding is spoken of."""
LARGE = 50.0
"""How many times the median unit's largest result one's is, from which on its errors outweigh the others'."""


@dataclass(frozen=True)
class Seen:
    """A tensor at an edge on all samples, and what the format makes of it."""

    edge: Edge
    value: Array
    in_format: Array
    per_channel: bool
    """Whether each of its channels, or blocks, has a scale of its own."""
    axes: tuple[int, ...]
    """Which of its axes are channels."""
    joined: int
    """How many samples stand one behind the other on its first axis; 1 of a weight."""


def of(
    model: Any, plain: Any, units: Sequence[Unit], samples: Sequence[Feeds], *, pieces: Mapping[str, str], half: bool
) -> list[str | None]:
    """The cause of each unit's loss in one line, None where none is known.

    `model` has the scales, `plain` is the float graph; `pieces`: node → the normalization that it is a piece of.
    """
    edges = [edge for unit in units for edge in unit.edges]
    tensors = list(dict.fromkeys([edge.tensor for edge in edges] + [edge.node for edge in edges]))
    values = _values(plain, tensors, samples)
    converted = _converted(model, units, values)
    made_by = {name: node for node in plain.graph.node for name in node.output}
    largest = {unit.name: _largest(unit, values, made_by) for unit in units}
    scales = {weight.name: math.prod(weight.dims) for weight in model.graph.initializer}
    weights = {weight.name for weight in plain.graph.initializer}
    typical = float(np.median([*largest.values()])) if largest else 0.0
    causes: list[str | None] = []
    for unit in units:
        seen = [
            Seen(
                edge,
                values[edge.tensor],
                converted[edge.node, edge.place],
                scales.get(_scale(edge), 2) > 1,
                _axes(unit, edge, made_by[edge.node]),
                1 if edge.tensor in weights else len(samples),
            )
            for edge in unit.edges
        ]
        piece = next((pieces[edge.node] for edge in unit.edges if edge.node in pieces), None)
        causes.append(_cause(unit, seen, piece, half=half) or _large(largest[unit.name], typical))
    return causes


def _values(model: Any, tensors: Sequence[str], samples: Sequence[Feeds]) -> dict[str, Array]:
    """Tensors of the float graph over the samples, weights once."""
    import onnx

    weights = {w.name: onnx.numpy_helper.to_array(w) for w in model.graph.initializer if w.name in tensors}
    given = {value.name for value in onnx_graph.inputs(model)} & {*tensors}
    made = [name for name in tensors if name not in weights and name not in given]
    shown = copy.deepcopy(model)
    del shown.graph.output[:]
    shown.graph.output.extend(onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in made)
    values = {name: [sample[name] for sample in samples] for name in given}
    if made:
        loaded = accuracy.session(shown)
        runs = [dict(zip(made, loaded.run(made, dict(sample)), strict=True)) for sample in samples]
        values |= {name: [run[name] for run in runs] for name in made}
    return weights | {name: accuracy.joined([{name: part} for part in parts])[name] for name, parts in values.items()}


def _converted(model: Any, units: Sequence[Unit], values: Mapping[str, Array]) -> dict[tuple[str, int], Array]:
    """By node and place: what the format makes of the tensor there."""
    import onnx

    edges = [edge for unit in units for edge in unit.edges]
    nodes, outputs = [], []
    for number, edge in enumerate(edges):
        chain = list(chained(edge.chain, edge.tensor, f"seen/{number}"))
        nodes += chain
        outputs.append(chain[-1].output[0])
    infos = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in outputs]
    inputs = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in values]
    kept = [weight for weight in model.graph.initializer if weight.name not in values]
    graph = onnx.helper.make_graph(nodes, "seen", inputs, infos, kept)
    drop_unread(graph)
    whole = onnx.helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    results = accuracy.session(whole).run(outputs, dict(values))
    return {(edge.node, edge.place): result for edge, result in zip(edges, results, strict=True)}


def _scale(edge: Edge) -> str:
    return str(edge.chain[0].input[1]) if len(edge.chain[0].input) > 1 else ""


def _axes(unit: Unit, edge: Edge, node: Any) -> tuple[int, ...]:
    """The channels of what a node reads: what its sums run over, and on the right of a product its columns, too."""
    if unit.op in IMAGES:
        return (1,)
    if edge.place == 0:
        return (-2,) if integers(node).get("transA") else (-1,)
    return (-1, -2) if node.op_type in PRODUCTS else (-1,)


def _largest(unit: Unit, values: Mapping[str, Array], made_by: Mapping[str, Any]) -> float:
    """The largest value that a unit gives; of a product without the addition behind it, which others reach."""
    nodes = [edge.node for edge in unit.edges]
    own = [node for node in nodes if made_by[node].op_type != "Add"] or nodes
    return max(_reach(values[node]) for node in own)


def _reach(array: Array) -> float:
    return float(np.abs(array).max(initial=0))


def _cause(unit: Unit, seen: Sequence[Seen], piece: str | None, *, half: bool) -> str | None:
    """The gravest of what is known to lose accuracy."""
    for item in seen:
        if np.isfinite(item.value).all() and not np.isfinite(item.in_format).all():
            text = f"overflow: {_what(item)} reaches {_reach(item.value):,.0f}, over what the format holds"
            return f"normalization in pieces ({piece}): {text}" if piece else text
    graded = sorted(seen, key=lambda item: _sqnr(item))
    if half:
        small = next((cause for item in graded if (cause := _underflow(item))), None)
        return f"normalization in pieces ({piece})" if piece else small or _deep(unit, seen)
    return next((cause for item in graded if (cause := _of_scale(item))), None)


def _underflow(item: Seen) -> str | None:
    """A tensor that is too small for a half precision, as a whole."""
    if _sqnr(item) * INEXACT**2 >= 1:
        return None
    return f"underflow: {_what(item)} reaches {_reach(item.value):.2g} at most, which the format holds badly or as 0"


def _of_scale(item: Seen) -> str | None:
    """Why one scale does not serve a tensor."""
    value, held = np.abs(item.value), np.abs(item.in_format)
    reach, top = float(value.max(initial=0)), float(held.max(initial=0))
    if top and reach > CLIPPED * top:
        return f"scale too small: {_what(item)} reaches {reach:.4g}, the scale holds {top:.4g}"
    channel, times = max((outlier(item.value, axis, item.joined) for axis in item.axes), key=lambda far: far[1])
    if times > OUTLIER and not item.per_channel:
        return (
            f"outlier channel: channel {channel} of {_what(item)} reaches {reach:.4g}, {times:.0f} times the median "
            "channel's largest"
        )
    nonzero = value > 0
    lost = float((held[nonzero] == 0).mean()) if nonzero.any() else 0.0
    if lost > LOST:
        softmax = value.ndim > 2 and np.allclose(value.sum(axis=-1), 1, atol=1e-3)
        kind = "softmax range" if softmax else "scale too coarse"
        return f"{kind}: {lost:.0%} of {_what(item)} become 0 beside values of {reach:.4g}"
    return None


def outlier(value: Array, axis: int = -1, joined: int = 1) -> tuple[int, float]:
    """The channel of an axis that reaches farthest, and how far by the median one; `joined`: samples on the first."""
    if value.ndim < 2:
        return 0, 0.0
    reaches = np.moveaxis(np.abs(value), axis, 0).reshape(value.shape[axis], -1).max(axis=1, initial=0)
    if axis in (0, -value.ndim):
        reaches = reaches.reshape(joined, -1).max(axis=0)
    median = float(np.median(reaches))
    return int(reaches.argmax()), float(reaches.max()) / median if median else 0.0


def _deep(unit: Unit, seen: Sequence[Seen]) -> str | None:
    """The terms of a product's sums."""
    if unit.op not in ("MatMul", "Gemm") or len(seen) < 2:
        return None
    depth = seen[0].value.shape[-1]
    return f"reduction depth: sums of {depth:,} terms" if depth >= DEEP else None


def _large(reach: float, typical: float) -> str | None:
    if typical and reach > LARGE * typical:
        return (
            f"large results: {reach:.4g}, {reach / typical:,.0f} times the median unit's; its errors outweigh theirs"
        )
    return None


def _sqnr(item: Seen) -> float:
    error = float(((item.value.astype(np.float64) - item.in_format) ** 2).sum())
    return float((item.value.astype(np.float64) ** 2).sum()) / error if error else np.inf


def _what(item: Seen) -> str:
    """`input 0` or `the result`, with the tensor's name."""
    return f"{'the result' if item.edge.place < 0 else f'input {item.edge.place}'} ({item.edge.tensor})"
