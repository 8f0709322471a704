"""Element types and shapes of every tensor of an ONNX graph, also behind quantizers that ONNX knows nothing of."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

QUANTIZERS = {
    "QuantizeLinear": "",
    "DynamicQuantizeLinear": "uint8",
    "TRT_FP4DynamicQuantize": "float4e2m1",
    "TRT_MXFP8DynamicQuantize": "float8e4m3fn",
    "TRT_FP8QuantizeLinear": "float8e4m3fn",
}
"""Operators that quantize, and the type they quantize to; QuantizeLinear says it itself."""
DEQUANTIZERS = frozenset(
    (
        "DequantizeLinear",
        "TRT_FP4QDQ",
        "TRT_MXFP8DequantizeLinear",
        "TRT_FP8DequantizeLinear",
        "TRT_INT4DequantizeLinear",
    )
)
FOLDED_BYTES = 1 << 16
"""Larger constants are weights, and folding them would only cost time."""
_ORT_WARNING, _ORT_ERROR = 2, 3
"""Severities of ONNX Runtime's log; the first is its own default."""
_MOVES = "Cast Expand Flatten Gather Identity Reshape Slice Squeeze Transpose Unsqueeze"
MOVES = frozenset(_MOVES.split())
"""Operators between a dequantizer and a product that leave it a quantized product."""


def dtype_name(number: int) -> str:
    """TensorProto's number of a type → `float32`, `float16`, `bfloat16`, `int8`, `float8e4m3fn`, `float4e2m1`, …"""
    import onnx

    name = str(onnx.TensorProto.DataType.Name(number)).lower()
    return {"float": "float32", "double": "float64"}.get(name, name)


@dataclass(frozen=True)
class TypedGraph:
    """A graph with its producers, weights, and the type and shape that each tensor is computed in."""

    nodes: tuple[Any, ...]
    weights: Mapping[str, Any]
    producers: Mapping[str, Any]
    types: Mapping[str, str]
    shapes: Mapping[str, tuple[int, ...]]

    def quantized_type(self, tensor: str) -> str | None:
        """The type that a tensor was dequantized from, seen through Casts and moves; None where it never was."""
        node = self.producers.get(tensor)
        while node is not None and node.op_type in MOVES:
            node = self.producers.get(node.input[0])
        return self.stored_type(node.input[0]) if node is not None and node.op_type in DEQUANTIZERS else None

    def operand_type(self, tensor: str) -> str:
        """The type that a product takes a tensor in: the quantized one where it comes out of a dequantizer."""
        return self.quantized_type(tensor) or self.types.get(tensor, "unknown")

    def is_weight(self, tensor: str) -> bool:
        """Whether a tensor is constant: a weight, also a quantized or a moved one."""
        origin = self.origin(tensor)
        node = self.producers.get(origin)
        return origin in self.weights or (node is not None and node.op_type == "Constant")

    def origin(self, tensor: str) -> str:
        """The tensor that another one is a moved or quantized form of."""
        node = self.producers.get(tensor)
        while node is not None and node.op_type in MOVES | DEQUANTIZERS | QUANTIZERS.keys():
            tensor = node.input[0]
            node = self.producers.get(tensor)
        return tensor

    def stored_type(self, tensor: str) -> str:
        """The type that a quantizer or an exporter stored a tensor in, seen through moves."""
        while tensor not in self.weights:
            node = self.producers.get(tensor)
            if node is None or node.op_type not in QUANTIZERS | dict.fromkeys(MOVES, ""):
                break
            if node.op_type in QUANTIZERS:
                return QUANTIZERS[node.op_type] or self._quantize_linear_type(node)
            tensor = node.input[0]
        return self.types.get(tensor, "unknown")

    def _quantize_linear_type(self, node: Any) -> str:
        """What a QuantizeLinear writes: its `output_dtype`, the type of its zero point, or uint8."""
        if number := next((a.i for a in node.attribute if a.name == "output_dtype"), 0):
            return dtype_name(number)
        return self.types.get(node.input[2], "uint8") if len(node.input) > 2 else "uint8"


