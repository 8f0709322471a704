"""What each node of a graph computes and moves at one shape: FLOPs and bytes, from which a roofline follows.

No library serves: onnx-tool 1.0.1 fails on graphs of torch's exporter (shapes computed of symbolic sizes) and on
bfloat16, FP8 and FP4 weights, and knows no `trt` domain; fvcore counts torch modules, not what a graph became.

FLOPs, with a multiply and an add as two:
- a product is 2·m·n·k (NVIDIA, "Matrix Multiplication Background User's Guide"), a convolution that of its implicit
  GEMM ("Convolutional Layers User's Guide"), plus 1 per output for a bias. Attention is its two products QK^T and AV
  with the Softmax between them, whether a graph has them as one node or as three;
- an operator that the standard defines by others counts as these (https://onnx.ai/onnx/operators/): COMPOSITE;
- any other arithmetic is 1 per output element, a reduction 1 per input element, a pooling 1 per element of a window;
- what only moves data is 0.

Bytes are those of an unfused run: each node reads its inputs and writes its output once, in the types that they
are held in. A dequantizer is part of whoever reads it, so that a quantized operand counts in its own bits, with its
scales; what it gives to the caller is written in the caller's type. What only renames data (Reshape) is free, and so
is what depends on constants alone: runtimes fold that.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import msgspec

from inferprof.case import Shape
from inferprof.documents.graph import Node
from inferprof.model import contrib, onnx_graph, onnx_reader, sparsity, typed_graph
from inferprof.model.control_flow import FLOW
from inferprof.model.model_spec import ModelSpec, input_shapes
from inferprof.model.operators import DEQUANTIZERS, MOVES, QUANTIZERS, integers, nbytes
from inferprof.model.products import (
    PRODUCTS,
    RECURRENT,
    attention_scores,
    gemm_of,
    one_branch,
    product_of,
    recurrent_elements,
)
from inferprof.model.typed_graph import TypedGraph

VIEWS = frozenset(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout", "Shape", "Size"))
"""Operators that move nothing: they rename data, or tell its shape."""
PICKS = frozenset(("Gather", "GatherElements", "GatherND", "Slice"))
"""Operators that read no more of their first input than they write."""
COMPOSITE = {
    "Softmax": 5,  # max, subtract, exp, sum, divide
    "LogSoftmax": 5,
    "LayerNormalization": 7,  # mean, subtract, square, mean, divide, scale, shift
    "GroupNormalization": 7,
    "InstanceNormalization": 7,
    "SkipLayerNormalization": 8,
    "RMSNormalization": 4,  # square, mean, divide, scale
    "SimplifiedLayerNormalization": 4,
    "MeanVarianceNormalization": 5,  # mean, square, mean, subtract, divide
    "RotaryEmbedding": 3,  # two multiplies and an add
    "BatchNormalization": 4,  # subtract, divide, scale, shift
    "Gelu": 5,  # divide, erf, add, two multiplies
    **dict.fromkeys((*QUANTIZERS, *DEQUANTIZERS), 2),  # divide, round; subtract, multiply
}
"""FLOPs per output element of operators that others define."""
ADDED_TO_A_GATE = 2
"""FLOPs per value of a gate: the sum of its two products, and the activation; two more with a bias each."""
BEHIND_GATES = {"LSTM": 5, "GRU": 5, "RNN": 0}
"""FLOPs per value of the hidden state: f·c + i·c', o·tanh(c); r·h, (1 - z)·h' + z·h."""
_ELEMENTWISE = (
    "Abs Acos Acosh Add And Asin Asinh Atan Atanh BiasGelu BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil "
    "Celu Clip Cos Cosh Div Elu Equal Erf Exp FastGelu Floor Greater GreaterOrEqual HardSigmoid HardSwish IsInf "
    "IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow QuickGelu Reciprocal Relu "
    "Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh ThresholdedRelu Where Xor"
)
ELEMENTWISE = frozenset(_ELEMENTWISE.split())
REDUCTIONS = frozenset(("ArgMax", "ArgMin", "CumProd", "CumSum", "GlobalAveragePool", "GlobalMaxPool"))
"""With all Reduce…: 1 FLOP per input element."""
POOLINGS = frozenset(("MaxPool", "AveragePool", "LpPool"))
_ONLY_MOVE = (
    "BitCast CastLike CenterCropPad Compress Concat ConstantOfShape DepthToSpace EyeLike MaxUnpool NonZero OneHot "
    "Pad ReverseSequence Scatter ScatterElements ScatterND SpaceToDepth Split Tile Trilu"
)
NO_FLOPS = VIEWS | PICKS | MOVES | frozenset(_ONLY_MOVE.split())
RESIZES = frozenset(("Resize", "Upsample"))
"""Operators that only move data where their mode is the nearest value, as it is unless given."""


def cost(onnx: Path, shape: Shape, spec: ModelSpec | None = None) -> dict[str, Any]:
    """The content of .cost.json: the nodes, and the bytes that even one fused kernel would move.

    `inputs`, `outputs` and `weights` are bytes; a weight counts once, however many nodes read it. `spec` describes
    the model, of which symbols may have other names than in the file. Of an If the branch of more products counts; in
    a loop each node as often as it runs.
    """
    model = onnx_reader.read(onnx, external=True)
    shapes = input_shapes(spec, shape) if spec else {}
    graph, _ = one_branch(typed_graph.analyse(model, shape.as_dict(), shapes))
    return {"shape": shape.label, **cost_of(model, graph)}


def cost_of(model: Any, graph: TypedGraph) -> dict[str, Any]:
    """The same of a loaded onnx.ModelProto."""
    constants = _constants(graph)
    inputs = [value.name for value in onnx_graph.inputs(model)]
    outputs = [value.name for value in model.graph.output]
    executed = [node for node in graph.nodes if _is_executed(node, graph, constants, outputs)]
    return {
        "inputs": _sum(_held(graph, name) for name in inputs),
        "outputs": _sum(_whole(graph, name) for name in outputs),
        "weights": _sum(_weights(executed, graph, constants).values()),
        "nodes": [msgspec.to_builtins(_node(node, graph, constants, outputs)) for node in executed],
    }


def _constants(graph: TypedGraph) -> frozenset[str]:
    """The tensors that depend on weights and, at one shape, on shapes alone."""
    constants = set(graph.weights)
    for node in graph.nodes:
        if node.op_type in FLOW or node.op_type.startswith("Random"):
            continue
        if node.op_type in ("Shape", "Size") or all(name in constants for name in node.input if name):
            constants.update(node.output)
    return frozenset(constants)


def _is_executed(node: Any, graph: TypedGraph, constants: frozenset[str], outputs: Collection[str]) -> bool:
    """Whether a runtime has to do something for a node: a Cast of what was just dequantized is part of that, and what
    is dequantized only for other nodes is part of these."""
    if graph.runs(node) == 0 or node.op_type in VIEWS | FLOW or constants.issuperset(node.output):
        return False
    dequantizes = node.op_type in DEQUANTIZERS or (node.op_type == "Cast" and graph.quantized_type(node.output[0]))
    return not dequantizes or node.output[0] in outputs


def _node(node: Any, graph: TypedGraph, constants: frozenset[str], outputs: Collection[str]) -> Node:
    product = product_of(node, graph)
    activations = [name for name in dict.fromkeys(node.input) if name and name not in constants]
    made = node.output[:1] if node.op_type in QUANTIZERS else node.output  # the scales count with what they scale
    written = _sum((_whole if name in outputs else _held)(graph, name) for name in made if name)
    if node.op_type in PICKS and activations[:1] == [node.input[0]]:
        read = _sum((written, *(_held(graph, name) for name in activations[1:])))
    else:
        read = _sum(_held(graph, name) for name in activations)
    times = graph.runs(node)
    return Node(
        name=node.name or node.output[0],
        op=node.op_type,
        dtype=product.dtype if product else graph.types.get(next(filter(None, node.input), ""), "unknown"),
        product=product is not None,
        sparse=product is not None and sparsity.is_sparse(node, graph),
        gemm=gemm_of(node, graph),
        flops=_times(_flops(node, graph), times),
        read=_times(read, times),
        written=_times(written, times),
        weights=_times(_sum(_weights([node], graph, constants).values()), times),
        times=times,
    )


# --- FLOPs -----------------------------------------------------------------------------------------------------


def _flops(node: Any, graph: TypedGraph) -> int | None:
    if node.op_type in PRODUCTS:
        return _product_flops(node, graph)
    if node.op_type in NO_FLOPS or (node.op_type in RESIZES and _is_nearest(node)):
        return 0
    if node.op_type in REDUCTIONS or node.op_type.startswith("Reduce"):
        return _elements(graph, node.input[0])
    if node.op_type in POOLINGS:
        window = next((math.prod(a.ints) for a in node.attribute if a.name == "kernel_shape"), 1)
        return _times(_elements(graph, node.output[0]), window)
    if node.op_type in COMPOSITE or node.op_type in ELEMENTWISE:
        return _times(_elements(graph, node.output[0]), COMPOSITE.get(node.op_type, 1))
    return None


def _is_nearest(node: Any) -> bool:
    return all(attribute.s == b"nearest" for attribute in node.attribute if attribute.name == "mode")


def _product_flops(node: Any, graph: TypedGraph) -> int | None:
    """Two per multiply-accumulate, the bias of a Gemm or convolution, and the Softmax of an Attention."""
    product = product_of(node, graph)
    if product is None or not product.macs_once:
        return None
    if node.op_type == "Attention":
        return 2 * product.macs_once + COMPOSITE["Softmax"] * attention_scores(node, graph)
    if node.op_type in contrib.WITH_SCORES:
        return 2 * product.macs_once + COMPOSITE["Softmax"] * contrib.attention_scores(node, graph.shapes)
    if node.op_type in RECURRENT:
        has_bias = len(node.input) > 3 and bool(node.input[3])
        gates = RECURRENT[node.op_type] * (ADDED_TO_A_GATE + 2 * has_bias)
        return 2 * product.macs_once + recurrent_elements(node, graph) * (gates + BEHIND_GATES[node.op_type])
    has_bias = node.op_type in ("Gemm", "Conv", "ConvTranspose") and len(node.input) > 2 and node.input[2]
    bias = _elements(graph, node.output[0]) if has_bias else 0
    return _sum((2 * product.macs_once, bias))


def _elements(graph: TypedGraph, tensor: str) -> int | None:
    shape = graph.shapes.get(tensor)
    return None if shape is None else math.prod(shape)


# --- bytes -----------------------------------------------------------------------------------------------------


def _weights(nodes: Iterable[Any], graph: TypedGraph, constants: frozenset[str]) -> dict[str, int | None]:
    """The constants that nodes read, by name → bytes. Of a table that rows are picked from these rows count."""
    sizes: dict[str, int | None] = {}
    for node in nodes:
        for name in filter(constants.__contains__, filter(None, node.input)):
            picked = node.op_type in PICKS and name == node.input[0]
            size = _held(graph, node.output[0]) if picked else _held(graph, name)
            sizes[f"{name} of {node.output[0]}" if picked else name] = size
    return sizes


def _whole(graph: TypedGraph, tensor: str) -> int | None:
    """Bytes of a tensor in its own type, as a caller has it."""
    shape = graph.shapes.get(tensor)
    return None if shape is None else nbytes(graph.types.get(tensor, "unknown"), shape)


def _held(graph: TypedGraph, tensor: str) -> int | None:
    """Bytes of a tensor in the type that it is held in, with the scales of its blocks."""
    shape = graph.shapes.get(tensor)
    if shape is None:
        return None
    producer = graph.producers.get(tensor)
    if producer is not None and producer.op_type in QUANTIZERS:
        return nbytes(graph.stored_type(tensor), shape) + _scales_of_blocks(producer, shape)
    while producer is not None and producer.op_type in MOVES:
        producer = graph.producers.get(producer.input[0])
    scales = 0
    if producer is not None and producer.op_type in DEQUANTIZERS:
        scales = _scales(producer, graph)
    return nbytes(graph.operand_type(tensor), shape) + scales


def _scales(dequantizer: Any, graph: TypedGraph) -> int:
    """Bytes of a dequantizer's scales: constants, or what a dynamic quantizer made of an activation."""
    scale = dequantizer.input[1]
    while (producer := graph.producers.get(scale)) is not None and producer.op_type in DEQUANTIZERS:
        scale = producer.input[0]
    if producer is not None and producer.op_type in QUANTIZERS:
        return _scales_of_blocks(producer, graph.shapes.get(dequantizer.output[0], ()))
    return nbytes(graph.types.get(scale, "unknown"), graph.shapes.get(scale, ()))


def _scales_of_blocks(quantizer: Any, shape: tuple[int, ...]) -> int:
    """A byte for each block of a quantizer that scales blocks by what it finds in them."""
    block = integers(quantizer).get("block_size", 0)
    return math.prod(shape) // block if block else 0


# --- sums of which a part may not be known ------------------------------------------------------------------------


def _sum(parts: Iterable[int | None]) -> int | None:
    total = 0
    for part in parts:
        if part is None:
            return None
        total += part
    return total


def _times(number: int | None, factor: int | None) -> int | None:
    return None if number is None or factor is None else number * factor
