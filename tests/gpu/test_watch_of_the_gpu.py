"""`inferprof watch` around programs that know nothing of it: torch, ONNX Runtime, eager and as graphs.

`pytest -s` prints the answers.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from inferprof.explain import answer, watch
from inferprof.explain.foreign import Foreign
from inferprof.explain.parts import IDLE_WORDS, parts_of

pytestmark = pytest.mark.gpu
RUNS = 60
LAYERS = 200
TORCH = """
import sys
import torch

layers = [torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.LayerNorm(256)] * 60
model = torch.nn.Sequential(*layers).cuda().half().eval()
x = torch.randn(1, 256, device="cuda", dtype=torch.float16)
with torch.inference_mode():
    run = lambda: model(x)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(5):
            run()
    torch.cuda.synchronize()
    if sys.argv[1] == "graph":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        run = graph.replay
    for _ in range(60):
        run()
        torch.cuda.synchronize()
"""
ONNX_RUNTIME = """
import sys
import numpy as np
import onnxruntime

onnxruntime.preload_dlls()
options = {"enable_cuda_graph": "1"} if sys.argv[1] == "graph" else {}
session = onnxruntime.InferenceSession(sys.argv[2], providers=[("CUDAExecutionProvider", options)])
binding = session.io_binding()
x = onnxruntime.OrtValue.ortvalue_from_numpy(np.ones((1, 64), np.float32), "cuda", 0)
y = onnxruntime.OrtValue.ortvalue_from_numpy(np.ones((1, 64), np.float32), "cuda", 0)
binding.bind_ortvalue_input("x", x)
binding.bind_ortvalue_output("y", y)
for _ in range(60):
    session.run_with_iobinding(binding)
"""
PROGRAMS = {"torch": TORCH, "onnx_runtime": ONNX_RUNTIME}


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sin and Cos in turn, which no optimizer fuses."""
    onnx = pytest.importorskip("onnx")
    names = ["x", *(f"y{layer}" for layer in range(LAYERS - 1)), "y"]
    nodes = [
        onnx.helper.make_node("Cos" if layer % 2 else "Sin", [names[layer]], [names[layer + 1]])
        for layer in range(LAYERS)
    ]
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 64]) for name in "xy"]
    graph = onnx.helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    path = tmp_path_factory.mktemp("model") / "chain.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.fixture(scope="module")
def watched(chain: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str, str], Foreign]:
    """The answer to a program, launched in a way, under a tool; each is run once."""
    answers: dict[tuple[str, str, str], Foreign] = {}
    folder = tmp_path_factory.mktemp("programs")

    def watched(program: str, way: str, tool: str) -> Foreign:
        pytest.importorskip("torch" if program == "torch" else "onnxruntime")
        if tool == "nsys" and shutil.which("nsys") is None:
            pytest.skip("nsys is not on PATH")
        if (program, way, tool) not in answers:
            path = folder / f"program_of_{program}.py"  # a module named torch would be imported in its place
            path.write_text(PROGRAMS[program])
            asked = watch.Asked([sys.executable, str(path), way, str(chain)], tool, bare=True)
            (case,), code = watch.watch(asked, folder / f"{program}-{way}-{tool}")
            assert code == 0
            answers[program, way, tool] = case
            sys.stdout.write(f"\n{answer.render(case)}\n")
        return answers[program, way, tool]

    return watched


@pytest.mark.parametrize("tool", ["nsys", "kineto"])
def test_torch_launched_one_by_one_waits_for_launches(tool: str, watched: Callable[[str, str, str], Foreign]) -> None:
    case = watched("torch", "eager", tool)
    assert case.choice is not None
    assert case.choice.count == pytest.approx(RUNS, rel=0.2)
    assert case.verdict.groups[0].findings[0].check == "cuda_graph"
    assert len(case.watched) == 2


def test_onnx_runtime_launched_one_by_one_waits_for_launches(watched: Callable[[str, str, str], Foreign]) -> None:
    case = watched("onnx_runtime", "eager", "nsys")
    assert case.choice is not None
    assert case.choice.count == pytest.approx(RUNS, rel=0.2)
    assert case.verdict.groups[0].findings[0].check == "cuda_graph"


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_graph_is_seen_with_its_kernels_and_waits_less(
    program: str, watched: Callable[[str, str, str], Foreign]
) -> None:
    eager, graph = (parts_of(watched(program, way, "nsys")) for way in ("eager", "graph"))
    assert eager is not None and graph is not None
    waiting = IDLE_WORDS["launch"]
    assert graph[2][waiting] < eager[2][waiting] / 2
    case = watched(program, "graph", "nsys")
    assert case.choice is not None
    assert case.choice.count == pytest.approx(RUNS, rel=0.2)
    launches = case.rows[case.rows["level"].eq("kernel") & case.rows["metric"].eq("duration_total")]["instances"]
    assert launches.sum() > RUNS * 100


def test_onnx_runtimes_own_profile_names_the_provider(watched: Callable[[str, str, str], Foreign]) -> None:
    case = watched("onnx_runtime", "eager", "ort_profile")
    owners = case.rows.loc[case.rows["level"].eq("op") & case.rows["metric"].eq("duration_total"), "owner"]
    assert owners.str.split(" > ").str[0].unique().tolist() == ["CUDAExecutionProvider"]


def test_the_captures_hold_no_variable_of_this_process(
    watched: Callable[[str, str, str], Foreign], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if shutil.which("nsys") is None:
        pytest.skip("nsys is not on PATH")
    planted = "planted-value-of-a-variable"
    monkeypatch.setenv("SOME_TOKEN", planted)
    program = tmp_path / "program.py"
    program.write_text("import torch\ntorch.ones(9, device='cuda').sum().item()\n")
    watch.watch(watch.Asked([sys.executable, str(program)], "nsys"), tmp_path / "out")
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if planted.encode() in path.read_bytes()]
