"""FP16 with 2:4 structured sparsity: of each four weights along the reduction, the two largest stay.

The runtime must be told to use it (TensorRT's SPARSE_WEIGHTS). Nothing is retrained, so that this shows speed; with
real weights the accuracy says whether fine-tuning is needed.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from inferprof.model import onnx_file, onnx_graph
from inferprof.plugins import ConvertRequest, Precision, Tolerance
from inferprof.precisions import autocast, conversion

GROUP = 4


def convert(request: ConvertRequest) -> dict[str, Any]:
    """Write the pruned graph in FP16. Weights whose reduction is no multiple of 4 stay dense and are listed."""
    model = onnx_graph.read(request.onnx, external=True)
    pruned, dense = prune(model)
    with tempfile.TemporaryDirectory() as folder:
        sparse = Path(folder, "sparse.onnx")
        onnx_file.save(model, sparse)
        conversion.save(autocast.to_low_precision(request, sparse, "fp16"), request.out)
    return conversion.facts(
        "2:4 pruning by magnitude with ModelOpt's mask, then AutoCast to fp16", pruned=len(pruned), left_dense=dense
    )


def prune(model: Any) -> tuple[list[str], list[str]]:
    """Prune the weights of an onnx.ModelProto in place; returns the names of the pruned and of the dense ones."""
    import onnx

    weights = {weight.name: weight for weight in model.graph.initializer}
    pruned: list[str] = []
    dense: list[str] = []
    for node in model.graph.node:
        weight = weights.get(node.input[1]) if node.op_type in ("MatMul", "Gemm", "Conv") else None
        if weight is None or weight.name in (*pruned, *dense):
            continue
        array = onnx.numpy_helper.to_array(weight)
        flags = [attribute.name for attribute in node.attribute if attribute.i]
        reduction_first = node.op_type == "MatMul" or (node.op_type == "Gemm" and "transB" not in flags)
        if array.ndim not in (2, 4) or array.shape[0 if reduction_first else 1] % GROUP:
            dense.append(weight.name)
            continue
        weight.CopyFrom(onnx.numpy_helper.from_array(_pruned(array, reduction_first), weight.name))
        pruned.append(weight.name)
    return pruned, dense


def _pruned(array: Any, reduction_first: bool) -> Any:
    """The weights with two of each four set to 0. ModelOpt's mask has the reduction as dimension 1."""
    import torch

    rows = array.T if reduction_first else array
    with conversion.quiet_modelopt():
        from modelopt.torch.sparsity.weight_sparsity.magnitude import create_asp_mask

        mask = create_asp_mask(torch.tensor(rows), "2:4 sparsity").numpy()
    kept = rows * mask
    return (kept.T if reduction_first else kept).copy()


FP16_SPARSE = Precision(
    name="fp16_sparse",
    title="FP16, 2:4 sparse",
    source="onnx",
    made_by="2:4 pruning by magnitude, then AutoCast",
    convert=convert,
    tolerance=Tolerance(
        passes=20.0,
        warns=10.0,
        reason="2:4 pruning takes 13 % of the energy of normally distributed weights, 9 dB a layer; with that and "
        "no fine-tuning only the speed is of use",
    ),
    storage="float16",
    computes="fp16",
    roof="fp16",
    order=30,
    options=autocast.OPTIONS,
    needs_compute_capability=(8, 0),
)
