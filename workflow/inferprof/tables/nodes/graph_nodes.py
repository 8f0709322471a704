"""Nodes of an ONNX graph, and which of them a sequence of kernels did.

A kernel is a single node's only where something says so: it is the only node that there is (TIED); of the nodes only
one does that kind of work, and the others are fused into its kernel (MAIN); or kernels and nodes of the kinds that
leave a mark in a kernel's name follow each other alike, and the data flow allows no other order (ORDER) or may allow
one (GUESS); or they do so only in part (PARTLY). All else is no single node's: least of all a kernel that does
several nodes' work of such kinds, as those of attention and of the products of q, k and v may.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from inferprof.model.onnx_reader import read
from inferprof.tables.trace.kernel_class import KernelClass, classify

TIED, MAIN, ORDER, GUESS, PARTLY = 1.0, 0.9, 0.8, 0.5, 0.3
"""Confidences, as the module says."""
Match = tuple[str | None, float | None]
"""A node and a confidence, or neither."""
NOBODY: Final[Match] = (None, None)
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


@dataclass(frozen=True)
class _Work:
    """What one kernel of a kind does: one node (its place in the graph), or several side by side."""

    kind: KernelClass
    places: tuple[int, ...]


def align(kernels: tuple[str, ...], nodes: tuple[Node, ...]) -> tuple[Match, ...]:
    """Per kernel of one execution of a layer, in order, the node whose work it is, with a confidence; or neither."""
    if len(nodes) == 1:
        return ((nodes[0].name, TIED),) * len(kernels)
    kinds = (classify(kernel).kernel_class for kernel in kernels)
    ours = [(place, kind) for place, kind in enumerate(kinds) if kind in MARKED]
    works = (_Work(work_of(node.op_type), (place,)) for place, node in enumerate(nodes))
    single = [work for work in works if work.kind in MARKED]
    together = _side_by_side(single, nodes)
    matched: list[Match] = [NOBODY] * len(kernels)
    candidates = (single, together, _attention(single), _attention(together))
    pairs = max((_alike(ours, some) for some in candidates), key=len)  # of equals the first, with the fewest fused
    if pairs:
        for (place, _), match in zip(pairs, _of_alike([work for _, work in pairs], nodes), strict=True):
            matched[place] = match
    else:
        for place, work in _in_part(ours, single):
            matched[place] = (nodes[work.places[0]].name, PARTLY)
    return tuple(matched)


def _alike(ours: Sequence[tuple[int, KernelClass]], theirs: Sequence[_Work]) -> list[tuple[int, _Work]]:
    """Place of a kernel and its work, of kinds of which there are as many of both; none where their order differs."""
    counts = Counter(kind for _, kind in ours), Counter(work.kind for work in theirs)
    same = {kind for kind in counts[0] if counts[0][kind] == counts[1][kind]}
    kernels, works = [kernel for kernel in ours if kernel[1] in same], [work for work in theirs if work.kind in same]
    if [kind for _, kind in kernels] != [work.kind for work in works]:
        return []
    return [(place, work) for (place, _), work in zip(kernels, works, strict=True)]


def _side_by_side(works: Sequence[_Work], nodes: Sequence[Node]) -> list[_Work]:
    """Neighbours of one kind and input as one: the products of q, k and v, which Myelin runs in one kernel."""

    def shares(work: _Work) -> tuple[object, ...]:
        given = nodes[work.places[0]].inputs[:1]
        return (work.kind, *(given or work.places))

    groups = (list(group) for _, group in itertools.groupby(works, key=shares))
    return [_Work(group[0].kind, tuple(work.places[0] for work in group)) for group in groups]


def _attention(works: Sequence[_Work]) -> list[_Work]:
    """The works with each product, softmax and product in a row as one."""
    fused: list[_Work] = []
    for work in works:
        fused.append(work)
        if [part.kind for part in fused[-3:]] == ["gemm", "softmax", "gemm"]:
            fused[-3:] = [_Work("attention", tuple(place for part in fused[-3:] for place in part.places))]
    return fused


def _of_alike(works: Sequence[_Work], nodes: Sequence[Node]) -> list[Match]:
    """The match of each work, of kernels that follow each other in the same kinds."""
    waits = before(nodes)
    count = Counter(work.kind for work in works)

    def in_order(work: _Work, other: _Work) -> bool:
        return any(waits[max(a, b)] >> min(a, b) & 1 for a in work.places for b in other.places)

    def match(work: _Work) -> Match:
        if len(work.places) > 1:
            return NOBODY
        rivals = (other for other in works if other is not work and other.kind == work.kind)
        forced = all(in_order(work, other) for other in rivals)
        confidence = MAIN if count[work.kind] == 1 else ORDER if forced else GUESS
        return nodes[work.places[0]].name, confidence

    return [match(work) for work in works]


def _in_part(ours: Sequence[tuple[int, KernelClass]], theirs: Sequence[_Work]) -> Iterator[tuple[int, _Work]]:
    """The longest runs of the same kinds, of kernels that follow each other otherwise than the nodes."""
    kinds = [kind for _, kind in ours], [work.kind for work in theirs]
    for block in difflib.SequenceMatcher(None, *kinds, autojunk=False).get_matching_blocks():
        for step in range(block.size):
            yield ours[block.a + step][0], theirs[block.b + step]