def analyse(model: Any, sizes: Mapping[str, int]) -> TypedGraph:
    """The types and shapes of an onnx.ModelProto at the sizes of its symbols; a symbol without a size counts as 1."""
    import onnx

    skeleton = _skeleton(model)
    for value in skeleton.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.WhichOneof("value") != "dim_value" or dim.dim_value < 0:  # some exporters write -1 for any size
                dim.dim_value = sizes.get(dim.dim_param, 1)
    for node in skeleton.graph.node:
        _as_standard(node)
    inferred = onnx.shape_inference.infer_shapes(skeleton, data_prop=True)
    types = {value.name: dtype_name(value.type.tensor_type.elem_type) for value in _values(inferred)}
    shapes = _static_shapes(inferred)
    if len(shapes) < len(types):
        shapes |= _folded_shapes(skeleton, shapes)
    weights = {weight.name: weight for weight in model.graph.initializer}
    return TypedGraph(
        nodes=tuple(model.graph.node),
        weights=weights,
        producers={name: node for node in model.graph.node for name in node.output},
        types=types | {name: dtype_name(weight.data_type) for name, weight in weights.items()},
        shapes=shapes | {name: tuple(weight.dims) for name, weight in weights.items()},
    )


def _skeleton(model: Any) -> Any:
    """The graph with its large weights as inputs: inference copies and serialises all that a model holds.

    Of its outputs the names alone: a size of 1 that is declared for want of a better one must contradict nothing.
    """
    import onnx

    skeleton = onnx.ModelProto(
        ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions
    )
    graph = skeleton.graph
    graph.name = model.graph.name
    graph.node.extend(model.graph.node)
    graph.input.extend(model.graph.input)
    graph.output.extend(onnx.ValueInfoProto(name=value.name) for value in model.graph.output)
    graph.sparse_initializer.extend(model.graph.sparse_initializer)
    declared = {value.name for value in model.graph.input}
    for weight in model.graph.initializer:
        if weight.ByteSize() <= FOLDED_BYTES:
            graph.initializer.append(weight)
        elif weight.name not in declared:
            graph.input.append(onnx.helper.make_tensor_value_info(weight.name, weight.data_type, weight.dims))
    return skeleton


def _values(model: Any) -> list[Any]:
    return [*model.graph.input, *model.graph.output, *model.graph.value_info]


def _static_shapes(model: Any) -> dict[str, tuple[int, ...]]:
    """The shapes in which every dimension has a size."""
    tensors = {value.name: value.type.tensor_type for value in _values(model)}
    return {
        name: tuple(dim.dim_value for dim in tensor.shape.dim)
        for name, tensor in tensors.items()
        if tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim)
    }


def _folded_shapes(skeleton: Any, known: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """The shapes that follow once what is computed from shapes is folded, which inference by itself gives up on.

    `Shape` of a known shape is replaced first: onnx propagates it as a whole where it has a start or an end.
    """
    import numpy as np
    import onnx
    from polygraphy.backend.onnx import fold_constants

    shape_nodes = [node for node in skeleton.graph.node if node.op_type == "Shape" and node.input[0] in known]
    for node in shape_nodes:
        ends = {attribute.name: attribute.i for attribute in node.attribute}
        sizes = np.array(known[node.input[0]][ends.get("start", 0) : ends.get("end")], np.int64)
        skeleton.graph.initializer.append(onnx.numpy_helper.from_array(sizes, node.output[0]))
        skeleton.graph.node.remove(node)
    with _without_warnings():
        folded = fold_constants(
            skeleton,
            num_passes=2,
            size_threshold=FOLDED_BYTES,
            error_ok=True,
            allow_onnxruntime_shape_inference=False,  # where it gives up, it leaves files in the working directory
        )
    inferred = onnx.shape_inference.infer_shapes(folded, data_prop=True)
    return _static_shapes(inferred) | {weight.name: tuple(weight.dims) for weight in inferred.graph.initializer}


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Silence the libraries that fold: they warn of types that NumPy lacks, and of nodes that they leave in."""
    import onnx_graphsurgeon.logger as graphsurgeon
    import onnxruntime
    from polygraphy.logger import G_LOGGER

    onnxruntime.set_default_logger_severity(_ORT_ERROR)
    try:
        with G_LOGGER.verbosity(G_LOGGER.CRITICAL), graphsurgeon.G_LOGGER.suppress():
            yield
    finally:
        onnxruntime.set_default_logger_severity(_ORT_WARNING)


def _as_standard(node: Any) -> None:
    """Turn TensorRT's own quantizers into standard operators of the same shapes and, behind dequantizers, types."""
    import onnx

    if node.domain in ("", "ai.onnx") or node.op_type not in QUANTIZERS.keys() | DEQUANTIZERS:
        return
    target = next((a.i for a in node.attribute if a.name == "output_dtype"), onnx.TensorProto.FLOAT)
    quantizes = node.op_type in QUANTIZERS
    del node.input[1:], node.output[1:], node.attribute[:]
    node.domain = ""
    node.op_type = "Identity" if quantizes else "Cast"
    if not quantizes:
        node.attribute.append(onnx.helper.make_attribute("to", target))
