"""The record of a run, on stand-in runtimes: the real ones are tested in tests/unit/backends and tests/gpu."""

from __future__ import annotations

import contextlib
import gc
import json
import platform
import re
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.unit.facts import facts, mentions, reason_alone
from tests.unit.graph_records import graphs_of
from tests.unit.tuning_records import choice

from inferprof import forked, progress, registry, workload
from inferprof.case import Case, Variant
from inferprof.device import Buffer
from inferprof.devices.cpu import CpuDevice
from inferprof.devices.ranges import LOOKS
from inferprof.errors import CaseFailed, UserError
from inferprof.machine import hardware
from inferprof.measure import device_lock, timing
from inferprof.model.model_spec import InputSpec, ModelSpec
from inferprof.plugins import Backend, OpenRequest
from inferprof.run_request import Profiling, RunRequest

FACTORS = {"nan": np.nan, "another function": 1.5}


class Doubling:
    """y = 2 x on the CPU."""

    def __init__(self, fault: str) -> None:
        self._fault = fault
        self._x: Buffer | None = None
        self._y: Buffer | None = None

    def bind(self, inputs: Mapping[str, Buffer]) -> None:
        self._x = inputs["x"]
        self._y = self._y or CpuDevice().allocate(self._x.shape, self._x.dtype)

    def enqueue(self) -> None:
        if self._fault == "out of memory":
            raise CaseFailed("out of memory on the GPU")
        if self._fault == "host memory":
            raise MemoryError("Unable to allocate 1 TiB")
        if self._fault == "bug":
            raise ZeroDivisionError
        assert self._x is not None and self._x.array is not None and self._y is not None
        if self._fault != "computes nothing":
            np.multiply(self._x.array, FACTORS.get(self._fault, 2), out=self._y.array)

    def outputs(self) -> dict[str, Buffer]:
        assert self._y is not None
        return {"y": self._y}

    def capture_graph(self) -> bool:
        return False

    def memory(self) -> dict[str, int]:
        return {"arena_bytes": 7}

    def close(self) -> None:
        pass


class Runtime:
    """A backend over Doubling that keeps what it was asked to open."""

    def __init__(self) -> None:
        self.fault = ""
        self.opened: list[OpenRequest] = []

    @contextlib.contextmanager
    def open(self, request: OpenRequest) -> Iterator[Doubling]:
        self.opened.append(request)
        yield Doubling(self.fault)


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    runtime = Runtime()
    backend = Backend("doubling", "Doubling", "cpu", "onnx", runtime.open, lambda case, machine: None)
    monkeypatch.setattr(registry, "backends", lambda: {"doubling": backend})
    return runtime


@pytest.fixture
def request_(tmp_path: Path) -> RunRequest:
    artifact = tmp_path / "model.onnx"
    artifact.write_bytes(b"model")
    return RunRequest(
        case=Case("twice", "fp32", "doubling", "default", "b2"),
        artifact=artifact,
        spec=ModelSpec("twice", Path("twice.yaml"), "onnx", (InputSpec("x", "float32", ("b", 3)),)),
        variant=Variant(),
        machine="cpu-test",
        round=1,
        protocol=timing.Protocol(budget_s=0.02, throughput_min_s=0.01),
    )


def test_the_record_holds_everything_and_is_json(runtime: Runtime, request_: RunRequest) -> None:
    record = workload.run(request_)
    assert json.dumps(record, allow_nan=False)
    assert set(record) == {
        *("schema", "case", "round", "machine", "status", "reason", "boundaries", "stages", "throughput", "first"),
        *("memory", "checks", "inputs", "outputs", "telemetry", "environment", "placement", "protocol", "started"),
        *("options", "host"),
    }
    assert record["case"] == {
        **{"model": "twice", "precision": "fp32", "backend": "doubling"},
        **{"variant": "default", "shape": "b2"},
    }
    assert (record["schema"], record["round"], record["machine"]) == (1, 1, "cpu-test")
    assert (record["status"], record["reason"]) == ("ok", None)
    assert mentions(reason_alone(record["boundaries"]["device"]), "no device clock")
    assert len(record["boundaries"]["end_to_end"]["samples_ns"]) >= 1
    assert record["memory"]["runtime"] == {"arena_bytes": 7}
    assert record["memory"]["device_bytes"] is None
    assert record["memory"]["host_rss_bytes"] > 1 << 20
    assert record["first"]["load_ns"] > 0
    assert record["inputs"] == {"x": {"shape": [2, 3], "dtype": "float32"}}
    assert record["telemetry"] == {"not_measured": "no GPU"}


