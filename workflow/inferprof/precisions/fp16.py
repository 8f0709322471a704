"""FP16: half precision with 5 bits of exponent, which overflows above 65504."""

from __future__ import annotations

import functools

from inferprof.plugins import Precision, Tolerance
from inferprof.precisions import autocast, conversion

TOLERANCE = Tolerance(
    passes=40.0,
    warns=30.0,
    reason="11 significant bits: 75 dB for one rounding; 40 dB leaves room for a chain of some thousand",
)

FP16 = Precision(
    name="fp16",
    title="FP16",
    source="onnx",
    made_by="ModelOpt AutoCast",
    convert=functools.partial(autocast.convert, low="fp16"),
    tolerance=TOLERANCE,
    storage="float16",
    computes="fp16",
    roof="fp16",
    plain=True,
    by_node=True,
    colour="#0072B2",
    order=20,
    least_share=0.9,
    options=autocast.OPTIONS,
    allows=conversion.SAMPLES,
    needs_compute_capability=(7, 0),
)
