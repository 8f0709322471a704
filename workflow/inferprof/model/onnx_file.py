"""The user's ONNX files: read, checked against the model's description, and written in one piece."""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferprof.errors import UserError
from inferprof.files import written_whole
from inferprof.model import onnx_graph, onnx_reader, validity
from inferprof.model.inference import FIRST_IR_WITHOUT_LISTED_WEIGHTS
from inferprof.model.model_spec import InputSpec, ModelSpec

if TYPE_CHECKING:
    import onnx

OF_CASTS = "_cast_to_"
"""In the names of tensors behind Casts that ModelOpt's AutoCast adds, behind that of the tensor before."""


def checked(
    path: Path, spec: ModelSpec, edit: Callable[[onnx.ModelProto], onnx.ModelProto] | None = None
) -> onnx.ModelProto:
    """Read and validate the user's file, weights inlined, input dimensions named as in the model's description.

    `edit` changes the graph before it is validated.

    Raises UserError in one line: no such file, truncated, external data missing, no opset, rejected by onnx.checker,
    inputs other than the YAML's.
    """
    import onnx

    model = onnx_reader.read(path)
    opset, newest = onnx_graph.opset(model), onnx.defs.onnx_opset_version()
    if opset > newest:
        raise UserError(f"{path} uses opset {opset}; onnx {onnx.__version__} knows opsets up to {newest}")
    if validity.lacks_opset(model):
        raise UserError(f"{path} names no opset of ONNX's own operators, so they mean nothing; export it again")
    if (size := validity.check_external(model, path)) > validity.MAX_BYTES:
        raise UserError(f"{path}: {size} bytes of external data; at most {validity.MAX_BYTES} can be inlined")
    onnx_reader.load_external(model, path)
    model = edit(model) if edit else model
    if not isinstance(model, onnx.ModelProto):
        gave = f"python: {spec.options['python']} gave a {type(model).__name__}"
        raise UserError(f"model {spec.name}: {gave}, not an onnx.ModelProto; return the edited one")
    model = tidied(model)
    try:
        onnx.checker.check_model(model)
    except (onnx.checker.ValidationError, ValueError) as error:
        raise UserError(f"{path} is not a valid ONNX model: {' '.join(str(error).split())}") from None
    _name_dimensions(model, _match_inputs(onnx_graph.inputs(model), spec, path))
    strip(model)
    return model


def strip(message: Any) -> None:
    """Remove all doc strings and metadata, however deep: they hold stack traces with the paths of this machine."""
    for name in ("doc_string", "metadata_props"):
        if name in message.DESCRIPTOR.fields_by_name:
            message.ClearField(name)
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in value if hasattr(value, "__len__") else [value]:
                strip(inner)


