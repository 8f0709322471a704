"""verify on a GPU: what this machine can do passes, what it cannot is not here, and nothing fails."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from inferprof import bundles
from inferprof.machine import hardware
from inferprof.verify.rows import ROWS

pytestmark = [pytest.mark.gpu, pytest.mark.slow]
MINUTES = 10


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where verify worked, as a user starts it; its table in the output of the tests."""
    out = tmp_path_factory.mktemp("verify") / "out"
    command = [sys.executable, "-m", "inferprof", "verify", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=(MINUTES + 1) * 60)
    assert (out / "verify.json").exists(), done.stderr
    sys.stdout.write(done.stdout)
    return out


@pytest.fixture(scope="module")
def rows(folder: Path) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in json.loads((folder / "verify.json").read_text())["rows"]}


def test_no_row_fails(folder: Path, rows: dict[str, dict[str, Any]]) -> None:
    failed = {name: row["detail"] for name, row in rows.items() if row["outcome"] == "fail"}
    logs = {name: (folder / str(rows[name]["log"])).read_text()[-2000:] for name in failed if rows[name]["log"]}
    assert failed == {}, logs


def test_every_row_is_told(rows: dict[str, dict[str, Any]]) -> None:
    assert list(rows) == [row.name for row in ROWS]


def test_what_needs_no_more_than_a_gpu_passes(rows: dict[str, dict[str, Any]]) -> None:
    """ONNX Runtime's CUDA provider where it is installed, and what is the GPU's own."""
    names = {"model", "bandwidth", "telemetry", "self_checks"}
    if "onnxruntime-gpu" in hardware.detect().packages:
        names |= {"ort_cuda", "graph_ort_cuda"}
    assert {name: rows[name]["outcome"] for name in names} == dict.fromkeys(names, "pass")


def test_two_rounds_of_a_case_were_compared(rows: dict[str, dict[str, Any]]) -> None:
    assert "% apart" in rows["self_checks"]["detail"]


def test_it_takes_less_than_ten_minutes(folder: Path) -> None:
    assert json.loads((folder / "verify.json").read_text())["seconds"] < MINUTES * 60


def test_its_bundle_is_whole(folder: Path, tmp_path: Path) -> None:
    manifest = bundles.unbundle(folder / "verify.bundle.zip", tmp_path / "unpacked")
    assert {"verify.json", "verify.txt"} <= set(manifest.files)
