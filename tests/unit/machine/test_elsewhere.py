"""Studies are planned for GPUs that are not at hand."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from tests.unit.facts import mentions

from inferprof import cli
from inferprof.machine import elsewhere

CONFIG = {
    "study": "planned",
    "models": ["vit_tiny"],
    "precisions": ["fp32", "fp16", "fp8", "nvfp4"],
    "backends": ["ort_cuda", "torch_eager", "tensorrt", "ort_tensorrt", "tensorrt_rtx"],
    "variants": [{"name": "default"}, {"name": "graph", "cuda_graph": True}],
    "shapes": ["b1"],
}


def outcomes(capability: str, repository: Path, out: Path) -> pd.Series[str]:
    """(precision, backend) → outcome in the variant `default`."""
    config = ["--config", json.dumps(CONFIG), "--models", str(repository / "models")]
    assert cli.main(["cases", *config, "--target", capability, "--out", str(out)]) == 0
    cases = pd.read_csv(out, keep_default_na=False).query("variant == 'default'")
    return cases.set_index(["precision", "backend"])["outcome"]


def test_how_many_run_is_said_without_a_file(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = ["--config", json.dumps(CONFIG), "--models", str(repository / "models")]
    assert cli.main(["cases", *config, "--target", "12.0"]) == 0
    counted = capsys.readouterr().out.splitlines()[-1]
    runs, every = (int(word) for word in counted.split()[0:3:2])
    assert 0 < runs < every
    assert mentions(counted, "torch_eager", "fp32")


@pytest.mark.parametrize(
    ("capability", "nvfp4", "rtx"),
    [("9.0", "refused", "refused"), ("10.0", "run", "refused"), ("12.0", "run", "run")],
)
def test_a_gpu_refuses_what_it_has_not_and_nothing_else(
    capability: str, nvfp4: str, rtx: str, repository: Path, tmp_path: Path
) -> None:
    outcome = outcomes(capability, repository, tmp_path / "cases.csv")
    assert outcome["nvfp4", "tensorrt"] == nvfp4
    assert outcome["fp16", "tensorrt_rtx"] == rtx
    assert {outcome["fp16", name] for name in ("ort_cuda", "torch_eager", "tensorrt", "ort_tensorrt")} == {"run"}


def test_nothing_is_known_of_its_memory() -> None:
    machine = elsewhere.equipped((10, 3))
    assert machine.gpu is not None and machine.gpu.memory is None
    assert machine.slug == "assumed-sm103"
