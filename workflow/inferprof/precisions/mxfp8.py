"""MXFP8: E4M3 in blocks of 32 with one E8M0 scale (a power of two) each; activations are scaled as they come.

OCP Microscaling Formats (MX) Specification 1.0.
"""

from __future__ import annotations

import functools

from inferprof.plugins import Precision, Tolerance
from inferprof.precisions import blockwise

MXFP8 = Precision(
    name="mxfp8",
    title="MXFP8",
    source="torch",
    made_by="ModelOpt, linear layers in blocks of 32",
    convert=functools.partial(blockwise.convert, kind="mxfp8"),
    tolerance=Tolerance(
        passes=14.0,
        warns=7.0,
        reason="4 significant bits: 32 dB for one tensor; 14 dB leaves room for some sixty quantized tensors",
    ),
    needs_compute_capability=(10, 0),
    simulate=functools.partial(blockwise.simulate, kind="mxfp8"),
)
