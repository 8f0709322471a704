"""The matrix products and convolutions of a graph: their sizes, multiply-accumulates and types."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from inferprof.documents.graph import Gemm
from inferprof.model import contrib
from inferprof.model.operators import bits, integers
from inferprof.model.typed_graph import TypedGraph

PRODUCTS = {
    "MatMul": (0, 1),
    "Gemm": (0, 1),
    "Conv": (0, 1),
    "ConvTranspose": (0, 1),
    "MatMulInteger": (0, 1),
    "ConvInteger": (0, 1),
    "DeformConv": (0, 1),
    "QLinearMatMul": (0, 3),
    "QLinearConv": (0, 3),
    "Einsum": (0, 1),
    "Attention": (0, 1),
    "LSTM": (0, 1),
    "GRU": (0, 1),
    "RNN": (0, 1),
    **contrib.PRODUCTS,
}
"""Operators that multiply and add, and where their two operands stand among the inputs."""
RECURRENT = {"LSTM": 4, "GRU": 3, "RNN": 1}
"""Operators that go through a sequence step by step, and their gates."""
FUSED = frozenset(("Add", "BatchNormalization", "Clip", "LeakyRelu", "Relu"))
"""What may stand behind a product and be fused with it: its bias, its activation."""
WINDOWED = frozenset(("Conv", "ConvInteger", "QLinearConv", "MaxPool", "AveragePool", "LpPool"))
"""Operators whose window lies in the axes behind batch and channels."""
NO_SINGLE_PRODUCT = frozenset(("Einsum", "Attention", *RECURRENT)) | contrib.SEVERAL


@dataclass(frozen=True)
class Product:
    """A matrix product or convolution: sizes m × k times k × n, multiply-accumulates, and the type it computes in."""

    name: str
    dtype: str
    macs: int
    """Of an inference; 0 where a shape could not be inferred, or only a run tells how often it runs."""
    sizes: Mapping[str, int]
    """Empty where a shape could not be inferred, and of what is NO_SINGLE_PRODUCT."""
    with_weight: bool
    macs_once: int = 0
    """Of one run of the node: another number in the body of a loop."""
    sized: bool = True
    """Whether its shapes are known."""


def products_of(graph: TypedGraph) -> list[Product]:
    """The products that an inference runs, in the graph's order."""
    nodes = (node for node in graph.nodes if graph.runs(node) != 0)
    return [product for node in nodes if (product := product_of(node, graph))]


def product_of(node: Any, graph: TypedGraph) -> Product | None:
    """The product that a node computes, or None."""
    if node.op_type not in PRODUCTS or len(node.input) <= max(PRODUCTS[node.op_type]):
        return None
    left, right = (node.input[index] for index in PRODUCTS[node.op_type])
    sizes = _sizes(node, left, right, graph)
    once = _macs(node, graph, sizes)
    return Product(
        name=node.name or node.output[0],
        dtype=_computed_in(node, left, right, graph),
        macs=once * (graph.runs(node) or 0),
        sizes=sizes,
        with_weight=node.op_type in RECURRENT or graph.is_weight(right) or graph.is_weight(left),
        macs_once=once,
        sized=once > 0 or any(0 in graph.shapes.get(tensor, ()) for tensor in (left, right)),
    )


def _computed_in(node: Any, left: str, right: str, graph: TypedGraph) -> str:
    """The wider type of the operands."""
    if node.op_type in contrib.IN_TYPE_OF_WEIGHT:
        return graph.operand_type(right)
    return max((graph.operand_type(tensor) for tensor in (left, right)), key=bits)


def too_small(graph: TypedGraph) -> str | None:
    """The first node whose window is larger than what it goes over, with its padding: runtimes refuse that, of which
    ONNX says nothing, or infers a size."""
    nodes = (node for node in graph.nodes if node.op_type in WINDOWED and graph.runs(node) != 0)
    return next(filter(None, (_too_small(node, graph) for node in nodes)), None)


