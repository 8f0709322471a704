"""trtexec's file of one case, made by Snakemake from an engine and a record that are there already."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from tests.unit.test_trtexec import program
from tests.workflow.conftest import Workspace

CASE = {"model": "toy", "precision": "fp16", "backend": "tensorrt", "variant": "default", "shape": "b4"}
RECORD = {
    "schema": 1,
    "case": CASE,
    "round": 0,
    "machine": "box",
    "started": "2026-01-01T00:00:00+00:00",
    "environment": {},
    "status": "ok",
    "reason": None,
    "boundaries": {"device": {"samples_ns": [990_000] * 60}},
    "protocol": {"graph": False},
}
BUILD = {"status": "ok", "reason": None, "versions": {"tensorrt": "10.16.1.11"}}


@pytest.mark.parametrize(
    ("changes", "comparison"),
    [
        ({}, {"device_median_ns": 990_000, "trtexec_median_ns": 1_000_000}),
        ({"status": "failed", "reason": "out of memory"}, {"not_compared": "the case failed: out of memory"}),
    ],
)
def test_a_case_of_tensorrt_has_a_second_clock_or_the_reason_why_not(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], comparison: dict[str, Any]
) -> None:
    tool = program(workspace.folder / "bin", 101601, "image:4x3x32x32")
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    results, case = workspace.folder / "results", "/".join(CASE.values())
    made = {
        **{f"onnx/toy/{name}": "" for name in ("fp32.onnx", "fp32.convert.json", "fp16.onnx", "fp16.convert.json")},
        f"box/engine/{case}.engine": "engine",
        f"box/engine/{case}.build.json": json.dumps(BUILD),
        f"box/benchmark/{case}/r0.json": json.dumps({**RECORD, **changes}),
    }
    for name, content in made.items():
        path = results / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    target = f"results/box/trtexec/{case}.json"
    done = workspace.run("--rerun-triggers", "mtime", "--", target)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((workspace.folder / target).read_text(encoding="utf-8"))
    assert found["case"] == CASE
    assert found["comparison"].items() >= comparison.items()
