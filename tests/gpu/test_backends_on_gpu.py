"""ONNX Runtime CUDA and torch on a real GPU: right results, complete records, honest failures."""

from __future__ import annotations

import gc
import multiprocessing
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inferprof import registry, run_request, workload
from inferprof.case import Case, Variant
from inferprof.measure import timing
from inferprof.measure.lane import Lane
from inferprof.model import model_spec
from inferprof.model.model_spec import ModelSpec
from inferprof.plugins import OpenRequest

# Warnings stay warnings: torch tells at each start which features of the GPU are off.
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]

Arrays = dict[str, np.ndarray[Any, Any]]

FACTORY = """
import torch

class Head(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 10))

    def forward(self, x):
        return self.layers(x)

class Huge(torch.nn.Module):
    def forward(self, x):
        return x.new_ones(1 << 40) + x.sum()  # the result itself, which no compiler gets around

def head():
    return Head()

def huge():
    return Huge()
"""
YAML = """
source: python
python: {module}:{factory}
inputs:
  - {{name: x, dtype: float32, dims: [b, 64]}}
"""
TOLERANCES = {"fp32": 1e-4, "fp16": 2e-2, "bf16": 1e-1}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("ort_cuda", {}),
    ("ort_cuda", {"cuda_graph": True}),
    ("ort_cuda", {"placement": "pinned"}),
    ("ort_cuda", {"placement": "device"}),
    ("torch_eager", {}),
    ("torch_eager", {"cuda_graph": True}),
    ("torch_compile", {}),
    ("torch_compile", {"compile_mode": "reduce-overhead"}),
]


@pytest.fixture(scope="module")
def torch_spec(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ModelSpec]:
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("torch")
    (folder / "heads.py").write_text(FACTORY)

    def load(factory: str) -> ModelSpec:
        path = folder / f"{factory}.yaml"
        path.write_text(YAML.format(module="heads", factory=factory))
        return model_spec.load(path)

    return load


@pytest.fixture(autouse=True)
def nothing_cached() -> None:
    """What earlier tests of this process left to PyTorch's allocator would be freed, and counted, in this one."""
    if torch := sys.modules.get("torch"):
        torch.compiler.reset()
        gc.collect()
        torch.cuda.empty_cache()


# --- results ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", ["b1", "b8"])
@pytest.mark.parametrize("graph", [False, True])
def test_ort_cuda_agrees_with_the_cpu(label, graph, convolutions, bare, opening, feeds_of, expected, infer):
    request: OpenRequest = opening(bare(convolutions), label, convolutions, cuda_graph=graph)
    feeds = feeds_of(request)
    with registry.backends()["ort_cuda"].open(request) as session:
        outputs = infer(session, request.device, feeds, graph)
    np.testing.assert_allclose(
        outputs["y"], expected(convolutions, request, feeds)["y"], rtol=TOLERANCES["fp32"], atol=TOLERANCES["fp32"]
    )


def test_tf32_is_off_by_default_and_on_where_asked_for(convolutions, bare, opening, feeds_of, expected, infer):
    errors = {}
    for tf32 in (False, True):
        request: OpenRequest = opening(bare(convolutions), "b8", convolutions, tf32=tf32)
        feeds = feeds_of(request)
        with registry.backends()["ort_cuda"].open(request) as session:
            outputs = infer(session, request.device, feeds)
        errors[tf32] = np.abs(outputs["y"] - expected(convolutions, request, feeds)["y"]).max()
    assert errors[True] > 10 * errors[False]


def test_an_ort_graph_is_captured_anew_for_other_addresses(convolutions, bare, opening, feeds_of, expected, infer):
    request: OpenRequest = opening(bare(convolutions), "b1", convolutions, cuda_graph=True)
    feeds = feeds_of(request)
    others = {name: -array for name, array in feeds.items()}
    with registry.backends()["ort_cuda"].open(request) as session:
        infer(session, request.device, feeds, graph=True)
        outputs = infer(session, request.device, others, graph=True)
    np.testing.assert_allclose(
        outputs["y"], expected(convolutions, request, others)["y"], rtol=TOLERANCES["fp32"], atol=TOLERANCES["fp32"]
    )


@pytest.mark.parametrize(("backend", "options"), [v for v in VARIANTS if v[0].startswith("torch")])
@pytest.mark.parametrize("precision", list(TOLERANCES))
def test_torch_agrees_with_fp32_on_the_cpu(backend, options, precision, torch_spec, opening, feeds_of, infer):
    import torch

    from inferprof.model import export

    spec = torch_spec("head")
    request: OpenRequest = opening(spec, "b4", spec.path, precision, **options)
    feeds = feeds_of(request)
    with registry.backends()[backend].open(request) as session:
        outputs = infer(session, request.device, feeds, graph=options.get("cuda_graph", False))
    with torch.inference_mode():
        reference = export.torch_module(spec)(torch.from_numpy(feeds["x"])).numpy()
    (output,) = outputs.values()
    assert output.dtype == np.float32
    np.testing.assert_allclose(output, reference, rtol=TOLERANCES[precision], atol=TOLERANCES[precision])


