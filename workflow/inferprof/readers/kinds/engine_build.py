"""An engine of TensorRT-RTX, and what its builder listed of it: the .build.json that `inferprof build` writes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pandas as pd

from inferprof.errors import UserError
from inferprof.readers.kind import Capture, Kind, Lack
from inferprof.words import counted

if TYPE_CHECKING:
    from inferprof.documents.engine import Build

_BUILD: Final = re.compile(r'\{\s*"status"\s*:.*"polygraphy"\s*:', re.DOTALL)
_MAGIC: Final = b"vtrt"
"""How engines of TensorRT-RTX 1.7.1 begin."""
FACTS: Final = ".build.json"
SHOWN: Final = 3
CLASSES: Final = 12
"""As many as there are."""


def read_build(path: Path) -> Capture:
    """The kernels of an engine by what they do. Raises UserError where the builder listed none."""
    from inferprof import documents
    from inferprof.readers.kinds import trt_json
    from inferprof.tables.nodes import engine_layers

    build: Build = documents.read(path, "build")
    if build.reason:
        return Capture(trt_json.TOOL, ["an engine that was not built"], failure=build.reason)
    if not build.layers:
        raise UserError(f"{path} has no list of layers, which TensorRT-RTX's builder gives: build the engine again")
    kernels = engine_layers.of_build(build.layers)
    target = f"for compute capability {build.target}" if build.target else "for the GPU that it was built on"
    lack = Lack("how long they take", "inferprof run and capture, or a study, on such a GPU")
    whole = trt_json.engine(engine_layers.layers_of(build.layers), (), ())
    ran = [f"TensorRT-RTX engine of {counted(len(kernels), 'kernel')}", target, "no times"]
    return replace(whole, ran=ran, notes=list(_notes(kernels)), lacks=[lack])


def _notes(kernels: pd.DataFrame) -> Iterator[str]:
    """What the kernels do, in which formats, what converts numbers, and which hold most of the graph."""
    from inferprof.readers.kinds.trt_json import by_count
    from inferprof.tables.nodes import engine_layers

    yield f"kernels by what they do: {by_count(Counter(kernels['kernel_class']), CLASSES)}"
    yield f"GEMMs, convolutions and fused attention by the format that they read: {engine_layers.products(kernels)}"
    conversions = by_count(Counter(kernels["conversion"].dropna()))
    yield f"conversions, alone or beside other work: {conversions or 'none'}"
    nodes = {kernel: names.count(", ") + 1 for kernel, names in zip(kernels["kernel"], kernels["nodes"], strict=True)}
    fused = Counter({kernel: often for kernel, often in nodes.items() if often > 1})
    if fused:
        most = "; ".join(f"{kernel} ({often})" for kernel, often in fused.most_common(SHOWN))
        yield f"{counted(len(fused), 'kernel')} hold several ONNX nodes; the most: {most}"


def read_engine(path: Path) -> Capture:
    """What lies beside an engine. Raises UserError where nothing does."""
    beside = path.with_suffix(FACTS)
    if beside.exists():
        return read_build(beside)
    raise UserError(
        f"{path} is an engine of TensorRT-RTX, which tells nothing without its GPU: give the {FACTS} that "
        "`inferprof build` writes beside it"
    )


ENGINE_BUILD: Final = Kind(
    name="engine_build",
    title="what the builder listed of an engine",
    recognises=lambda head: head.path.name.endswith(FACTS) or _BUILD.match(head.text) is not None,
    read=read_build,
    rank=10,
)
RTX_ENGINE: Final = Kind(
    name="rtx_engine",
    title="an engine of TensorRT-RTX",
    recognises=lambda head: head.raw.startswith(_MAGIC),
    read=read_engine,
    rank=0,
)
