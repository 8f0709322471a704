"""MXFP8 and NVFP4 on a CPU: the operators that only TensorRT knows, as standard ones that compute the same.

A quantized tensor stands as the float32 values of its numbers, its scales as float32 values too. The arithmetic is
that of ModelOpt's kernels (precisions/block_kernels.py), which tests compare it with.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np

from inferprof.model import onnx_graph, operators, typed_graph
from inferprof.model.operators import DEQUANTIZERS, attributes_of

FP4, MXFP8, FROM_MXFP8 = "TRT_FP4DynamicQuantize", "TRT_MXFP8DynamicQuantize", "TRT_MXFP8DequantizeLinear"
BLOCK = {FP4: 16, MXFP8: 32, FROM_MXFP8: 32}
"""Operators of TensorRT's that scale by blocks, and the block that they have unless they say another."""
DEQUANTIZE_BLOCKS = "DequantizeLinear"
E2M1_MAX, E4M3_MAX, E8M0_BIAS = 6.0, 448.0, 127
SMALLEST = 2.0**-127
"""The smallest scale of a block in MXFP8."""


def uses_blocks(model: Any) -> bool:
    """Whether an onnx.ModelProto has tensors with a scale per block that ONNX Runtime has no kernels for."""
    narrow = {weight.name for weight in model.graph.initializer if _is_float4(weight)}
    return any(
        node.op_type in BLOCK or (node.op_type == DEQUANTIZE_BLOCKS and node.input[0] in narrow)
        for node in model.graph.node
    )


def _is_float4(weight: Any) -> bool:
    """By its name, which an onnx before 1.17 does not have."""
    return operators.dtype_name(weight.data_type) == "float4e2m1"


def in_standard_operators(model: Any) -> Any:
    """A copy of an onnx.ModelProto without TensorRT's block operators."""
    result = copy.deepcopy(model)
    ranks = {name: len(shape) for name, shape in typed_graph.analyse(model, {}).shapes.items()}
    writer = _Writer(result, ranks)
    nodes = [new for node in result.graph.node for new in writer.written(node)]
    onnx_graph.replace_nodes(result, nodes)
    del result.graph.value_info[:]
    onnx_graph.drop_unread_weights(result.graph)
    return result


