"""MXFP8 and NVFP4 of an ONNX graph: the nodes that ModelOpt's exporter writes for TensorRT, around products in FP16.

Weights are stored in blocks along the reduction; activations, of attention's products both operands, are scaled block
by block as they come.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from inferprof.errors import CaseFailed
from inferprof.model import onnx_graph, typed_graph
from inferprof.plugins import ConvertRequest
from inferprof.precisions import autocast, block_kernels, conversion, results

if TYPE_CHECKING:
    from inferprof.precisions.blockwise import BlockFormat

Array = np.ndarray[Any, Any]
NVFP4 = "nvfp4"
DOMAIN = "trt"
OPSETS = {NVFP4: 23}
"""The first opset that has a 4-bit float; for the other 20 serves, whose operators ModelOpt's exporter writes."""
E8M0_BIAS = 127
MOST_DIMENSIONS = 3
LAST = 2**31
"""Behind every axis."""


def convert(request: ConvertRequest, kind: BlockFormat) -> dict[str, Any]:
    """Write the graph in FP16 with the products in blocks. Those that cannot be are listed, each with its reason."""
    inner = dataclasses.replace(request, options={**autocast.OPTIONS, **request.options})
    model = autocast.to_low_precision(inner, request.onnx, "fp16")
    model = _raised(model, OPSETS.get(kind.name, 20))
    writer = _Writer(model, kind, attention=bool(request.options["attention"]))
    writer.write(inner)
    conversion.save(model, request.out)
    calibration = {} if kind.name != NVFP4 else conversion.calibration_facts(inner, conversion.calibration(inner))
    return conversion.facts(
        f"{kind.name} of the ONNX graph, blocks of {kind.block_size}, products; the rest in fp16 by AutoCast",
        left_in_fp16=[f"{name}: {reason}" for name, reason in writer.left.items()],
        **calibration,
    )


def _raised(model: Any, opset: int) -> Any:
    import onnx

    return onnx.version_converter.convert_version(model, opset) if onnx_graph.opset(model) < opset else model


