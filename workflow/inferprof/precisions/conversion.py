"""What all conversions share: options, calibration data, quiet libraries, and facts for the report."""

from __future__ import annotations

import contextlib
import importlib.metadata
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from inferprof import progress
from inferprof.allowed import YES_NO, Allowed, whole
from inferprof.errors import CaseFailed, failures_of
from inferprof.model import export, onnx_file, onnx_graph, onnx_reader, samples
from inferprof.model.operators import full_name, is_foreign
from inferprof.plugins import ConvertRequest, Feeds

SAMPLES: Final[Mapping[str, Allowed]] = {"samples": whole(1)}
ATTENTION: Final[Mapping[str, Allowed]] = {"attention": YES_NO}


def calibration(request: ConvertRequest) -> list[Feeds]:
    """The calibration batches: as many samples as the option `samples` says. Raises UserError for unusable data."""
    progress.step("read samples")
    return samples.calibration_feeds(request.spec, int(str(request.options["samples"])))


WITHOUT_TENSORRT = "NameError: name 'trt' is not defined"
"""How ModelOpt's AutoCast fails where it looks for an operator among TensorRT's plug-ins and there is no TensorRT."""


@contextlib.contextmanager
def modelopt(onnx_path: Path) -> Iterator[None]:
    """ModelOpt at work: quiet, and what it or what it calls raises is a CaseFailed with the reason.

    With it stands what the graph has that ModelOpt is known to stumble over.
    """
    try:
        with quiet_modelopt(), failures_of("ModelOpt"):
            yield
    except CaseFailed as error:
        reason = str(error).replace(WITHOUT_TENSORRT, "operators of other domains need TensorRT's Python package")
        if peculiar := peculiarities(onnx_path):
            raise CaseFailed(f"{reason} (the graph has {', '.join(peculiar)})") from error
        raise


def peculiarities(onnx_path: Path) -> list[str]:
    """What ModelOpt is known to stumble over: bodies, other domains' operators, scalar inputs. The first of each."""
    model = onnx_reader.read(onnx_path)
    nodes = list(onnx_graph.all_nodes(model.graph))
    bodies = [f"bodies in node {node.name or node.output[0]} ({node.op_type})" for node in nodes if has_bodies(node)]
    foreign = [f"node {node.name or node.output[0]} ({full_name(node)})" for node in nodes if is_foreign(node)]
    scalars = [f"a scalar input {v.name}" for v in onnx_graph.inputs(model) if not onnx_graph.dimensions(v)]
    return [*bodies[:1], *foreign[:1], *scalars[:1]]


def has_bodies(node: Any) -> bool:
    """Whether a node has graphs inside."""
    return any(onnx_graph.bodies(attribute) for attribute in node.attribute)


def prepared(onnx_path: Path, folder: Path) -> Path:
    """The graph, tidied, in a file in `folder`: converters leave files beside their input."""
    source = folder / "fp32.onnx"
    onnx_file.save(onnx_file.tidied(onnx_reader.read(onnx_path, external=True)), source)
    return source


@contextlib.contextmanager
def quiet_modelopt() -> Iterator[None]:
    """Keep what ModelOpt and what it calls print, progress and deprecations, to itself, and its errors on stderr.

    The warnings are about ModelOpt's own use of torch, which no user can act upon.
    """
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # read once, when torch is loaded below
    os.environ.setdefault("TQDM_DISABLE", "1")  # bars inside of our own; read when tqdm is loaded
    with export.quiet(), Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        from modelopt.onnx.logging_config import configure_logging

        configure_logging(logging.ERROR)
        yield


def save(model: Any, out: Path) -> None:
    """Write an onnx.ModelProto, the same bytes each time: ModelOpt's value_info come out of sets, in any order."""
    progress.step("write the file")
    values = sorted(model.graph.value_info, key=lambda value: str(value.name))
    del model.graph.value_info[:]
    model.graph.value_info.extend(values)
    onnx_file.save(model, out)


def if_nothing(quantized: Any) -> str:
    """What to add to the method where the graph that came out has no quantized node."""
    return "" if onnx_graph.quantized_nodes(quantized) else ": nothing was quantized"


def facts(method: str, **more: Any) -> dict[str, Any]:
    """The facts of a conversion for .convert.json: the method and the version of ModelOpt, which did it."""
    return {
        "method": method,
        "modelopt": importlib.metadata.version("nvidia-modelopt"),
        "not_reproducible": [],
        **more,
    }


def calibration_facts(request: ConvertRequest, batches: Sequence[Feeds]) -> dict[str, Any]:
    """How many samples calibrated the format, and the seed that they were drawn with."""
    return {
        "calibration_samples": sum(_samples(batch) for batch in batches),
        "calibration_seed": samples.calibration_seed(request.spec),
    }


def _samples(batch: Feeds) -> int:
    """How many samples a batch holds: the first axis of its first input that has one."""
    return next((len(array) for array in batch.values() if array.ndim), 1)