def _too_small(node: Any, graph: TypedGraph) -> str | None:
    given = {a.name: a.s if a.name == "auto_pad" else list(a.ints) for a in node.attribute}
    weight = () if "Pool" in node.op_type else graph.shapes.get(node.input[PRODUCTS[node.op_type][1]], ())
    window = given.get("kernel_shape") or weight[2:]
    over = graph.shapes.get(node.input[0], ())[2:]
    if len(over) != len(window) or given.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
        return None
    pads = given.get("pads") or [0] * 2 * len(over)
    padded = [sum(sizes) for sizes in zip(over, pads[: len(over)], pads[len(over) :], strict=True)]
    dilated = [step * (k - 1) + 1 for step, k in zip(given.get("dilations") or [1] * len(over), window, strict=True)]
    if all(size >= least for size, least in zip(padded, dilated, strict=True)):
        return None
    return (
        f"{node.op_type} {node.name or node.output[0]} has a window of {dilated} and gets {padded}, which is smaller"
    )


def one_branch(graph: TypedGraph) -> tuple[TypedGraph, list[dict[str, Any]]]:
    """The graph with one branch of each If running, the one of more multiply-accumulates; and those of each branch.

    Which one runs, only a run tells. An If without products in it is left out of the list.
    """
    choices: list[dict[str, Any]] = []
    for branches in graph.branches:
        macs = {
            name: sum(
                product.macs or product.macs_once
                for node in graph.nodes
                if node.output
                and node.output[0] in outputs
                and (product := product_of(node, graph))
                and graph.runs(node) != 0
            )
            for name, outputs in branches.outputs.items()
        }
        counted = max(macs, key=lambda name: macs[name])
        left_out = [output for name in macs if name != counted for output in branches.outputs[name]]
        graph = dataclasses.replace(graph, times={**graph.times, **dict.fromkeys(left_out, 0)})
        if any(macs.values()):
            choices.append({"node": branches.node, "counted": counted, "macs": macs})
    return graph, choices


def _sizes(node: Any, left: str, right: str, graph: TypedGraph) -> dict[str, int]:
    """m, k and n of a product; of a convolution k (channels times window, per group) and n (output channels)."""
    a, b = graph.shapes.get(left, ()), graph.shapes.get(right, ())
    numbers = integers(node)
    if "K" in numbers:  # a weight whose values are packed in bytes says by attributes how many there are
        return {"m": a[-2] if len(a) > 1 else 1, "k": numbers["K"], "n": numbers["N"]} if a else {}
    if "Conv" in node.op_type:
        return {"k": math.prod(b[1:]), "n": b[0]} if b else {}
    if not a or not b or node.op_type in NO_SINGLE_PRODUCT:
        return {}
    a, b = (1, *a) if len(a) == 1 else a, (*b, 1) if len(b) == 1 else b  # a vector is a row, or a column
    m, k = a[-2:][::-1] if numbers.get("transA") else a[-2:]
    return {"m": m, "k": k, "n": b[-2] if numbers.get("transB") else b[-1]}