def test_a_case_on_the_cpu_has_it_for_itself_while_it_is_measured(
    runtime: Runtime, request_: RunRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    measured = threading.Thread(target=workload.run, args=(request_,))
    with device_lock.hold([], "another case"):
        measured.start()
        measured.join(1)
        assert measured.is_alive()
    measured.join(60)
    assert not measured.is_alive()


def test_the_record_says_how_fast_the_host_was_itself(runtime: Runtime, request_: RunRequest) -> None:
    record = workload.run(replace(request_, protocol=timing.Protocol(budget_s=0.2, throughput_min_s=0.01)))
    host = record["host"]
    assert len(host["yardstick_ns"]) >= 3  # call, end_to_end and the stages
    assert all(on_cpu > 50_000 for on_cpu in host["yardstick_cpu_ns"])
    pairs = zip(host["yardstick_cpu_ns"], host["yardstick_ns"], strict=True)
    assert all(on_cpu <= took * 1.01 for on_cpu, took in pairs)
    assert host["steal"].get("not_measured") or 0 <= host["steal"]["percent"] <= 100
    assert record["environment"]["python"] == platform.python_version()


def test_the_backend_is_told_the_case(runtime: Runtime, request_: RunRequest) -> None:
    workload.run(request_)
    (opened,) = runtime.opened
    assert (opened.artifact, opened.precision, opened.shape.label) == (request_.artifact, "fp32", "b2")
    assert opened.device.where == "cpu"
    assert opened.native_profile is None


def test_the_outputs_are_those_of_the_seeded_inputs(runtime: Runtime, request_: RunRequest) -> None:
    first, again = workload.run(request_)["outputs"]["y"], workload.run(request_)["outputs"]["y"]
    other = workload.run(replace(request_, seed=1))["outputs"]["y"]
    assert first == again
    assert (first["shape"], first["dtype"], first["finite"]) == ([2, 3], "float32", True)
    assert other["sha256"] != first["sha256"]


def test_what_is_compiled_ahead_is_run_once_and_forgets_what_it_timed(
    runtime: Runtime, request_: RunRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgotten: list[int] = []
    (backend,) = registry.backends().values()
    compiling = replace(
        backend, compiles_ahead=lambda variant: True, forget_choices=lambda: forgotten.append(len(runtime.opened))
    )
    monkeypatch.setattr(registry, "backends", lambda: {"doubling": compiling})
    facts = workload.compile_ahead(request_)
    assert (facts["status"], forgotten) == ("ok", [1])
    assert 0 < facts["seconds"] < 60
    runtime.fault = "bug"
    assert "seconds" not in workload.compile_ahead(request_)
    assert forgotten == [1, 2]


def test_a_runtime_that_compiles_nothing_has_nothing_to_do_ahead(runtime: Runtime, request_: RunRequest) -> None:
    with pytest.raises(UserError):
        workload.compile_ahead(request_)


def test_a_failed_case_is_a_record_with_its_reason(runtime: Runtime, request_: RunRequest) -> None:
    runtime.fault = "out of memory"
    record = workload.run(request_)
    assert (record["status"], mentions(record["reason"], "out of memory")) == ("failed", True)
    assert "boundaries" not in record
    assert record["environment"]["packages"]["numpy"]


def test_too_little_host_memory_fails_the_case(runtime: Runtime, request_: RunRequest) -> None:
    runtime.fault = "host memory"
    record = workload.run(request_)
    assert (record["status"], facts(record["reason"], "host", "memory")) == ("failed", ["memory", "host", "1", "TiB"])


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("nan", "self-check outputs_finite: y: 6 of 6 values are NaN or infinite"),
        ("computes nothing", "self-check outputs_overwritten: output y still holds the poison"),
    ],
)
def test_a_failed_self_check_fails_the_case(runtime: Runtime, request_: RunRequest, fault: str, reason: str) -> None:
    runtime.fault = fault
    record = workload.run(request_)
    assert record["status"] == "failed"
    assert reason in record["reason"]


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    """y = x + x, as an ONNX graph."""
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    x, y = (helper.make_tensor_value_info(name, kind, ["b", 3]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "twice", [x], [y])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "fp32.onnx"
    )
    return tmp_path / "fp32.onnx"


def test_outputs_that_agree_with_the_graph_pass(runtime: Runtime, request_: RunRequest, reference: Path) -> None:
    record = workload.run(replace(request_, reference=reference))
    assert record["status"] == "ok"
    check = record["checks"]["outputs_match"]
    assert check == {"passed": True, "detail": "identical (against onnxruntime cpu)"}


