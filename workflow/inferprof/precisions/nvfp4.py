"""NVFP4: E2M1 in blocks of 16 with an E4M3 scale each and one FP32 scale per tensor; weights and activations.

Activations are scaled block by block as they come (dynamic); their FP32 scale is calibrated. The block scales are
quantized themselves (double quantization).
"""

from __future__ import annotations

import functools

from inferprof.plugins import Precision, Tolerance
from inferprof.precisions import blockwise

NVFP4 = Precision(
    name="nvfp4",
    title="NVFP4",
    source="torch",
    made_by="ModelOpt, linear layers in blocks of 16",
    convert=functools.partial(blockwise.convert, kind="nvfp4"),
    tolerance=Tolerance(
        passes=8.0,
        warns=4.0,
        reason="2 significant bits: 20 dB for one tensor; 8 dB leaves room for some sixteen quantized tensors",
    ),
    options={"samples": 32},
    needs_compute_capability=(10, 0),
    simulate=functools.partial(blockwise.simulate, kind="nvfp4"),
)
