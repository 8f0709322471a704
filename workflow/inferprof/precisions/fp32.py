"""Single precision: the exported graph itself."""

from __future__ import annotations

from typing import Any

from inferprof.errors import UserError
from inferprof.model import onnx_file, onnx_reader
from inferprof.plugins import ConvertRequest, Precision, Tolerance


def convert(request: ConvertRequest) -> dict[str, Any]:
    """Copy the graph, having made sure that its weights are not of a lower precision; raises UserError otherwise."""
    import onnx

    model = onnx_reader.read(request.onnx, external=True)
    names = {number: name for name, number in onnx.TensorProto.DataType.items()}
    low = sorted({names[weight.data_type] for weight in model.graph.initializer} & LOW_PRECISION)
    if low:
        raise UserError(
            f"{request.onnx} holds {', '.join(low)} weights, so it is not the fp32 graph of {request.spec.name}; "
            "name it under variants: by its own precision"
        )
    onnx_file.save(model, request.out)
    return {"method": "the exported graph, unchanged", "not_reproducible": []}


LOW_PRECISION = {"FLOAT16", "BFLOAT16", "FLOAT8E4M3FN", "FLOAT8E5M2", "FLOAT8E8M0", "FLOAT4E2M1", "INT4", "UINT4"}

FP32 = Precision(
    name="fp32",
    title="FP32 (TF32 off)",
    source="onnx",
    made_by="the export, unchanged",
    convert=convert,
    tolerance=Tolerance(
        passes=100.0,
        warns=80.0,
        reason="24 significant bits: 150 dB for one rounding; only the order of sums differs",
    ),
    storage="float32",
    computes="fp32",
    roof="fp32",
    colour="#7F7F7F",
    order=10,
)
