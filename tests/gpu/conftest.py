"""What the tests on a GPU share. Without a GPU they are skipped, with the reason."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inferprof.backends import ort
from inferprof.case import Shape, Variant
from inferprof.device import Device
from inferprof.devices.cpu import CpuDevice
from inferprof.devices.cuda import CudaDevice
from inferprof.errors import UserError
from inferprof.measure.lane import Lane
from inferprof.model import data, model_spec
from inferprof.model.model_spec import ModelSpec
from inferprof.plugins import OpenRequest

Arrays = dict[str, np.ndarray[Any, Any]]


@pytest.fixture(scope="session", autouse=True)
def gpu() -> None:
    """A GPU that computes."""
    try:
        CudaDevice()
    except UserError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def convolutions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """x [b, 3, 32, 32] → Conv, Relu, mean, Gemm → y [b, 10], opset 13, so that every runtime knows it."""
    onnx = pytest.importorskip("onnx")
    helper, rng = onnx.helper, np.random.default_rng(0)
    weights = {
        "kernel": rng.normal(0, 0.2, (64, 3, 3, 3)),
        "matrix": rng.normal(0, 0.2, (64, 10)),
        "offset": rng.normal(0, 0.2, 10),
    }
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "kernel"], ["c"], name="conv", pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["c"], ["r"], name="relu"),
            helper.make_node("GlobalAveragePool", ["r"], ["p"], name="pool"),
            helper.make_node("Flatten", ["p"], ["f"], name="flatten"),
            helper.make_node("Gemm", ["f", "matrix", "offset"], ["y"], name="head"),
        ],
        "convolutions",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["b", 3, 32, 32])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["b", 10])],
        [onnx.numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path = tmp_path_factory.mktemp("models") / "convolutions.onnx"
    onnx.save(model, path)
    return path


@pytest.fixture
def opening() -> Callable[..., OpenRequest]:
    """(spec, shape label, options of the variant) → an OpenRequest on a CUDA stream of its own."""

    def request(spec: ModelSpec, label: str, artifact: Path, precision: str = "fp32", **options: Any) -> OpenRequest:
        shape = spec.resolve(Shape.parse(label))
        assert shape is not None
        return OpenRequest(artifact, spec, precision, shape, Variant("v", options), CudaDevice(), threads=2)

    return request


@pytest.fixture
def infer() -> Callable[..., Arrays]:
    """(session, device, feeds) → the outputs of one inference from pageable arrays; `graph`: of a CUDA graph."""

    def run(session: Any, device: Device, feeds: Arrays, graph: bool = False) -> Arrays:
        lane = Lane(session, device, feeds, "pageable")
        lane.begin()
        outputs = lane.finish()
        if graph:
            assert session.capture_graph()
            lane.poison()
            lane.begin()
            outputs = lane.finish()
        return outputs

    return run


@pytest.fixture
def feeds_of() -> Callable[[OpenRequest], Arrays]:
    """Seeded inputs at the request's shape."""
    return lambda request: data.feeds(request.spec, request.shape, 1, 0)[0]


@pytest.fixture
def expected(infer: Callable[..., Arrays]) -> Callable[[Path, OpenRequest, Arrays], Arrays]:
    """(ONNX file, request, feeds) → the outputs of ONNX Runtime's CPU provider for the graph as it is.

    Its fusions would make an integer product of one in FP8, which it then refuses.
    """
    unfused = Variant("unfused", {"graph_optimization": "disabled"})

    def run(model: Path, request: OpenRequest, feeds: Arrays) -> Arrays:
        device = CpuDevice()
        with ort.open_cpu(replace(request, artifact=model, device=device, variant=unfused)) as session:
            return infer(session, device, feeds)

    return run


@pytest.fixture
def bare() -> Callable[[Path], ModelSpec]:
    """The description of a bare ONNX file."""
    return model_spec.load


@pytest.fixture(scope="session")
def build_engine() -> Callable[[Path, Path], None]:
    """Builds an engine of an ONNX file for batches 1 to 8 with TensorRT 8.5."""
    script = Path(__file__).parents[2] / "studies" / "tensorrt85" / "build_engine.py"

    def build(onnx: Path, out: Path) -> None:
        serves = ["--shape", "b4", "--profile", "b1", "b8"]
        subprocess.run([sys.executable, str(script), str(onnx), *serves, "--out", str(out)], check=True)

    return build
