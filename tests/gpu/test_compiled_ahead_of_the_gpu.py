"""A measurement of torch.compile whose code lies on the disk starts no compiling processes beside itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from inferprof import documents

pytest.importorskip("triton")
pytestmark = pytest.mark.gpu
FACTORY = """
import torch

def layers():
    return torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.LayerNorm(256))
"""
YAML = """
source: python
python: small:layers
pretrained: false
inputs:
  - {name: x, dtype: float32, dims: [b, 256]}
"""
RUN = """
import sys

import psutil

from inferprof import cli

code = cli.main(sys.argv[1:])
print(sum("compile_worker" in " ".join(child.cmdline()) for child in psutil.Process().children(recursive=True)))
sys.exit(code)
"""


def measured(folder: Path, round_: int) -> tuple[int, dict[str, int]]:
    """Compiling processes at the end of a measurement, and what its record says of Inductor's cache."""
    out, model = folder / f"r{round_}.json", str(folder / "small.yaml")
    case = f"--precision fp16 --shape b8 --variant default --machine here --round {round_} --budget 0.05"
    done = subprocess.run(
        [sys.executable, "-c", RUN, "run", "torch_compile", model, "--spec", model, *case.split(), "--out", str(out)],
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")},
        capture_output=True,
        text=True,
        check=True,
    )
    record: Any = documents.read(out, "record")
    return int(done.stdout.split()[-1]), record.first.compile_cache


def test_only_the_first_measurement_of_a_compiled_model_starts_compiling_processes(tmp_path: Path) -> None:
    (tmp_path / "small.py").write_text(FACTORY)
    (tmp_path / "small.yaml").write_text(YAML)
    processes, cache = measured(tmp_path, 0)
    assert processes and cache == {"hits": 0, "misses": 1}
    assert measured(tmp_path, 1) == (0, {"hits": 1, "misses": 0})
