"""Profiles of ONNX Runtime with providers that are neither the CPU's nor a GPU's, and with events of kernels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from inferprof.explain import explain
from inferprof.readers.kinds import ort


def event(category: str, name: str, start: int, took: int, **arguments: str) -> dict[str, Any]:
    return {
        "cat": category, "pid": 1, "tid": 1, "ts": start, "dur": took, "ph": "X", "name": name, "args": arguments
    }  # fmt: skip


def profile(folder: Path, provider: str, runs: int = 3, kernel_us: int = 0) -> Path:
    """Runs of 1,000 µs with a MatMul of 800 by the provider and a Softmax of 100 by the CPU; the first takes twice
    as long. Kernels take kernel_us, in the first run ten times as long."""
    events = [event("Session", "session_initialization", 0, 10)]
    for run in range(runs):
        start, scale = 5000 * (run + 1), 1 if run else 2
        events.append(event("Session", "model_run", start, 1000 * scale))
        matmul = {"provider": f"{provider}ExecutionProvider", "op_name": "MatMul"}
        events.append(event("Node", "mm_kernel_time", start + 10, 800 * scale, **matmul))
        softmax = {"provider": "CPUExecutionProvider", "op_name": "Softmax"}
        events.append(event("Node", "sm_kernel_time", start + 1900 * (not run) + 820, 100, **softmax))
        if kernel_us:
            events.append(event("Kernel", "ampere_sgemm", start + 10, kernel_us * (1 if run else 10)))
    path = folder / "profile.json"
    path.write_text(json.dumps(events))
    return path


@pytest.mark.parametrize("provider", ["QNN", "CoreML", "OpenVINO", "VitisAI", "NNAPI"])
def test_threads_of_the_cpu_are_not_advised_of_what_an_accelerator_ran(provider: str, tmp_path: Path) -> None:
    (case,) = explain([profile(tmp_path, provider)])
    answered = {answer.check: answer for answer in case.answers if answer.findings}
    (finding,) = answered["fallback"].findings
    assert finding.evidence == {"nodes": 1.0, "copies": 0.0}
    assert finding.share == pytest.approx(100 / 900)
    assert "cpu_operators" not in answered


@pytest.mark.parametrize("provider", ["CPU", "Dnnl", "Xnnpack"])
def test_libraries_of_the_cpu_are_no_accelerators(provider: str, tmp_path: Path) -> None:
    (case,) = explain([profile(tmp_path, provider)])
    found = {answer.check: answer.findings[0].subject for answer in case.answers if answer.findings}
    assert found == {"cpu_operators": "MatMul"}


def test_kernels_of_the_first_run_are_in_no_mean(tmp_path: Path) -> None:
    capture = ort.read(profile(tmp_path, "CUDA", kernel_us=500))
    (line,) = [note for note in capture.notes if note.startswith("kernels")]
    assert "2, 0.5 ms a run" in line
