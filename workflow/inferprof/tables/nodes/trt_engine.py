"""The layers of a TensorRT engine and their times, whichever file told them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_DTYPES: Final[tuple[tuple[str, re.Pattern[str]], ...]] = tuple(
    (dtype, re.compile(pattern, re.IGNORECASE))
    for dtype, pattern in (
        ("bf16", r"bf16|bfloat16"),
        ("fp16", r"fp16|\bhalf\b"),
        ("e8m0", r"e8m0"),
        ("fp8", r"fp8|e4m3|e5m2|float8"),
        ("fp4", r"fp4|e2m1|float4"),
        ("int8", r"(?<!u)int8"),
        ("uint8", r"uint8"),
        ("int4", r"int4"),
        ("int32", r"int32"),
        ("int64", r"int64"),
        ("bool", r"bool"),
        ("fp32", r"fp32|\bfloat\b"),
    )
)
"""The number formats in `Format/Datatype` and in `Weights`: in words up to TensorRT 10.1 ("Row major linear FP32"),
and by name alone behind it and inside Myelin ("Half")."""


@dataclass(frozen=True)
class Tensor:
    """An input or output of a layer. `dtype` and `layout` are None where the file does not tell them."""

    name: str
    dims: tuple[int, ...]
    dtype: str | None
    layout: str | None


@dataclass(frozen=True)
class Layer:
    """One layer of an engine. What a file of names alone does not tell is None or empty."""

    name: str
    kind: str | None = None
    """LayerType: CaskConvolution, Reformat, Myelin, kgen, gemm …"""
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    nodes: tuple[str, ...] = ()
    """ONNX nodes that it came from, by its metadata; TensorRT before 9 has none."""
    tactic: str | None = None
    weights: str | None = None
    """Number format of its weights."""
    origin: str | None = None
    """Why a reformat is there: REFORMAT, QDQ …"""
    sparse: bool | None = None
    """Whether its kernel uses 2:4 sparse weights; None where it has none or is of a kind that does not tell."""


@dataclass(frozen=True)
class LayerTime:
    """Times of one layer over `count` inferences, in ns. `shortest` and `longest` only where each one is known; no
    median up to TensorRT 8.2."""

    name: str
    count: int
    total: float
    mean: float
    median: float | None = None
    shortest: float | None = None
    longest: float | None = None


def dtype_of(words: str) -> str | None:
    """`Channel major FP16 format where channel % 8 == 0` → fp16; None where no number format is named."""
    return next((dtype for dtype, pattern in _DTYPES if pattern.search(words)), None)
