"""A model as a torch module and as an fp32 ONNX file: the same bytes each time, no trace of the machine in them."""

from __future__ import annotations

import ast
import contextlib
import logging
import re
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from inferprof import files, progress
from inferprof.case import BATCH, Shape
from inferprof.device import Where
from inferprof.errors import UserError
from inferprof.machine import hardware
from inferprof.measure import device_lock
from inferprof.model import expected, model_files, onnx_file, onnx_graph, onnx_reader, torch_source, validity
from inferprof.model.model_spec import ModelSpec
from inferprof.model.torch_source import Attention
from inferprof.plugins import Feeds

if TYPE_CHECKING:
    import numpy as np
    import onnx
    import torch

LOGGER = logging.getLogger(__name__)
EXAMPLE_BATCH = 2
"""torch.export takes a dimension of 0 or 1 for a constant, so the example must be larger."""
EXAMPLE_SIZE = 16
IMPORTS = ("torch", "transformers.modeling_utils", "transformers.modeling_layers")
"""What takes long of all that a model needs to be imported."""
_RESULT = "inferprof_result"
"""The output while it is exported: the exporter does not notice where a name is also one of its own values."""


def torch_module(spec: ModelSpec, attention: Attention = "eager") -> torch.nn.Module:
    """The model in eval mode on the CPU, in fp32; it takes its inputs by position, in the order of the YAML.

    It returns one tensor: the field `output` of the model's result (by default the first), or the pooled and
    normalised embedding [b, hidden] where `pooling` is given. `attention` is for the module as it is exported; what
    runs it in torch asks for sdpa. Raises UserError where the model can't be had.
    """
    return torch_source.load(spec, attention).module


def outputs(
    spec: ModelSpec, shape: Shape, feeds: Feeds, where: Where = "cpu"
) -> tuple[dict[str, np.ndarray[Any, Any]], str]:
    """What the torch model gives in fp32, without TF32, and where that is from, as expected.of_graph does."""
    import torch

    torch_source.set_tf32(False)
    module = torch_module(spec).to(where)
    inputs = [torch.from_numpy(feeds[item.name]).to(where) for item in spec.inputs]
    with torch.inference_mode():
        if spec.kv_cache:
            from inferprof.model import causal_lm

            result = causal_lm.expected(module, spec, shape, *inputs)
        else:
            result = module(*inputs)
    on = "the CPU" if where == "cpu" else f"{torch.cuda.get_device_name()} without TF32"
    return {output_name(spec): result.cpu().numpy()}, f"torch in fp32 on {on}"


def expect(graph: Path, spec: ModelSpec, shape: Shape, feeds: Feeds, out: Path) -> None:
    """expected.write of a graph; of the torch model where the model is not exported, on a GPU where there is one."""
    compute = partial(expected.of_graph, graph) if spec.exported else partial(_outputs_sooner, spec, shape)
    expected.write(compute, feeds, out)


def _outputs_sooner(spec: ModelSpec, shape: Shape, feeds: Feeds) -> tuple[dict[str, np.ndarray[Any, Any]], str]:
    """`outputs` on the GPU, where a large model takes seconds instead of minutes; on the CPU where that fails."""
    import torch

    gpu = hardware.detect_gpu()
    if gpu and torch.cuda.is_available():
        with device_lock.hold([gpu], f"expect {spec.name}", shared=True):
            try:
                return outputs(spec, shape, feeds, "cuda")
            except RuntimeError as error:  # out of memory, or a model that makes tensors on the CPU
                LOGGER.warning("computed on the CPU instead: %s", error)
    return outputs(spec, shape, feeds)


def export(spec: ModelSpec, out: Path) -> dict[str, Any]:
    """Write the fp32 ONNX file, weights inside, and return the facts of it for the report.

    A model of source `onnx` is the user's file, validated. Raises UserError for what the user can put right.
    """
    if spec.kv_cache:
        raise UserError(f"model {spec.name} has kv_cache: true: it runs in torch, and there is no ONNX file of it")
    with progress.task(f"Export {spec.name}", ("load the model", "trace its graph", "write the file")):
        progress.step("load the model")
        if not spec.from_torch:
            model, facts = _from_file(spec)
        else:
            source = torch_source.load(spec, "eager")
            progress.step("trace its graph")
            model, facts = to_onnx(source.module, spec), dict(source.facts)
        progress.step("write the file")
        onnx_file.save(model, out)
        own = {"made_from": model_files.digests(spec), "sha256": files.sha256(out), "bytes": out.stat().st_size}
        return facts | onnx_file.describe(model) | own


def _from_file(spec: ModelSpec) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """The file of source `onnx`, checked against `sha256` and edited by the function `python`, and its origin."""
    assert spec.onnx_path is not None
    expected = spec.options.get("sha256")
    if expected and (digest := files.sha256(spec.onnx_path)) != expected:
        raise UserError(
            f"model {spec.name}: {spec.onnx_path.name} has SHA-256 {digest}, but {spec.path} asks for {expected}"
        )
    edit = torch_source.user_function(spec) if "python" in spec.options else None
    origin = f"file {spec.onnx_path.name}"
    if "package" in spec.options:
        origin += f" of package {spec.options['package']}"
    if edit:
        origin += f", edited by {spec.options['python']}"
    model = onnx_file.checked(spec.onnx_path, spec, edit)
    if nodes := onnx_graph.quantized_nodes(model):
        raise UserError(onnx_reader.no_baseline(spec.onnx_path, nodes))
    return model, {"origin": origin}


