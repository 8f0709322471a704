"""A workspace: a folder of its own with a config and models, on which the repository's Snakefile is run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.workflow import forked_snakemake

BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class Workspace:
    """`run` starts Snakemake on it; `ask` has it forked; `jobs` counts what a dry run would do, by rule."""

    folder: Path
    repository: Path

    def configure(self, **keys: Any) -> None:
        """Write config.yaml with these keys over the ones in it."""
        path = self.folder / "config.yaml"
        old = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}
        path.write_text(yaml.safe_dump({**old, **keys}), encoding="utf-8")

    def command(self, *arguments: str) -> list[str]:
        """The command line of Snakemake on this folder."""
        return [
            str(BIN / "snakemake"),
            *("--snakefile", str(self.repository / "Snakefile")),
            *("--directory", str(self.folder)),
            *("--workflow-profile", str(self.repository / "profiles" / "default")),
            *("--cores", "1"),
            *arguments,
        ]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Snakemake to its end; stdout and stderr are kept."""
        return subprocess.run(
            self.command(*arguments), env=environment(), capture_output=True, text=True, check=False, timeout=900
        )

    def ask(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """What Snakemake says where it runs no job: of a dry run, or of what it refuses."""
        return forked_snakemake.run(self.command(*arguments), environment())

    def jobs(self, *arguments: str) -> dict[str, int]:
        """Rule → jobs that would run."""
        done = self.ask("--dry-run", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return {name: int(count) for name, count in re.findall(r"^(\w+) +(\d+)$", done.stdout + done.stderr, re.M)}


def environment() -> dict[str, str]:
    """The environment of a run: the tools of this Python first on PATH, no GPU."""
    return {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "CUDA_VISIBLE_DEVICES": ""}


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    """The one line of a run that ended with what the user can mend: exit code 2 and no traceback."""
    lines = re.findall("^inferprof: (.*)$", done.stderr, re.MULTILINE)
    assert (done.returncode, len(lines)) == (2, 1) and "Traceback" not in done.stderr, done.stdout + done.stderr
    return str(lines[0])


def shown_by(page: Path) -> dict[str, dict[str, Any]]:
    """Path → what a page of `snakemake --report` holds of it."""
    found = re.search(r"^ *var results = ({.*);$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert found
    results: dict[str, dict[str, Any]] = json.loads(found[1])
    return results


TOY: Mapping[str, Any] = {
    "study": "toy",
    "models": ["toy"],
    "precisions": ["fp32", "fp16", {"name": "int8", "samples": 8, "calibration": "max"}],
    "backends": ["ort_cpu", "torch_eager", "ort_cuda", "tensorrt_rtx"],
    "shapes": ["b1", "b4"],
    "target": ["12.0"],
    "protocol": {"budget_s": 0.05, "accuracy_samples": 8},
}

TOY_MODULE = '''
import torch


def build():
    """Two convolutions and a classifier: the smallest network with something to quantize."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, stride=2), torch.nn.ReLU(), torch.nn.Conv2d(16, 32, 3, stride=2), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(32, 16),
    )
'''
TOY_YAML: Mapping[str, Any] = {
    "source": "python",
    "python": "toy_module:build",
    "pretrained": False,
    "task": "classification",
    "inputs": [{"name": "image", "dtype": "float32", "dims": ["b", 3, 32, 32], "data": "image"}],
    "max_sizes": {"b": 64},
}


def toy_workspace(folder: Path, repository: Path) -> Workspace:
    """A workspace with the toy study in a folder that does not exist yet."""
    (folder / "models").mkdir(parents=True)
    (folder / "models" / "toy.yaml").write_text(yaml.safe_dump(dict(TOY_YAML)), encoding="utf-8")
    (folder / "models" / "toy_module.py").write_text(TOY_MODULE, encoding="utf-8")
    workspace = Workspace(folder, repository)
    workspace.configure(**TOY)
    return workspace


@pytest.fixture(scope="session", autouse=True)
def own_device_locks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A job that hangs in one process of the tests keeps no other one's measurements waiting."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("tmp")))
        yield


@pytest.fixture(scope="session")
def make_workspace(repository: Path) -> Callable[[Path], Workspace]:
    """Makes a workspace with the toy study in a folder."""
    return lambda folder: toy_workspace(folder, repository)


@pytest.fixture
def workspace(make_workspace: Callable[[Path], Workspace], tmp_path: Path) -> Workspace:
    """A fresh workspace in which nothing has run."""
    return make_workspace(tmp_path / "workspace")
