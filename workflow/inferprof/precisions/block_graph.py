"""MXFP8 and NVFP4 of an ONNX graph: the nodes that ModelOpt's exporter writes for TensorRT, around products in FP16.

Weights are stored in blocks along the reduction; activations, of attention's products both operands, are scaled block
by block as they come.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from inferprof.errors import CaseFailed
from inferprof.model import block_emulation, onnx_graph, typed_graph
from inferprof.model.operators import dtype_number, integers
from inferprof.plugins import Blocks, Chains, ConvertRequest
from inferprof.precisions import autocast, block_kernels, conversion, results

Array = np.ndarray[Any, Any]
NVFP4 = "nvfp4"
DOMAIN = "trt"
OPSET = 20
"""Whose operators ModelOpt's exporter writes."""
OPSETS = {NVFP4: 23}
"""The first opset that has a 4-bit float."""
MOST_DIMENSIONS = 3
LAST = 2**31
"""Behind every axis."""


@dataclass(frozen=True)
class BlockFormat:
    """A number format with a scale per block, as ModelOpt has it."""

    name: str
    block_size: int
    preset: str
    """ModelOpt's configuration of it, in modelopt.torch.quantization."""
    ready_kernel: str | None = None
    """ModelOpt's kernel of it that needs no compiler, in modelopt.torch.kernels.quantization.gemm; it is there from a
    compute capability on."""


def convert(request: ConvertRequest, kind: BlockFormat) -> dict[str, Any]:
    """Write the graph in FP16 with the products in blocks. Those that cannot be are listed, each with its reason."""
    inner = dataclasses.replace(request, options={**autocast.OPTIONS, **request.options})
    model = autocast.to_low_precision(inner, request.onnx, "fp16")
    model = _raised(model, OPSETS.get(kind.name, OPSET))
    writer = _Writer(model, kind, attention=bool(request.options["attention"]))
    writer.write(inner)
    conversion.save(model, request.out)
    calibration = {} if kind.name != NVFP4 else conversion.calibration_facts(inner, conversion.calibration(inner))
    return conversion.facts(
        f"{kind.name} of the ONNX graph, blocks of {kind.block_size}, products; the rest in fp16 by AutoCast",
        left_in_fp16=[f"{name}: {reason}" for name, reason in writer.left.items()],
        **calibration,
    )


def blocks_of(kind: BlockFormat) -> Blocks:
    """What a mix wants of a format."""
    return Blocks(functools.partial(chains, kind=kind), functools.partial(write, kind=kind))


def chains(request: ConvertRequest, model: Any, kind: BlockFormat) -> tuple[Any, Chains]:
    """A float graph with the chains' constants, and the chains of its products' operands, in standard operators."""
    model = _raised(model, OPSET)
    writer = _Writer(model, kind, attention=bool(request.options["attention"]), held="float32")
    return model, writer.chains(request)


def write(request: ConvertRequest, model: Any, names: Collection[str], kind: BlockFormat) -> Any:
    """A graph in FP16 with the products of these names in blocks."""
    model = _raised(model, OPSETS.get(kind.name, OPSET))
    _Writer(model, kind, attention=True).write(request, names)
    return model


def _raised(model: Any, opset: int) -> Any:
    import onnx

    return onnx.version_converter.convert_version(model, opset) if onnx_graph.opset(model) < opset else model