class _Writer:
    """Puts the products of an FP16 graph into blocks, in place."""

    def __init__(self, model: Any, kind: BlockFormat, *, attention: bool) -> None:
        import onnx

        self.model, self.kind, self.attention = model, kind, attention
        self.graph = typed_graph.analyse(model, _sizes(model, 2))
        self.other = typed_graph.analyse(model, _sizes(model, 3)).shapes
        inferred = onnx.shape_inference.infer_shapes(model).graph
        self.dims = {
            value.name: value.type.tensor_type.shape.dim for value in (*inferred.value_info, *inferred.input)
        }
        self.left: dict[str, str] = {}
        self.ranges: Mapping[str, float] = {}
        self.nodes: list[Any] = []
        self.made: dict[tuple[str, int], str] = {}

    def write(self, request: ConvertRequest) -> None:
        """Quantize what can be; calibrates the activations where the format has a scale per tensor."""
        products = [node for node in self.model.graph.node if node.op_type in ("MatMul", "Gemm")]
        self.left = {node.name: reason for node in products if (reason := self._reason(node))}
        taken = [node for node in products if node.name not in self.left]
        if self.kind.name == NVFP4:
            read = {name for node in taken for name in node.input[:2] if name not in self.graph.weights}
            self.ranges = results.ranges(self.model, sorted(read), self.graph.types, request)
        names = {node.name for node in taken}
        if not names:
            raise CaseFailed(f"no product can be in {self.kind.name}: {_listed(self.left)}")
        for node in self.model.graph.node:
            if node.name not in names:
                self.nodes.append(node)
                continue
            left, right = node.input[:2]
            out = node.output[0]
            node.input[0], node.input[1] = self._activation(left, -1), self._right(node)
            self.nodes.append(node)
            if self._flattened(left):
                node.output[0] = f"{out}/flat"
                self._unflatten(node.output[0], left, right, out)
        onnx_graph.replace_nodes(self.model, self.nodes)
        onnx_graph.drop_unread_weights(self.model.graph)
        del self.model.graph.value_info[:]
        self.model.opset_import.add(domain=DOMAIN, version=1)

    def _reason(self, node: Any) -> str | None:
        """Why a product is left in FP16, or None."""
        left, right = node.input[:2]
        if {self.graph.types.get(name) for name in (left, right)} != {"float16"}:
            return "it is kept in float32"
        if left in self.graph.weights:
            return "its weight is the first operand"
        if right in self.graph.weights and len(self.graph.shapes[right]) != 2:
            return "its weight is no matrix"
        if right not in self.graph.weights and not self.attention:
            return "both operands are activations, and option attention is off"
        if _flag(node, "transA") or (_flag(node, "transB") and right not in self.graph.weights):
            return "an activation is transposed inside of it"
        batches = [
            {shapes.get(name, ())[:-2] for name in (left, right)} for shapes in (self.graph.shapes, self.other)
        ]
        if right not in self.graph.weights and max(map(len, batches)) > 1:
            return "one operand serves several of the other's"
        size = self._fixed(left, -1)
        if size is None:
            return "the size of its reduction is known at run time alone, and a block's axis must be known before"
        if size % self.kind.block_size:
            return f"its reduction of {size} is no multiple of {self.kind.block_size}"
        return None

    def _fixed(self, tensor: str, axis: int) -> int | None:
        """The size of an axis that is the same whatever the input's."""
        sizes = [shapes.get(tensor, ()) for shapes in (self.graph.shapes, self.other)]
        return sizes[0][axis] if sizes[0] and sizes[1] and sizes[0][axis] == sizes[1][axis] else None

    def _add(self, op: str, inputs: list[str], outputs: list[str], domain: str = "", **attributes: Any) -> str:
        import onnx

        name = f"{outputs[0]}/{op}"
        self.nodes.append(onnx.helper.make_node(op, inputs, outputs, name=name, domain=domain, **attributes))
        return outputs[0]

    def _store(self, name: str, array: Any) -> str:
        import onnx

        self.model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
        return name

    def _right(self, node: Any) -> str:
        """The second operand: a stored weight [n, k] that is turned for the product, or an activation."""
        name = node.input[1]
        if name not in self.graph.weights:
            return self._activation(name, -2)
        turned = not _flag(node, "transB")
        key = (name, int(turned))
        if key not in self.made:
            import onnx

            array = onnx.numpy_helper.to_array(self.graph.weights[name]).astype(np.float32)
            prefix = f"{node.name}/{name}"
            value = self._weight(prefix, np.ascontiguousarray(array.T if turned else array))
            self.made[key] = self._add("Transpose", [value], [f"{prefix}/turned"], perm=[1, 0]) if turned else value
        return self.made[key]

    def _weight(self, prefix: str, array: Array) -> str:
        """A weight [n, k] in blocks along k, and what it is dequantized to."""
        import onnx

        scale = f"{prefix}/scale"
        how: dict[str, Any] = {"axis": -1, "block_size": self.kind.block_size}
        if self.kind.name != NVFP4:
            stored, exponents = mxfp8(array, self.kind.block_size)
            inputs = [self._store(f"{prefix}/mxfp8", stored), self._store(scale, exponents)]
            half = onnx.TensorProto.FLOAT16
            return self._add(
                "TRT_MXFP8DequantizeLinear", inputs, [f"{prefix}/value"], DOMAIN, output_dtype=half, **how
            )
        stored, scales, whole = nvfp4(array, self.kind.block_size)
        inputs = [self._store(scale, scales), self._store(f"{scale}/scale", whole)]
        self._add("DequantizeLinear", inputs, [f"{scale}/value"])
        return self._to_half([self._store(f"{prefix}/nvfp4", stored), f"{scale}/value"], f"{prefix}/value", how)

    def _to_half(self, inputs: list[str], out: str, how: Mapping[str, Any]) -> str:
        """Dequantized blocks in half. (TensorRT-RTX 1.7 cannot build DequantizeLinear's `output_dtype`.)"""
        import onnx

        self._add("DequantizeLinear", inputs, [f"{out}/float"], **how)
        return self._add("Cast", [f"{out}/float"], [out], to=onnx.TensorProto.FLOAT16)

    def _activation(self, tensor: str, axis: int) -> str:
        """A tensor quantized in blocks as it comes, and dequantized."""
        key = (tensor, axis)
        if key not in self.made:
            self.made[key] = self._quantized(self._with_size(tensor, axis), tensor, axis)
        return self.made[key]

    def _flattened(self, tensor: str) -> bool:
        """Whether a tensor has more dimensions than TensorRT's dynamic quantizers take: two or three."""
        return len(self.graph.shapes[tensor]) > MOST_DIMENSIONS

    def _part(self, tensor: str, name: str, start: int, end: int) -> str:
        """A part of the shape of a tensor."""
        ends: dict[str, Any] = {} if end == LAST else {"end": end}
        return self._add("Shape", [tensor], [name], start=start, **ends)

    def _unflatten(self, flat: str, left: str, right: str, out: str) -> None:
        """The result of a product with the dimensions that its operands had."""
        parts = [self._part(left, f"{out}/rows", 0, -1), self._part(right, f"{out}/columns", -1, LAST)]
        self._add("Concat", parts, [f"{out}/shape"], axis=0)
        self._add("Reshape", [flat, f"{out}/shape"], [out])

    def _flat(self, tensor: str, axis: int) -> str:
        """A tensor with all but its last two dimensions in one; the size of the axis is a constant."""
        name = f"{tensor}/blocks/{axis}"
        first = self._store(f"{name}/first", np.array([-1], np.int64))
        size = self._store(f"{name}/size", np.array([self.graph.shapes[tensor][axis]], np.int64))
        other = self._part(tensor, f"{name}/other", *((-2, -1) if axis == -1 else (-1, LAST)))
        parts = [first, other, size] if axis == -1 else [first, size, other]
        self._add("Concat", parts, [f"{name}/shape"], axis=0)
        return self._add("Reshape", [tensor, f"{name}/shape"], [f"{name}/input"])

    def _with_size(self, tensor: str, axis: int) -> str:
        """The tensor behind a Reshape that says the size of the axis, where the graph doesn't: builders want it."""
        if self._flattened(tensor):
            return self._flat(tensor, axis)
        dims = self.dims.get(tensor, ())
        if len(dims) and dims[axis].HasField("dim_value"):
            return tensor
        rank = len(self.graph.shapes[tensor])
        shape = np.zeros(rank, np.int64)
        shape[axis] = self.graph.shapes[tensor][axis]
        name = f"{tensor}/blocks/{axis}"
        return self._add("Reshape", [tensor, self._store(f"{name}/shape", shape)], [f"{name}/input"])

    def _quantized(self, source: str, tensor: str, axis: int) -> str:
        import onnx

        prefix = f"{tensor}/{self.kind.name}/{axis}"
        how: dict[str, Any] = {"axis": axis, "block_size": self.kind.block_size}
        stored, scale, value = (f"{prefix}/{part}" for part in ("stored", "scale", "value"))
        half, fp8 = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT8E4M3FN
        if self.kind.name != NVFP4:
            self._add("TRT_MXFP8DynamicQuantize", [source], [stored, scale], DOMAIN, output_dtype=fp8, **how)
            return self._add("TRT_MXFP8DequantizeLinear", [stored, scale], [value], DOMAIN, output_dtype=half, **how)
        whole = self._store(f"{prefix}/whole", np.float32(_whole(self.ranges[tensor])))
        self._add("TRT_FP4DynamicQuantize", [source, whole], [stored, scale], DOMAIN, scale_type=fp8, **how)
        self._add("DequantizeLinear", [scale, whole], [f"{scale}/value"])
        return self._to_half([stored, f"{scale}/value"], value, how)


