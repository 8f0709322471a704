"""The Session's own logic on a stand-in for TensorRT; tests/gpu runs it on the real one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.unit.facts import facts, naming, states

from inferprof.backends.tensorrt_runtime import TensorRTSession, layer_times, outside_profile, write_profile
from inferprof.device import Buffer
from inferprof.devices.cpu import CpuDevice
from inferprof.errors import CaseFailed

Array = np.ndarray[Any, Any]
Host = Callable[[Array], Buffer]


class Engine:
    """x [-1, 4] float → y [-1, 4] float, built for batches 1 to 8."""

    num_io_tensors = 2
    device_memory_size = 512
    location = "DEVICE"

    def __init__(self) -> None:
        self.context = Context()

    def get_tensor_name(self, index: int) -> str:
        return "xy"[index]

    def get_tensor_mode(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(name={"x": "INPUT", "y": "OUTPUT"}[name])

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return (-1, 4)

    def get_tensor_profile_shape(self, name: str, index: int) -> list[tuple[int, ...]]:
        return [(1, 4), (4, 4), (8, 4)]

    def get_tensor_location(self, name: str) -> str:
        return self.location

    def get_tensor_dtype(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(name="FLOAT")

    def create_execution_context(self) -> Context | None:
        return self.context


class Context:
    """Computes y = 2 x once it is told to run."""

    def __init__(self) -> None:
        self.works = True
        self.runs = 0
        self.bindings: list[str] = []
        self.shape: tuple[int, ...] = (0,)

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        self.shape = shape
        return True

    def set_tensor_address(self, name: str, address: int) -> bool:
        self.bindings.append(name)
        return True

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return self.shape

    def execute_async_v3(self, stream: int | None) -> bool:
        self.runs += 1
        return self.works


class GraphDevice(CpuDevice):
    """The CPU, with a graph that counts its launches."""

    def __init__(self) -> None:
        self.launches = 0

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        work()

        def launch() -> None:
            self.launches += 1

        return launch


TRT = SimpleNamespace(TensorLocation=SimpleNamespace(HOST="HOST", DEVICE="DEVICE"))
LOG = SimpleNamespace(errors=["[error] words of TensorRT"], warnings=[])


def session(engine: Engine, device: CpuDevice, graph: bool = False) -> TensorRTSession:
    return TensorRTSession(TRT, engine, LOG, device, graph=graph)


@pytest.mark.parametrize("shape", [(1, 4), (8, 4)])
def test_shapes_within_the_profile_pass(shape: tuple[int, ...]) -> None:
    assert outside_profile(Engine(), {"x": shape}) is None


@pytest.mark.parametrize("shape", [(9, 4), (8, 5), (8,)])
def test_shapes_outside_of_the_profile_are_refused_with_its_range(shape: tuple[int, ...]) -> None:
    reason = outside_profile(Engine(), {"x": shape})
    assert reason is not None
    assert states(reason, "x", "shape", *facts(f"{shape}"), "1", "4", "8", "4")


def test_an_engine_without_dynamic_dimensions_serves_its_one_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "get_tensor_shape", lambda self, name: (2, 4))
    assert outside_profile(Engine(), {"x": (2, 4)}) is None
    assert outside_profile(Engine(), {"x": (1, 4)}) is not None


def test_binding_again_says_the_inputs_again_and_keeps_the_outputs(host: Host, x: Array) -> None:
    engine = Engine()
    running = session(engine, CpuDevice())
    running.bind({"x": host(x)})
    first = running.outputs()["y"]
    running.bind({"x": host(x)})
    assert engine.context.bindings == ["x", "y", "x"]
    assert running.outputs()["y"] is first
    assert (first.shape, first.dtype) == ((2, 4), np.dtype(np.float32))


def test_another_shape_gets_outputs_of_its_size(host: Host, x: Array) -> None:
    running = session(Engine(), CpuDevice())
    running.bind({"x": host(x)})
    running.bind({"x": host(x[:1])})
    assert running.outputs()["y"].shape == (1, 4)


def test_a_captured_graph_survives_binding_the_same_addresses_and_no_others(host: Host, x: Array) -> None:
    engine, device = Engine(), GraphDevice()
    running = session(engine, device, graph=True)
    running.bind({"x": host(x)})
    assert running.capture_graph() is True
    running.bind({"x": host(x)})
    running.enqueue()
    assert (engine.context.runs, device.launches) == (1, 1)
    running.bind({"x": host(x.copy())})
    running.enqueue()
    assert (engine.context.runs, device.launches) == (2, 1)


def test_no_graph_is_captured_unless_the_variant_asks(host: Host, x: Array) -> None:
    running = session(Engine(), GraphDevice())
    running.bind({"x": host(x)})
    assert running.capture_graph() is False


def test_a_run_that_fails_says_why(host: Host, x: Array) -> None:
    engine = Engine()
    running = session(engine, CpuDevice())
    running.bind({"x": host(x)})
    engine.context.works = False
    with pytest.raises(CaseFailed, match=naming("TensorRT", "[error] words of TensorRT")):
        running.enqueue()


def test_an_output_whose_shape_depends_on_the_data_is_refused(
    host: Host, x: Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Context, "get_tensor_shape", lambda self, name: (-1, 4))
    with pytest.raises(CaseFailed, match=naming("shape", "y", "-1", "4")):
        session(Engine(), CpuDevice()).bind({"x": host(x)})


def test_an_output_without_a_numpy_type_is_refused(host: Host, x: Array, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "get_tensor_dtype", lambda self, name: SimpleNamespace(name="BF16"))
    with pytest.raises(CaseFailed, match=naming("y", "BF16", "no", "NumPy")):
        session(Engine(), CpuDevice()).bind({"x": host(x)})


def test_an_input_that_tensorrt_reads_on_the_host_is_refused() -> None:
    engine = Engine()
    engine.location = "HOST"
    with pytest.raises(CaseFailed, match="input x decides shapes"):
        session(engine, CpuDevice())


def test_memory_is_told_by_engines_old_and_new() -> None:
    assert session(Engine(), CpuDevice()).memory() == {"context_bytes": 512}
    newer = Engine()
    newer.device_memory_size_v2 = 1024  # type: ignore[attr-defined]
    assert session(newer, CpuDevice()).memory() == {"context_bytes": 1024}


class Inspector:
    """Tells a format only of the shapes of a context, as TensorRT's does of a dynamic engine."""

    execution_context: Context | None = None

    def get_engine_information(self, layout: str) -> str:
        shape = self.execution_context.shape if self.execution_context else "N/A due to dynamic shapes"
        return json.dumps({"Layers": [{"Name": "double", "Shape": shape}], "As": layout})


