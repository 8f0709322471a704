"""Operators of ONNX Runtime's own domain: the shapes that they give, and the products that they are.

As https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md describes them. ONNX infers nothing of
them, so for that they are written in standard operators of the same shapes and types.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from inferprof.model.operators import attributes_of

DOMAIN = "com.microsoft"
MATRIX = {
    "FusedMatMul": (0, 1),
    "TransposeMatMul": (0, 1),
    "FusedGemm": (0, 1),
    "GemmFastGelu": (0, 1),
    "QGemm": (0, 3),
    "MatMulNBits": (0, 1),
    "MatMulIntegerToFloat": (0, 1),
    "DynamicQuantizeMatMul": (0, 1),
    "FusedConv": (0, 1),
    "NhwcConv": (0, 1),
    "NhwcFusedConv": (0, 1),
}
"""Operators that are one product, and where its operands stand."""
ATTENTION = {"Attention": (0, 1), "QAttention": (0, 1), "MultiHeadAttention": (0, 1), "GroupQueryAttention": (0, 1)}
"""Those that are several; the first two multiply by the weights of Q, K and V, too."""
EXPERTS = {"MoE": (0, 2)}
RECURRENT = {"DynamicQuantizeLSTM": (0, 1)}
PRODUCTS = {f"{DOMAIN}::{name}": places for name, places in {**MATRIX, **ATTENTION, **EXPERTS, **RECURRENT}.items()}
WITH_SCORES = frozenset(f"{DOMAIN}::{name}" for name in ATTENTION)
SEVERAL = frozenset(f"{DOMAIN}::{name}" for name in (*ATTENTION, *EXPERTS, *RECURRENT))
IN_TYPE_OF_WEIGHT = frozenset((f"{DOMAIN}::DynamicQuantizeMatMul", f"{DOMAIN}::DynamicQuantizeLSTM"))
"""They quantize the other operand themselves."""
_LIKE_INPUT = (
    "BiasGelu FastGelu Gelu QLinearLeakyRelu QLinearSigmoid QLinearSoftmax QuickGelu SkipLayerNormalization "
    "SkipSimplifiedLayerNormalization RotaryEmbedding GroupNorm SkipGroupNorm BiasAdd BiasSoftmax MoE QMoE Attention "
)
LIKE_INPUT = frozenset(_LIKE_INPUT.split())
"""Operators that give the type and shape of their first input."""
SHAPED_BY_TWO = frozenset(("QLinearAdd", "QLinearMul"))
"""Operators whose inputs 0 and 3 are broadcast."""
SUMMED = 3
"""The output of SkipLayerNormalization that is the sum of what it normalizes, also of that type and shape."""
FIRST_OPSET_WITH_PARTS = 18
"""From which on Split says into how many parts."""
FIRST_EINSUM, FIRST_CAST_LIKE = 12, 15
"""The opsets that have these operators first."""


def written(node: Any, opset: int, stored: Mapping[str, int]) -> tuple[list[Any], dict[str, list[int]]]:
    """A node in standard operators of the same shapes and types, and the float32 inputs that these need beside it;
    the node itself where none are known. stored: TensorProto's numbers of the types of weights."""
    if node.domain != DOMAIN or (node.op_type == "GatherBlockQuantized" and not _of_four_bits(node, stored)):
        return [node], {}
    if node.op_type == "MatMulNBits":
        sizes = attributes_of(node)
        weight = f"{node.output[0]} weight"
        return [_made("MatMul", [node.input[0], weight], node.output[:1])], {weight: [sizes["K"], sizes["N"]]}
    if node.op_type in LIKE_INPUT and not _other_width(node):
        names = [node.output[0], *node.output[SUMMED:]] if node.op_type.startswith("Skip") else node.output[:1]
        return [_made("Identity", node.input[:1], [name]) for name in names if name], {}
    make = _WRITTEN.get(node.op_type)
    return (make(node, opset) if make else None) or [node], {}


def is_counted(node: Any) -> bool:
    """Whether all products of a node of this domain are counted: those that it is, or none."""
    no_products = LIKE_INPUT | SHAPED_BY_TWO | {"EmbedLayerNormalization", "GatherBlockQuantized"}
    return node.domain == DOMAIN and (
        node.op_type in PRODUCTS or node.op_type.rpartition("::")[2] in no_products - {"QMoE"}
    )


