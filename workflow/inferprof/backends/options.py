"""What the options of a variant mean that several backends understand; docs/architecture.md is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from inferprof.case import HOST_CAST

RUN: Final[Mapping[str, str]] = {
    "cuda_graph": "inference is captured once and replayed as a CUDA graph",
    "placement": "where end_to_end's input arrays lie: `pageable` (default), `pinned`, `device`, or `mapped` "
    "(page-locked, and read by the GPU where they lie: for one that shares the host's memory)",
    HOST_CAST: "the caller has float32 inputs as float16 and casts them on the host, in `stage_inputs`: "
    "`elementwise` or `vectorised`",
}
THREADS: Final[Mapping[str, str]] = {"threads": "threads on a CPU; as many as the process may use CPUs unless given"}
TF32: Final[Mapping[str, str]] = {"tf32": "TF32 in matrix products and convolutions; off everywhere unless given"}
BUILD: Final[Mapping[str, str]] = {
    "optimization_level": "how long TensorRT's builder searches: 0 to 5",
    "workspace": "memory that the builder's tactics may use, in MiB",
    "profile": "shapes that one engine serves: a list such as `[b1, b8, b64]`",
    "sparsity": "the builder may use kernels for 2:4 sparse weights",
    "refit": "an engine whose weights can be exchanged",
    "version_compatible": "an engine that later versions of the same major version load",
    "hardware_compatible": "an engine that newer GPUs run",
    "timing_cache": "file in which the builder keeps the timings of tactics",
    "rebuild": "any number: the same engine built once more, to measure the spread between builds",
}


def some(meanings: Mapping[str, str], *names: str) -> dict[str, str]:
    """Those of these options, in their order."""
    return {name: meaning for name, meaning in meanings.items() if name in names}