# --- time ------------------------------------------------------------------------------------------------------


def test_enqueue_returns_before_the_gpu_is_done(convolutions, bare, opening, feeds_of):
    request: OpenRequest = opening(bare(convolutions), "b4096", convolutions)
    with registry.backends()["ort_cuda"].open(request) as session:
        lane = Lane(session, request.device, feeds_of(request), "device")
        for _ in range(3):
            session.enqueue()
        request.device.synchronize()
        start = time.perf_counter_ns()
        session.enqueue()
        queued = time.perf_counter_ns() - start
        lane.device.synchronize()
        done = time.perf_counter_ns() - start
    assert queued < done / 2


# --- records ---------------------------------------------------------------------------------------------------


def record_of(backend: str, options: dict[str, Any], spec: ModelSpec, artifact: Path) -> dict[str, Any]:
    """The record of a run in a process of its own, as a study has it: the memory of this one holds earlier tests'."""
    request = run_request.RunRequest(
        case=Case(spec.name, "fp32", backend, "v", "b4"),
        artifact=artifact,
        spec=spec,
        variant=Variant("v", options),
        machine="gpu-test",
        protocol=timing.Protocol(budget_s=0.3),
    )
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(workload.run, request).result()


@pytest.mark.parametrize(("backend", "options"), VARIANTS)
def test_every_runtime_fills_its_record(backend, options, convolutions, torch_spec):
    torch_model = backend.startswith("torch")
    spec = torch_spec("head") if torch_model else model_spec.load(convolutions)
    record = record_of(backend, options, spec, spec.path if torch_model else convolutions)
    assert (record["status"], record["reason"]) == ("ok", None)
    medians = {name: np.median(entry["samples_ns"]) for name, entry in record["boundaries"].items()}
    assert set(medians) == {"device", "call", "end_to_end"}
    yardstick = record["host"]["yardstick_ns"]
    drift = max(yardstick) / min(yardstick)  # one boundary may have had the faster half of a second
    assert 0 < medians["device"] <= medians["call"] * 1.02 * drift + 1000
    assert all(check["passed"] for check in record["checks"].values())
    alone = "compile_mode" in options
    assert ("not_measured" in record["throughput"]["pipelined"]) is alone
    assert record["memory"]["device_bytes"] > 0
    assert record["environment"]["gpu"]["uuid"].startswith(("GPU-", "MIG-"))
    staged = options.get("placement") != "device"
    assert ("samples_ns" in record["stages"]["h2d"]) is staged
    assert "samples_ns" in record["stages"]["d2h"]
    assert "not_measured" not in record["telemetry"]
    assert len(yardstick) >= 4  # device, call, end_to_end and the stages
    assert sum(record["host"]["yardstick_cpu_ns"]) < 100e6


@pytest.mark.parametrize("backend", ["torch_eager", "torch_compile"])
def test_out_of_memory_is_a_failed_case(backend, torch_spec):
    spec = torch_spec("huge")
    record = record_of(backend, {}, spec, spec.path)
    assert record["status"] == "failed"
    assert "out of memory" in record["reason"].lower()


def test_ort_out_of_memory_is_a_failed_case(tmp_path):
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    graph = helper.make_graph(
        [
            helper.make_node("Expand", ["x", "size"], ["e"], name="huge"),
            helper.make_node("ReduceSum", ["e"], ["y"], name="sum", keepdims=0),
        ],
        "huge",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["b", 1])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [])],
        [onnx.numpy_helper.from_array(np.array([4, 1 << 36], np.int64), "size")],
    )
    path = tmp_path / "huge.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    record = record_of("ort_cuda", {}, model_spec.load(path), path)
    assert record["status"] == "failed"
    assert "allocate memory" in record["reason"]


def test_a_profiled_run_collects_and_takes_no_samples(convolutions):
    spec = model_spec.load(convolutions)
    record = workload.run(
        run_request.RunRequest(
            case=Case(spec.name, "fp32", "ort_cuda", "v", "b4"),
            artifact=convolutions,
            spec=spec,
            variant=Variant("v", {"cuda_graph": True}),
            machine="gpu-test",
            profiling=run_request.Profiling(iterations=3),
        )
    )
    assert record["status"] == "ok"
    assert record["outputs"]["y"]["finite"] is True
