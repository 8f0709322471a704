"""The layers of an engine that nobody has run: what TensorRT built, and in which formats its products compute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pandas as pd

from inferprof.documents.engine import EngineLayer, LayerTensor
from inferprof.tables.nodes.kernel_formats import executed, without_block_scales
from inferprof.tables.nodes.trt_engine import Layer, Tensor

_NO_KERNELS: Final = ("signal", "wait", "shape_call")
"""Kinds of what keeps several streams in order, or works out sizes on the host."""


def of_build(layers: Sequence[EngineLayer]) -> pd.DataFrame:
    """A row per kernel, in the order in which they run: kernel_formats.executed with `kernel`, `layer`, `kind` and
    `nodes` (the ONNX nodes that it came from, `a, b`). Each kernel counts 1 in `instances` and `duration_ns`, which
    nobody has measured."""
    kernels = [_layer(layer) for layer in layers if layer.kind not in _NO_KERNELS]
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
    return without_block_scales(executed(frame, kernels))


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
