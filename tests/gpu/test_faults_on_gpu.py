"""Faults on a real GPU, each through `inferprof run` as a study calls it: the record says what happened, the command
succeeds, and the next case is measured as if nothing had been.

Needs ONNX Runtime's CUDA provider; engines have their faults in test_tensorrt_85.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.facts import mentions

import inferprof
from inferprof import outcomes
from inferprof.units import GIB

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

Record = dict[str, Any]
Run = Callable[..., Record]
MACHINE = "gpu-test"
HELD_BYTES = 2 * GIB
FLOATS_PER_ITEM = 1 << 26
TOO_MANY = 1024
"""256 GiB of float32 at once, which no GPU of this test has; one item takes 256 MiB."""
HOLDER = f"""
import numpy as np
from inferprof.devices.cuda import CudaDevice
held = CudaDevice().allocate(({HELD_BYTES},), np.dtype(np.uint8))
print("held", flush=True)
input()
"""


def environment(**changes: str) -> dict[str, str]:
    """Ours, with the package where this test found it."""
    paths = [str(Path(inferprof.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": ":".join(filter(None, paths)), **changes}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """(description, shape; artifact, if it is another file) → the record that `inferprof run` wrote."""

    def start(spec: Path, shape: str, artifact: Path | None = None, **variables: str) -> Record:
        out = tmp_path / MACHINE / "benchmark" / spec.stem / "fp32/ort_cuda/default" / shape / "r0.json"
        command = [sys.executable, "-m", "inferprof", "run", "ort_cuda", str(artifact or spec), f"--spec={spec}"]
        command += [f"--shape={shape}", f"--machine={MACHINE}", "--budget=0.1", f"--out={out}"]
        done = subprocess.run(command, env=environment(**variables), capture_output=True, text=True)
        record: Record = json.loads(out.read_text(encoding="utf-8"))
        code = 0 if record["status"] == "ok" else outcomes.FAILED
        assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
        return record

    return start


@pytest.fixture
def works(run: Run, convolutions: Path) -> Iterator[None]:
    """Behind the fault, a case on the same GPU is measured."""
    yield
    record = run(convolutions, "b4")
    assert (record["status"], record["reason"]) == ("ok", None)
    assert len(record["boundaries"]["device"]["samples_ns"]) > 0


def save(path: Path, nodes: list[Any], constants: dict[str, list[int]]) -> Path:
    """x [b, 1] → y [b, 1]."""
    helper, number = onnx.helper, onnx.TensorProto.FLOAT
    x, y = (helper.make_tensor_value_info(name, number, ["b", 1]) for name in "xy")
    weights = [onnx.numpy_helper.from_array(np.array(value, np.int64), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, path.stem, [x], [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


@pytest.mark.usefixtures("works")
def test_out_of_memory_at_one_batch_size_leaves_the_others_alone(run: Run, tmp_path: Path) -> None:
    node = onnx.helper.make_node
    nodes = [node("Expand", ["x", "size"], ["wide"]), node("ReduceSum", ["wide", "axis"], ["y"], keepdims=1)]
    model = save(tmp_path / "wide.onnx", nodes, {"size": [1, FLOATS_PER_ITEM], "axis": [1]})
    too_large = run(model, f"b{TOO_MANY}")
    assert too_large["status"] == "failed"
    assert "allocate memory" in too_large["reason"]
    small = run(model, "b1")
    assert (small["status"], small["reason"]) == ("ok", None)


@pytest.mark.usefixtures("works")
def test_outputs_that_are_not_finite_are_no_measurement(run: Run, tmp_path: Path) -> None:
    node = onnx.helper.make_node
    nodes = [node("Abs", ["x"], ["a"]), node("Neg", ["a"], ["n"]), node("Log", ["n"], ["y"])]
    record = run(save(tmp_path / "logarithm.onnx", nodes, {}), "b4")
    assert record["status"] == "failed"
    assert mentions(record["reason"], "y: 4 of 4", "NaN")
    assert record["outputs"]["y"]["finite"] is False


@pytest.mark.usefixtures("works")
def test_a_gpu_that_is_gone_since_the_study_was_planned_fails_the_case(run: Run, convolutions: Path) -> None:
    for visible in ("", "GPU-00000000-0000-0000-0000-000000000000"):
        record = run(convolutions, "b4", CUDA_VISIBLE_DEVICES=visible)
        assert (record["status"], record["reason"]) == ("failed", "NVML sees no GPU")
        assert record["environment"]["gpu"] is None


@pytest.mark.usefixtures("works")
def test_a_damaged_graph_fails_in_onnx_runtimes_words(run: Run, convolutions: Path, tmp_path: Path) -> None:
    content = convolutions.read_bytes()
    half = len(content) // 2
    damages = {"cut_short": content[:half], "overwritten": b"\xff" * half + content[half:]}
    for name, damaged in damages.items():
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(damaged)
        record = run(convolutions, "b4", path)
        assert record["status"] == "failed"
        assert record["reason"].startswith("ONNX Runtime: ") and path.name in record["reason"]


# --- a foreign process -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def another_process() -> Iterator[None]:
    """Another process holds memory of the GPU."""
    command = [sys.executable, "-c", HOLDER]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment(), stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield
        process.communicate("\n")


def test_a_foreign_process_is_in_the_record_and_in_the_report(run: Run, convolutions: Path, tmp_path: Path) -> None:
    alone = run(convolutions, "b1")
    with another_process():
        shared = run(convolutions, "b2")
    known = alone["environment"]["processes_on_gpu"], shared["environment"]["processes_on_gpu"]
    if not known[1]:
        pytest.skip("NVML shows no processes here, as in some containers")
    assert shared["status"] == "ok"
    assert len(known[1]) == len(known[0]) + 1
    assert any(process["bytes"] is None or process["bytes"] >= HELD_BYTES for process in known[1])
    others = [record["telemetry"]["summary"]["other_processes"] for record in (alone, shared)]
    assert others[1] == others[0] + 1
    assert mentions(partial_report(tmp_path), "Other processes")


def partial_report(results: Path) -> str:
    """What the report says of records that no study planned."""
    for module in ("pandas", "rich", "jinja2"):
        pytest.importorskip(module)
    command = [sys.executable, "-m", "inferprof", "report", str(results), "--study=faults", f"--machine={MACHINE}"]
    subprocess.run([*command, "--partial"], env=environment(), check=True)
    return (results / "reports/faults/REPORT.partial.txt").read_text(encoding="utf-8")
