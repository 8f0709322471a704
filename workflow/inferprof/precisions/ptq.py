"""Post-training quantization of an ONNX graph by ModelOpt: Q/DQ nodes with scales from calibration data."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from inferprof import progress
from inferprof.allowed import Allowed, one_of
from inferprof.model import onnx_graph
from inferprof.plugins import ConvertRequest, Feeds
from inferprof.precisions import conversion, outliers


def _are_patterns(given: Any) -> bool:
    try:
        return isinstance(given, list) and all(re.compile(pattern) for pattern in given)
    except (re.error, TypeError):
        return False


AROUND: Final[Mapping[str, Allowed]] = {
    "high_precision": one_of("fp32", "fp16", "bf16"),
    "exclude": Allowed(_are_patterns, "a list of regular expressions of node names"),
}
"""What the rest of the graph computes in, and which nodes belong to it."""
ALLOWS: Final[Mapping[str, Allowed]] = {
    "calibration": one_of("entropy", "max"),
    **conversion.SAMPLES,
    **conversion.ATTENTION,
    **AROUND,
}


def convert(request: ConvertRequest, mode: Literal["int8", "fp8"]) -> dict[str, Any]:
    """Write the graph with Q/DQ nodes around what ModelOpt quantizes; the rest is in the option `high_precision`.

    `attention` says whether attention's two products are quantized too; `exclude` lists patterns of node names that
    are not; `outliers` says from which reach on a channel is computed apart.
    """
    import onnx

    calibration, high = (str(request.options[name]) for name in ("calibration", "high_precision"))
    given: Any = request.options["exclude"]
    batches = conversion.calibration(request)
    progress.step("convert")
    with tempfile.TemporaryDirectory() as folder, conversion.modelopt(request.onnx):
        from modelopt.onnx.quantization import quantize

        apart = outliers.apart(request, Path(folder))
        source, target = conversion.prepared(apart.onnx, Path(folder)), Path(folder, "quantized.onnx")
        quantize(
            str(source),
            quantize_mode=mode,
            **calibrated(batches),
            calibration_method=calibration,
            calibration_eps=["cpu"],
            disable_mha_qdq=not request.options["attention"],
            nodes_to_exclude=[*given, f".*{outliers.APART}.*"],
            output_path=str(target),
            high_precision_dtype=high,
            log_level="ERROR",
        )
        quantized = onnx.load(target)
        conversion.save(quantized, request.out)
    nothing = "" if onnx_graph.quantized_nodes(quantized) else ": nothing was quantized"
    return conversion.facts(
        f"ModelOpt ONNX post-training quantization, {mode}, {calibration} calibration, the rest in {high}{nothing}",
        **conversion.calibration_facts(request, batches),
    )


def calibrated(batches: Sequence[Feeds]) -> dict[str, Any]:
    """The calibration data as ModelOpt takes them: joined, or one by one where an input is a scalar."""
    if all(array.ndim for array in batches[0].values()):
        return {"calibration_data": joined(batches), "calibration_shapes": shapes(batches[0])}
    return {"calibration_data_reader": reader(batches)}


def reader(batches: Sequence[Feeds]) -> Any:
    """The calibration data one by one, as ONNX Runtime's quantizers take them."""
    from onnxruntime.quantization.calibrate import CalibrationDataReader

    class OneByOne(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.rewind()

        def rewind(self) -> None:
            self.left = iter(batches)

        def get_next(self) -> Feeds | None:
            return next(self.left, None)

        def get_first(self) -> Feeds:
            return batches[0]

    return OneByOne()


def joined(batches: Sequence[Feeds]) -> dict[str, np.ndarray[Any, Any]]:
    """All batches as one array an input, which ModelOpt splits again by `shapes`."""
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def shapes(batch: Feeds) -> str:
    """One batch's shapes as ModelOpt reads them: `image:8x3x224x224,mask:8x128`."""
    return ",".join(f"{name}:{'x'.join(map(str, array.shape))}" for name, array in batch.items())