def tidied(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model as converters want it, which computes the same; where it can it is changed in place.

    Its weights are no inputs, as in files from before 2019 (IR 3), nor sparse, and what a Constant holds or an
    Identity renames is a weight as any other: converters look for weights among the initializers alone. Each node has
    a name of its own, that of its output where it had none, and there are no local functions, which they drop. No
    tensor within has a name that AutoCast gives to the Casts that it adds.
    """
    model = onnx_graph.inlined(model)
    for graph in onnx_graph.graphs(model.graph):
        graph.initializer.extend(map(onnx_graph.dense, graph.sparse_initializer))
        graph.ClearField("sparse_initializer")
        _store_weights(graph)
        weights = {item.name for item in graph.initializer}
        values = [value for value in graph.input if value.name not in weights]
        if weights:
            model.ir_version = max(model.ir_version, FIRST_IR_WITHOUT_LISTED_WEIGHTS)
        if len(values) < len(graph.input):
            kept = copy.deepcopy(values)
            del graph.input[:]
            graph.input.extend(kept)
    _name_nodes(list(onnx_graph.all_nodes(model.graph)))
    _free_names_of_casts(model.graph)
    return _with_shapes(model)


def _store_weights(graph: onnx.GraphProto) -> None:
    """Make what Constant nodes hold initializers, and have those that Identity nodes rename read by their own names.

    What the graph gives back stays what a node gives.
    """
    stored = {weight.name for weight in graph.initializer}
    kept = {value.name for value in graph.output}
    renamed: dict[str, str] = {}
    for node in graph.node:
        name, source = node.output[0], renamed.get(node.input[0], node.input[0]) if node.input else ""
        if name in kept:
            continue
        if held := onnx_graph.constant(node):
            graph.initializer.add().CopyFrom(held)
            graph.initializer[-1].name = name
            stored.add(name)
        elif node.op_type == "Identity" and source in stored:
            renamed[name] = source
    for node in onnx_graph.all_nodes(graph):
        node.input[:] = [renamed.get(name, name) for name in node.input]
    made = {weight.name for weight in graph.initializer} | (renamed.keys() - onnx_graph.read_by_any(graph))
    rest = [copy.deepcopy(node) for node in graph.node if node.output[0] not in made]
    if len(rest) < len(graph.node):
        del graph.node[:]
        graph.node.extend(rest)


def _free_names_of_casts(graph: onnx.GraphProto) -> None:
    """Give what is called as a Cast of AutoCast another name: nodes, and tensors of which no caller knows theirs."""
    nodes = list(onnx_graph.all_nodes(graph))
    kept = {value.name for part in onnx_graph.graphs(graph) for value in (*part.input, *part.output)}
    made = {name for node in nodes for name in node.output}
    names = {name: name.replace(OF_CASTS, "_made_") for name in made - kept if OF_CASTS in name}
    names = {name: new for name, new in names.items() if new not in made | kept}
    called = {node.name for node in nodes}
    for node in nodes:
        if OF_CASTS in node.name and (new := node.name.replace(OF_CASTS, "_made_")) not in called:
            node.name = new
    for node in nodes if names else ():
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    for part in onnx_graph.graphs(graph) if names else ():
        for value in part.value_info:
            value.name = names.get(value.name, value.name)


def _name_nodes(nodes: Sequence[onnx.NodeProto]) -> None:
    """Give each node a name of its own."""
    given = {node.name for node in nodes}
    used: set[str] = set()
    for node in nodes:
        wanted = node.name or next(filter(None, node.output))
        numbered = (f"{wanted}_{number}" for number in itertools.count(1))
        free = (name for name in numbered if name not in given | used)
        node.name = wanted if wanted not in (used if node.name else given | used) else next(free)
        used.add(node.name)


def _with_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the shapes of its outputs, which runtimes don't need, but checkers and converters do."""
    import onnx

    if all(value.type.tensor_type.HasField("shape") for value in model.graph.output):
        return model
    with contextlib.suppress(onnx.shape_inference.InferenceError):  # what is wrong then, the checker says
        return onnx.shape_inference.infer_shapes(model)
    return model


def save(model: onnx.ModelProto, out: Path) -> None:
    """Write one file, the same bytes for the same model."""
    size = model.ByteSize()
    if size > validity.MAX_BYTES:
        raise UserError(
            f"{out.name} would have {size} bytes; an ONNX file with its weights inside ends at {validity.MAX_BYTES}"
        )
    with written_whole(out) as partial:
        partial.write_bytes(model.SerializeToString(deterministic=True))


def describe(model: onnx.ModelProto) -> dict[str, Any]:
    """Opsets, producer, inputs and outputs of a graph, for the report."""
    return {
        "opset": {item.domain or "ai.onnx": item.version for item in model.opset_import},
        "producer": f"{model.producer_name} {model.producer_version}".strip(),
        "nodes": len(model.graph.node),
        "inputs": {item.name: _dims(item) for item in onnx_graph.inputs(model)},
        "outputs": {item.name: _dims(item) for item in model.graph.output},
    }


def check_description(spec: ModelSpec, path: Path) -> None:
    """Raises UserError where a model's description has other inputs than its ONNX file.

    A file that cannot be read is left to its export, which fails and says why.
    """
    try:
        values = copy.deepcopy(onnx_graph.inputs(onnx_reader.outline(path)))
    except UserError:
        return
    _match_inputs(values, spec, path)


def _match_inputs(values: Sequence[onnx.ValueInfoProto], spec: ModelSpec, path: Path) -> dict[str, str]:
    """Check names, types and dimensions of inputs against the YAML; sets the dimensions.

    Returns the graph's names of dimensions → the YAML's.
    """
    actual = {item.name: item for item in values}
    if set(actual) != {item.name for item in spec.inputs}:
        raise UserError(
            f"{spec.path}: inputs {', '.join(item.name for item in spec.inputs)} are not those of {path.name}: "
            f"{', '.join(actual) or 'none'}"
        )
    renamed: dict[str, str] = {}
    for item in spec.inputs:
        renamed |= _match_input(actual[item.name], item, spec, path)
    return renamed


def _name_dimensions(model: onnx.ModelProto, renamed: Mapping[str, str]) -> None:
    """Give the graph's dimensions the YAML's symbols."""
    for value in [*model.graph.input, *model.graph.output, *model.graph.value_info]:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in renamed:  # assigning anything to a dimension with a size would erase the size
                dim.dim_param = renamed[dim.dim_param]


def _match_input(value: onnx.ValueInfoProto, item: InputSpec, spec: ModelSpec, path: Path) -> dict[str, str]:
    """Check one input; sets its dimensions and returns the graph's names of them → the YAML's."""
    actual = onnx_graph.dtype(value)
    if actual != item.dtype:
        raise UserError(f"{spec.path}: input {item.name} is {item.dtype}, but {actual} in {path.name}")
    if not value.type.tensor_type.HasField("shape"):  # the file leaves even the rank open
        value.type.tensor_type.shape.SetInParent()
        for _ in item.dims:
            value.type.tensor_type.shape.dim.add()
    dims = onnx_graph.dimensions(value)
    fits = len(dims) == len(item.dims) and all(
        dim.dim_value <= 0 or dim.dim_value == given for dim, given in zip(dims, item.dims, strict=True)
    )
    if not fits:
        raise UserError(
            f"{spec.path}: input {item.name} has dims {list(item.dims)}, but {_dims(value)} in {path.name}"
        )
    renamed = {}
    for dim, given in zip(dims, item.dims, strict=True):
        if isinstance(given, int):
            dim.dim_value = given
        elif dim.dim_param:
            renamed[dim.dim_param] = given
        else:
            dim.dim_param = given
    return renamed


def _dims(value: onnx.ValueInfoProto) -> list[int | str]:
    """The dimensions of an input or output: a size, a name, or ? where the graph gives neither."""
    return [dim.dim_value if dim.dim_value > 0 else dim.dim_param or "?" for dim in value.type.tensor_type.shape.dim]
