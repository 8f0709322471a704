"""Quantizers behind products whose results nothing quantizes, so that an 8-bit kernel may write 8 bits."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from inferprof.model import accuracy, onnx_file, onnx_graph, onnx_reader, sparsity, typed_graph
from inferprof.model.operators import dtype_number
from inferprof.model.products import product_of
from inferprof.plugins import ConvertRequest
from inferprof.precisions import conversion

LARGEST = {"int8": 127.0, "float8e4m3fn": 448.0}
"""The largest value of each type, which a scale maps the calibrated range to."""


def quantize(request: ConvertRequest) -> int:
    """Put a quantizer behind each such result in the graph at `request.out`; returns how many.

    Its scale is the largest magnitude over the calibration data.
    """
    model = onnx_reader.read(request.out, external=True)
    graph = typed_graph.analyse(model, {})
    types = {product.name: product.dtype for node in graph.nodes if (product := product_of(node, graph))}
    ends = {tensor: types[name] for tensor, name in sparsity.unquantized_results(graph)}
    reaches = ranges(model, ends, graph.types, request)
    nodes = []
    behind: dict[str, str] = {}
    for node in model.graph.node:
        node.input[:] = [behind.get(name, name) for name in node.input]
        nodes.append(node)
        for tensor in node.output:
            if tensor in ends and reaches[tensor] > 0:
                nodes += _pair(model, tensor, ends[tensor], graph.types[tensor], reaches[tensor])
                behind[tensor] = nodes[-1].output[0]
    onnx_graph.replace_nodes(model, nodes)
    conversion.save(model, request.out)
    return len(behind)


def ranges(model: Any, tensors: Any, types: Any, request: ConvertRequest) -> dict[str, float]:
    """The largest magnitude of each tensor over the calibration data."""
    return {name: float(reach.max(initial=0)) for name, reach in channels(model, tensors, types, request).items()}


def channels(model: Any, tensors: Any, types: Any, request: ConvertRequest) -> dict[str, Any]:
    """The largest magnitude of each channel, the last axis, of each tensor over the calibration data."""
    import onnx

    shown = copy.deepcopy(model)
    shown.graph.output.extend(
        onnx.helper.make_tensor_value_info(name, dtype_number(types[name]), None) for name in tensors
    )
    session = accuracy.session(onnx_file.tidied(shown))  # which keeps the names of outputs
    runs = [session.run([*tensors], dict(batch)) for batch in conversion.calibration(request)] if tensors else []
    return {name: np.max([_reach(run[place]) for run in runs], axis=0) for place, name in enumerate(tensors)}


def _reach(array: Any) -> Any:
    """The largest magnitude of each channel."""
    magnitude = np.abs(np.atleast_1d(array).astype(np.float32))
    return magnitude.reshape(-1, magnitude.shape[-1]).max(axis=0, initial=0)


def _pair(model: Any, tensor: str, dtype: str, high: str, reach: float) -> list[Any]:
    """A quantizer and a dequantizer of a tensor of the type `high`, whose scale and zero point join the weights."""
    import onnx

    name = f"{tensor}/result"
    model.graph.initializer.extend(
        (
            onnx.helper.make_tensor(f"{name}/scale", dtype_number(high), [], [reach / LARGEST[dtype]]),
            onnx.helper.make_tensor(f"{name}/zero", dtype_number(dtype), [], [0]),
        )
    )
    scale = [f"{name}/scale", f"{name}/zero"]
    return [
        onnx.helper.make_node("QuantizeLinear", [tensor, *scale], [f"{name}/stored"], f"{name}/QuantizeLinear"),
        onnx.helper.make_node(
            "DequantizeLinear", [f"{name}/stored", *scale], [f"{name}/value"], f"{name}/DequantizeLinear"
        ),
    ]
