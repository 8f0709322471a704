"""The layers of an engine that nobody has run: what TensorRT built, and in which formats its products compute."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import pandas as pd

from inferprof.documents.engine import EngineLayer, LayerTensor
from inferprof.tables.nodes.kernel_formats import executed, quantizes, without_block_scales
from inferprof.tables.nodes.trt_engine import Layer, Tensor

_NO_KERNELS: Final = ("signal", "wait", "shape_call")
"""Kinds of what keeps several streams in order, or works out sizes on the host."""

_ROUNDS: Final = re.compile(r"^__myl\w*?MinMaxRoun")
"""Steps of Myelin that clamp and round: a quantizer, which a dequantizer may follow in the same kernel."""


def of_build(layers: Sequence[EngineLayer]) -> pd.DataFrame:
    """A row per kernel, in the order in which they run: kernel_formats.executed with `kernel`, `layer`, `kind` and
    `nodes` (the ONNX nodes that it came from, `a, b`). Each kernel counts 1 in `instances` and `duration_ns`, which
    nobody has measured; so a kernel that quantizes beside other work says so in `conversion`, if it is no product."""
    kernels = layers_of(layers)
    frame = pd.DataFrame(
        {
            "kernel": [layer.name for layer in kernels],
            "layer": [layer.name for layer in kernels],
            "kind": [layer.kind for layer in kernels],
            "nodes": [", ".join(layer.nodes) for layer in kernels],
            "duration_ns": 1,
            "instances": 1,
        }
    )
    # All that a product reads is listed: scales of blocks would be among its inputs.
    table = without_block_scales(executed(frame, kernels))
    also = pd.Series([bool(_ROUNDS.match(layer.name)) or quantizes(layer) for layer in kernels], table.index, bool)
    alone = table["conversion"].notna() | table["matrix"]
    return table.assign(conversion=table["conversion"].mask(also & ~alone, "quantize"))


def products(kernels: pd.DataFrame) -> str:
    """How many products there are in `of_build`'s rows, and of each format, the most first: `36: 24 int8, 12 fp32`,
    `8 fp32`."""
    formats = kernels.loc[kernels["matrix"], "dtype"].value_counts()
    listed = ", ".join(f"{often} {dtype}" for dtype, often in formats.items())
    return f"{formats.sum()}: {listed}" if len(formats) > 1 else listed or "none"


def layers_of(layers: Sequence[EngineLayer]) -> list[Layer]:
    """Those that are kernels, in their order."""
    return [_layer(layer) for layer in layers if layer.kind not in _NO_KERNELS]


def _layer(layer: EngineLayer) -> Layer:
    return Layer(
        name=layer.name,
        kind=layer.kind,
        inputs=_tensors(layer.inputs),
        outputs=_tensors(layer.outputs),
        nodes=tuple(layer.nodes),
        tactic=layer.tactic,
        weights=layer.weights,
    )


def _tensors(tensors: Sequence[LayerTensor]) -> tuple[Tensor, ...]:
    return tuple(Tensor("", tuple(tensor.dims), tensor.dtype, None) for tensor in tensors)
