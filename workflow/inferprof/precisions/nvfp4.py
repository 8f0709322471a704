"""NVFP4: E2M1 in blocks of 16 with an E4M3 scale each and one FP32 scale per tensor; weights and activations.

Activations are scaled block by block as they come (dynamic); their FP32 scale is calibrated. The block scales are
quantized themselves (double quantization).
"""

from __future__ import annotations

import functools

from inferprof.plugins import Precision, Tolerance
from inferprof.precisions import block_graph, blockwise, conversion

FORMAT = block_graph.BlockFormat(
    "nvfp4", block_size=16, preset="NVFP4_DEFAULT_CFG", ready_kernel="fp4_fake_quant_block"
)

NVFP4 = Precision(
    name=FORMAT.name,
    title="NVFP4",
    source="either",
    made_by="ModelOpt, linear layers in blocks of 16",
    convert=functools.partial(blockwise.convert, kind=FORMAT),
    tolerance=Tolerance(
        passes=8.0,
        warns=4.0,
        reason="2 significant bits: 20 dB for one tensor; 8 dB leaves room for some sixteen quantized tensors",
    ),
    storage="float4e2m1",
    computes="fp4",
    roof="fp4",
    quantized=True,
    blocks=block_graph.blocks_of(FORMAT),
    colour="#CC79A7",
    order=80,
    least_share=0.25,
    options={"samples": 32, "attention": False},
    allows={**conversion.SAMPLES, **conversion.ATTENTION},
    needs_compute_capability=(10, 0),
    tensorrt_alone=True,
)