def test_a_graph_that_onnx_runtime_cannot_compute_leaves_the_outputs_unchecked_and_says_so(
    runtime: Runtime, request_: RunRequest, tmp_path: Path
) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"")
    record = workload.run(replace(request_, reference=tmp_path / "broken.onnx"))
    assert record["status"] == "ok"
    assert record["checks"]["outputs_match"]["not_measured"].startswith("broken.onnx: ")


def test_tf32_and_inputs_out_of_float16_are_held_to_the_tolerance_of_fp16(request_: RunRequest) -> None:
    assert request_.rounds_like == "fp32"
    assert replace(request_, variant=Variant("tf32", {"tf32": True})).rounds_like == "fp16"
    assert replace(request_, variant=Variant("gelu", {"gelu_approximation": True})).rounds_like == "fp16"
    assert replace(request_, variant=Variant("cast", {"host_cast": "vectorised"})).rounds_like == "fp16"


def test_a_cast_on_the_host_is_compared_with_the_outputs_of_what_was_cast(
    runtime: Runtime, request_: RunRequest, reference: Path
) -> None:
    cast = replace(request_, reference=reference, variant=Variant("cast", {"host_cast": "vectorised"}))
    record = workload.run(cast)
    assert record["status"] == "ok"
    detail = "output y: SQNR 71.4 dB, at least 40 dB (against onnxruntime cpu)"
    assert record["checks"]["outputs_match"] == {"passed": True, "detail": detail}
    assert record["options"] == {"host_cast": "vectorised"}


def test_outputs_of_another_function_fail_the_case(runtime: Runtime, request_: RunRequest, reference: Path) -> None:
    runtime.fault = "another function"
    record = workload.run(replace(request_, reference=reference))
    assert record["status"] == "failed"
    assert record["reason"].startswith("self-check outputs_match: ")


def test_outputs_without_numbers_are_not_identical_to_the_reference(
    runtime: Runtime, request_: RunRequest, reference: Path
) -> None:
    runtime.fault = "nan"
    checks = workload.run(replace(request_, reference=reference))["checks"]
    assert checks["outputs_match"]["passed"] is False
    assert mentions(checks["outputs_match"]["detail"], "output y", "all NaN")


