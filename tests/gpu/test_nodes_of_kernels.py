"""Which node launched which kernels, on a real GPU: the share that one node owns, and its time against a truth.

The truth of a node is its operator alone, in an ONNX file of its own, its kernels counted by nsys in an NVTX range.
silero-vad's file is taken from SILERO_VAD_ONNX, or from beside the checkout.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from tests.gpu import node_models

from inferprof.plugins import Profiler
from inferprof.profilers import capturing, nsys
from inferprof.profilers.ort_nodes import ORT_NODES, ORT_NODES_KINETO
from inferprof.profilers.ort_profile import ORT_PROFILE
from inferprof.profilers.torch_nodes import TORCH_NODES
from inferprof.readers import nsys_sqlite, ort_json
from inferprof.tables.nodes import attribution, fallback, ort_kernels, providers, torch_kernels
from inferprof.tables.nodes.ort_kernels import Clock
from inferprof.tables.trace.timeline import KERNEL

pytestmark = pytest.mark.gpu
RUNS = 10
TRUTH = """
import sys
from pathlib import Path
import numpy as np, nvtx, onnxruntime
from cuda.bindings import driver

onnxruntime.preload_dlls()
options = onnxruntime.SessionOptions()
options.log_severity_level = 3
cuda = ("CUDAExecutionProvider", {"use_tf32": "0"})
runs, rng = int(sys.argv[1]), np.random.default_rng(0)
bound = {}
for path in map(Path, sys.argv[2:]):
    session = onnxruntime.InferenceSession(str(path), options, providers=[cuda, "CPUExecutionProvider"])
    binding = session.io_binding()
    for item in session.get_inputs():
        array = rng.standard_normal(item.shape, np.float32)
        binding.bind_ortvalue_input(item.name, onnxruntime.OrtValue.ortvalue_from_numpy(array, "cuda", 0))
    for item in session.get_outputs():
        binding.bind_output(item.name, "cuda")
    for _ in range(3):
        session.run_with_iobinding(binding)
    bound[path.stem] = session, binding
driver.cuProfilerStart()
for name, (session, binding) in bound.items():
    with nvtx.annotate(name):
        for _ in range(runs):
            session.run_with_iobinding(binding)
driver.cuProfilerStop()
"""
TORCH_MODEL = """
import torch

def make():
    layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
    torch.backends.mha.set_fastpath_enabled(False)
    return torch.nn.Sequential(layer, torch.nn.Linear(256, 10))
"""
TORCH_YAML = """
source: python
python: encoder_model:make
inputs:
  - {name: x, dtype: float32, dims: [b, 64, 256], data: normal}
"""
SILERO_YAML = """
source: onnx
onnx: silero_vad.onnx
inputs:
  - {name: input, dtype: float32, dims: [b, 576], data: normal}
  - {name: state, dtype: float32, dims: [2, b, 128], data: zeros}
  - {name: sr, dtype: int64, dims: [], data: "constant:16000"}
