"""Element types and shapes of the tensors of one graph, without what is in the bodies of If, Loop and Scan."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from inferprof.errors import in_one_line
from inferprof.model import contrib, onnx_graph
from inferprof.model.operators import (
    COLLECTIVE,
    DEQUANTIZERS,
    QUANTIZERS,
    STANDARD_DOMAINS,
    collective_of,
    dtype_name,
    integers,
)

FOLDED_BYTES = 1 << 16
"""Larger constants are weights, and folding them would only cost time."""
_ORT_WARNING, _ORT_ERROR = 2, 3
"""Severities of ONNX Runtime's log; the first is its own default."""
FIRST_IR_WITH_OPSETS = 3
FIRST_IR_WITHOUT_LISTED_WEIGHTS = 4
"""Before it, each weight had to be listed among the inputs."""
FIRST_OPSET_WITH_SHAPES = 9
LIKE_INPUT = frozenset(("GroupNormalization", "SimplifiedLayerNormalization"))
"""Operators in ONNX's domain that give the type and shape of their first input, and of which it tells neither."""
_CONTRADICTS = re.compile(r"(?i)incompatible|mismatch|does not match|must (?:match|be equal)|not equal|differ")
"""What ONNX says of operands that do not fit, and not of those of which it lacks something."""
_OF_NODE = re.compile(r"\[(?:ShapeInference|TypeInference)Error\]\s*|Inference error\(s\):\s*")
Dims = Sequence[int | None]
"""The sizes of a tensor; None for a size that is not known."""


@dataclass(frozen=True)
class Tensor:
    """What is known of a tensor that a graph takes: its type, and its sizes where its rank is known."""

    number: int
    """TensorProto's number of the type."""
    dims: Dims | None


@dataclass(frozen=True)
class Inferred:
    """Tensor → its type, its shape where all sizes are known, and its value where it is a small constant."""

    types: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)


def skeleton(model: Any, graph: Any, given: Mapping[str, Tensor], constants: Sequence[Any] = ()) -> Any:
    """A model of `graph` alone with its large weights as inputs: inference copies and serialises all that it holds.

    `given`: its inputs and what it takes from around it; `constants`: what of that is known by value. Of its outputs
    the names alone: a size of 1 that is declared for want of a better one must contradict nothing.
    """
    import onnx

    ir_version = max(model.ir_version, FIRST_IR_WITHOUT_LISTED_WEIGHTS)
    result = onnx.ModelProto(ir_version=ir_version, opset_import=_opsets(model, graph))
    made = result.graph
    made.name = graph.name or "graph"
    made.output.extend(onnx.ValueInfoProto(name=value.name) for value in graph.output)
    by_value = [*constants, *(weight for weight in graph.initializer if weight.ByteSize() <= FOLDED_BYTES)]
    made.initializer.extend(by_value)
    inside = {weight.name for weight in by_value}
    large = {w.name: Tensor(w.data_type, list(w.dims)) for w in graph.initializer if w.name not in inside}
    for item in graph.sparse_initializer:
        large[item.values.name] = Tensor(item.values.data_type, list(item.dims))
    for name, tensor in {**given, **large}.items():
        if name not in inside:
            made.input.append(value_info(name, tensor))
    stored = {weight.name: weight.data_type for weight in graph.initializer}
    for original in graph.node:
        nodes, weights = contrib.written(original, onnx_graph.opset(result), stored)
        made.input.extend(value_info(name, Tensor(onnx.TensorProto.FLOAT, dims)) for name, dims in weights.items())
        for written in nodes:
            node = made.node.add()
            node.CopyFrom(written)
            if node.op_type == COLLECTIVE:
                _as_on_one_gpu(node, onnx_graph.opset(result))
            _as_standard(node)
            _as_its_input(node)
    return _modern(result)


