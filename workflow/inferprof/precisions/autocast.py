"""Half precisions by ModelOpt's AutoCast: what overflows or loses too much stays in fp32, with Casts around it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Literal

from inferprof import progress
from inferprof.case import REFERENCE
from inferprof.plugins import ConvertRequest
from inferprof.precisions import conversion

OPTIONS = {"samples": 8}


def convert(request: ConvertRequest, low: Literal["fp16", "bf16"]) -> dict[str, Any]:
    """Write the graph in `low`, with inputs and outputs as they were."""
    conversion.save(to_low_precision(request, request.onnx, low), request.out)
    return conversion.facts(f"ModelOpt AutoCast to {low}, graph inputs and outputs kept")


def to_low_precision(request: ConvertRequest, onnx_path: Path, low: Literal["fp16", "bf16"]) -> Any:
    """An onnx.ModelProto of `onnx_path` in `low`; AutoCast sees one batch of real data to find what overflows."""
    import numpy as np

    batch: dict[str, Any] = dict(conversion.calibration(request)[0])
    progress.step("convert")
    with tempfile.TemporaryDirectory() as folder, conversion.modelopt(onnx_path):
        from modelopt.onnx import autocast

        inputs = Path(folder, "inputs.npz")
        np.savez(inputs, **batch)
        return autocast.convert_to_mixed_precision(
            str(conversion.prepared(onnx_path, Path(folder))),
            low_precision_type=low,
            keep_io_types=True,
            calibration_data=str(inputs),
            providers=["cpu"],
        )


def rest(graph: Any, plain: str, onnx_path: Path) -> Any:
    """A quantized graph with all that is not quantized in a plain format; `onnx_path` is what it was made of."""
    if plain == REFERENCE:
        return graph
    with conversion.modelopt(onnx_path):
        from modelopt.onnx.autocast.convert import convert_to_f16

        return convert_to_f16(graph, low_precision_type=plain, keep_io_types=True)
