"""The program that a search hands over: of each runtime it is Python, with the winner's settings and shapes."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from tests.unit.facts import mentions, naming
from tests.unit.report.conftest import Results

from inferprof import documents, study
from inferprof.best import hand_over
from inferprof.documents.trail import Step
from inferprof.machine.hardware import Gpu, Machine

GPU = Gpu("NVIDIA H200", (9, 0), 141 * 10**9, "GPU-0", "580.0")
BOX = "cpu-sample-0123abcd"
BASELINE, FP16 = "fp32/ort_cpu/default", "fp16/ort_cpu/default"


def handed_over(repository: Path, root: Path, best: str, options: dict[str, Any], *, gpu: bool = True) -> str:
    """The program of a case of vit_tiny at b1 that won."""
    content = yaml.safe_load((repository / "config.yaml").read_text(encoding="utf-8"))
    keys = {"models": ["vit_tiny"], "backends": ["ort_cpu"], "shapes": ["b1"], "baseline": BASELINE, "profilers": []}
    machine = Machine(gpu=GPU if gpu else None, packages={"onnxruntime-gpu": "1.31.1"}, label=BOX, threads=2)
    named = [{"name": best.split("/")[2], **options}] if options else []
    variants = [{"name": "default"}, *named]
    of = study.plan({**content, **keys, "variants": variants}, repository / "models", machine)
    case = f"vit_tiny/{best}/b1"
    results = Results(root)
    record = results.record(case, 0) | {"outputs": {"logits": {"shape": [1, 1000], "dtype": "float32"}}}
    record["inputs"] = {"pixel_values": {"shape": [1, 3, 224, 224], "dtype": "float32"}}
    results.write(f"{BOX}/benchmark/{case}/r0.json", record)
    content = {"model": "vit_tiny", "shape": "b1", "best": best, "baseline": BASELINE, "ended": "tolerance"}
    times: dict[str, Any] = {"median_ns": 1e6, "low_ns": 9e5, "high_ns": 1.1e6}
    trail = documents.Trail(**content, **times, status="ok", stopped="", options=options)
    return hand_over.program(of, root, trail, root / BOX / "best/vit_tiny.py")


def imported(text: str) -> set[str]:
    """The modules that a program imports."""
    nodes = list(ast.walk(ast.parse(text)))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}


@pytest.mark.parametrize(
    ("best", "options", "modules", "lines"),
    [
        ("fp16/ort_cpu/default", {}, {"onnxruntime"}, ['PROVIDERS = ["CPUExecutionProvider"]']),
        (
            "fp16/ort_cuda/v",
            {"cuda_graph": True, "placement": "pinned"},
            {"onnxruntime", "torch"},
            ['"enable_cuda_graph": "1"', ".pin_memory()"],
        ),
        (
            "fp32/ort_cuda/v",
            {"transformer_optimizer": "bert"},
            {"onnxruntime", "onnxruntime.transformers"},
            ['model_type="bert"', '"use_tf32": "0"'],
        ),
        (
            "fp16/ort_tensorrt/v",
            {"optimization_level": 5},
            {"onnxruntime"},
            ['"trt_builder_optimization_level": "5"', '"trt_profile_opt_shapes": "pixel_values:1x3x224x224"'],
        ),
        (
            "fp16/ort_tensorrt_rtx/v",
            {"cuda_graph": True},
            {"onnxruntime", "onnxruntime_ep_nv_tensorrt_rtx"},
            ["register_execution_provider_library", '"enable_cuda_graph": "1"'],
        ),
        ("fp16/tensorrt/default", {}, {"tensorrt", "torch"}, ["execute_async_v3", "enqueue()"]),
        ("fp16/tensorrt_rtx/v", {"cuda_graph": True}, {"tensorrt_rtx", "torch"}, ["graph.replay()"]),
        (
            "fp16/torch_eager/v",
            {"cuda_graph": True},
            {"torch", "transformers", "transformers.masking_utils"},
            ["DTYPE = torch.float16", "graph.replay()", "    register_whole_masks()\n    config = transformers"],
        ),
        (
            "fp32/torch_compile/v",
            {"compile_mode": "max-autotune", "memory_format": "channels_last", "sdpa": "flash"},
            {"torch", "transformers", "transformers.masking_utils"},
            ['mode="max-autotune"', "torch.channels_last", "enable_flash_sdp(True)", "enable_math_sdp(False)"],
        ),
    ],
)
def test_the_program_of_each_runtime_has_the_winners_settings(
    repository: Path, tmp_path: Path, best: str, options: dict[str, Any], modules: set[str], lines: list[str]
) -> None:
    text = handed_over(repository, tmp_path, best, options)
    own = {"__future__", "os", "sys", "statistics", "time", "pathlib", "numpy"}
    assert imported(text) - own == modules
    said = text.replace("'", '"')
    assert [line for line in lines if line not in said] == []
    assert "Path(__file__).resolve().parent / " in text or "torch" in best
    assert ("Unproven" in text) == ("tensorrt" in best)


@pytest.mark.parametrize(
    ("best", "options", "flags"),
    [
        ("fp16/ort_cpu/v", {"threads": 2, "arena": False}, "-e cpu -o 99 -x 2 -A -f b:1 -I fp16.onnx"),
        (
            "fp16/ort_cuda/v",
            {"conv_search": "heuristic"},
            '-e cuda -o 99 -i "use_tf32|0 enable_cuda_graph|0 cudnn_conv_algo_search|HEURISTIC" -f b:1 -I fp16.onnx',
        ),
    ],
)
def test_the_heading_has_the_same_for_onnxruntime_perf_test(
    repository: Path, tmp_path: Path, best: str, options: dict[str, Any], flags: str
) -> None:
    assert f"\nonnxruntime_perf_test {flags}\n" in handed_over(repository, tmp_path, best, options)


@pytest.mark.parametrize(
    ("changes", "title"),
    [
        ({}, "the fastest that a search confirmed."),
        ({"best": BASELINE}, "the baseline, since a search confirmed nothing faster."),
        ({"best": BASELINE, "ended": None}, "not chosen by a search."),
        (
            {"ended": None, "steps": [Step(BASELINE, FP16, "kept", "p")]},
            "the best so far of a search that has not ended.",
        ),
    ],
)
def test_the_heading_says_whether_a_search_chose(changes: dict[str, Any], title: str) -> None:
    content = {"best": FP16, "ended": "tolerance", **changes}
    trail = documents.Trail(model="vit", shape="b1", baseline=BASELINE, status="ok", stopped="", **content)
    assert hand_over.title(trail) == f"vit at b1 as {trail.best}: {title}"


def test_the_program_finds_its_model_from_where_it_lies_or_is_told(repository: Path, tmp_path: Path) -> None:
    file = tmp_path / "results" / BOX / "best" / "vit_tiny.py"
    text = handed_over(repository, tmp_path / "results", BASELINE, {}, gpu=False)
    (model,) = (line for line in text.splitlines() if line.startswith("MODEL"))
    for argument in ("", "elsewhere.onnx"):
        namespace: dict[str, Any] = {
            "Path": Path,
            "__file__": str(file),
            "sys": SimpleNamespace(argv=["p", argument][: 1 + bool(argument)]),
        }
        exec(model, namespace)
        expected = Path(argument) if argument else tmp_path / "results/onnx/vit_tiny/fp32.onnx"
        assert namespace["MODEL"].resolve() == expected.resolve()
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="utf-8")
    done = subprocess.run([sys.executable, file], capture_output=True, text=True)
    assert done.returncode == 1 and mentions(done.stderr, "fp32.onnx", "is not there", "vit_tiny.py FILE")
    assert done.stderr.count("\n") == 1


def test_what_no_program_is_written_for_says_so_when_it_runs(repository: Path, tmp_path: Path) -> None:
    text = handed_over(repository, tmp_path, "fp16/torch_eager/v", {"quantize": "int8_weight_only"})
    assert imported(text) == set() and ast.parse(text)
    with pytest.raises(SystemExit, match=naming("quantized", "inferprof run")):
        exec(compile(text, "program.py", "exec"), {})


def test_the_program_of_torch_runs_and_says_its_median(repository: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    text = handed_over(repository, tmp_path, "fp32/torch_eager/default", {}, gpu=False)
    file = tmp_path / "program.py"
    file.write_text(text.replace("SECONDS = 2.0", "SECONDS = 0.1"), encoding="utf-8")
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("outputs [(1, 1000)]\n")
