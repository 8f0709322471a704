"""2:4 sparse weights: making them, proving them zero by zero in a graph, and what keeps TensorRT from using them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from inferprof.grouping import grouped
from inferprof.model.operators import DEQUANTIZERS, QUANTIZERS, bits, integers
from inferprof.model.products import FUSED, product_of
from inferprof.model.typed_graph import TypedGraph, readers
from inferprof.words import NAMED, counted, some

Array = np.ndarray[Any, Any]
GROUP = 4
"""Weights along the reduction, of which two may be other than 0."""
PRUNABLE = ("MatMul", "Gemm", "Conv")
LARGE = 256
"""Input and output channels from which on TensorRT's sparse kernels are the faster ones (TensorRT issue 3849)."""
STEP_BITS = 512
"""What a sparse instruction of the tensor cores takes of a reduction at once: 32 values of 16 bits, 64 of 8."""


def reduction_axis(node: Any) -> int:
    """The axis of a product's weight, its second input, that is summed over; of a convolution the input channels."""
    if node.op_type == "MatMul":
        return -2
    transposed = node.op_type == "Conv" or integers(node).get("transB")
    return 1 if transposed else 0


def groups(array: Array, axis: int) -> Array:
    """The weights in rows of four neighbours along the reduction; what is missing of the last four is 0."""
    moved = np.moveaxis(array, axis, -1)
    missing = -moved.shape[-1] % GROUP
    return np.pad(moved, [*[(0, 0)] * (moved.ndim - 1), (0, missing)]).reshape(-1, GROUP)


