"""Number formats: one module per format, each with the Precision constants that `registry` finds."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from inferprof import progress, registry
from inferprof.errors import UserError
from inferprof.model import onnx_reader
from inferprof.model.model_spec import ModelSpec
from inferprof.plugins import ConvertRequest, Precision

STEPS = ("read samples", "convert", "write the file")
"""What a conversion says of itself, as far as it takes them."""


def unconvertible(spec: ModelSpec, precision: Precision) -> str | None:
    """Why a model has no ONNX file in a number format, or None."""
    if precision.name in spec.ready_made or spec.from_torch:
        return None
    if spec.onnx_path and "python" not in spec.options and (reason := quantized_already(spec.onnx_path)):
        return reason
    if precision.source != "torch":
        return None
    return (
        f"{precision.name} is made from a torch model and {spec.name} is an ONNX file; describe the torch source in "
        f"{spec.path.with_suffix('.yaml').name}, or give a ready-made file there "
        f"(variants: {{{precision.name}: FILE.onnx}})"
    )


def quantized_already(onnx: Path) -> str | None:
    """Why nothing can be made of an ONNX file that is quantized already, or None."""
    try:
        nodes = onnx_reader.quantized_nodes_of(onnx)
    except UserError:  # whoever needs the file will say it
        return None
    return onnx_reader.no_baseline(onnx, nodes) if nodes else None


def convert(precision: Precision, request: ConvertRequest) -> dict[str, Any]:
    """Write the model in a number format to `request.out`; the content of .convert.json.

    A ready-made file of the user's is taken as it is, never quantized again. Raises UserError where a format is made
    from the torch model and there is only an ONNX file, and for a graph that is quantized already.
    """
    spec = request.spec
    if precision.name in spec.ready_made:
        return _take_ready_made(spec.ready_made[precision.name], request)
    if reason := unconvertible(spec, precision) or quantized_already(request.onnx):
        raise UserError(reason)
    registry.check_precision(precision, request.options)
    filled = dataclasses.replace(request, options={**precision.options, **request.options})
    with progress.task(f"Quantize {spec.name} to {precision.name}", STEPS):
        return {"options": filled.options, **precision.convert(filled)}


def _take_ready_made(path: Any, request: ConvertRequest) -> dict[str, Any]:
    """Copy the user's own quantized file, with its weights inside. Raises UserError where it isn't a valid graph."""
    from inferprof import files
    from inferprof.model import onnx_file

    onnx_file.save(onnx_file.checked(path, request.spec), request.out)
    return {"method": f"ready-made file {path.name}, untouched", "sha256": files.sha256(path), "not_reproducible": []}