def gemm_of(node: Any, graph: TypedGraph) -> Gemm | None:
    """The matrix products that a node is computed by; None where it is no product or a shape is not known.

    With a right operand of two dimensions all rows of the left one are one matrix. A convolution is its implicit GEMM
    (NVIDIA, "Convolutional Layers User's Guide"): a row per output pixel of all images, a column per output channel;
    one such product per group.
    """
    product = product_of(node, graph)
    if product is None or not product.macs_once or not product.sizes:
        return None
    n, k = product.sizes["n"], product.sizes["k"]
    if "Conv" in node.op_type:
        groups = integers(node).get("group", 1)
        return Gemm(product.macs_once // (n * k), n // groups, k, groups, "m")
    weight = graph.shapes[node.input[PRODUCTS[node.op_type][1]]]
    if len(weight) == 2 or math.prod(weight) < n * k:  # one matrix, or one that is packed
        return Gemm(product.macs_once // (n * k), n, k, 1, "m")
    m = product.sizes["m"]
    return Gemm(m, n, k, product.macs_once // (m * n * k), "count")


def _macs(node: Any, graph: TypedGraph, sizes: Mapping[str, int]) -> int:
    """Multiply-accumulates: the size of the output times k (of a transposed convolution: of the input)."""
    if node.op_type == "Einsum":
        return _einsum_macs(node, graph)
    if node.op_type == "Attention":
        return _attention_macs(node, graph)
    if node.op_type in contrib.SEVERAL:
        return contrib.macs(node, graph.shapes)
    if node.op_type in RECURRENT:
        return recurrent_steps(node, graph) * sum(math.prod(graph.shapes.get(name, (0,))) for name in node.input[1:3])
    if not sizes:
        return 0
    tensor = node.input[0] if node.op_type == "ConvTranspose" else node.output[0]
    return math.prod(graph.shapes.get(tensor, (0,))) * sizes["k"]


def _einsum_macs(node: Any, graph: TypedGraph) -> int:
    """Operands taken in from left to right: of each, the product of all subscripts that it and those before it have.

    0 where a shape is not known or does not fit the equation.
    """
    equation = next(a.s.decode() for a in node.attribute if a.name == "equation").replace(" ", "")
    operands, arrow, result = equation.partition("->")
    shapes = [graph.shapes.get(tensor) for tensor in node.input]
    if None in shapes or len(shapes) != len(terms := operands.split(",")):
        return 0
    subscripts = [_subscripts(term, len(shape or ())) for term, shape in zip(terms, shapes, strict=True)]
    sizes: dict[str, int] = {}
    for letters, shape in zip(subscripts, shapes, strict=True):
        if len(letters) != len(shape or ()):
            return 0
        for letter, size in zip(letters, shape or (), strict=True):
            sizes[letter] = size if sizes.get(letter, 1) == 1 else sizes[letter]
    kept = {*result} if arrow else {letter for letter in operands if operands.count(letter) == 1}
    macs, so_far = 0, {*subscripts[0]}
    for place, letters in enumerate(subscripts[1:], 2):
        so_far |= {*letters}
        macs += math.prod(sizes[letter] for letter in so_far)
        so_far &= kept.union(*subscripts[place:], (letter for letter in so_far if letter.isdecimal()))
    return macs


def _subscripts(term: str, rank: int) -> list[str]:
    """The subscripts of an operand; the axes of an ellipsis are numbered from its end."""
    before, dots, after = term.partition("...")
    hidden = range(rank - len(before) - len(after)) if dots else range(0)
    return [*before, *(str(number) for number in reversed(hidden)), *after]


def attention_scores(node: Any, graph: TypedGraph) -> int:
    """How many scores an Attention has: batch · heads · queries · keys; 0 where a shape is not known."""
    q, k = (graph.shapes.get(tensor, ()) for tensor in node.input[:2])
    past = graph.shapes.get(node.input[4], ()) if len(node.input) > 4 and node.input[4] else (0, 0)
    if len(q) not in (3, 4) or len(k) != len(q) or not past:
        return 0
    heads = q[1] if len(q) == 4 else integers(node).get("q_num_heads", 0)
    return q[0] * heads * q[-2] * (k[-2] + past[-2])


def _attention_macs(node: Any, graph: TypedGraph) -> int:
    """QK^T and AV: each score takes a head's width of Q, and gives one of V."""
    attributes = integers(node)
    q, v = (graph.shapes.get(node.input[index], ()) for index in (0, 2))
    if not attention_scores(node, graph) or not v:
        return 0
    heads = (1, 1) if len(q) == 4 else (attributes["q_num_heads"], attributes["kv_num_heads"])
    return attention_scores(node, graph) * (q[-1] // heads[0] + v[-1] // heads[1])


def recurrent_steps(node: Any, graph: TypedGraph) -> int:
    """Sequence length · batch of a recurrent operator, in whichever order; 0 where a shape is not known.

    A step multiplies by both weights, W [directions, gates · hidden, input] and R [directions, gates · hidden,
    hidden].
    """
    if any(len(graph.shapes.get(name, ())) != 3 for name in node.input[:3]):
        return 0
    return math.prod(graph.shapes[node.input[0]][:2])


def recurrent_elements(node: Any, graph: TypedGraph) -> int:
    """How many values of the hidden state a recurrent operator computes, in all steps and directions."""
    directions, _, hidden = graph.shapes[node.input[2]]
    return recurrent_steps(node, graph) * directions * hidden