def test_the_native_profile_is_two_files_as_trtexec_exports_them(
    host: Host, x: Array, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, trt = Engine(), SimpleNamespace(**vars(TRT), LayerInformationFormat=SimpleNamespace(JSON="json"))
    monkeypatch.setattr(Engine, "create_engine_inspector", lambda self: Inspector(), raising=False)
    running = session(engine, CpuDevice())
    running.bind({"x": host(x)})
    path = tmp_path / "b2.profile.json"
    write_profile(path, trt, running, {"double": [9.0, 1.0, 3.0]})
    layers = json.loads((tmp_path / "b2.graph.json").read_text())
    assert layers == {"Layers": [{"Name": "double", "Shape": list(x.shape)}], "As": "json"}
    # The first inference is not counted.
    row = {"name": "double", "timeMs": 4.0, "averageMs": 2.0, "medianMs": 2.0, "percentage": 100.0}
    assert json.loads(path.read_text()) == [{"count": 2}, row]


def test_times_of_layers_are_kept_in_the_order_of_inferences() -> None:
    times = layer_times(pytest.importorskip("tensorrt_rtx"))
    for ms in (3.0, 1.0):
        times.report_layer_time("conv", ms)
        times.report_layer_time("head", 2 * ms)
    assert times.times_ms == {"conv": [3.0, 1.0], "head": [6.0, 2.0]}


def test_the_real_bindings_have_what_a_native_profile_needs() -> None:
    rtx = pytest.importorskip("tensorrt_rtx")
    assert hasattr(rtx.ICudaEngine, "create_engine_inspector")
    assert hasattr(rtx.EngineInspector, "execution_context")
    assert hasattr(rtx.IExecutionContext, "profiler")
    assert hasattr(rtx.IExecutionContext, "nvtx_verbosity")
    assert rtx.ProfilingVerbosity.LAYER_NAMES_ONLY != rtx.ProfilingVerbosity.DETAILED
    assert rtx.LayerInformationFormat.JSON is not None
