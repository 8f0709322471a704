"""studies/tensorrt85/record.py: it asks for what study.yaml does not exclude, by commands that inferprof takes."""

from __future__ import annotations

import argparse
import runpy
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.unit.facts import facts

from inferprof import commands
from inferprof.machine.hardware import Gpu, Machine

REPOSITORY = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(REPOSITORY / "studies/tensorrt85/record.py"))
GPU = Gpu("NVIDIA H200", (9, 0), 141 << 30, "GPU-1", "580.159.04")
MACHINE = Machine(
    GPU, packages={"onnxruntime-gpu": "1.14.1", "tensorrt": "8.5.3.1"}, tools={"nsys": "nsys"}, label="old"
)


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The study on a machine with TensorRT 8.5, in a folder with its models' descriptions."""
    (tmp_path / "models").mkdir()
    for opset in SCRIPT["OPSETS"]:
        name = f"bert_tiny_opset{opset}"
        (tmp_path / "models" / f"{name}.yaml").write_text(SCRIPT["ENCODER"].format(name=name), encoding="utf-8")
        (tmp_path / "models" / f"{name}.onnx").touch()
    shutil.copy(REPOSITORY / "models" / "detector.yaml", tmp_path / "models")
    monkeypatch.chdir(tmp_path)
    return SCRIPT["planned"](MACHINE)


def parsed(command: list[str]) -> argparse.Namespace:
    """What inferprof makes of a job's command, `python -m inferprof …`."""
    assert command[:3] == [sys.executable, "-m", "inferprof"]
    return commands.parser().parse_args(command[3:])


def test_tensorrt_8_5_is_asked_although_the_product_refuses_it(study: Any) -> None:
    cases = Counter((case.model, case.backend) for case in study.cases())
    assert cases == {
        ("bert_tiny_opset16", "ort_cpu"): 2,
        ("bert_tiny_opset16", "ort_tensorrt"): 2,
        ("bert_tiny_opset16", "tensorrt"): 8,
        ("bert_tiny_opset17", "ort_cpu"): 2,
        ("bert_tiny_opset17", "ort_tensorrt"): 2,
        ("detector", "ort_cpu"): 1,
        ("detector", "ort_tensorrt"): 1,
        ("detector", "tensorrt"): 5,
    }
    assert all(planned.reason.startswith("excluded") for planned in study.planned if planned.outcome == "refused")


def test_a_round_is_the_run_of_the_rule(study: Any) -> None:
    case = next(case for case in study.cases() if case.variant == "graph_pinned")
    job = SCRIPT["measured"](study, case, 1)
    args = parsed(job.command)
    assert (args.backend, args.round, args.budget, args.machine) == ("tensorrt", 1, 1.0, "old")
    assert args.reference == Path("results/onnx/detector/fp32.b1_h512w512.expected.npz")
    assert args.artifact == Path("results/old/engine/detector/fp32/tensorrt/default/b1_h512w512.engine")
    assert job.out == Path("results/old/benchmark/detector/fp32/tensorrt/graph_pinned/b1_h512w512/r1.json")
    assert job.log == Path("results/log/old/benchmark/detector/fp32/tensorrt/graph_pinned/b1_h512w512/r1.log")


def test_a_capture_watches_the_run_that_is_measured(study: Any) -> None:
    watched = study.captures()
    assert Counter(name for name, _ in watched) == {"nsys": 7, "ort_profile": 5, "ort_nodes": 4, "trt_nodes": 3}
    profiler, case = next(one for one in watched if one[0] == "ort_nodes")
    args = parsed(SCRIPT["captured"](study, profiler, case).command)
    assert (args.profiler, args.out.suffix) == ("ort_nodes", ".sqlite")
    seen = parsed(args.command[1:] if args.command[0] == "--" else args.command)
    assert (seen.backend, seen.profiled, seen.out) == ("ort_tensorrt", 10, args.record)


def test_the_engine_for_every_shape_is_built_by_the_script_and_the_providers_by_inferprof(study: Any) -> None:
    ranged = next(case for case in study.cases() if case.variant == "ranged")
    command = SCRIPT["built"](study, ranged).command
    assert Path(command[1]).name == "build_engine.py"
    assert command[command.index("--profile") + 1 : command.index("--out")] == ["b1_s16", "b32_s128"]
    provider = next(case for case in study.cases() if case.backend == "ort_tensorrt")
    assert parsed(SCRIPT["built"](study, provider).command).backend == "ort_tensorrt"


def test_what_is_there_is_not_made_again_and_after_the_end_nothing_begins(
    tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    out = Path("results/old/made.txt")
    job = SCRIPT["Job"]([sys.executable, "-c", f"open({str(out)!r}, 'a').write('x')"], out)
    SCRIPT["run"](job, until=-1.0)
    assert not out.exists()
    for _ in range(2):
        SCRIPT["run"](job, until=float("inf"))
    assert out.read_text() == "x"
    assert facts(capsys.readouterr().err) == ["old/made.txt", "0", "0 s"]