def macs(node: Any, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Multiply-accumulates of a node of SEVERAL; 0 where a shape is not known."""
    kind = node.op_type.rpartition("::")[2]
    if kind in EXPERTS:
        chosen = math.prod(shapes.get(node.input[0], (0,))[:-1]) * int(attributes_of(node).get("k", 1))
        weights = [name for name in node.input[2::2] if name]
        return chosen * sum(math.prod(shapes.get(name, (0, 0))[1:]) for name in weights)
    if kind in RECURRENT:  # a step multiplies by both weights, [directions, input or hidden, gates · hidden]
        steps = math.prod(shapes.get(node.input[0], (0,))[:2])
        return steps * sum(math.prod(shapes.get(name, (0,))) for name in node.input[1:3])
    scores, widths = attention_scores(node, shapes), _widths(node, shapes)
    projected = 0
    if kind in ("Attention", "QAttention"):
        projected = math.prod(shapes.get(node.input[0], (0,))) * shapes.get(node.input[1], (0, 0))[-1]
        scores *= bool(projected)
    return projected + scores * sum(widths)


def attention_scores(node: Any, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """How many scores one of ATTENTION has: batch · heads · queries · keys; 0 where a shape is not known."""
    query = shapes.get(node.input[0], ())
    key = shapes.get(node.input[1], ()) if node.op_type.rpartition("::")[2] not in _OWN_WEIGHTS else query
    past = _past(node, shapes)
    if len(query) != 3 or past is None:
        return 0
    keys = query[1] if not key else key[1 if len(key) == 3 else -2]
    return query[0] * int(attributes_of(node).get("num_heads", 0)) * query[1] * (keys + past)


_OWN_WEIGHTS = ("Attention", "QAttention")
_PAST = {"Attention": 4, "QAttention": 8, "MultiHeadAttention": 6, "GroupQueryAttention": 3}
"""Which input holds the keys of steps before."""


def _past(node: Any, shapes: Mapping[str, tuple[int, ...]]) -> int | None:
    """Keys of the steps before this one; None where they are there and their number is not known."""
    place = _PAST[node.op_type.rpartition("::")[2]]
    name = node.input[place] if len(node.input) > place else ""
    if not name:
        return 0
    return shapes[name][-2] if len(shapes.get(name, ())) > 1 else None


def _widths(node: Any, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, int]:
    """What a head of Q takes, and one of V gives."""
    kind, attributes = node.op_type.rpartition("::")[2], attributes_of(node)
    heads = max(1, attributes.get("num_heads", 1))
    width = shapes.get(node.input[0], (0,))[-1]
    if kind in _OWN_WEIGHTS:
        q, _, v = attributes.get("qkv_hidden_sizes") or [shapes.get(node.input[1], (0, 0))[-1] // 3] * 3
        return q // heads, v // heads
    if kind == "GroupQueryAttention":
        shared = attributes.get("kv_num_heads", heads)
        own = width // (heads if node.input[1] else heads + 2 * shared)
        return own, own
    value = shapes.get(node.input[2], ()) if len(node.input) > 2 else ()
    wide = width if not value else value[-1] * (heads if len(value) == 4 else 1)
    return width // heads, wide // heads


def _of_four_bits(node: Any, stored: Mapping[str, int]) -> bool:
    """Whether a table's type says how many values it has; of one of bytes, which may hold two each, it doesn't."""
    import onnx

    return stored.get(node.input[0]) in (onnx.TensorProto.INT4, onnx.TensorProto.UINT4)


def _other_width(node: Any) -> bool:
    """Whether an Attention gives values of another width than its input has."""
    return node.op_type == "Attention" and "qkv_hidden_sizes" in attributes_of(node)


def _made(kind: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> Any:
    import onnx

    return onnx.helper.make_node(kind, list(inputs), list(outputs), **attributes)


def _matmul(node: Any, opset: int) -> list[Any] | None:
    """A product, with operands transposed in their last two axes; None where batches are, too, or Einsum lacks."""
    attributes = attributes_of(node)
    left, right = ("km" if attributes.get("transA") else "mk"), ("nk" if attributes.get("transB") else "kn")
    if attributes.get("transBatchA") or attributes.get("transBatchB"):
        return None
    if (left, right) == ("mk", "kn"):
        return [_made("MatMul", node.input[:2], node.output[:1])]
    equation = f"...{left},...{right}->...mn"
    return [_made("Einsum", node.input[:2], node.output[:1], equation=equation)] if opset >= FIRST_EINSUM else None


def _gemm(node: Any, _: int) -> list[Any]:
    flags = {name: value for name, value in attributes_of(node).items() if name in ("transA", "transB")}
    operands = [node.input[place] for place in MATRIX[node.op_type]]
    return [_made("Gemm", operands, node.output[:1], **flags)]


def _conv(node: Any, _: int) -> list[Any]:
    kept = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    attributes = {name: value for name, value in attributes_of(node).items() if name in kept}
    if node.op_type == "FusedConv":
        return [_made("Conv", node.input[:2], node.output[:1], **attributes)]
    inner, outer = (f"{node.output[0]} {way}" for way in ("before", "behind"))
    return [
        _made("Transpose", node.input[:1], [inner], perm=[0, 3, 1, 2]),
        _made("Conv", [inner, node.input[1]], [outer], **attributes),
        _made("Transpose", [outer], node.output[:1], perm=[0, 2, 3, 1]),
    ]


def _to_float(node: Any, opset: int) -> list[Any]:
    """A product of integers, in the type of a scale."""
    inner = f"{node.output[0]} in integers"
    return [_made("MatMul", node.input[:2], [inner]), _like(inner, node.input[2], node.output[0], opset)]


def _like(tensor: str, other: str, result: str, opset: int) -> Any:
    import onnx

    if opset >= FIRST_CAST_LIKE:
        return _made("CastLike", [tensor, other], [result])
    return _made("Cast", [tensor], [result], to=onnx.TensorProto.FLOAT)


def _group_query(node: Any, opset: int) -> list[Any]:
    """The queries, of one tensor with keys and values the part that they are."""
    if node.input[1]:
        return [_made("Identity", node.input[:1], node.output[:1])]
    attributes = attributes_of(node)
    heads = attributes["num_heads"]
    parts = heads + 2 * attributes.get("kv_num_heads", heads)
    names = [f"{node.output[0]} part {number}" for number in range(parts)]
    number_of_parts = {"num_outputs": parts} if opset >= FIRST_OPSET_WITH_PARTS else {}
    return [
        _made("Split", node.input[:1], names, axis=2, **number_of_parts),
        _made("Concat", names[:heads], node.output[:1], axis=2),
    ]


def _lstm(node: Any, _: int) -> list[Any]:
    kept = {name: value for name, value in attributes_of(node).items() if name in ("hidden_size", "direction")}
    return [_made("LSTM", node.input[:3], node.output, **kept)]


def _multi_head(node: Any, _: int) -> list[Any] | None:
    """The queries; None where keys and values are in one tensor with them."""
    apart = len(node.input) > 2 and node.input[1]
    return [_made("Identity", node.input[:1], node.output[:1])] if apart else None


def _embedding(node: Any, _: int) -> list[Any]:
    names = [name for name in (*node.output[:1], *node.output[2:3]) if name]
    return [_made("Gather", [node.input[2], node.input[0]], [name], axis=0) for name in names]


def _rows(node: Any, opset: int) -> list[Any]:
    """Rows of a table of 4-bit values."""
    inner = f"{node.output[0]} stored"
    gathered = _made("Gather", node.input[:2], [inner], axis=attributes_of(node).get("gather_axis", 0))
    return [gathered, _like(inner, node.input[2], node.output[0], opset)]


def _broadcast(node: Any, _: int) -> list[Any]:
    return [_made("Add", [node.input[0], node.input[3]], node.output[:1])]


_WRITTEN: dict[str, Callable[[Any, int], list[Any] | None]] = {
    **dict.fromkeys(("FusedMatMul", "TransposeMatMul"), _matmul),
    **dict.fromkeys(("GemmFastGelu", "DynamicQuantizeMatMul"), _matmul),
    **dict.fromkeys(("FusedGemm", "QGemm"), _gemm),
    **dict.fromkeys(("FusedConv", "NhwcConv", "NhwcFusedConv"), _conv),
    **dict.fromkeys(sorted(SHAPED_BY_TWO), _broadcast),
    "MatMulIntegerToFloat": _to_float,
    "DynamicQuantizeLSTM": _lstm,
    "MultiHeadAttention": _multi_head,
    "GroupQueryAttention": _group_query,
    "EmbedLayerNormalization": _embedding,
    "GatherBlockQuantized": _rows,
}
