"""INT8: symmetric, per-channel weights, per-tensor activations with static scales."""

from __future__ import annotations

import functools
from typing import Any

from inferprof.plugins import Precision, Tolerance
from inferprof.precisions import outliers, ptq

OPTIONS: dict[str, Any] = {
    "calibration": "entropy",
    "samples": 64,
    "high_precision": "fp32",
    "attention": False,
    "exclude": [],
    "outliers": 0.0,
}
"""`attention` is off, since ONNX Runtime's quantizer gives every softmax the scale 1/127: over more than a hundred
tokens most probabilities then round to 0 or to the first step (4 dB behind one layer of a ViT)."""

INT8 = Precision(
    name="int8",
    title="INT8",
    source="onnx",
    made_by="ModelOpt PTQ on real inputs",
    convert=functools.partial(ptq.convert, mode="int8"),
    tolerance=Tolerance(
        passes=15.0,
        warns=8.0,
        reason="8 bits over 4 standard deviations: 41 dB for one tensor, less with outliers; "
        "15 dB leaves room for a hundred quantized tensors",
    ),
    storage="int8",
    computes="int8",
    roof="int8",
    quantized=True,
    by_node=True,
    colour="#E69F00",
    order=50,
    options=OPTIONS,
    allows={**ptq.ALLOWS, **outliers.ALLOWS},
    needs_compute_capability=(7, 5),
)