class _Writer:
    """Puts the products of an FP16 graph into blocks, in place; of a float32 graph it tells the chains."""

    def __init__(self, model: Any, kind: BlockFormat, *, attention: bool, held: str = "float16") -> None:
        import onnx

        self.model, self.kind, self.attention, self.held = model, kind, attention, held
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

    def _taken(self, request: ConvertRequest, names: Collection[str] | None = None) -> list[Any]:
        """The products that can be quantized; calibrates what they read where the format has a scale per tensor."""
        products = [node for node in self.model.graph.node if node.op_type in ("MatMul", "Gemm")]
        self.left = {node.name: reason for node in products if (reason := self._reason(node))}
        taken = [n for n in products if n.name not in self.left and (names is None or n.name in names)]
        if not taken:
            raise CaseFailed(f"no product can be in {self.kind.name}: {_listed(self.left)}")
        if self.kind.name == NVFP4:
            read = {name for node in taken for name in node.input[:2] if name not in self.graph.weights}
            self.ranges = results.ranges(self.model, sorted(read), self.graph.types, request)
        return taken

    def chains(self, request: ConvertRequest) -> Chains:
        """What makes of each operand what it is in blocks, in standard operators; their constants join the model."""
        chains = {}
        for node in self._taken(request):
            turned = integers(node).get("transB") and node.input[1] in self.graph.weights
            for place, axis in enumerate((-1, -1 if turned else -2)):
                chains[node.output[0], place] = self._chain(node.input[place], axis)
        return chains

    def _chain(self, tensor: str, axis: int) -> tuple[Any, ...]:
        import onnx

        self.nodes = []
        if weight := self.graph.weights.get(tensor):
            reach = float(np.abs(onnx.numpy_helper.to_array(weight)).max(initial=0))
            self.ranges = {**self.ranges, tensor: reach}
        result = self._quantized(tensor, tensor, axis)
        shape = ["n"] * len(self.graph.shapes[tensor])
        given, made = (
            onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in (tensor, result)
        )
        graph = onnx.helper.make_graph(self.nodes, "blocks", [given], [made])
        opsets = [onnx.helper.make_opsetid("", OPSETS[NVFP4]), onnx.helper.make_opsetid(DOMAIN, 1)]
        standard = block_emulation.in_standard_operators(onnx.helper.make_model(graph, opset_imports=opsets)).graph
        there = {weight.name for weight in self.model.graph.initializer}
        self.model.graph.initializer.extend(w for w in standard.initializer if w.name not in there)
        return tuple(standard.node)

    def write(self, request: ConvertRequest, names: Collection[str] | None = None) -> None:
        """Quantize what can be, of `names` alone where they are given."""
        names = {node.name for node in self._taken(request, names)}
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
        if {self.graph.types.get(name) for name in (left, right)} != {self.held}:
            return "it is kept in another type"
        if left in self.graph.weights:
            return "its weight is the first operand"
        if right in self.graph.weights and len(self.graph.shapes[right]) != 2:
            return "its weight is no matrix"
        if right not in self.graph.weights and not self.attention:
            return "both operands are activations, and option attention is off"
        if integers(node).get("transA") or (integers(node).get("transB") and right not in self.graph.weights):
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
        turned = not integers(node).get("transB")
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
            stored, exponents = block_kernels.mxfp8_weight(array, self.kind.block_size)
            inputs = [self._store(f"{prefix}/mxfp8", stored), self._store(scale, exponents)]
            half = onnx.TensorProto.FLOAT16
            return self._add(
                "TRT_MXFP8DequantizeLinear", inputs, [f"{prefix}/value"], DOMAIN, output_dtype=half, **how
            )
        stored, scales, whole = block_kernels.nvfp4_weight(array, self.kind.block_size)
        inputs = [self._store(scale, scales), self._store(f"{scale}/scale", whole)]
        self._add("DequantizeLinear", inputs, [f"{scale}/value"])
        return self._to_half([self._store(f"{prefix}/nvfp4", stored), f"{scale}/value"], f"{prefix}/value", how)

    def _to_half(self, inputs: list[str], out: str, how: Mapping[str, Any]) -> str:
        """Dequantized blocks in half. (TensorRT-RTX 1.7 cannot build DequantizeLinear's `output_dtype`.)"""
        import onnx

        if self.held != "float16":
            return self._add("DequantizeLinear", inputs, [out], **how)
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
        high, fp8 = dtype_number(self.held), onnx.TensorProto.FLOAT8E4M3FN
        if self.kind.name != NVFP4:
            self._add("TRT_MXFP8DynamicQuantize", [source], [stored, scale], DOMAIN, output_dtype=fp8, **how)
            return self._add("TRT_MXFP8DequantizeLinear", [stored, scale], [value], DOMAIN, output_dtype=high, **how)
        whole = self._store(f"{prefix}/whole", np.float32(block_kernels.whole_scale(self.ranges[tensor])))
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
