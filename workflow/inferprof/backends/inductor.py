"""What torch.compile's compiler, Inductor, keeps on disk, and what of it may be made ahead of a measurement."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from inferprof.case import Variant
from inferprof.plugins import OpenRequest

DEFAULT_MODE: Final = "default"
BY_TIMING: Final = "max-autotune"
COMPILE_MODES: Final = (DEFAULT_MODE, "reduce-overhead", BY_TIMING)


def compiles_ahead(variant: Variant) -> bool:
    """Not where the kernels of templates or of low bits are chosen by timing them."""
    timed = {"quantize", "tuning"} & variant.options.keys()
    return not timed and variant.text("compile_mode", DEFAULT_MODE) != BY_TIMING


def cache() -> dict[str, int]:
    """How many graphs Inductor took from its cache and how many it compiled."""
    from torch._dynamo.utils import counters

    of = counters["inductor"]
    return {"hits": of["fxgraph_cache_hit"], "misses": of["fxgraph_cache_miss"]}


@contextlib.contextmanager
def no_helpers_for_what_is_compiled(request: OpenRequest) -> Iterator[None]:
    """Let Inductor start its compiling processes only where this case was not compiled before, on this cache.

    The first of them imports torch while the case is measured, and the case's process waits for its end: 5 s on an
    H200, for code that lies on the disk.
    """
    import torch
    from torch._inductor import config
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    options = sorted(request.variant.options.items())
    case = repr((torch.__version__, request.spec, request.precision, request.shape, options))
    mark = Path(cache_dir(), f"inferprof-{hashlib.sha256(case.encode()).hexdigest()}")
    with config.patch(compile_threads=1) if mark.exists() else contextlib.nullcontext():
        yield
    if sum(cache().values()):
        mark.touch()


def forget_choices() -> None:
    """Remove which configuration of each kernel Inductor's autotuner found the fastest; what it compiled stays."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    for choice in Path(cache_dir()).rglob("*.best_config"):
        choice.unlink(missing_ok=True)


def graphs_share_memory(variant: Variant) -> str | None:
    """The modes that make CUDA graphs put the results of all of them into one pool of memory."""
    mode = variant.text("compile_mode", DEFAULT_MODE)
    return None if mode == DEFAULT_MODE else f"the CUDA graphs of compile_mode {mode} share one pool of memory"