def _modern(model: Any) -> Any:
    """The model in an opset whose operators tell their shapes, where ONNX can convert it; many of old ones don't.

    One with a Scan is left as it is: ONNX takes the batch of opset 8 away from its inputs.
    """
    import onnx

    if onnx_graph.opset(model) >= FIRST_OPSET_WITH_SHAPES or any(node.op_type == "Scan" for node in model.graph.node):
        return model
    model.ir_version = onnx.IR_VERSION
    try:
        return onnx.version_converter.convert_version(model, FIRST_OPSET_WITH_SHAPES)
    except Exception:  # RuntimeError of C++ or a ValueError, for operators of other domains among others
        return model


def value_info(name: str, tensor: Tensor) -> Any:
    """A ValueInfoProto; a size that is not known is left open."""
    import onnx

    return onnx.helper.make_tensor_value_info(name, tensor.number, tensor.dims)


def infer(model: Any, *, fold: bool = False) -> Inferred:
    """What follows of a model's inputs and constants; with `fold` also where shapes are computed from shapes."""
    inferred = _infer_shapes(model)
    values = _values(inferred)
    numbers: dict[str, int] = {}
    for value in values:  # an output that is an input as well has its name alone
        numbers[value.name] = value.type.tensor_type.elem_type or numbers.get(value.name, 0)
    shapes = _static_shapes(values)
    constants = _constants(model.graph)
    if fold or len(shapes) < len(numbers):
        more_shapes, more_constants = _folded(model, shapes)
        shapes, constants = shapes | more_shapes, constants | more_constants
    return Inferred({name: dtype_name(number) for name, number in numbers.items()}, numbers, shapes, constants)


def contradiction(model: Any) -> str | None:
    """Why a node of a skeleton cannot run with the shapes and types that it gets, as ONNX says it."""
    import onnx

    try:
        onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    except onnx.shape_inference.InferenceError as error:
        said = _OF_NODE.sub("", str(error))
        return in_one_line(ValueError(said)) if _CONTRADICTS.search(said) else None
    return None


def _opsets(model: Any, graph: Any) -> list[Any]:
    """The opsets that a file names, and one of each domain that it forgot; ONNX infers nothing without.

    A file that names none at all is of opset 1 where it is older than that field, else of the newest.
    """
    import onnx

    named = {("" if item.domain == "ai.onnx" else item.domain): item.version for item in model.opset_import}
    newest = onnx.defs.onnx_opset_version()
    named.setdefault("", 1 if model.ir_version < FIRST_IR_WITH_OPSETS else newest)
    named[""] = min(named[""], newest)
    for domain in _domains(graph):
        named.setdefault(domain, 1)
    return [onnx.helper.make_opsetid(domain, version) for domain, version in named.items()]


def _domains(graph: Any) -> set[str]:
    """The domains of a graph's operators, other than the standard one."""
    domains = {node.domain for node in graph.node} - set(STANDARD_DOMAINS)
    attributes = [attribute for node in graph.node for attribute in node.attribute]
    return domains.union(*(_domains(body) for attribute in attributes for body in (attribute.g, *attribute.graphs)))


def _infer_shapes(model: Any) -> Any:
    """The model with what ONNX infers; as it is where a contradiction in it lets ONNX infer nothing."""
    import onnx

    with contextlib.suppress(onnx.shape_inference.InferenceError):
        return onnx.shape_inference.infer_shapes(model, data_prop=True)
    return model


def _values(model: Any) -> list[Any]:
    return [*model.graph.input, *model.graph.output, *model.graph.value_info]


def _static_shapes(values: Sequence[Any]) -> dict[str, tuple[int, ...]]:
    """The shapes in which every dimension has a size.

    ONNX subtracts a window from an input that is smaller, and goes on with what is below 0: that is no size.
    """
    tensors = {value.name: value.type.tensor_type for value in values}
    return {
        name: tuple(dim.dim_value for dim in tensor.shape.dim)
        for name, tensor in tensors.items()
        if tensor.HasField("shape") and all(d.HasField("dim_value") and d.dim_value >= 0 for d in tensor.shape.dim)
    }


