"""FP8 (E4M3): per-tensor static scales; the rest of the graph in fp16."""

from __future__ import annotations

import functools
from typing import Any

from inferprof.plugins import Precision, Tolerance
from inferprof.precisions import ptq

OPTIONS: dict[str, Any] = {
    "calibration": "max",
    "samples": 64,
    "high_precision": "fp16",
    "attention": True,
    "exclude": [],
}

FP8 = Precision(
    name="fp8",
    title="FP8 (E4M3)",
    source="onnx",
    made_by="ModelOpt PTQ on real inputs",
    convert=functools.partial(ptq.convert, mode="fp8"),
    tolerance=Tolerance(
        passes=14.0,
        warns=7.0,
        reason="4 significant bits: 32 dB for one tensor; 14 dB leaves room for some sixty quantized tensors",
    ),
    storage="float8e4m3fn",
    computes="fp8",
    roof="fp8",
    quantized=True,
    by_node=True,
    colour="#009E73",
    order=60,
    least_share=0.25,
    options=OPTIONS,
    allows=ptq.ALLOWS,
    needs_compute_capability=(8, 9),
)
