"""Every stage × every fault through the real Snakefile: what fails is a row of the report, what breaks is listed."""

from __future__ import annotations

import csv
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.workflow import faulty_plugins
from tests.workflow.conftest import Workspace, environment
from tests.workflow.faulty_plugins import FAULTS, OF_PRECISION, OF_PROFILER, OF_VARIANT, RESULTS

pytestmark = pytest.mark.slow

HEALTHY = "toy/fp32/ort_cpu/default/b1"
LIMIT_S = 15
"""Of a job in the study whose jobs hang: several times what the others take here."""
BROKEN = tuple(fault for fault in FAULTS if fault not in RESULTS)


def study_of(folder: Path, repository: Path, faults: Iterable[str], limit_s: float) -> Workspace:
    """A workspace with a healthy case beside one for each stage and fault."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    faults = tuple(faults)
    (folder / "models").mkdir(parents=True)
    weights = numpy_helper.from_array(__import__("numpy").eye(4, dtype="float32"), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "toy",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", 4])],
        [weights],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, folder / "models" / "toy.onnx")
    of_precision = [f"{stage}_{fault}" for stage in OF_PRECISION for fault in faults]
    of_variant = [f"{stage}_{fault}" for stage in OF_VARIANT for fault in faults]
    of_profiler = [f"{stage}_{fault}" for stage in OF_PROFILER for fault in faults]
    workspace = Workspace(folder, repository)
    workspace.configure(
        study="faults",
        models=["toy"],
        precisions=["fp32", *of_precision],
        backends=["ort_cpu", "faulty"],
        variants=[{"name": "default"}, *({"name": name, "fault": "yes"} for name in of_variant)],
        shapes=["b1"],
        profilers=of_profiler,
        target=[],
        exclude=[
            {"precision": of_precision, "backend": "faulty", "reason": "one fault a case"},
            {"precision": of_precision, "profiler": of_profiler, "reason": "one fault a case"},
            {"backend": "faulty", "profiler": of_profiler, "reason": "one fault a case"},
        ],
        protocol={"budget_s": 0.02, "accuracy_samples": 2, "limit_s": limit_s},
    )
    return workspace


def run(workspace: Workspace, **more: str) -> subprocess.CompletedProcess[str]:
    """The study's report, with the faulty plug-ins."""
    plugins = {"INFERPROF_PLUGINS": faulty_plugins.__file__}
    command = [*workspace.command("results/REPORT.txt"), "--cores", "2"]
    return subprocess.run(
        command, env={**environment(), **plugins, **more}, capture_output=True, text=True, check=False, timeout=900
    )


def rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV of the report."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def case_of(row: dict[str, str]) -> str:
    """`toy/fp32/ort_cpu/default/b1`."""
    return "/".join(row[key] for key in ("model", "precision", "backend", "variant", "shape"))


@pytest.fixture(scope="module")
def failed(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The study of all faults that are results, run to its report."""
    workspace = study_of(tmp_path_factory.mktemp("failed") / "w", repository, RESULTS, 600)
    done = run(workspace)
    assert done.returncode == 0, done.stdout + done.stderr
    return workspace
