"""Nodes of an ONNX graph, and which of them a sequence of kernels did.

A kernel is a single node's only where something says so: it is the only node that there is (TIED); of the nodes only
one does that kind of work, and the others are fused into its kernel (MAIN); or kernels and nodes of the kinds that
leave a mark in a kernel's name follow each other alike, and the data flow allows no other order (ORDER) or may allow
one (GUESS). All else is no single node's.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from inferprof.onnx_graph import read
from inferprof.tables.kernel_class import KernelClass, classify

TIED, MAIN, ORDER, GUESS = 1.0, 0.9, 0.8, 0.5
"""Confidences, as the module says."""
MARKED: Final[tuple[KernelClass, ...]] = ("gemm", "convolution", "attention", "softmax", "normalisation")
"""Kinds of work that a kernel's name and a node's type both tell."""


@dataclass(frozen=True)
class Node:
    """A node and the tensors that it reads and writes. Where only its name is known, all else may be empty."""

    name: str
    op_type: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


_WORK: Final[dict[str, KernelClass]] = {
    **dict.fromkeys(("MatMul", "Gemm", "MatMulInteger", "QLinearMatMul", "Einsum", "FusedMatMul"), "gemm"),
    **dict.fromkeys(("Conv", "ConvTranspose", "ConvInteger", "QLinearConv"), "convolution"),
    **dict.fromkeys(("Softmax", "LogSoftmax"), "softmax"),
    **dict.fromkeys(("Attention", "MultiHeadAttention"), "attention"),
    **dict.fromkeys(
        (
            *("LayerNormalization", "SkipLayerNormalization", "SimplifiedLayerNormalization", "RMSNormalization"),
            *("InstanceNormalization", "GroupNormalization", "BatchNormalization"),
        ),
        "normalisation",
    ),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"), "quantize"),
    **dict.fromkeys(("Cast", "CastLike", "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze"), "reformat"),
    **dict.fromkeys(("Concat", "Split", "Slice", "Expand", "Pad", "Tile"), "copy"),
    **dict.fromkeys(("Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND"), "embedding"),
}
_REDUCTION: Final = re.compile(r"Reduce|Pool$|^Arg(?:Max|Min)$|^TopK$|^CumSum$")
_NAMED: Final = re.compile(r"(?:^|/)(?!ONNXTRT)([A-Z][A-Za-z0-9]*?)(?:_\d+)*$")
"""Exporters of PyTorch name a node by its type: `/layer1/conv1/Conv`, `MatMul_12`."""


def work_of(op_type: str) -> KernelClass:
    """The class of the kernel that would do an operator's work on its own; other: the type is not known."""
    if not op_type:
        return "other"
    return _WORK.get(op_type, "reduction" if _REDUCTION.search(op_type) else "elementwise")


def of_names(names: Iterable[str]) -> tuple[Node, ...]:
    """Nodes of which only the names are known; the type is empty where the name does not tell it."""
    return tuple(Node(name, match.group(1) if (match := _NAMED.search(name)) else "") for name in names)


def of_file(path: Path) -> tuple[Node, ...]:
    """The nodes of an ONNX file, in an order in which they can run; without the bodies of If and Loop."""
    return tuple(
        Node(node.name, node.op_type, tuple(node.input), tuple(node.output)) for node in read(path).graph.node
    )


def before(nodes: Sequence[Node]) -> list[int]:
    """Per node, as bits, which of `nodes` have ended when it begins. Nodes without known tensors wait for none."""
    made_by: dict[str, int] = {}
    needs: list[int] = []
    for place, node in enumerate(nodes):
        makers = [made_by[tensor] for tensor in node.inputs if tensor in made_by]
        waits = 0
        for maker in makers:
            waits |= needs[maker] | 1 << maker
        needs.append(waits)
        made_by.update((tensor, place) for tensor in node.outputs)
    return needs


def align(kernels: tuple[str, ...], nodes: tuple[Node, ...]) -> tuple[tuple[str | None, float | None], ...]:
    """Per kernel of one execution of a layer, in order, the node whose work it is, with a confidence; or neither."""
    if len(nodes) == 1:
        return ((nodes[0].name, TIED),) * len(kernels)
    ours = [(place, classify(kernel).kernel_class) for place, kernel in enumerate(kernels)]
    theirs = [(place, work_of(node.op_type)) for place, node in enumerate(nodes)]
    both = {kind for _, kind in ours} & {kind for _, kind in theirs} & set(MARKED)
    ours, theirs = ([one for one in some if one[1] in both] for some in (ours, theirs))
    matched: list[tuple[str | None, float | None]] = [(None, None)] * len(kernels)
    kinds = [kind for _, kind in ours], [kind for _, kind in theirs]
    sure = _sure(nodes, theirs) if kinds[0] == kinds[1] else frozenset()
    once = {kind for kind in both if Counter(kinds[0])[kind] == Counter(kinds[1])[kind] == 1}
    for block in difflib.SequenceMatcher(None, *kinds, autojunk=False).get_matching_blocks():
        for step in range(block.size):
            (place, kind), (node, _) = ours[block.a + step], theirs[block.b + step]
            matched[place] = (nodes[node].name, MAIN if kind in once else ORDER if node in sure else GUESS)
    return tuple(matched)


def _sure(nodes: Sequence[Node], marked: Sequence[tuple[int, KernelClass]]) -> frozenset[int]:
    """Of the marked nodes those that could not change places with another of their kind: the data flow forbids it."""
    waits = before(nodes)
    return frozenset(
        place
        for place, kind in marked
        if all(
            waits[max(place, other)] >> min(place, other) & 1
            for other, same in marked
            if other != place and same == kind
        )
    )
