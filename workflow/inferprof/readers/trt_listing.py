"""Reads the layers that the builder of TensorRT-RTX lists in its verbose log when an engine is done.

    Layers:
    Name: /fc/MatMul_myl0_1, LayerType: gemm, Inputs: [ { Name: x, Dimensions: [8,64], …, Datatype: Int8, … }],
    Constants: [ … ], Outputs: [ … ], TacticName: …, StreamId: 0, Metadata: [ONNX Layer: /fc/MatMul]

a layer a line, as EngineInspector gives them of an engine that a GPU has loaded; this one also of engines for another
GPU. Seen of TensorRT-RTX 1.7.1.
"""

from __future__ import annotations

import re
from typing import Final

from inferprof.readers.trt_json import onnx_nodes
from inferprof.tables.nodes.trt_engine import Layer, Tensor, dtype_of

HEADING: Final = "Layers:"
_FIELD: Final = re.compile(r", (LayerType|Inputs|Constants|Outputs|TacticName|StreamId|Metadata): ")
_TENSOR: Final = re.compile(r"\{ Name: (.*?), Dimensions: \[([-\d,]*)\].*?, Datatype: (\w+), Format: (.*?) \}")
_NAME: Final = "Name: "


def layers_of(listing: str) -> tuple[Layer, ...]:
    """The layers of a listing, in the order in which they run; none of a text that holds none."""
    return tuple(_layer(line) for line in listing.splitlines() if line.startswith(_NAME))


def _layer(line: str) -> Layer:
    name, *rest = _FIELD.split(line.removeprefix(_NAME))
    fields = dict(zip(rest[::2], rest[1::2], strict=True))
    constants = _tensors(fields.get("Constants", ""))
    matrices = [tensor.dtype for tensor in constants if sum(size > 1 for size in tensor.dims) > 1]
    return Layer(
        name=name,
        kind=fields.get("LayerType"),
        inputs=_tensors(fields.get("Inputs", "")),
        outputs=_tensors(fields.get("Outputs", "")),
        nodes=onnx_nodes(fields.get("Metadata", "")),
        tactic=fields.get("TacticName"),
        weights=next(iter(matrices), None),
    )


def _tensors(text: str) -> tuple[Tensor, ...]:
    return tuple(
        Tensor(name, tuple(map(int, filter(None, dims.split(",")))), dtype_of(dtype), layout)
        for name, dims, dtype, layout in _TENSOR.findall(text)
    )
