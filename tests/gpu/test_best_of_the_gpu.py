"""The search for the best case on a GPU: what wins there, its program, and a case against itself."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

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


def test_each_setting_of_the_cuda_provider_is_taken(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    onnxruntime.preload_dlls()
    from benchmarks.best_live import graph

    for option in ort_options.OF_PROVIDER:
        for value in option.values:
            given = ort_options.of_cuda(Variant("v", {option.name: value}))
            session = onnxruntime.InferenceSession(graph(2, 64), providers=[("CUDAExecutionProvider", given)])
            taken = session.get_provider_options()["CUDAExecutionProvider"]
            assert {key: taken[key] for key in given} == given


def test_a_case_is_not_better_than_itself() -> None:
    command = [
        sys.executable,
        str(REPOSITORY / "benchmarks/best_live.py"),
        "--provider",
        "cuda",
        "--fresh",
        "session",
    ]
    limits = ["--duels", "10", "--planted", "2", "--seconds", "0.05", "--limit", "25"]
    done = subprocess.run([*command, *limits], capture_output=True, text=True, check=True)
    figures = json.loads(done.stdout)
    assert figures["itself"]["duels"] >= 1 and figures["itself"]["accepted"] == 0, figures
