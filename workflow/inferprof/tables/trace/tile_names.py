"""The output tile of a GEMM kernel, as far as its name tells."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Tile:
    """What one thread block computes: m × n elements of the output, k of the sum in a step (None: not told)."""

    m: int
    n: int
    k: int | None = None

    @property
    def label(self) -> str:
        """`128x256x64`, `128x128`."""
        return "x".join(str(size) for size in (self.m, self.n, self.k) if size)


_INT: Final = r"(?:\(int\))?"
CONVENTIONS: Final = {
    "xmma, cuDNN and TensorRT's GEMMs and implicit GEMMs": r"tilesize(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)",
    "cuBLASLt for Hopper and later": r"nvjet_\w+?_(?P<m>\d+)x(?P<n>\d+)_(?P<k>\d+)x\d+",
    "CUTLASS 3": r"cutlass3x_\w*?gemm_\w*?_(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)_\d+x\d+x\d+",
    "TensorRT-LLM": r"\bbmm_\w*?_t(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)",
    "Tensile, hipBLASLt": r"_MT(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)",
    "CUTLASS 2 in a template": rf"GemmShape<{_INT}(?P<m>\d+), ?{_INT}(?P<n>\d+), ?{_INT}(?P<k>\d+)>",
    "CUTLASS 2 by name: tile, then k × stages": (
        r"cutlass_\d+_\w*?gemm_\w*?(?<![\dx])(?P<m>\d+)x(?P<n>\d+)(?:_(?P<k>\d+)x\d+)?_[nt]{2}"
    ),
    "cuBLAS up to Ampere: tile, perhaps slices, then stages of k × their number": (
        r"gemm_\w*?(?<![\dx])(?P<m>\d+)x(?P<n>\d+)(?![\dx])(?:\w*?_stages_(?P<k>\d+)x\d+)?"
    ),
    "cuDNN up to Ampere": r"[hs]cudnn_(?!winograd)(?P<m>\d+)x(?P<n>\d+)",
}
"""How each library writes the tile into a kernel's name (m, n and perhaps k are groups), in order of precedence.

Checked against the kernels in captures of ONNX Runtime 1.31, torch 2.x, TensorRT 8.5 and 10, TensorFlow, vLLM and
SGLang."""


@functools.cache
def parse(name: str) -> Tile | None:
    """The tile of a kernel by its name; None where the name does not tell it."""
    for pattern in CONVENTIONS.values():
        if match := re.search(pattern, name, re.IGNORECASE):
            sizes = match.groupdict()
            return Tile(int(sizes["m"]), int(sizes["n"]), int(sizes["k"]) if sizes.get("k") else None)
    return None


_VALUES_PER_LOAD: Final = re.compile(r"(?:align[ac]?|ldg)(\d+)", re.IGNORECASE)


@functools.cache
def values_per_load(name: str) -> int | None:
    """How many values of an operand a kernel loads at once by its name; None where the name does not tell it.

    The rows that it reads and writes must be a multiple of so many. Kernels of cuBLASLt for Hopper use the tensor
    memory accelerator, which wants 16 bytes: 8 values, since they are of 16 bits or less.
    """
    if match := _VALUES_PER_LOAD.search(name):
        return int(match.group(1))
    return 8 if name.startswith("nvjet_") else None
