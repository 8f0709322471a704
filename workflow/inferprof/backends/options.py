"""The options of a variant that several backends understand; docs/architecture.md is made of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from inferprof.allowed import TEXT, YES_NO, Allowed, Option, one_of, whole
from inferprof.case import HOST_CAST, Shape
from inferprof.errors import UserError
from inferprof.plugins import PLACEMENTS


def _are_shapes(given: Any) -> bool:
    try:
        return isinstance(given, list) and [Shape.parse(label) for label in given] != []
    except (UserError, TypeError):
        return False


SHAPES: Final = Allowed(
    _are_shapes,
    "a list of shapes such as [b1, b64]",
)
RUN: Final[Mapping[str, Option]] = {
    "cuda_graph": Option("inference is captured once and replayed as a CUDA graph", YES_NO),
    "placement": Option(
        "where end_to_end's input arrays lie: `pageable` (default), `pinned`, `device`, or `mapped` "
        "(page-locked, and read by the GPU where they lie: for one that shares the host's memory)",
        one_of(*PLACEMENTS),
    ),
    HOST_CAST: Option(
        "the caller has float32 inputs as float16 and casts them on the host, in `stage_inputs`: "
        "`elementwise` or `vectorised`",
        one_of("elementwise", "vectorised"),
    ),
}
THREADS: Final[Mapping[str, Option]] = {
    "threads": Option("threads on a CPU; as many as the process may use CPUs unless given", whole(1, 4096))
}
TF32: Final[Mapping[str, Option]] = {
    "tf32": Option("TF32 in matrix products and convolutions; off everywhere unless given", YES_NO)
}
BUILD: Final[Mapping[str, Option]] = {
    "optimization_level": Option("how long TensorRT's builder searches: 0 to 5", whole(0, 5)),
    "workspace": Option("memory that the builder's tactics may use, in MiB", whole(1, 1 << 24)),
    "profile": Option("shapes that one engine serves: a list such as `[b1, b8, b64]`", SHAPES),
    "sparsity": Option("the builder may use kernels for 2:4 sparse weights", YES_NO),
    "refit": Option("an engine whose weights can be exchanged", YES_NO),
    "version_compatible": Option("an engine that later versions of the same major version load", YES_NO),
    "hardware_compatible": Option("an engine that newer GPUs run", YES_NO),
    "timing_cache": Option("file in which the builder keeps the timings of tactics", TEXT),
    "rebuild": Option("any number: the same engine built once more, to measure the spread between builds", whole(0)),
}


def some(options: Mapping[str, Option], *names: str) -> dict[str, Option]:
    """Those of these options, in their order."""
    return {name: option for name, option in options.items() if name in names}
