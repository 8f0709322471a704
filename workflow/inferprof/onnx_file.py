"""The user's ONNX files: read, checked against the model's description, and written in one piece."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferprof.errors import UserError
from inferprof.files import written_whole
from inferprof.model_spec import InputSpec, ModelSpec

if TYPE_CHECKING:
    import onnx

MAX_BYTES = 2**31 - 1
"""What one protobuf message may hold."""


def checked(path: Path, spec: ModelSpec) -> onnx.ModelProto:
    """Read and validate the user's file, weights inlined, input dimensions named as in the model's description.

    Raises UserError in one line: no such file, truncated, external data missing, no opset, rejected by onnx.checker,
    inputs other than the YAML's.
    """
    import onnx

    model = _read(path)
    opset = max((item.version for item in model.opset_import if item.domain in ("", "ai.onnx")), default=0)
    known = onnx.defs.onnx_opset_version()
    if opset > known:
        raise UserError(f"{path} uses opset {opset}; onnx {onnx.__version__} knows up to {known}: export it with less")
    if not model.opset_import:
        raise UserError(
            f"{path} names no opset (opset_import is empty), so its operators mean nothing; export it again"
        )
    _inline(model, path)
    try:
        onnx.checker.check_model(model)
    except (onnx.checker.ValidationError, ValueError) as error:
        raise UserError(f"{path} is not a valid ONNX model: {' '.join(str(error).split())}") from None
    _match_inputs(model, spec, path)
    strip(model)
    return model


def strip(model: onnx.ModelProto) -> None:
    """Remove every doc string and all metadata: they hold stack traces with paths, and differ between machines."""
    graph = model.graph
    model.ClearField("metadata_props")
    model.ClearField("doc_string")
    bare = [graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer]
    for item in [*bare, *model.functions]:
        item.ClearField("doc_string")
        item.ClearField("metadata_props")


def save(model: onnx.ModelProto, out: Path) -> None:
    """Write one file, the same bytes for the same model."""
    size = model.ByteSize()
    if size > MAX_BYTES:
        raise UserError(
            f"{out.name} would have {size} bytes; an ONNX file with its weights inside ends at {MAX_BYTES}"
        )
    with written_whole(out) as partial:
        partial.write_bytes(model.SerializeToString(deterministic=True))


def describe(model: onnx.ModelProto) -> dict[str, Any]:
    """Opsets, producer, inputs and outputs of a graph, for the report."""
    weights = {item.name for item in model.graph.initializer}
    return {
        "opset": {item.domain or "ai.onnx": item.version for item in model.opset_import},
        "producer": f"{model.producer_name} {model.producer_version}".strip(),
        "nodes": len(model.graph.node),
        "inputs": {item.name: _dims(item) for item in model.graph.input if item.name not in weights},
        "outputs": {item.name: _dims(item) for item in model.graph.output},
    }


def _read(path: Path) -> onnx.ModelProto:
    """Parse the file without its external data."""
    import onnx

    if not path.is_file():
        raise UserError(f"{path}: no such file")
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:  # protobuf's DecodeError, whose module differs between its versions
        raise UserError(
            f"{path} is not a readable ONNX file ({' '.join(str(error).split())}); copy it again"
        ) from None
    if not model.HasField("graph") or not model.graph.node:
        raise UserError(f"{path} is not an ONNX model: it holds no graph with nodes")
    return model


def _inline(model: onnx.ModelProto, path: Path) -> None:
    """Load the weights that lie in other files."""
    import onnx

    external = [item for item in _tensors(model.graph) if onnx.external_data_helper.uses_external_data(item)]
    total = 0
    for tensor in external:
        info = onnx.external_data_helper.ExternalDataInfo(tensor)
        file = path.parent / info.location
        end = (info.offset or 0) + (info.length or 0)
        if not file.is_file() or file.stat().st_size < end:
            state = "is missing" if not file.is_file() else f"has {file.stat().st_size} bytes, not the {end} expected"
            raise UserError(
                f"{path}: external data {info.location} (weights of {tensor.name}) {state}; copy it beside the .onnx"
            )
        total += info.length or 0
    if total > MAX_BYTES:
        raise UserError(f"{path}: {total} bytes of external data; at most {MAX_BYTES} can be inlined")
    try:
        onnx.external_data_helper.load_external_data_for_model(model, str(path.parent))
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        raise UserError(f"{path}: external data: {' '.join(str(error).split())}") from None


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Every tensor of a graph: initializers, constants, and those of its subgraphs."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for subgraph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                yield from _tensors(subgraph)


def _match_inputs(model: onnx.ModelProto, spec: ModelSpec, path: Path) -> None:
    """Check names, types and dimensions against the YAML and give the graph's dimensions the YAML's symbols."""
    weights = {item.name for item in model.graph.initializer}
    graph_inputs = {item.name: item for item in model.graph.input if item.name not in weights}
    if set(graph_inputs) != {item.name for item in spec.inputs}:
        raise UserError(
            f"{spec.path}: inputs {', '.join(item.name for item in spec.inputs)} are not those of {path.name}: "
            f"{', '.join(graph_inputs) or 'none'}"
        )
    renamed: dict[str, str] = {}
    for item in spec.inputs:
        renamed |= _match_input(graph_inputs[item.name], item, spec, path)
    for value in [*model.graph.input, *model.graph.output, *model.graph.value_info]:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in renamed:  # assigning anything to a dimension with a size would erase the size
                dim.dim_param = renamed[dim.dim_param]


def _match_input(value: onnx.ValueInfoProto, item: InputSpec, spec: ModelSpec, path: Path) -> dict[str, str]:
    """Check one input; sets its dimensions and returns the graph's names of them → the YAML's."""
    import onnx

    tensor = value.type.tensor_type
    actual = str(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    if actual != item.dtype:
        raise UserError(f"{spec.path}: input {item.name} is {item.dtype}, but {actual} in {path.name}")
    dims = tensor.shape.dim
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
