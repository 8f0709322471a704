"""A quantized torch model as an ONNX graph, by ModelOpt's exporter, with the interface of the fp32 graph."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from inferprof.model import onnx_graph
from inferprof.plugins import ConvertRequest, Feeds

if TYPE_CHECKING:
    import onnx
    import torch

INNER = "model"
"""The attribute that holds the wrapped model, hence a part of the exporter's node names."""

DYNAMIC_QUANTIZERS = ("TRT_MXFP8DynamicQuantize", "TRT_FP4DynamicQuantize")


def half_inside(model: torch.nn.Module, names: Sequence[str]) -> torch.nn.Module:
    """`model` in FP16 behind inputs and outputs in their own types; `forward` takes `names`, as ModelOpt wants it."""
    import torch

    class HalfInside(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.add_module(INNER, model)

        def forward(self, *inputs: torch.Tensor) -> Any:
            result = getattr(self, INNER)(*(x.half() if x.is_floating_point() else x for x in inputs))
            return tuple(x.float() for x in result) if isinstance(result, tuple) else result.float()

    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ("self", *names)]
    HalfInside.forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    amax = {name: value.clone() for name, value in model.named_buffers() if name.endswith("_amax")}
    wrapped = HalfInside().half().eval()
    for name, value in amax.items():  # the range of a tensor is a float32 scale in the graph
        getattr(wrapped, INNER).get_buffer(name).data = value
    return wrapped


def write(model: torch.nn.Module, request: ConvertRequest, batch: Feeds, opset: int) -> onnx.ModelProto:
    """The ONNX graph of a quantized model."""
    import onnx
    import torch
    from modelopt.torch._deploy.utils.torch_onnx import OnnxBytes, get_onnx_bytes_and_metadata

    device = next(model.parameters()).device
    inputs = tuple(torch.from_numpy(array).to(device) for array in batch.values())
    axes = {
        item.name: {axis: dim for axis, dim in enumerate(item.dims) if isinstance(dim, str)}
        for item in request.spec.inputs
    }
    content, _ = get_onnx_bytes_and_metadata(
        model,
        inputs,
        model_name=request.spec.name,
        dynamic_axes=axes,
        onnx_opset=opset,
        weights_dtype="fp32",  # what is to be half is half already
    )
    files = OnnxBytes.from_bytes(content).onnx_model
    graph = onnx.load_from_string(files[f"{request.spec.name}.onnx"])
    _fix_widths(graph, layer_inputs(model, inputs))
    _dequantize_to_half(graph)
    _take_interface(graph, onnx.load(request.onnx, load_external_data=False))
    return graph


