"""The search for the best case on a GPU: what wins there, its program, and a case against itself."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from inferprof import documents
from inferprof.backends import ort_options
from inferprof.case import Variant

pytestmark = pytest.mark.gpu
REPOSITORY = Path(__file__).parents[2]
SEARCH = {
    "models": "[vit_tiny]",
    "backends": "[ort_cuda]",
    "precisions": "[fp32]",
    "shapes": "[b1]",
    "profilers": "[]",
    "target": "[]",
    "baseline": "fp32/ort_cuda/default",
    "variants": "[{name: default}, {name: graph, cuda_graph: true}]",
    "best": "{budget_min: 0.4, tolerance: 0.05}",
    "protocol": "{budget_s: 0.1}",
}
LOADED = 1.5
"""By how much a program may be slower than the interval: another process may have the GPU or the cores."""


def test_a_graph_wins_over_launches_and_the_program_runs_as_fast(tmp_path: Path) -> None:
    for name in ("models", "profiles"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    (tmp_path / "config.yaml").write_text((REPOSITORY / "config.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    command = [
        "snakemake",
        "--snakefile",
        str(REPOSITORY / "Snakefile"),
        "--directory",
        str(tmp_path),
        "--cores",
        "1",
    ]
    keys = [f"{key}={value}" for key, value in SEARCH.items()]
    path = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        [*command, "--config", *keys, "--", "best"],
        env=os.environ | path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (file,) = tmp_path.glob("results/*/best/vit_tiny.json")
    trail: documents.Trail = documents.read(file, "trail")
    assert trail.ended in ("budget", "nothing promises more", "tolerance")
    if trail.best == trail.baseline:
        pytest.skip(f"nothing won within the budget: {trail.stopped}")
    assert trail.steps[-1].decision == "confirmed"
    ran = subprocess.run([sys.executable, file.with_suffix(".py")], capture_output=True, text=True, check=True)
    said = re.match(r"([\d.]+) ms", ran.stdout)
    assert said and trail.high_ns
    assert float(said[1]) <= LOADED * trail.high_ns / 1e6


def product() -> bytes:
    """A graph of one matrix product."""
    from onnx import TensorProto, helper, numpy_helper

    sides = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 64]) for name in ("x", "y")]
    weight = numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", sides[:1], sides[1:], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def test_each_setting_of_the_cuda_provider_is_taken() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    onnxruntime.preload_dlls()
    for option in ort_options.OF_PROVIDER:
        for value in option.values:
            given = ort_options.of_cuda(Variant("v", {option.name: value}))
            session = onnxruntime.InferenceSession(product(), providers=[("CUDAExecutionProvider", given)])
            taken = session.get_provider_options()["CUDAExecutionProvider"]
            assert {key: taken[key] for key in given} == given


def test_a_case_is_not_better_than_itself(tmp_path: Path) -> None:
    (tmp_path / "product.onnx").write_bytes(product())
    command = [
        sys.executable,
        str(REPOSITORY / "benchmarks/best_live.py"),
        *[str(tmp_path / "product.onnx")] * 2,
        "b1",
    ]
    limits = ["--backend", "ort_cuda", "--pairs", "20", "--limit", "25"]
    done = subprocess.run([*command, *limits], capture_output=True, text=True, check=True)
    figures = json.loads(done.stdout)
    assert figures["pairs"] >= 4 and figures["accepted_0%"] <= 0.01, figures
