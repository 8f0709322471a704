"""Operators by what they do to a tensor, whose they are, and the names of element types."""

from __future__ import annotations

from collections.abc import Mapping
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
STANDARD_DOMAINS = ("", "ai.onnx")
_BY_NAME = {
    "trt": QUANTIZERS.keys() | DEQUANTIZERS,
    "com.microsoft": frozenset(
        (
            "BiasGelu",
            "DequantizeLinear",
            "FastGelu",
            "Gelu",
            "QuantizeLinear",
            "QuickGelu",
            "SkipLayerNormalization",
        )
    ),
}
"""Domain → the operators of it that are known here by their name alone, as the standard's are."""


def is_foreign(node: Any) -> bool:
    """Whether a node's operator is of a domain that gives its name another meaning, or one that nobody here knows."""
    return node.domain not in STANDARD_DOMAINS and node.op_type not in _BY_NAME.get(node.domain, ())


def is_quantized(node: Any, types: Mapping[str, int]) -> bool:
    """Whether a node quantizes, or works on what is quantized. A bias that is dequantized from int32 is neither."""
    import onnx

    if node.op_type in DEQUANTIZERS:
        return types.get(node.input[0]) != onnx.TensorProto.INT32
    quantizes = node.op_type in QUANTIZERS.keys() | INTEGER_PRODUCTS | QUANTIZED_ELSEWHERE
    return quantizes or node.op_type.startswith("QLinear")


def full_name(node: Any) -> str:
    """`Relu`; `my.domain::Relu` where it is another's."""
    return f"{node.domain}::{node.op_type}" if is_foreign(node) else str(node.op_type)


def dtype_name(number: int) -> str:
    """TensorProto's number of a type → `float32`, `float16`, `bfloat16`, `int8`, `float8e4m3fn`, `float4e2m1`, …"""
    import onnx

    name = str(onnx.TensorProto.DataType.Name(number)).lower()
    return {"float": "float32", "double": "float64"}.get(name, name)