def layer_inputs(model: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> dict[str, tuple[int, ...]]:
    """Name of a linear layer → the shape of its input when the model is called with `inputs`."""
    import torch

    shapes: dict[str, tuple[int, ...]] = {}
    hooks = [
        layer.register_forward_pre_hook(lambda _, given, name=name: shapes.update({name: tuple(given[0].shape)}))
        for name, layer in model.named_modules()
        if isinstance(layer, torch.nn.Linear)
    ]
    with torch.inference_mode():
        model(*inputs)
    for hook in hooks:
        hook.remove()
    return shapes


def _fix_widths(model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Tell the width of a layer's input where the exporter lost it: a block's axis must be known at build time.

    torch traces `reshape(*shape, -1)` with the -1 in it. A Reshape to (0, …, width) in front of the quantizer keeps
    every other dimension and moves no data.
    """
    import numpy as np
    import onnx

    dims = {value.name: value.type.tensor_type.shape.dim for value in model.graph.value_info}
    nodes = []
    for node in model.graph.node:
        if node.op_type in DYNAMIC_QUANTIZERS and not (dims[node.input[0]] and dims[node.input[0]][-1].dim_value):
            *others, width = shapes[_layer_of(node.name, shapes)]
            shape = np.array([0] * len(others) + [width], np.int64)
            model.graph.initializer.append(onnx.numpy_helper.from_array(shape, f"{node.name}/shape"))
            reshape = [node.input[0], f"{node.name}/shape"], [f"{node.name}/input"]
            nodes.append(onnx.helper.make_node("Reshape", *reshape, name=f"{node.name}/Reshape"))
            node.input[0] = f"{node.name}/input"
        nodes.append(node)
    onnx_graph.replace_nodes(model, nodes)


def _layer_of(node: str, layers: Collection[str]) -> str:
    """`/model/encoder/fc1/quantizer/Op` → `model.encoder.fc1`, the layer whose input a quantizer takes.

    A module that calls another one in a Sequential stands twice in the exporter's scopes: `/layers/layers.0/fc1`.
    """
    scopes = node.removeprefix("/").split("/")[:-2]
    if (name := ".".join(scopes)) in layers:
        return name
    kept = [scope for scope, inner in itertools.pairwise([*scopes, ""]) if not inner.startswith(f"{scope}.")]
    return ".".join(kept)


def _dequantize_to_half(model: onnx.ModelProto) -> None:
    """Cast what 4-bit blocks are dequantized to, which is float32 like their scales, to half.

    ModelOpt puts Casts on one of a product's two inputs and drops the other, since the traced type is half already.
    (TensorRT-RTX 1.7 parses DequantizeLinear's `output_dtype`, which would say the same, but cannot build it.)
    """
    import onnx

    casts: dict[str, str] = {}
    nodes = []
    for node in model.graph.node:
        if node.op_type == "Cast" and node.input[0] in casts:
            casts[node.output[0]] = node.input[0]
            continue
        node.input[:] = [casts.get(name, name) for name in node.input]
        nodes.append(node)
        if node.op_type == "DequantizeLinear" and any(a.name == "block_size" for a in node.attribute):
            name = node.output[0]
            casts[name] = name
            node.output[0] = f"{name}/dequantized"
            half = onnx.TensorProto.FLOAT16
            nodes.append(onnx.helper.make_node("Cast", [f"{name}/dequantized"], [name], f"{node.name}/Cast", to=half))
    onnx_graph.replace_nodes(model, nodes)


def _take_interface(model: onnx.ModelProto, fp32: onnx.ModelProto) -> None:
    """Give the graph the inputs and outputs of the fp32 graph, and each node a name of its own like there.

    ModelOpt also declares each packed weight as an input, which would let a caller replace it.
    """
    graph = model.graph
    renamed = {old.name: new.name for old, new in zip(graph.output, fp32.graph.output, strict=True)}
    used: set[str] = set()
    for node in graph.node:
        wanted = node.name.replace(f"/{INNER}", "") or f"/{node.op_type}"
        candidates = itertools.chain([wanted], (f"{wanted}_{number}" for number in itertools.count(1)))
        node.name = next(name for name in candidates if name not in used)
        used.add(node.name)
        node.input[:] = [renamed.get(name, name) for name in node.input]
        node.output[:] = [renamed.get(name, name) for name in node.output]
    del graph.input[:], graph.output[:], graph.value_info[:]
    graph.input.extend(fp32.graph.input)
    graph.output.extend(fp32.graph.output)
    _cast_outputs(graph)


def _cast_outputs(graph: onnx.GraphProto) -> None:
    """End in a Cast to the type of each output, as `half_inside` does: behind a product ModelOpt drops it."""
    import onnx

    for output in graph.output:
        producer = next(node for node in graph.node if output.name in node.output)
        if producer.op_type == "Cast":
            continue
        inner = f"{output.name}/half"
        for node in graph.node:
            node.input[:] = [inner if name == output.name else name for name in node.input]
            node.output[:] = [inner if name == output.name else name for name in node.output]
        to = output.type.tensor_type.elem_type
        graph.node.append(onnx.helper.make_node("Cast", [inner], [output.name], f"/{output.name}/Cast", to=to))
