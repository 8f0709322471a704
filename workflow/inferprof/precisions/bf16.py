"""BF16. AutoCast raises the opset to 22, the first whose operators take bfloat16."""

from __future__ import annotations

import functools

from inferprof.plugins import Precision, Tolerance
from inferprof.precisions import autocast, conversion

BF16 = Precision(
    name="bf16",
    title="BF16",
    source="onnx",
    made_by="ModelOpt AutoCast",
    convert=functools.partial(autocast.convert, low="bf16"),
    tolerance=Tolerance(
        passes=24.0,
        warns=14.0,
        reason="8 significant bits: 57 dB for one rounding; 24 dB leaves room for a chain of some thousand",
    ),
    storage="bfloat16",
    computes="bf16",
    roof="bf16",
    plain=True,
    by_node=True,
    colour="#56B4E9",
    order=40,
    options=autocast.OPTIONS,
    allows=conversion.SAMPLES,
    needs_compute_capability=(8, 0),
)
