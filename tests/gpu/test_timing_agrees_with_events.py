"""The device boundary against a bare event-timed loop of the same session, in the same process, in five pairs."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import numpy as np
import pytest

from inferprof import registry
from inferprof.case import Shape, Variant
from inferprof.devices.cuda import CudaDevice
from inferprof.measure import loop, timing
from inferprof.model import model_spec
from inferprof.plugins import OpenRequest

pytestmark = pytest.mark.gpu
PAIRS = 5
TOLERANCE = 0.01
TOLERANCE_NS = 2_000
PROTOCOL = timing.Protocol(budget_s=2.0, interval=0.002)


@pytest.fixture(scope="module")
def matmuls(tmp_path_factory) -> Path:
    """Eight matrix products of 2048 x 2048: about 1 ms."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weight = np.random.default_rng(0).normal(0, 2048**-0.5, (2048, 2048)).astype(np.float32)
    nodes = [helper.make_node("MatMul", [f"x{i}", "w"], [f"x{i + 1}"]) for i in range(8)]
    graph = helper.make_graph(
        nodes,
        "matmuls",
        [helper.make_tensor_value_info("x0", TensorProto.FLOAT, ["batch", 2048])],
        [helper.make_tensor_value_info("x8", TensorProto.FLOAT, ["batch", 2048])],
        [numpy_helper.from_array(weight, "w")],
    )
    path: Path = tmp_path_factory.mktemp("models") / "matmuls.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def bare_loop(session, device, runs: int) -> float:
    """The median of an event-timed loop by torch's events, with nothing of ours in it; ns."""
    import torch

    stream = torch.cuda.ExternalStream(device.stream)
    samples: list[float] = []
    for _ in range(runs):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record(stream)
        session.enqueue()
        stop.record(stream)
        stop.synchronize()
        samples.append(float(start.elapsed_time(stop)) * 1e6)
    return statistics.median(samples)


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("batch", [1, 2048])
def test_device_medians_agree_with_a_bare_event_timed_loop(matmuls, batch, graph):
    pytest.importorskip("torch")
    backend = registry.backends()["ort_cuda"]
    device = CudaDevice()
    spec = model_spec.load(matmuls)
    variant = Variant("graph", {"cuda_graph": True}) if graph else Variant()
    request = OpenRequest(matmuls, spec, "fp32", Shape.parse(f"b{batch}"), variant, device, threads=1)
    feeds = {"x0": np.random.default_rng(1).normal(0, 1, (batch, 2048)).astype(np.float32)}
    with backend.open(request) as session:
        protocol = timing.Protocol(budget_s=2.0, interval=0.002, graph=graph)
        result = timing.measure(session, device, feeds, "pageable", protocol)
        assert {name: check.detail for name, check in result.checks.items() if not check.passed} == {}
        ours: list[float] = []
        bare: list[float] = []
        for _ in range(PAIRS):
            series = loop.run("device", lambda: device.timed(session.enqueue)(), PROTOCOL, time.perf_counter_ns)
            ours.append(series.median)
            bare.append(bare_loop(session, device, len(series.samples_ns)))
        # The fastest of each: where the host sets the pace, it slows down loops of either kind, by half at times.
        assert abs(min(ours) - min(bare)) <= max(TOLERANCE * min(bare), TOLERANCE_NS), (ours, bare)


def test_a_session_on_another_stream_is_caught(matmuls):
    """What an ONNX Runtime session does that is told not to wait and computes on a stream of its own."""
    torch = pytest.importorskip("torch")
    device, other = CudaDevice(), CudaDevice()
    backend = registry.backends()["ort_cuda"]
    spec = model_spec.load(matmuls)
    request = OpenRequest(matmuls, spec, "fp32", Shape.parse("b2048"), Variant(), other, threads=1)
    feeds = {"x0": np.random.default_rng(1).normal(0, 1, (2048, 2048)).astype(np.float32)}
    with backend.open(request) as session:
        quick = timing.Protocol(budget_s=0.3, throughput_min_s=0.1)
        result = timing.measure(session, device, feeds, "pinned", quick)
        torch.cuda.synchronize()
    assert not result.checks["outputs_overwritten"].passed