def to_onnx(module: torch.nn.Module, spec: ModelSpec) -> onnx.ModelProto:
    """The ONNX graph of a module of `torch_module`, its nodes named after the submodules that they came from."""
    import torch

    weights = sum(item.numel() * item.element_size() for item in module.state_dict().values())
    if weights > validity.MAX_BYTES:
        raise UserError(
            f"model {spec.name} has {weights} bytes of weights; an ONNX file with its weights inside ends at "
            f"{validity.MAX_BYTES}: measure it in torch alone, or export it by hand"
        )
    try:
        with quiet():
            program = torch.onnx.export(
                module,
                _example(spec),
                dynamo=True,
                opset_version=spec.opset,
                input_names=[item.name for item in spec.inputs],
                output_names=[_RESULT],
                dynamic_shapes=(_dynamic_shapes(spec),),
                verbose=False,
            )
    except torch.onnx.errors.OnnxExporterError as error:
        raise UserError(f"model {spec.name} cannot be exported to ONNX: {_cause(error)}") from error
    model = program.model_proto
    if onnx_graph.opset(model) != spec.opset:  # where it can't convert a graph, the exporter returns it as it is
        raise UserError(
            f"model {spec.name} cannot be exported with opset {spec.opset}, only with {onnx_graph.opset(model)} or "
            f"more; change opset: in {spec.path}"
        )
    _name_nodes(model)
    _name_output(model, output_name(spec))
    onnx_file.strip(model)
    return model


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence what torch's exporter says and no user can act upon: deprecations of its own, optional packages."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def output_name(spec: ModelSpec) -> str:
    """What the ONNX output is called."""
    return "embedding" if "pooling" in spec.options else str(spec.options.get("output", "output"))


def _example(spec: ModelSpec) -> tuple[torch.Tensor, ...]:
    """Inputs to trace with. Ones are valid token ids, masks and pixels alike; no size but the fixed ones is kept."""
    import torch

    sizes = {symbol: max(2, spec.sizes.get(symbol, EXAMPLE_SIZE)) for symbol in spec.symbols}
    sizes = {symbol: min(size, spec.max_sizes.get(symbol, size)) for symbol, size in sizes.items()}
    sizes[BATCH] = EXAMPLE_BATCH
    return tuple(
        torch.ones([sizes[d] if isinstance(d, str) else d for d in item.dims], dtype=getattr(torch, item.dtype))
        for item in spec.inputs
    )


def _dynamic_shapes(spec: ModelSpec) -> tuple[dict[int, Any], ...]:
    """Which axes of which input are symbolic, one torch.export.Dim per symbol."""
    import torch

    symbols = {s: torch.export.Dim(s, min=1, max=spec.max_sizes.get(s)) for s in spec.symbols}
    return tuple(
        {axis: symbols[dim] for axis, dim in enumerate(item.dims) if isinstance(dim, str)} for item in spec.inputs
    )


def _name_nodes(model: onnx.ModelProto) -> None:
    """Name each node after its place in the model, `/vit/layers.0/attention/q_proj/MatMul`.

    The exporter's own names (node_linear_2) say nothing to the reader of a profile, and runtimes carry node names
    into theirs.
    """
    used: Counter[str] = Counter()
    for node in model.graph.node:
        scopes = next((item.value for item in node.metadata_props if item.key.endswith("name_scopes")), "[]")
        name = f"{_place(ast.literal_eval(scopes))}/{node.op_type}"
        node.name = f"{name}_{used[name]}" if used[name] else name
        used[name] += 1


def _place(scopes: list[str]) -> str:
    """['', 'model', 'model.vit', 'model.vit.layers.0', 'linear_2'] → '/vit/layers.0'; without the wrapper's."""
    place, parent = "", torch_source.WRAPPED
    for scope in scopes:
        if scope.startswith(f"{parent}."):
            place, parent = f"{place}/{scope.removeprefix(f'{parent}.')}", scope
    return place


def _name_output(model: onnx.ModelProto, name: str) -> None:
    """Give the output its name, and another one to an inner value that has the same."""
    names = {name: f"{name}_inner", _RESULT: name}
    for node in model.graph.node:
        node.input[:] = [names.get(value, value) for value in node.input]
        node.output[:] = [names.get(value, value) for value in node.output]
    for value in [*model.graph.output, *model.graph.value_info]:
        value.name = names.get(value.name, value.name)


def _cause(error: BaseException) -> str:
    """What torch.export says of the cause, in one line, and the line of the model that it was at."""
    cause = error.__cause__ or error
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    if not lines:
        return repr(cause)
    text = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]  # the first may be a mere heading
    return re.sub(r"(?<![\w)./])/\S*/(\S+)", lambda match: PurePosixPath(match.group(1)).name, text) + _line_of_model(
        cause
    )


def _line_of_model(error: BaseException) -> str:
    """` (in forward, net.py line 7)`: the innermost forward that is none of torch's own; empty where none is on the
    stack, as for what is found after tracing."""
    import torch

    torchs = str(Path(torch.__file__).parent)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.name == "forward" and not frame.filename.startswith(torchs)
    ]
    return f" (in forward, {Path(frames[-1].filename).name} line {frames[-1].lineno})" if frames else ""
