"""What all conversions share: options, calibration data, quiet libraries, and facts for the report."""

from __future__ import annotations

import contextlib
import importlib.metadata
import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from inferprof import progress
from inferprof.errors import UserError, failures_of
from inferprof.model import onnx_file, onnx_graph, samples
from inferprof.plugins import ConvertRequest, Feeds


def choice(request: ConvertRequest, name: str, allowed: Sequence[str]) -> str:
    """A textual option out of a closed set. Raises UserError for any other value."""
    value = request.options[name]
    if value not in allowed:
        raise UserError(f"option {name}: {value!r} for {request.spec.name}; allowed: {', '.join(allowed)}")
    return str(value)


def calibration(request: ConvertRequest) -> list[Feeds]:
    """The calibration batches: as many samples as the option `samples` says. Raises UserError for unusable data."""
    count = request.options["samples"]
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise UserError(f"option samples: {count!r} for {request.spec.name}; allowed: a whole number of at least 1")
    progress.step("read samples")
    return samples.calibration_feeds(request.spec, count)


@contextlib.contextmanager
def modelopt() -> Iterator[None]:
    """ModelOpt at work: quiet, and what it or what it calls raises is a CaseFailed with the reason."""
    with quiet_modelopt(), failures_of("ModelOpt"):
        yield


def prepared(onnx_path: Path, folder: Path) -> Path:
    """The graph, tidied, in a file in `folder`: converters leave files beside their input."""
    source = folder / "fp32.onnx"
    onnx_file.save(onnx_file.tidied(onnx_graph.read(onnx_path, external=True)), source)
    return source


@contextlib.contextmanager
def quiet_modelopt() -> Iterator[None]:
    """Keep what ModelOpt and what it calls print, progress and deprecations, to itself, and its errors on stderr.

    The warnings are about ModelOpt's own use of torch, which no user can act upon.
    """
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # read once, when torch is loaded below
    os.environ.setdefault("TQDM_DISABLE", "1")  # bars inside of our own; read when tqdm is loaded
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from modelopt.onnx.logging_config import configure_logging

            configure_logging(logging.ERROR)
            yield
    finally:
        logger.setLevel(level)


def save(model: Any, out: Path) -> None:
    """Write an onnx.ModelProto, the same bytes each time: ModelOpt's value_info come out of sets, in any order."""
    progress.step("write the file")
    values = sorted(model.graph.value_info, key=lambda value: str(value.name))
    del model.graph.value_info[:]
    model.graph.value_info.extend(values)
    onnx_file.save(model, out)


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
        "calibration_samples": sum(len(next(iter(batch.values()))) for batch in batches),
        "calibration_seed": samples.calibration_seed(request.spec),
    }
