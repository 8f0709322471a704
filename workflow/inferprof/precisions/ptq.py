"""Post-training quantization of an ONNX graph by ModelOpt: Q/DQ nodes with scales from calibration data."""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from inferprof import progress
from inferprof.allowed import Allowed, one_of
from inferprof.case import REFERENCE
from inferprof.errors import CaseFailed
from inferprof.model import accuracy, collapse
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


NO_HISTOGRAM = "bins for data range"
"""What NumPy says of a range that it cannot divide."""
POOR_DB = 7.0
"""SQNR under which no quantized format passes, nor warns; and by how much an fp32 rest has to be better."""


def convert(request: ConvertRequest, mode: Literal["int8", "fp8"]) -> dict[str, Any]:
    """Write the graph with Q/DQ nodes around what ModelOpt quantizes; the rest is in the option `high_precision`.

    `attention` says whether attention's two products are quantized too; `exclude` lists patterns of node names that
    are not; `outliers` says from which reach on a channel is computed apart. A rest in half precision that ruins the
    outputs of a calibration batch is left in fp32.
    """
    calibration, high = (str(request.options[name]) for name in ("calibration", "high_precision"))
    batches = conversion.calibration(request)
    quantized = _first_quantized(request, mode, batches, high)
    instead = _rest_in_fp32(request, mode, batches, quantized) if high != REFERENCE else ""
    return conversion.facts(
        f"ModelOpt ONNX post-training quantization, {mode}, {calibration} calibration, the rest in "
        f"{instead or high}{conversion.if_nothing(quantized)}",
        **conversion.calibration_facts(request, batches),
    )


def _first_quantized(request: ConvertRequest, mode: str, batches: Sequence[Feeds], high: str) -> Any:
    """The same; what its calibration makes no histogram of says what to do."""
    try:
        return _quantized(request, mode, batches, high)
    except CaseFailed as error:
        if NO_HISTOGRAM not in str(error):
            raise
        raise CaseFailed(
            f"{error} A tensor of the graph has nearly one value alone, of which {request.options['calibration']} "
            "calibration makes no histogram: set the option calibration: max"
        ) from error


def _quantized(request: ConvertRequest, mode: str, batches: Sequence[Feeds], high: str) -> Any:
    """The graph that ModelOpt makes, written."""
    import onnx

    given: Any = request.options["exclude"]
    progress.step("convert")
    with tempfile.TemporaryDirectory() as folder, conversion.modelopt(request.onnx):
        from modelopt.onnx.quantization import quantize

        apart = outliers.apart(request, Path(folder))
        source, target = conversion.prepared(apart.onnx, Path(folder)), Path(folder, "quantized.onnx")
        plain = _plainly_named(source)
        renamed = [name for name, old in plain.items() if any(re.match(pattern, old) for pattern in given)]
        quantize(
            str(source),
            quantize_mode=mode,
            **calibrated(batches),
            calibration_method=str(request.options["calibration"]),
            calibration_eps=["cpu"],
            disable_mha_qdq=not request.options["attention"],
            nodes_to_exclude=[*given, *renamed, f".*{outliers.APART}.*"],
            output_path=str(target),
            high_precision_dtype=high,
            log_level="ERROR",
        )
        quantized = onnx.load(target)
        for node in quantized.graph.node:
            node.name = plain.get(node.name, node.name)
        outliers.in_high_precision(quantized)
        conversion.save(quantized, request.out)
    return quantized


def _plainly_named(graph: Path) -> dict[str, str]:
    """Rename the nodes of a file whose names, read as regular expressions, don't match themselves or are none:
    ModelOpt takes the names that it excludes itself for patterns. Returns each new name → the node's own.
    """
    import onnx

    model = onnx.load(graph, load_external_data=False)
    taken = {node.name for node in model.graph.node}
    own: dict[str, str] = {}
    for number, node in enumerate(model.graph.node):
        if _matches_itself(node.name):
            continue
        plain = f"{re.sub(r'[^A-Za-z0-9_/]', '_', node.name)}_{number}"
        while plain in taken:
            plain += "_"
        taken.add(plain)
        own[plain], node.name = node.name, plain
    if own:
        onnx.save(model, graph)
    return own


def _matches_itself(name: str) -> bool:
    try:
        return re.fullmatch(name, name) is not None
    except re.error:
        return False


def _rest_in_fp32(request: ConvertRequest, mode: str, batches: Sequence[Feeds], quantized: Any) -> str:
    """`fp32, since …` where the written graph is poor, and one with its rest in fp32, not poor, replaces it; else ''.

    quantized: the written graph, which is there again where '' is returned.

    One batch tells: a half precision that holds the rest is far more exact than what is quantized, and one that does
    not ruins the outputs.
    """
    high = str(request.options["high_precision"])
    half = worst_db(request, batches[0])
    if half is None or half >= POOR_DB:
        return ""
    _quantized(request, mode, batches, REFERENCE)
    plain = worst_db(request, batches[0])
    if plain is None or not plain > half + POOR_DB:
        conversion.save(quantized, request.out)
        return ""
    return f"fp32, since {high} does not hold it: {_db(half)} on a calibration batch, {_db(plain)} with fp32"


def worst_db(request: ConvertRequest, batch: Feeds) -> float | None:
    """SQNR of the worst output of the written graph against the given one; None where it can't be computed here."""
    try:
        actual, expected = (accuracy.run_graph(path, [batch])[0][0] for path in (request.out, request.onnx))
    except accuracy.NotMeasured:
        return None
    if any(collapse.of(expected[name], actual[name]) for name in expected):
        return -math.inf
    ratios = [accuracy.distance(array, actual[name])["sqnr_db"] for name, array in expected.items()]
    return min((ratio for ratio in ratios if ratio is not None), default=math.inf)


def _db(value: float) -> str:
    return f"{value:.1f} dB" if math.isfinite(value) else "no result" if value < 0 else "identical"


def calibrated(batches: Sequence[Feeds]) -> dict[str, Any]:
    """The calibration data as ModelOpt takes them: joined, or one by one where an input is a scalar."""
    if all(array.ndim for array in batches[0].values()):
        return {"calibration_data": accuracy.joined(batches), "calibration_shapes": shapes(batches[0])}
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


def shapes(batch: Feeds) -> str:
    """One batch's shapes as ModelOpt reads them: `image:8x3x224x224,mask:8x128`."""
    return ",".join(f"{name}:{'x'.join(map(str, array.shape))}" for name, array in batch.items())