def _sizes(model: Any, size: int) -> dict[str, int]:
    """Every symbol of the inputs with a size of its own."""
    dims = [dim.dim_param for value in onnx_graph.inputs(model) for dim in onnx_graph.dimensions(value)]
    return {name: size + place for place, name in enumerate(sorted(filter(None, {*dims})))}


def _listed(left: Mapping[str, str]) -> str:
    """The first of the products with its reason, and how many more there are."""
    first = next((f"{name}: {reason}" for name, reason in left.items()), "the graph has none")
    return f"{first}, and {len(left) - 1} more" if len(left) > 1 else first


def _flag(node: Any, name: str) -> bool:
    return any(attribute.name == name and attribute.i for attribute in node.attribute)


def _whole(reach: float) -> float:
    """NVFP4's scale of a tensor whose largest magnitude is `reach`."""
    return reach / (block_kernels.E2M1_MAX * block_kernels.E4M3_MAX) or block_kernels.NO_GLOBAL_SCALE


def nvfp4(array: Array, size: int) -> tuple[Array, Array, Array]:
    """A weight as 4-bit floats, the E4M3 scale of each block along the last axis, and the float32 scale of all."""
    import ml_dtypes

    whole = np.float32(_whole(float(np.abs(array).max(initial=0))))
    blocks = array.reshape(*array.shape[:-1], -1, size)
    exact = np.abs(blocks).max(axis=-1) / (block_kernels.E2M1_MAX * whole)
    scales = np.minimum(exact, block_kernels.E4M3_MAX).astype(ml_dtypes.float8_e4m3fn)
    step = (scales.astype(np.float32) * whole)[..., None]
    scaled = np.divide(blocks, step, out=np.zeros_like(blocks), where=step > 0)
    limit = block_kernels.E2M1_MAX
    stored = np.clip(scaled, -limit, limit).astype(ml_dtypes.float4_e2m1fn)
    return stored.reshape(array.shape), scales, np.asarray(whole)


def mxfp8(array: Array, size: int) -> tuple[Array, Array]:
    """A weight as E4M3, and the exponent, with its bias, of each block's power of two along the last axis."""
    import ml_dtypes

    blocks = array.reshape(*array.shape[:-1], -1, size)
    amax = np.abs(blocks).max(axis=-1)
    mantissa, exponent = np.frexp(amax)
    exponent = exponent - block_kernels.E4M3_MAX_EXPONENT + (mantissa > block_kernels.E4M3_MAX_MANTISSA)
    exponent = np.where(amax > 0, np.clip(exponent, -E8M0_BIAS, E8M0_BIAS), 0)
    scaled = blocks / np.ldexp(np.float32(1), exponent)[..., None]
    limit = block_kernels.E4M3_MAX
    stored = np.clip(scaled, -limit, limit).astype(ml_dtypes.float8_e4m3fn)
    return stored.reshape(array.shape), (exponent + E8M0_BIAS).astype(np.uint8)