"""


@pytest.fixture(scope="module", autouse=True)
def tools() -> None:
    """What every test here needs."""
    pytest.importorskip("onnxruntime")
    if shutil.which("nsys") is None:
        pytest.skip("nsys is not on PATH")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("nodes")


Watch = Callable[..., Path]


@pytest.fixture(scope="module")
def watch(folder: Path) -> Watch:
    """(profiler, backend, artifact, shape, options) → the capture of RUNS iterations."""

    def capture(profiler: Profiler, backend: str, artifact: Path, shape: str, *options: str) -> Path:
        out = folder / f"{artifact.stem}_{profiler.name}{profiler.suffix}"
        run = [sys.executable, "-m", "inferprof", "run", backend, str(artifact)]
        run += ["--spec", str(artifact.with_suffix(".yaml")), "--shape", shape, "--machine", "test", *options]
        record = str(out.with_suffix(".record.json"))
        capturing.capture(profiler, [*run, "--profiled", str(RUNS), "--out", record], out)
        return out

    return capture


def joined(capture: Path) -> pd.DataFrame:
    return ort_kernels.attributed(ORT_NODES.read(capture))


# --- the share inside of one node ------------------------------------------------------------------------------


@pytest.mark.parametrize(("model", "precision"), [(node_models.vit, "fp16"), (node_models.bert, "fp16")])
def test_nearly_all_kernel_time_lies_inside_of_exactly_one_node(
    model: Callable[[Path], Path], precision: str, folder: Path, watch: Watch, record_property: Callable[..., None]
) -> None:
    onnx = model(folder / f"{model.__name__}.onnx")
    capture = watch(ORT_NODES, "ort_cuda", onnx, "b8", "--precision", precision)
    join = joined(capture)
    (share,) = attribution.shares(join)["attributed_share"]
    error = Clock.of(nsys_sqlite.read_timeline(capture)).error
    record_property(f"{model.__name__}: share inside one node", share)
    record_property(f"{model.__name__}: tie of the clocks, ns", error)
    assert share >= 0.95, f"{share:.2%}; the clocks are tied to {error} ns"
    products = join[join["op_type"].isin(("MatMul", "Gemm", "FusedMatMul"))]
    assert products["duration_ns"].sum() > 0.3 * join["duration_ns"].sum()
    assert not products["kernel"].str.contains("softmax|layer_?norm", case=False).any()


def test_sums_over_nodes_equal_the_kernels_of_nsys(folder: Path, watch: Watch) -> None:
    capture = folder / f"vit_{ORT_NODES.name}.sqlite"
    if not capture.exists():
        watch(ORT_NODES, "ort_cuda", node_models.vit(folder / "vit.onnx"), "b8", "--precision", "fp16")
    timeline = nsys_sqlite.read_timeline(capture)
    kernels = timeline.ops[timeline.ops["kind"] == KERNEL]
    assert joined(capture)["duration_ns"].sum() == (kernels["end"] - kernels["start"]).sum()
    assert joined(capture)["instances"].sum() == len(kernels)


def test_kineto_gives_them_to_the_same_nodes(
    folder: Path, watch: Watch, record_property: Callable[..., None]
) -> None:
    pytest.importorskip("torch")
    onnx = folder / "bert.onnx"
    if not onnx.exists():
        node_models.bert(onnx)
    traced = folder / f"bert_{ORT_NODES.name}.sqlite"
    if not traced.exists():
        watch(ORT_NODES, "ort_cuda", onnx, "b8", "--precision", "fp16")
    join = joined(watch(ORT_NODES_KINETO, "ort_cuda", onnx, "b8", "--precision", "fp16"))
    (share,) = attribution.shares(join)["attributed_share"]
    record_property("bert under Kineto: share inside one node", share)
    assert share >= 0.95, f"{share:.2%}"
    launches = [
        one.dropna(subset=["owner"]).groupby("owner")["instances"].sum().to_dict() for one in (join, joined(traced))
    ]
    same = sum(launches[0].get(owner) == count for owner, count in launches[1].items())
    assert same >= 0.95 * len(launches[1])


# --- against a truth -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def truth(folder: Path) -> dict[str, dict[str, tuple[float, float]]]:
    """Operator → kernel → launches and ns of a run of the operator alone, by nsys."""
    models = [node_models.operators(folder / f"{name}.onnx", [name], reduced=False) for name in node_models.OPERATORS]
    out = folder / "truth.sqlite"
    nsys.capture([sys.executable, "-c", TRUTH, str(RUNS), *map(str, models)], out)
    timeline = nsys_sqlite.read_timeline(out)
    found: dict[str, dict[str, tuple[float, float]]] = defaultdict(dict)
    ops = timeline.ops.assign(path=timeline.op_path)
    for (path, name), own in ops[ops["kind"] == KERNEL].groupby(["path", "name"]):
        duration = int((own["end"] - own["start"]).sum())
        found[timeline.paths[int(str(path))]][timeline.names[int(str(name))]] = len(own) / RUNS, duration / RUNS
    return dict(found)


def launches(kernels: dict[str, dict[str, tuple[float, float]]], but: set[str]) -> dict[str, dict[str, float]]:
    chosen = {owner: own for owner, own in kernels.items() if owner not in but}
    return {owner: {kernel: count for kernel, (count, _) in own.items()} for owner, own in chosen.items()}


def test_twenty_operators_side_by_side_have_the_kernels_that_each_has_alone(
    truth: dict[str, dict[str, tuple[float, float]]],
    folder: Path,
    watch: Watch,
    record_property: Callable[..., None],
) -> None:
    assert set(truth) == set(node_models.OPERATORS)
    onnx = node_models.operators(folder / "all.onnx", list(node_models.OPERATORS), reduced=True)
    join = joined(watch(ORT_NODES, "ort_cuda", onnx, "b1"))
    found: dict[str, dict[str, tuple[float, float]]] = defaultdict(dict)
    for (owner, kernel), own in join[join["owner"].isin(list(truth))].groupby(["owner", "kernel"]):
        found[str(owner)][str(kernel)] = own["instances"].sum() / RUNS, own["duration_ns"].sum() / RUNS
    searched = {"Conv"}  # cuDNN's algorithm is picked by a search that times them, so it may differ between sessions
    assert launches(found, searched) == launches(truth, searched)
    times = {name: sum(time for _, time in kernels.values()) for name, kernels in found.items()}
    alone = {name: sum(time for _, time in kernels.values()) for name, kernels in truth.items()}
    errors = {name: times[name] / alone[name] - 1 for name in truth}
    total = sum(abs(times[name] - alone[name]) for name in truth) / sum(alone.values())
    record_property("error against 20 operators alone", total)
    record_property("largest error of one operator", max(map(abs, errors.values())))
    assert total <= 0.1, {name: f"{error:+.1%}" for name, error in errors.items()}


# --- the ledger ------------------------------------------------------------------------------------------------


def test_a_node_without_a_kernel_is_in_the_ledger_with_its_reason_and_its_two_copies(
    folder: Path, watch: Watch
) -> None:
    capture = watch(ORT_NODES, "ort_cuda", node_models.fallback(folder / "fallback.onnx"), "b8")
    nodes = providers.per_run(ORT_NODES.read(capture))
    (row,) = fallback.ledger(nodes).to_dict("records")
    assert (row["nodes"], row["op_types"], row["providers"]) == ("determinant", "Det", providers.CPU)
    assert (row["why"], row["copies"], row["casts"]) == ("operator", 2, 0)
    assert row["copies_bytes"] == 8 * 64 * 64 * 4 + 8 * 4
    assert 0 < row["gain_low"] <= row["gain_high"] <= row["nodes_ns"] + row["copies_ns"]
    frame = ORT_NODES.read(capture)
    copies = frame[(frame["level"] == "memcpy") & (frame["metric"] == "bytes_total")]
    own = copies[copies["owner"].fillna("").str.contains("Memcpy", regex=False)]
    assert 0.9 * RUNS * row["copies_bytes"] <= own["value"].sum() <= RUNS * row["copies_bytes"]


def test_control_flow_has_the_ledger_that_onnx_runtime_assigned(
    folder: Path, watch: Watch, request: pytest.FixtureRequest
) -> None:
    given = os.environ.get("SILERO_VAD_ONNX")
    source = Path(given) if given else request.getfixturevalue("shared") / "real/onnx/silero_vad.onnx"
    onnx = Path(shutil.copy(source, folder / "silero_vad.onnx"))
    onnx.with_suffix(".yaml").write_text(SILERO_YAML)
    capture = watch(ORT_PROFILE, "ort_cuda", onnx, "b1")
    profile = ort_json.read_profile(capture)
    assert profile.facts is not None
    assigned = {node.name: node.provider for node in profile.facts.assigned}
    nodes = providers.per_run(ORT_PROFILE.read(capture))
    assert not nodes["op_type"].isin(providers.SPANNING).any()
    known = nodes[nodes["name"].isin(list(assigned))]
    assert len(known) > len(nodes) / 2
    assert known["provider"].tolist() == known["name"].map(assigned).tolist()
    assert not nodes["name"].str.contains("else_branch").any()  # 16 kHz takes the other one
    fallbacks = fallback.ledger(nodes)
    left = nodes[(nodes["provider"] == providers.CPU) & ~nodes["op_type"].str.startswith(providers.COPY)]
    assert sorted(", ".join(fallbacks["nodes"]).split(", ")) == sorted(left["name"])
    assert fallbacks["copies"].sum() <= nodes.loc[nodes["op_type"].str.startswith(providers.COPY), "executions"].sum()


# --- torch -----------------------------------------------------------------------------------------------------


def test_torchs_kernels_belong_to_operators_and_to_modules_by_name(
    folder: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    (folder / "encoder_model.py").write_text(TORCH_MODEL)
    spec = folder / "encoder.yaml"
    spec.write_text(TORCH_YAML)
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    capture = watch(TORCH_NODES, "torch_eager", spec, "b8")
    join = torch_kernels.attributed(TORCH_NODES.read(capture))
    shares = attribution.shares(join)["attributed_share"]
    assert shares["op"] >= 0.95
    assert shares["module"] >= 0.95
    modules = attribution.by_owner(join, "module")["owner"].dropna().str.rpartition(" > ")[2]
    assert {"model.0.linear1", "model.0.linear2", "model.0.norm1", "model.1"} <= set(modules)
