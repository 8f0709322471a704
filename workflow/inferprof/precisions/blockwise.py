"""MXFP8 and NVFP4: ModelOpt quantizes the torch model, its linear layers block by block, and writes the ONNX.

The rest of the model is in FP16 before the export, so that no float32 Cast sits between two quantized products.
Graph inputs and outputs stay as they are in the fp32 graph.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from inferprof import progress
from inferprof.model import export, samples
from inferprof.plugins import ConvertRequest, Feeds
from inferprof.precisions import block_graph, block_kernels, conversion, torch_graph
from inferprof.precisions.block_graph import BlockFormat

if TYPE_CHECKING:
    import torch

Prepare = Callable[[Any], None]
"""Changes the torch model in place before it is quantized."""
OPSET = 20
"""ModelOpt's exporter raises it to 23 for NVFP4, the first that has a 4-bit float."""


def convert(request: ConvertRequest, kind: BlockFormat, prepare: Prepare | None = None) -> dict[str, Any]:
    """Write the quantized graph. Layers whose width is no multiple of the block stay in FP16 and are listed.

    A file of the user's, and attention's products, are quantized in the ONNX graph.
    """
    if request.options.get("attention") or not request.spec.from_torch:
        return block_graph.convert(request, kind)
    batches = _calibration(request)
    progress.step("convert")
    with conversion.modelopt(request.onnx):
        model, kernels, left = quantized(request, kind, batches, prepare)
        graph = torch_graph.write(model, request, batches[0], OPSET)
    conversion.save(graph, request.out)
    return conversion.facts(
        f"ModelOpt torch quantization to {kind.name}, blocks of {kind.block_size}, linear layers; the rest in fp16",
        kernels=kernels,
        left_in_fp16=left,
        **conversion.calibration_facts(request, batches),
    )


def _calibration(request: ConvertRequest) -> list[Feeds]:
    """Calibration batches; a single one for MXFP8, which calibrates nothing: all its scales are dynamic."""
    return (
        conversion.calibration(request)
        if "samples" in request.options
        else samples.calibration_feeds(request.spec, 1)
    )


def quantized(
    request: ConvertRequest, kind: BlockFormat, batches: Sequence[Feeds], prepare: Prepare | None = None
) -> tuple[Any, str, list[str]]:
    """The fake-quantized model with FP16 inside, what computes its blocks, and the names of the layers left out."""
    import modelopt.torch.quantization as mtq
    import torch

    model = export.torch_module(request.spec).to("cuda" if torch.cuda.is_available() else "cpu")
    if prepare:
        prepare(model)
    left = unaligned(model, kind.block_size)
    reason = block_kernels.needed(kind.ready_kernel)
    settings = configuration(kind, left, block_kernels.register() if reason else None)

    def calibrate(module: torch.nn.Module) -> None:
        with torch.inference_mode():
            for batch in batches:
                module(*tensors(batch, module))

    mtq.quantize(model, settings, forward_loop=calibrate)
    kernels = f"plain PyTorch ({reason})" if reason else "ModelOpt's CUDA kernels"
    return torch_graph.half_inside(model, [item.name for item in request.spec.inputs]), kernels, left


def configuration(kind: BlockFormat, left: Sequence[str], backend: str | None) -> dict[str, Any]:
    """ModelOpt's own settings of the format, for linear layers only.

    Its presets also quantize the inputs of LayerNorm and convolutions, which no FP4 or MXFP8 kernel consumes.
    """
    import modelopt.torch.quantization as mtq

    preset: dict[str, Any] = copy.deepcopy(getattr(mtq, kind.preset))
    for entry in preset["quant_cfg"]:
        if "cfg" in entry:
            entry["parent_class"] = "nn.Linear"
            entry["cfg"] |= {"trt_high_precision_dtype": "Half"} | ({"backend": backend} if backend else {})
    preset["quant_cfg"] += [{"quantizer_name": f"{name}.*", "enable": False} for name in left]
    return preset


def unaligned(model: torch.nn.Module, block_size: int) -> list[str]:
    """The linear layers whose input width is no multiple of the block: no kernel pads them."""
    import torch

    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and module.in_features % block_size
    ]


def tensors(batch: Feeds, model: torch.nn.Module) -> list[torch.Tensor]:
    """The arrays of a batch, in order, where the model lies."""
    import torch

    device = next(model.parameters()).device
    return [torch.from_numpy(array).to(device) for array in batch.values()]