def pruned(array: Array, axis: int, neighbours: int = 1) -> Array:
    """The weights with two of each four set to 0, those of the least magnitude; neighbours stay or go together."""
    moved = np.moveaxis(array, axis, -1)
    parts = moved.reshape(*moved.shape[:-1], -1, GROUP // neighbours, neighbours)
    energy = (parts.astype(np.float64) ** 2).sum(axis=-1, keepdims=True)
    order = np.argsort(-energy, axis=-2, kind="stable")
    kept = np.zeros(energy.shape, bool)
    np.put_along_axis(kept, np.take(order, range(GROUP // neighbours // 2), axis=-2), values=True, axis=-2)
    return np.ascontiguousarray(np.moveaxis((parts * kept).astype(array.dtype).reshape(moved.shape), -1, axis))


def weight_of(node: Any, graph: TypedGraph) -> Array | None:
    """The constant second operand of a product, in the type that it is stored in; None where it has none."""
    return _stored(node.input[1], graph) if node.op_type in PRUNABLE else None


def _stored(tensor: str, graph: TypedGraph) -> Array | None:
    import onnx

    if tensor in graph.weights:
        return np.asarray(onnx.numpy_helper.to_array(graph.weights[tensor]))
    node = graph.producers.get(tensor)
    if node is None or node.op_type not in DEQUANTIZERS | QUANTIZERS.keys() | {"Cast", "Identity", "Transpose"}:
        return None
    stored = _stored(node.input[0], graph)
    if stored is None or node.op_type != "Transpose":
        return stored
    return np.transpose(stored, next((tuple(a.ints) for a in node.attribute if a.name == "perm"), None))


def is_sparse(node: Any, graph: TypedGraph) -> bool:
    """Whether no four weights of a product have more than two that are not 0."""
    weight = _half_zeros(node, graph)
    return weight is not None and not _broken(weight, reduction_axis(node)).any()


def _half_zeros(node: Any, graph: TypedGraph) -> Array | None:
    """A product's weight of two dimensions or more if half of it or more is 0; of others the fours need no look."""
    weight = weight_of(node, graph)
    dense = weight is None or weight.ndim < 2 or 2 * np.count_nonzero(weight) > weight.size
    return None if dense else weight


def _broken(weight: Array, axis: int) -> Array:
    """Of each four: whether more than two are other than 0."""
    return np.asarray(groups(weight != 0, axis).sum(axis=1) > GROUP // 2)


def products(graph: TypedGraph) -> list[dict[str, Any]]:
    """Each product whose weights are half zeros: how many fours there are, how many break the pattern, obstacles."""
    open_ends = {name for _, name in unquantized_results(graph)}
    rows = []
    for node in graph.nodes:
        weight, product = _half_zeros(node, graph), product_of(node, graph)
        if product is None or weight is None:
            continue
        axis = reduction_axis(node)
        broken = int(_broken(weight, axis).sum())
        row = {
            "name": product.name,
            "dtype": product.dtype,
            "k": weight.shape[axis],
            "n": weight.size // weight.shape[axis],
            "fours": len(groups(weight != 0, axis)),
            "broken": broken,
        }
        rows.append({**row, "obstacles": [*_obstacles(row, weight, axis, product.name in open_ends)]})
    return rows


def _obstacles(row: Mapping[str, Any], weight: Array, axis: int, open_end: bool) -> Iterator[str]:
    """What keeps TensorRT from a sparse kernel, or speaks against one."""
    width = bits(row["dtype"])
    if row["broken"]:
        yield f"{row['broken']} of {row['fours']} fours have more than two weights that are not 0"
    if width > 16:
        yield f"computed in {row['dtype']}, which has no sparse kernel"
    elif row["k"] % (step := STEP_BITS // width):
        yield f"k {row['k']} is no multiple of {step}"
    if min(row["k"], row["n"]) < LARGE:
        yield f"{min(row['k'], row['n'])} channels, under {LARGE}: a dense kernel is likely faster"
    if width == 8 and open_end:
        yield "its result is not quantized"
    if width == 4 and _unpaired(weight, axis):
        yield "4-bit kernels want zeros in pairs of neighbours"


def _unpaired(weight: Array, axis: int) -> bool:
    """Whether two neighbours of a pair are not both kept or both gone in a four with two values."""
    pairs = groups(weight != 0, axis).reshape(-1, 2, 2).any(axis=2)
    return bool((pairs.sum(axis=1) > 1).any())


def unquantized_results(graph: TypedGraph) -> list[tuple[str, str]]:
    """(tensor, product) where an 8-bit product's result, past what it is fused with, is read by no quantizer.

    What leaves the graph is left out: there is nothing behind it that a quantizer could serve.
    """
    reading = readers(graph.nodes)
    ends = []
    for node in graph.nodes:
        product = product_of(node, graph) if weight_of(node, graph) is not None else None
        if product and bits(product.dtype) == 8:
            tensor = _end(node.output[0], reading, graph)
            following = reading.get(tensor, ())
            if any(reader.op_type not in QUANTIZERS for reader in following):
                ends.append((tensor, product.name))
    return ends


def _end(tensor: str, readers: Mapping[str, Sequence[Any]], graph: TypedGraph) -> str:
    """The result of a product with its bias and its activation."""
    while len(following := readers.get(tensor, ())) == 1 and following[0].op_type in FUSED:
        if not all(name == tensor or graph.is_weight(name) for name in following[0].input):
            break
        tensor = following[0].output[0]
    return tensor


def advice(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """How many products have 2:4 sparse weights, and what is in the way of sparse kernels, the commonest first."""
    exact = sum(not row["broken"] for row in rows)
    if not exact:
        halves = f"half of the weights or more are 0 in {counted(len(rows), 'product')}, none of them 2:4 sparse"
        return [f"{halves}: {some([row['name'] for row in rows])}"] if rows else []
    free = sum(not row["obstacles"] for row in rows)
    reasons = grouped((obstacle, row["name"]) for row in rows for obstacle in row["obstacles"])
    ordered = sorted(reasons.items(), key=lambda item: -len(item[1]))
    return [
        f"{exact} products have 2:4 sparse weights, {free} of them with nothing in the way of a sparse kernel",
        *(f"sparse weights: {reason} in {len(names)}: {some(names)}" for reason, names in ordered[:NAMED]),
    ]
