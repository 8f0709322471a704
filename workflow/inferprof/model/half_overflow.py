"""Normalizations that a graph computes in pieces in float16, whose squares overflow from 256 on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from inferprof.model import onnx_graph
from inferprof.model.operators import MOVES
from inferprof.model.typed_graph import TypedGraph, readers

SUMS = frozenset(("GlobalAveragePool", "ReduceMean", "ReduceSum"))
SQUARED_SUMS = frozenset(("ReduceSumSquare", "ReduceL2"))
"""Reductions that square by themselves."""
ROOTS = frozenset(("Sqrt", "Pow", "Reciprocal"))
BETWEEN = frozenset(("Add", "Max", "Clip", "Div", "Mul"))
"""What may stand between the mean of the squares and its root, beside MOVES: what keeps it from 0."""
STEPS = 4
"""How many nodes are looked through for the root, MOVES not counted."""


def normalizations(graph: TypedGraph, dtype: str = "float16") -> list[str]:
    """The nodes that square in `dtype` what is then averaged and put under a root, as a normalization does."""
    reading = readers(graph.nodes)
    return [
        node.name or node.output[0] for node in graph.nodes if _squares(node, graph, dtype) and _rooted(node, reading)
    ]


def _squares(node: Any, graph: TypedGraph, dtype: str) -> bool:
    """Whether a node squares in `dtype`: x², x · x, or a reduction that does."""
    if not node.output or graph.types.get(node.output[0]) != dtype:
        return False
    if node.op_type == "Mul":
        return len(set(node.input)) == 1
    if node.op_type == "Pow":
        return bool(onnx_graph.scalar(graph.weights.get(graph.origin(node.input[1]))) == 2)
    return node.op_type in SQUARED_SUMS


def _rooted(node: Any, readers: dict[str, list[Any]]) -> bool:
    """Whether the squares are averaged, and a root is taken of that."""
    if node.op_type == "ReduceL2":
        return True
    means = (
        [node]
        if node.op_type in SQUARED_SUMS
        else [reader for reader in _read(node, readers) if reader.op_type in SUMS]
    )
    return any(_reaches_root(mean, readers, STEPS) for mean in means)


def _reaches_root(node: Any, readers: dict[str, list[Any]], steps: int) -> bool:
    following = list(_read(node, readers))
    if any(reader.op_type in ROOTS for reader in following):
        return True
    return steps > 1 and any(
        _reaches_root(reader, readers, steps - 1) for reader in following if reader.op_type in BETWEEN
    )


def _read(node: Any, readers: dict[str, list[Any]]) -> Iterator[Any]:
    """The nodes that read what a node gives, or what a move makes of that."""
    for reader in (reader for name in node.output for reader in readers.get(name, ())):
        if reader.op_type in MOVES:
            yield from _read(reader, readers)
        else:
            yield reader