class _Writer:
    """Writes standard nodes into a model; knows which tensors are the float32 values of narrow ones by now."""

    def __init__(self, model: Any, ranks: dict[str, int]) -> None:
        self.graph, self.ranks = model.graph, ranks
        self.stored = {weight.name: weight for weight in model.graph.initializer}
        self.widened: set[str] = set()
        self.nodes: list[Any] = []

    def written(self, node: Any) -> Iterator[Any]:
        """What stands in the place of a node: itself, where it has nothing to do with blocks."""

        given = attributes_of(node)
        by_block = given.get("block_size", 0) or BLOCK.get(node.op_type, 0)
        axis = given.get("axis", -1)
        if by_block and axis >= 0:
            axis -= self.ranks[node.input[0]]
        self.nodes = []
        if node.op_type == FP4:
            self._to_fp4(node, axis, by_block)
        elif node.op_type == MXFP8:
            self._to_mxfp8(node, axis, by_block)
        elif node.op_type in DEQUANTIZERS and by_block and (node.op_type in BLOCK or self._narrow(node)):
            self._dequantize(node, axis, by_block, given.get("output_dtype"))
        elif node.op_type in DEQUANTIZERS and node.input[0] in self.widened:
            self._add("Mul", [node.input[0], node.input[1]], node.output[0])
            self.widened.add(node.output[0])
        else:
            self.nodes.append(node)
        yield from self.nodes

    def _narrow(self, node: Any) -> bool:
        stored = self.stored.get(node.input[0])
        return node.input[0] in self.widened or (stored is not None and _is_float4(stored))

    def _add(self, op: str, inputs: list[str], out: str, **attributes: Any) -> str:
        import onnx

        self.nodes.append(onnx.helper.make_node(op, inputs, [out], **attributes))
        return out

    def _constant(self, name: str, value: Any, dtype: Any = np.float32) -> str:
        import onnx

        if name not in self.stored:
            self.stored[name] = onnx.numpy_helper.from_array(np.asarray(value, dtype), name)
            self.graph.initializer.append(self.stored[name])
        return name

    def _number(self, value: float) -> str:
        return self._constant(f"blocks/{value!r}", value)

    def _values(self, tensor: str) -> str:
        """A stored narrow tensor as float32; a scale that is a power of two is stored as its exponent."""
        import onnx

        if tensor not in self.stored:
            return tensor
        array = onnx.numpy_helper.to_array(self.stored[tensor])
        if array.dtype == np.uint8:
            array = np.ldexp(np.float32(1), array.astype(np.int32) - E8M0_BIAS)
        return self._constant(f"{tensor}/values", array.astype(np.float32))

    def _turned(self, tensor: str, out: str, axis: int) -> str:
        """The tensor with an axis, which is one of the last two, as the last; turns it back as well."""
        return tensor if axis == -1 else self._add("Einsum", [tensor], out, equation="...ij->...ji")

    def _blocks(self, tensor: str, prefix: str, axis: int, size: int) -> str:
        """A tensor as rows of one block each, or of one scale."""
        turned = self._turned(tensor, f"{prefix}/turned", axis)
        return self._add(
            "Reshape", [turned, self._constant(f"blocks/{size}", [-1, size], np.int64)], f"{prefix}/rows"
        )

    def _shaped(self, rows: str, out: str, axis: int, shape: str) -> None:
        """Rows in a shape whose last axis is `axis`, turned back."""
        if axis == -1:
            self._add("Reshape", [rows, shape], out)
        else:
            self._turned(self._add("Reshape", [rows, shape], f"{out}/back"), out, axis)

    def _unblocked(self, rows: str, out: str, axis: int, like: str) -> None:
        """Rows of one block each as the tensor `like`."""
        self._shaped(rows, out, axis, self._add("Shape", [self._turned(like, f"{out}/like", axis)], f"{out}/shape"))

    def _scales(self, rows: str, out: str, axis: int, like: str) -> None:
        """A scale per row, in the shape of `like` but for the axis."""
        first = self._add("Shape", [self._turned(like, f"{out}/like", axis)], f"{out}/first", start=0, end=-1)
        wide = self._add("Concat", [first, self._constant("blocks/rest", [-1], np.int64)], f"{out}/shape", axis=0)
        self._shaped(rows, out, axis, wide)

    def _amax(self, node: Any, axis: int, size: int) -> tuple[str, str]:
        """The blocks of what a node reads, in float32, and the largest magnitude of each."""
        import onnx

        prefix = node.output[0]
        wide = self._add("Cast", [node.input[0]], f"{prefix}/float", to=onnx.TensorProto.FLOAT)
        rows = self._blocks(wide, prefix, axis, size)
        magnitude = self._add("Abs", [rows], f"{prefix}/magnitude")
        last = self._constant("blocks/last", [-1], np.int64)
        return rows, self._add("ReduceMax", [magnitude, last], f"{prefix}/amax", keepdims=1)

    def _to_e4m3(self, tensor: str, out: str) -> str:
        import onnx

        self._add("Cast", [tensor], f"{out}/stored", to=onnx.TensorProto.FLOAT8E4M3FN, saturate=1)
        return self._add("Cast", [f"{out}/stored"], out, to=onnx.TensorProto.FLOAT)

    def _to_fp4(self, node: Any, axis: int, size: int) -> None:
        """Block scale: E4M3(amax / (6 · scale of the tensor)). A block whose scale is 0 becomes 0."""
        values, scales = node.output
        rows, amax = self._amax(node, axis, size)
        whole = self._add("Mul", [node.input[1], self._number(E2M1_MAX)], f"{scales}/reach")
        scale = self._to_e4m3(self._add("Div", [amax, whole], f"{scales}/exact"), f"{scales}/rows")
        step = self._add("Mul", [scale, node.input[1]], f"{scales}/step")
        none = self._add("Equal", [step, self._number(0.0)], f"{scales}/none")
        safe = self._add("Where", [none, self._number(float("inf")), step], f"{scales}/safe")
        self._unblocked(self._to_e2m1(self._add("Div", [rows, safe], f"{values}/exact")), values, axis, node.input[0])
        self._scales(scale, scales, axis, node.input[0])
        self.widened |= {values, scales}

    def _to_e2m1(self, tensor: str) -> str:
        """To 0, 0.5, 1, 1.5, 2, 3, 4 and 6, to nearest even and saturating."""
        magnitude = self._add("Abs", [tensor], f"{tensor}/magnitude")
        large = self._add("Less", [magnitude, self._number(4.0)], f"{tensor}/below_4")
        small = self._add("Less", [magnitude, self._number(2.0)], f"{tensor}/below_2")
        upper = self._add("Where", [large, self._number(1.0), self._number(2.0)], f"{tensor}/upper")
        step = self._add("Where", [small, self._number(0.5), upper], f"{tensor}/step")
        steps = self._add("Round", [self._add("Div", [tensor, step], f"{tensor}/in_steps")], f"{tensor}/steps")
        exact = self._add("Mul", [steps, step], f"{tensor}/rounded")
        return self._add("Clip", [exact, self._number(-E2M1_MAX), self._number(E2M1_MAX)], f"{tensor}/e2m1")

    def _to_mxfp8(self, node: Any, axis: int, size: int) -> None:
        """Block scale: the smallest power of two by which 448 reaches amax, 1 for a block of zeros."""
        values, scales = node.output
        rows, amax = self._amax(node, axis, size)
        ratio = self._add("Div", [amax, self._number(E4M3_MAX)], f"{scales}/ratio")
        log = self._add("Log", [ratio], f"{scales}/log")
        exponent = self._add("Div", [log, self._number(float(np.log(2.0)))], f"{scales}/exponent")
        whole = self._add("Floor", [exponent], f"{scales}/integer")
        scale = self._add("Pow", [self._number(2.0), whole], f"{scales}/floor")
        # The logarithm is inexact; products with powers of two are exact.
        half = self._add("Mul", [scale, self._number(0.5)], f"{scales}/grown0")
        for number in (1, 2, 3):
            reach = self._add("Mul", [half, self._number(E4M3_MAX)], f"{scales}/reach{number}")
            short = self._add("Less", [reach, amax], f"{scales}/short{number}")
            twice = self._add("Mul", [half, self._number(2.0)], f"{scales}/twice{number}")
            half = self._add("Where", [short, twice, half], f"{scales}/grown{number}")
        bounded = self._add("Max", [half, self._number(SMALLEST)], f"{scales}/bounded")
        zero = self._add("Equal", [amax, self._number(0.0)], f"{scales}/zero")
        rows_scale = self._add("Where", [zero, self._number(1.0), bounded], f"{scales}/rows")
        scaled = self._add("Div", [rows, rows_scale], f"{values}/exact")
        self._unblocked(self._to_e4m3(scaled, f"{values}/rounded"), values, axis, node.input[0])
        self._scales(rows_scale, scales, axis, node.input[0])
        self.widened |= {values, scales}

    def _dequantize(self, node: Any, axis: int, size: int, dtype: int | None) -> None:
        """Each value times the scale of its block."""
        values, scales = (self._values(name) for name in node.input[:2])
        out = node.output[0]
        rows = self._blocks(values, f"{out}/values", axis, size)
        scale = self._blocks(scales, f"{out}/scales", axis, 1)
        product = self._add("Mul", [rows, scale], f"{out}/product")
        wide = f"{out}/float" if dtype else out
        self._unblocked(product, wide, axis, values)
        if dtype:
            self._add("Cast", [wide], out, to=dtype)
