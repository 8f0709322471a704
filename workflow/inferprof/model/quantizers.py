"""Quantizers of a graph that TensorRT has no int8 for."""

from __future__ import annotations

from typing import Final

from inferprof.model.typed_graph import TypedGraph

UNTAKEN: Final = frozenset(("uint2", "int2", "uint4", "uint8", "uint16", "int16"))
"""Types that ONNX quantizes to and TensorRT does not."""


def not_tensorrt_int8(graph: TypedGraph) -> dict[str, str]:
    """The quantizers and dequantizers that TensorRT has no int8 for → what they are: another type, or off zero."""
    import numpy as np
    import onnx

    kinds: dict[str, str] = {}
    for node in graph.nodes:
        if node.op_type not in ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"):
            continue
        zero = node.input[2] if len(node.input) > 2 else ""
        stored = graph.origin(zero)
        zeros = onnx.numpy_helper.to_array(graph.weights[stored]) if stored in graph.weights else np.zeros(1)
        tensor = node.output[0] if node.op_type != "DequantizeLinear" else node.input[0]
        kind = graph.types.get(zero) or graph.stored_type(tensor)
        if kind in UNTAKEN or np.any(zeros.astype(np.float32)):
            kinds[node.name or node.output[0]] = f"{kind}, zero point {float(zeros.flat[0]):g}"
    return kinds
