"""verify's rows of TensorRT on the versions that can be had anywhere: runs, layers, CUDA graph and partition.

Needs Python 3.10 with tensorrt 8.5.3.1 and onnxruntime-gpu 1.14.1; skipped elsewhere. 8.5 lies below the product's
floor, so the rows are attempted although they are refused, and the engine is built by studies/tensorrt85.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.facts import facts

pytestmark = [pytest.mark.gpu, pytest.mark.slow]
trt = pytest.importorskip("tensorrt")
if not trt.__version__.startswith("8.5."):
    pytest.skip(f"TensorRT {trt.__version__}, not 8.5", allow_module_level=True)

ROWS = ["tensorrt", "layers", "ort_tensorrt", "partition_ort_tensorrt"]
if importlib.util.find_spec("yaml"):  # which options of a variant are written in
    ROWS.append("graph_tensorrt")


def verify(out: Path, *words: str) -> dict[str, dict[str, Any]]:
    command = [sys.executable, "-m", "inferprof", "verify", "--out", str(out), "--minutes", "40", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    sys.stdout.write(done.stdout)
    return {row["name"]: row for row in json.loads((out / "verify.json").read_text())["rows"]}


@pytest.fixture(scope="module")
def rows(
    build_engine: Callable[[Path, Path], None], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """The rows, tried on an engine of verify's own model."""
    out = tmp_path_factory.mktemp("verify85")
    assert verify(out, "--only", "model")["model"]["outcome"] == "pass"
    engine = out / "given.engine"
    build_engine(out / "onnx/two_layers/fp32.onnx", engine)
    return verify(out, "--attempt", "--engine", str(engine), "--only", *ROWS)


@pytest.mark.parametrize("name", ROWS)
def test_the_row_passes(name: str, rows: dict[str, dict[str, Any]]) -> None:
    assert rows[name]["outcome"] == "pass", rows[name]["detail"]


def test_every_layer_has_a_time(rows: dict[str, dict[str, Any]]) -> None:
    layers, timed = (int(part.split()[0]) for part in rows["layers"]["detail"].split(", "))
    assert 0 < timed <= layers


def test_the_provider_took_the_whole_graph(rows: dict[str, dict[str, Any]]) -> None:
    assert facts(rows["partition_ort_tensorrt"]["detail"]) == ["TensorrtExecutionProvider", "1"]
