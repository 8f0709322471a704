"""Quantizers of a graph: those that TensorRT has no int8 for, and whether there are any."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from inferprof.documents.graph import NOT_IN
from inferprof.model import onnx_reader
from inferprof.model.typed_graph import TypedGraph
from inferprof.plugins import Precision

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


def nothing_quantized(graph: Path, precision: Precision, compared: Mapping[str, Any]) -> dict[str, str]:
    """Outcome and reason of a graph that claims a quantized format, passes, and has no quantizer, as one whose
    products are in the body of an If; else nothing, as the comparison has them."""
    if not precision.quantized or compared["outcome"] != "pass" or onnx_reader.quantized_nodes_of(graph):
        return {}
    return {"outcome": "warn", "reason": f"{NOT_IN} {precision.name}: {compared['reason']}"}
