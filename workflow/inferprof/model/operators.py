"""Operators by what they do to a tensor, whose they are, and the names of element types."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

QUANTIZERS = {
    "QuantizeLinear": "",
    "DynamicQuantizeLinear": "uint8",
    "TRT_FP4DynamicQuantize": "float4e2m1",
    "TRT_MXFP8DynamicQuantize": "float8e4m3fn",
    "TRT_FP8QuantizeLinear": "float8e4m3fn",
}
"""Operators that quantize, and the type they quantize to; QuantizeLinear says it itself."""
DEQUANTIZERS = frozenset(
    (
        "DequantizeLinear",
        "TRT_FP4QDQ",
        "TRT_MXFP8DequantizeLinear",
        "TRT_FP8DequantizeLinear",
        "TRT_INT4DequantizeLinear",
    )
)
_MOVES = "Cast Expand Flatten Gather Identity Reshape Slice Squeeze Transpose Unsqueeze"
MOVES = frozenset(_MOVES.split())
"""Operators between a dequantizer and a product that leave it a quantized product."""
INTEGER_PRODUCTS = frozenset(("MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv"))
"""Products of operands that are quantized already."""
QUANTIZED_ELSEWHERE = frozenset(
    (
        "DynamicQuantizeLSTM",
        "DynamicQuantizeMatMul",
        "MatMulBnb4",
        "MatMulIntegerToFloat",
        "MatMulNBits",
        "QAttention",
    )
)
"""Operators of ONNX Runtime with quantized operands; all others of it are called QLinear…"""
COLLECTIVE = "DistCollective"
"""TensorRT's operator between GPUs, as Polygraphy's `multi-device shard` writes it: in ONNX's domain, which lacks it.
https://docs.nvidia.com/deeplearning/tensorrt/latest/_static/operators/DistCollective.html"""
STANDARD_DOMAINS = ("", "ai.onnx")
_BY_NAME = {
    "trt": QUANTIZERS.keys() | DEQUANTIZERS | {COLLECTIVE},
    "com.microsoft": frozenset(
        ("BiasGelu", "DequantizeLinear", "FastGelu", "Gelu", "QuantizeLinear", "QuickGelu", "SkipLayerNormalization")
    ),
}
"""Domain → the operators of it that are known here by their name alone, as the standard's are."""


BITS = {
    **dict.fromkeys(("int2", "uint2"), 2),
    **dict.fromkeys(("float4e2m1", "int4", "uint4"), 4),
    **dict.fromkeys(("float6e2m3", "float6e3m2"), 6),
    **dict.fromkeys(("int8", "uint8", "bool"), 8),
    **dict.fromkeys(("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "float8e8m0"), 8),
    **dict.fromkeys(("float16", "bfloat16", "int16", "uint16"), 16),
    **dict.fromkeys(("float64", "int64", "uint64", "complex64"), 64),
    "complex128": 128,
}
"""What a value of a type takes, where that is not 32 bits."""


def is_foreign(node: Any) -> bool:
    """Whether a node's operator is of a domain that gives its name another meaning, or one that nobody here knows."""
    return node.domain not in STANDARD_DOMAINS and node.op_type not in _BY_NAME.get(node.domain, ())


def is_unknown(node: Any) -> bool:
    """Whether a node's operator is said to be ONNX's own, which has none of that name in any version."""
    import onnx

    has = onnx.defs.has(node.op_type, "") or node.op_type in _BY_NAME["trt"]
    return node.domain in STANDARD_DOMAINS and not has


def is_quantized(node: Any, types: Mapping[str, int]) -> bool:
    """Whether a node quantizes, or works on what is quantized. A bias that is dequantized from int32 is neither."""
    import onnx

    if node.op_type in DEQUANTIZERS:
        return bool(types.get(node.input[0]) != onnx.TensorProto.INT32)
    quantizes = node.op_type in QUANTIZERS.keys() | INTEGER_PRODUCTS | QUANTIZED_ELSEWHERE
    return quantizes or str(node.op_type).startswith("QLinear")


def full_name(node: Any) -> str:
    """`Relu`; `my.domain::Relu` where it is another's."""
    return f"{node.domain}::{node.op_type}" if is_foreign(node) else str(node.op_type)


def dtype_name(number: int) -> str:
    """TensorProto's number of a type → `float32`, `float16`, `bfloat16`, `int8`, `float8e4m3fn`, `float4e2m1`, …

    `unknown` for one that this onnx does not have, and for what is no tensor.
    """
    import onnx

    if number not in onnx.TensorProto.DataType.values() or number == onnx.TensorProto.UNDEFINED:
        return "unknown"
    name = str(onnx.TensorProto.DataType.Name(number)).lower()
    return {"float": "float32", "double": "float64"}.get(name, name)


def dtype_number(name: str) -> int:
    """The inverse of dtype_name. Raises ValueError where this onnx has no such type."""
    import onnx

    spelt = {"float32": "FLOAT", "float64": "DOUBLE"}.get(name, name.upper())
    return int(onnx.TensorProto.DataType.Value(spelt))


def bits(dtype: str) -> int:
    """How many bits a value of a type takes."""
    return BITS.get(dtype, 32)


def nbytes(dtype: str, dims: Sequence[int]) -> int:
    """Bytes of a tensor; two 4-bit values share one."""
    return -(-bits(dtype) * math.prod(dims) // 8)


def collectives_of(nodes: Iterable[Any]) -> list[tuple[str, int]]:
    """`collective_of` each collective between GPUs."""
    return [collective_of(node) for node in nodes if node.op_type == COLLECTIVE]


def collective_of(node: Any) -> tuple[str, int]:
    """Which operation a COLLECTIVE does, `all_reduce`, and over how many ranks."""
    named = {attribute.name: attribute for attribute in node.attribute}
    operation = named["collective_operation"].s.decode().lower() if "collective_operation" in named else "unknown"
    return operation, max(1, named["nb_rank"].i) if "nb_rank" in named else 1


def integers(node: Any) -> dict[str, int]:
    """The attributes of a node that are numbers, by name; those left to their defaults are not among them."""
    return {attribute.name: attribute.i for attribute in node.attribute}


def attributes_of(node: Any) -> dict[str, Any]:
    """The same of any type, strings as bytes."""
    import onnx

    return {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
