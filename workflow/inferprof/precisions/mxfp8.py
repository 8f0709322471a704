"""MXFP8: E4M3 in blocks of 32 with one E8M0 scale (a power of two) each; activations are scaled as they come.

OCP Microscaling Formats (MX) Specification 1.0.
"""

from __future__ import annotations

import functools

from inferprof.plugins import Precision, Tolerance
from inferprof.precisions import block_graph, blockwise, conversion

FORMAT = block_graph.BlockFormat("mxfp8", block_size=32, preset="MXFP8_DEFAULT_CFG")

MXFP8 = Precision(
    name=FORMAT.name,
    title="MXFP8",
    source="either",
    made_by="ModelOpt, linear layers in blocks of 32",
    convert=functools.partial(blockwise.convert, kind=FORMAT),
    tolerance=Tolerance(
        passes=14.0,
        warns=7.0,
        reason="4 significant bits: 32 dB for one tensor; 14 dB leaves room for some sixty quantized tensors",
    ),
    storage="float8e4m3fn",
    computes="mxfp8",
    roof="fp8",
    quantized=True,
    blocks=block_graph.blocks_of(FORMAT),
    colour="#D55E00",
    order=70,
    least_share=0.25,
    options={"attention": False},
    allows=conversion.ATTENTION,
    needs_compute_capability=(10, 0),
    tensorrt_alone=True,
)
