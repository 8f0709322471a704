"""A model of large matrix products, and one that only moves data, run close to the roofs that were measured."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.made_records import document

from inferprof import registry
from inferprof.case import Shape, Variant
from inferprof.devices import bandwidth, ceilings
from inferprof.devices.cuda import CudaDevice
from inferprof.machine import hardware, peaks
from inferprof.measure import loop, timing
from inferprof.measure.lane import Lane
from inferprof.model import cost, model_spec
from inferprof.plugins import OpenRequest
from inferprof.tables import roofs
from inferprof.tables.limits import roofline

pytest.importorskip("torch")
pytestmark = pytest.mark.gpu
SIZE = 4096
PROTOCOL = timing.Protocol(budget_s=1.0, interval=0.005)


@pytest.fixture(scope="module")
def limits() -> roofs.Roofs:
    device = CudaDevice()
    gpu = hardware.detect_gpu()
    assert gpu is not None
    found = peaks.of(gpu.name, gpu.memory, mig=gpu.mig)
    return roofs.roofs(
        found, document("ceilings", ceilings.measure(device)), document("bandwidth", bandwidth.measure(device))
    )


def model(folder: Path, dtype: str, nodes: list[Any], weights: dict[str, Any]) -> Path:
    """x [b, SIZE] → y [b, SIZE] in one type."""
    onnx = pytest.importorskip("onnx")
    number = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    values = [onnx.helper.make_tensor_value_info(name, number, ["b", SIZE]) for name in ("x", "y")]
    tensors = [onnx.numpy_helper.from_array(array.astype(dtype), name) for name, array in weights.items()]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(*node) for node in nodes], "test", values[:1], values[1:], tensors
    )
    path = folder / "model.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def device_ms(path: Path, shape: Shape, dtype: str) -> float:
    """The device median of ONNX Runtime's CUDA provider."""
    device = CudaDevice()
    request = OpenRequest(path, model_spec.load(path), "fp16", shape, Variant(), device, threads=2)
    feeds = {"x": np.random.default_rng(1).normal(0, 1, (shape.batch, SIZE)).astype(dtype)}
    with registry.backends()["ort_cuda"].open(request) as session:
        lane = Lane(session, device, feeds, "pageable")
        lane.begin()
        lane.finish()
        series = loop.run("device", lambda: device.timed(session.enqueue)(), PROTOCOL, time.perf_counter_ns)
    return statistics.median(series.samples_ns) / 1e6


@pytest.mark.parametrize(("dtype", "kind"), [("float16", "fp16"), ("float32", "fp32")])
def test_large_products_come_within_a_third_of_their_roof_and_not_beyond_it(tmp_path, limits, dtype, kind):
    weight = np.random.default_rng(0).normal(0, SIZE**-0.5, (SIZE, SIZE))
    nodes = [("MatMul", ["x" if i == 0 else f"h{i}", "w"], [f"h{i + 1}" if i < 3 else "y"]) for i in range(4)]
    path, shape = model(tmp_path, dtype, nodes, {"w": weight}), Shape.parse(f"b{SIZE}")
    found = roofline.of_graph(document("cost", cost.cost(path, shape)), limits)
    assert (found["flops"], found["limit"], found["kind"]) == (4 * 2 * SIZE**3, "compute", kind)
    assert 0.9 < device_ms(path, shape, dtype) / found["fused_ms"] < 1.5


def test_a_node_that_moves_data_comes_within_half_of_the_memory_roof_and_not_beyond_it(tmp_path, limits):
    """ONNX Runtime's own kernel moves 2.3 TB/s, on an H200 whose memory moves 4.2."""
    path, shape = model(tmp_path, "float32", [("Neg", ["x"], ["y"])], {}), Shape.parse("b16384")
    found = roofline.of_graph(document("cost", cost.cost(path, shape)), limits)
    assert (found["bytes"], found["limit"]) == (2 * 16384 * SIZE * 4, "memory")
    assert 0.9 < device_ms(path, shape, "float32") / found["fused_ms"] < 2
