"""Element types and shapes of every tensor of an ONNX graph, also behind quantizers that ONNX knows nothing of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from inferprof.grouping import grouped
from inferprof.model import control_flow, inference, onnx_graph
from inferprof.model.control_flow import Branches
from inferprof.model.inference import Tensor
from inferprof.model.operators import DEQUANTIZERS, MOVES, QUANTIZERS, dtype_name, full_name, integers


@dataclass(frozen=True)
class TypedGraph:
    """A graph with its producers, weights, and the type and shape that each tensor is computed in."""

    nodes: tuple[Any, ...]
    weights: Mapping[str, Any]
    producers: Mapping[str, Any]
    types: Mapping[str, str]
    shapes: Mapping[str, tuple[int, ...]]
    times: Mapping[str, int | None] = field(default_factory=dict)
    """First output of a node → how often an inference runs it, where that isn't 1; None where only a run tells."""
    branches: tuple[Branches, ...] = ()
    assumed: tuple[str, ...] = ()
    """Symbols that count as 1, since nothing gave them a size."""

    def runs(self, node: Any) -> int | None:
        """How often an inference runs a node; None where only a run tells."""
        return self.times.get(node.output[0], 1) if node.output else 1

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
        return self.origin(tensor) in self.weights

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
        if number := integers(node).get("output_dtype", 0):
            return dtype_name(number)
        return self.types.get(node.input[2], "uint8") if len(node.input) > 2 else "uint8"


def analyse(model: Any, sizes: Mapping[str, int], shapes: Mapping[str, Sequence[int]] | None = None) -> TypedGraph:
    """The types and shapes of an onnx.ModelProto at the `shapes` of its inputs, or at the sizes of its symbols.

    A symbol without a size counts as 1, and is listed. Local functions are taken apart, and the bodies of If, Loop
    and Scan stand behind their node.
    """
    model = onnx_graph.inlined(model)
    given, assumed = _inputs(model, sizes, shapes or {})
    flat = control_flow.flatten(model, given)
    for node in flat.nodes:
        node.op_type = full_name(node)
    stored = {name: dtype_name(weight.data_type) for name, weight in flat.weights.items()}
    return TypedGraph(
        nodes=tuple(flat.nodes),
        weights=flat.weights,
        producers={name: node for node in flat.nodes for name in node.output if name},
        types=flat.types | stored,
        shapes=flat.shapes | {name: tuple(weight.dims) for name, weight in flat.weights.items()},
        times=flat.times,
        branches=tuple(flat.branches),
        assumed=assumed,
    )


def readers(nodes: Iterable[Any]) -> dict[str, list[Any]]:
    """The nodes that take each tensor as an input, each once."""
    return grouped((name, node) for node in nodes for name in dict.fromkeys(node.input))


def contradiction(
    model: Any, sizes: Mapping[str, int], shapes: Mapping[str, Sequence[int]] | None = None
) -> str | None:
    """Why a graph cannot run at these sizes, as for `analyse`; None where nothing in it contradicts itself."""
    given, _ = _inputs(model, sizes, shapes or {})
    return inference.contradiction(inference.skeleton(model, model.graph, given))


def _inputs(
    model: Any, sizes: Mapping[str, int], shapes: Mapping[str, Sequence[int]]
) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """The inputs of a graph, and its symbols that nothing gives a size to."""
    symbols = dict(sizes)
    for value in onnx_graph.inputs(model):
        for dim, size in zip(onnx_graph.dimensions(value), onnx_graph.given(value, shapes), strict=False):
            symbols |= {dim.dim_param: size} if dim.dim_param else {}
    assumed: dict[str, None] = {}
    tensors: dict[str, Tensor] = {}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        fixed = onnx_graph.given(value, shapes)
        dims = []
        for axis, dim in enumerate(onnx_graph.dimensions(value)):
            if fixed and dim.dim_value < 1:
                dims.append(fixed[axis])
            elif dim.HasField("dim_value") and dim.dim_value >= 0:
                dims.append(dim.dim_value)
            else:  # some exporters write -1 for any size
                dims.append(symbols.get(dim.dim_param, 1))
                assumed |= {dim.dim_param or f"{value.name}[{axis}]": None} if dim.dim_param not in symbols else {}
        tensors[value.name] = Tensor(tensor.elem_type, dims if tensor.HasField("shape") else None)
    return tensors, tuple(assumed)
