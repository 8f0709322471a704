"""A model that somebody drops in as NAME.onnx: a real one, out of a PyPI wheel."""

from __future__ import annotations

import csv
import importlib.util
import re
import shutil
from pathlib import Path

import pytest
from tests.unit.facts import facts
from tests.workflow.conftest import Workspace

pytestmark = pytest.mark.slow


def magika_onnx() -> Path:
    """The newest model of the installed magika, found without importing it."""
    spec = importlib.util.find_spec("magika")
    if spec is None or spec.origin is None:
        pytest.skip("magika is not installed")
    return sorted((Path(spec.origin).parent / "models").glob("standard*/model.onnx"))[-1]


def test_a_dropped_onnx_is_studied_and_torch_only_formats_are_refused_by_name(workspace: Workspace) -> None:
    shutil.copy(magika_onnx(), workspace.folder / "models" / "magika.onnx")
    workspace.configure(
        models=["magika"],
        precisions=["fp32", "nvfp4_sparse"],
        backends=["ort_cpu", "torch_eager"],
        shapes=["b1", "b8"],
    )
    done = workspace.run("results/REPORT.txt")
    assert done.returncode == 0, done.stdout + done.stderr
    text = (workspace.folder / "results" / "REPORT.txt").read_text(encoding="utf-8")
    assert re.search(r"magika at b[18], [\s\S]*fp32/ort_cpu/default, ", text)
    with (workspace.folder / "results" / "reports" / "toy" / "cases.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    outcomes = {(row["precision"], row["backend"]): (row["outcome"], row["reason"]) for row in rows}
    assert outcomes["fp32", "ort_cpu"] == ("run", "")
    assert facts(outcomes["fp32", "torch_eager"][1], "magika", "models") == [
        "torch_eager",
        "torch",
        "models",
        "magika",
        "ONNX",
    ]
    assert facts(outcomes["nvfp4_sparse", "ort_cpu"][1], "magika")[:4] == ["nvfp4_sparse", "torch", "magika", "ONNX"]
