"""2:4 sparse weights in FP16, INT8, FP8 and NVFP4: of each four weights along the reduction, the two largest stay.

The runtime must be told to use them (TensorRT's SPARSE_WEIGHTS). Nothing is retrained, so that this shows speed; with
real weights the accuracy says whether fine-tuning is needed. That every four still holds in the graph that was
written, behind calibration and rounding, is counted there.
"""

from __future__ import annotations

import dataclasses
import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from inferprof.allowed import YES_NO
from inferprof.errors import CaseFailed
from inferprof.model import onnx_file, onnx_reader, sparsity, typed_graph
from inferprof.plugins import ConvertRequest, Precision, Tolerance
from inferprof.precisions import blockwise, conversion, nvfp4, results
from inferprof.precisions.fp8 import FP8
from inferprof.precisions.fp16 import FP16
from inferprof.precisions.int8 import INT8

PAIR = 2
"""NVFP4 keeps or drops two neighbours together, as the 4-bit sparse instruction wants it (PTX ISA, mma.sp)."""


def convert(request: ConvertRequest, dense: Precision) -> dict[str, Any]:
    """Write the pruned graph in a format. Weights whose reduction is no multiple of 4 stay dense and are listed."""
    model = onnx_reader.read(request.onnx, external=True)
    names, left = prune(model)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "sparse.onnx")
        onnx_file.save(model, source)
        inner = dataclasses.replace(request, onnx=source)
        facts = dense.convert(inner)
        added = results.quantize(inner) if request.options.get("results") else 0
    extra = {"results_quantized": added} if dense.quantized else {}
    return _facts(request, facts, pruned=len(names), left_dense=left, **extra)


def blocks(request: ConvertRequest) -> dict[str, Any]:
    """Write the torch model, pruned in pairs, in NVFP4."""
    left: list[str] = []
    facts = blockwise.convert(request, kind=nvfp4.FORMAT, prepare=functools.partial(prune_torch, left=left))
    return _facts(request, facts, left_dense=left)


def _facts(request: ConvertRequest, facts: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The facts of a conversion with what the written graph has. Raises CaseFailed where a four has no two zeros."""
    graph = typed_graph.analyse(onnx_reader.read(request.out, external=True), {})
    rows = sparsity.products(graph)
    if broken := [row["name"] for row in rows if row["broken"]]:
        raise CaseFailed(f"not 2:4 any more behind {facts['method']}: {', '.join(broken)}")
    proof = {"products": len(rows), "fours": sum(row["fours"] for row in rows), "broken": 0}
    return {**facts, "method": f"2:4 pruning by magnitude, then {facts['method']}", "proof": proof, **more}


def prune(model: Any) -> tuple[list[str], list[str]]:
    """Prune the weights of an onnx.ModelProto in place; returns the names of the pruned and of the dense ones."""
    import onnx

    weights = {weight.name: weight for weight in model.graph.initializer}
    pruned: list[str] = []
    dense: list[str] = []
    for node in model.graph.node:
        weight = weights.get(node.input[1]) if node.op_type in sparsity.PRUNABLE else None
        if weight is None or weight.name in (*pruned, *dense):
            continue
        array, axis = onnx.numpy_helper.to_array(weight), sparsity.reduction_axis(node)
        if array.ndim not in (2, 4) or array.shape[axis] % sparsity.GROUP:
            dense.append(weight.name)
            continue
        weight.CopyFrom(onnx.numpy_helper.from_array(sparsity.pruned(array, axis), weight.name))
        pruned.append(weight.name)
    return pruned, dense


def prune_torch(model: Any, left: list[str]) -> None:
    """Prune the linear layers of a torch model in place, in pairs; `left` takes the names of those left dense."""
    import torch

    for name, layer in model.named_modules():
        if not isinstance(layer, torch.nn.Linear):
            continue
        if layer.in_features % sparsity.GROUP:
            left.append(name)
            continue
        array = layer.weight.detach().cpu().numpy()
        layer.weight.data = torch.from_numpy(sparsity.pruned(array, 1, PAIR)).to(layer.weight)


REASON = (
    "2:4 pruning takes 13 % of the energy of normally distributed weights, 9 dB a layer; with that and no fine-"
    "tuning only the speed is of use"
)
RESULTS = {"results": True}
"""Whether each pruned product's result is quantized too: TensorRT has sparse 8-bit kernels with 8-bit results alone,
as far as is known (TensorRT issue 4694, Model-Optimizer issue 1664)."""
ALLOWS = {"results": YES_NO}


def _sparse(
    dense: Precision, convert: Callable[[ConvertRequest], dict[str, Any]], order: int, colour: str | None, **more: Any
) -> Precision:
    """A format with sparse weights: the dense one with another name, tolerance and maker."""
    passes = min(dense.tolerance.passes, 20.0)
    return dataclasses.replace(
        dense,
        name=f"{dense.name}_sparse",
        title=f"{dense.title}, 2:4 sparse",
        made_by=f"2:4 pruning by magnitude, then {dense.made_by.removeprefix('ModelOpt ')}",
        convert=convert,
        tolerance=Tolerance(passes=passes, warns=passes / 2, reason=REASON),
        plain=False,
        by_node=False,
        blocks=None,
        colour=colour,
        order=order,
        least_share=None,
        **more,
    )


SM80 = {"needs_compute_capability": (8, 0)}
"""The first tensor cores with sparse instructions."""
FP16_SPARSE = _sparse(FP16, functools.partial(convert, dense=FP16), 30, None, **SM80)
INT8_SPARSE = _sparse(
    INT8,
    functools.partial(convert, dense=INT8),
    52,
    "#8A5F00",
    options={**INT8.options, **RESULTS},
    allows={**INT8.allows, **ALLOWS},
    **SM80,
)
FP8_SPARSE = _sparse(
    FP8,
    functools.partial(convert, dense=FP8),
    62,
    "#005F46",
    options={**FP8.options, **RESULTS},
    allows={**FP8.allows, **ALLOWS},
)
NVFP4_SPARSE = _sparse(
    nvfp4.NVFP4,
    blocks,
    82,
    "#7D4A67",
    source="torch",
    options={"samples": 32},
    allows=conversion.SAMPLES,
)