def test_a_run_says_its_parts_and_the_budget_that_is_left(
    runtime: Runtime, request_: RunRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    protocol = timing.Protocol(budget_s=1, max_samples=20, throughput_min_s=0.1)
    with progress.displayed():
        workload.run(replace(request_, protocol=protocol))
    lines = [re.sub(r"\d+ s(?=;|$)", "- s", line) for line in capsys.readouterr().err.splitlines()]
    title = f"inferprof: Measure {request_.case}"
    parts = {"load": 7, "first inference": 7, "boundaries and stages": 7, "back to back": 1}
    for number, (line, (part, seconds)) in enumerate(zip(lines[:-1], parts.items(), strict=True), 1):
        assert mentions(line, f"{title}: {part} ({number} of 4), - s", f"at most {seconds} s")
    assert lines[-1] == f"{title}: done in - s"


def test_what_a_sessions_autotuners_chose_is_in_the_record_of_measured_and_profiled_runs(
    runtime: Runtime, request_: RunRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "tuning" not in workload.run(request_)
    chosen = [choice(512, {"small": 90.0})]
    backend = replace(registry.backends()["doubling"], tuning=lambda session: chosen)
    monkeypatch.setattr(registry, "backends", lambda: {"doubling": backend})
    for profiling in (None, Profiling(iterations=1, range=contextlib.nullcontext)):
        assert workload.run(replace(request_, profiling=profiling))["tuning"] == chosen


def test_choices_of_another_record_reach_the_backend_or_the_reason_is_given(
    runtime: Runtime, request_: RunRequest, tmp_path: Path
) -> None:
    tuned = tmp_path / "r0.json"
    tried = [choice(512, {"small": 90.0})]
    tuned.write_text(json.dumps({"status": "ok", "tuning": tried}))
    assert workload.run(replace(request_, tuned=tuned))["status"] == "ok"
    assert msgspec.to_builtins(runtime.opened[0].remembered) == tried
    tuned.write_text('{"status": "failed", "reason": "out of memory"}')
    assert facts(workload.run(replace(request_, tuned=tuned))["reason"], "memory") == [
        *facts(f"{tuned}"),
        "no",
        "memory",
    ]


def test_an_exception_that_nobody_expected_fails_the_case_with_its_traceback_in_the_log(
    runtime: Runtime, request_: RunRequest, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(forked.LIMIT, "60")  # as the job of a study
    runtime.fault = "bug"
    record = workload.run(request_)
    assert record["status"] == "failed" and record["reason"].startswith("ZeroDivisionError")
    assert "Traceback" in capsys.readouterr().err


def test_an_engine_that_could_not_be_built_fails_with_the_builders_reason(
    runtime: Runtime, request_: RunRequest, tmp_path: Path
) -> None:
    (tmp_path / "b2.engine").touch()
    (tmp_path / "b2.build.json").write_text(
        '{"status": "failed", "stage": "build", "reason": "node /Det (Det): unsupported"}'
    )
    record = workload.run(replace(request_, artifact=tmp_path / "b2.engine"))
    assert record["reason"] == "node /Det (Det): unsupported"
    assert runtime.opened == []


def test_a_gpu_that_is_gone_fails_the_case(
    runtime: Runtime, request_: RunRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = replace(registry.backends()["doubling"], where="cuda")
    monkeypatch.setattr(registry, "backends", lambda: {"doubling": backend})
    monkeypatch.setattr(hardware, "detect_gpu", lambda index=0: None)
    record = workload.run(request_)
    assert (record["status"], record["reason"]) == ("failed", "NVML sees no GPU")


def test_a_graph_that_the_runtime_cannot_capture_fails_the_case(runtime: Runtime, request_: RunRequest) -> None:
    record = workload.run(replace(request_, variant=Variant("graph", {"cuda_graph": True})))
    assert record["status"] == "failed"
    assert "CUDA graph" in record["reason"]
    assert record["protocol"]["graph"] is True


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"case": Case("twice", "fp32", "nope", "default", "b2")}, "unknown backends nope; known: doubling"),
        ({"case": Case("twice", "fp32", "doubling", "default", "b2_s3")}, "model twice has no such shape as b2_s3"),
        ({"variant": Variant("v", {"placement": "moon"})}, "placement 'moon' is unknown; known: pageable, pinned"),
    ],
)
def test_what_the_user_can_mend_is_one_line(
    runtime: Runtime, request_: RunRequest, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        workload.run(replace(request_, **changes))


def test_a_profiled_run_has_named_ranges_and_no_samples(runtime: Runtime, request_: RunRequest) -> None:
    ranges: list[str] = []

    @contextlib.contextmanager
    def named(name: str) -> Iterator[None]:
        ranges.append(name)
        yield

    profiling = Profiling(iterations=2, native=Path("native.json"), range=named)
    record = workload.run(replace(request_, profiling=profiling))
    one = ["iteration", "stage:stage_inputs", "stage:bind", "stage:execute", "stage:extract"]
    clock = [name.partition("=")[0] for name in ranges]
    looks = ["clock", "clock"] * LOOKS
    assert clock == ["load", "warmup", *looks, *one, *one, *looks]
    assert record["status"] == "ok"
    assert record["boundaries"]["call"] == {"not_measured": "the run was profiled"}
    assert len(record["iterations"]["samples_ns"]) == 2 and min(record["iterations"]["samples_ns"]) > 0
    assert runtime.opened[0].native_profile == Path("native.json")


def test_a_native_profile_is_taken_without_the_graph(runtime: Runtime, request_: RunRequest) -> None:
    variant = Variant("graph", {"cuda_graph": True, "tf32": True})
    profiling = Profiling(iterations=1, native=Path("native.json"), range=contextlib.nullcontext)
    record = workload.run(replace(request_, variant=variant, profiling=profiling))
    assert record["status"] == "ok"
    assert runtime.opened[0].variant.options == {"tf32": True}
    reason = "a native profile is taken without the CUDA graph that the variant has"
    assert record["iterations"] == {"not_measured": reason}


def test_the_recorder_watches_the_iterations_alone(runtime: Runtime, request_: RunRequest) -> None:
    events: list[str] = []

    @contextlib.contextmanager
    def note(name: str) -> Iterator[None]:
        events.append(f"+{name}")
        yield
        events.append(f"-{name}")

    profiling = Profiling(iterations=1, recorder=lambda rank: note(f"recorder {rank}"), range=note)
    workload.run(replace(request_, profiling=profiling))
    assert events.index("-warmup") < events.index("+recorder 0") < events.index("+iteration")
    assert events[-1] == "-recorder 0"


def test_memory_of_cuda_graphs_is_in_the_record_and_no_garbage_is_collected_while_it_is_measured(
    runtime: Runtime, request_: RunRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    enabled = []

    def graph_memory(session: Any, request: OpenRequest) -> dict[str, Any]:
        enabled.append(gc.isenabled())
        return graphs_of()

    backend = replace(registry.backends()["doubling"], graph_memory=graph_memory)
    monkeypatch.setattr(registry, "backends", lambda: {"doubling": backend})
    assert workload.run(request_)["memory"]["graphs"] == graphs_of()
    assert enabled == [False]