def _constants(graph: Any) -> dict[str, Any]:
    """The small constants of a graph by name."""
    stored = {node.output[0]: held for node in graph.node if (held := onnx_graph.constant(node))}
    return {weight.name: weight for weight in graph.initializer} | stored


def _folded(
    model: Any, known_shapes: Mapping[str, tuple[int, ...]]
) -> tuple[dict[str, tuple[int, ...]], dict[str, Any]]:
    """The shapes that follow once what is computed from shapes is folded, which inference by itself gives up on.

    `Shape` of a known shape is replaced first: onnx propagates it as a whole where it has a start or an end.
    """
    import numpy as np
    import onnx
    from polygraphy.backend.onnx import fold_constants

    shape_nodes = [node for node in model.graph.node if node.op_type == "Shape" and node.input[0] in known_shapes]
    for node in shape_nodes:
        ends = integers(node)
        sizes = np.array(known_shapes[node.input[0]][ends.get("start", 0) : ends.get("end")], np.int64)
        model.graph.initializer.append(onnx.numpy_helper.from_array(sizes, node.output[0]))
        model.graph.node.remove(node)
    made = {name for node in model.graph.node for name in node.output}
    asked = {node.input[0] for node in model.graph.node if node.op_type == "If"} & made  # folding an If loses it
    asked -= {value.name for value in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in sorted(asked))
    try:
        with _without_warnings():
            folded = fold_constants(
                model,
                num_passes=2,
                size_threshold=FOLDED_BYTES,
                error_ok=True,
                allow_onnxruntime_shape_inference=False,  # it leaves files in the working directory
            )
    except Exception:  # graphs of types or attributes that onnx-graphsurgeon doesn't know; they have no common base
        return {}, {}
    inferred = _infer_shapes(folded)
    constants = {weight.name: weight for weight in inferred.graph.initializer}
    shapes = _static_shapes(_values(inferred))
    return shapes | {name: tuple(weight.dims) for name, weight in constants.items()}, constants


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


def _as_on_one_gpu(node: Any, opset: int) -> None:
    """Turn a collective between GPUs into a standard operator whose result has its type and shape on one of them."""
    import onnx

    operation, ranks = collective_of(node)
    node.domain = ""
    del node.attribute[:]
    if operation in ("all_gather", "gather"):
        node.op_type = "Concat"
        node.input.extend([node.input[0]] * (ranks - 1))
        node.attribute.append(onnx.helper.make_attribute("axis", 0))
    elif operation in ("reduce_scatter", "scatter"):
        node.op_type = "Split"
        node.output.extend(f"{node.output[0]} of another rank {rank}" for rank in range(1, ranks))
        if opset >= contrib.FIRST_OPSET_WITH_PARTS:
            node.attribute.append(onnx.helper.make_attribute("num_outputs", ranks))
    else:
        node.op_type = "Identity"


def _as_standard(node: Any) -> None:
    """Turn TensorRT's own quantizers into standard operators of the same shapes and, behind dequantizers, types."""
    import onnx

    if node.domain in STANDARD_DOMAINS or node.op_type not in QUANTIZERS.keys() | DEQUANTIZERS:
        return
    target = integers(node).get("output_dtype", onnx.TensorProto.FLOAT)
    quantizes = node.op_type in QUANTIZERS
    del node.input[1:], node.output[1:], node.attribute[:]
    node.domain = ""
    node.op_type = "Identity" if quantizes else "Cast"
    if not quantizes:
        node.attribute.append(onnx.helper.make_attribute("to", target))


def _as_its_input(node: Any) -> None:
    """Turn an operator of LIKE_INPUT into an Identity."""
    if node.domain in STANDARD_DOMAINS and node.op_type in LIKE_INPUT:
        node.domain, node.op_type = "", "Identity"
        del node.input[1:], node.output[1:], node.attribute[:]
