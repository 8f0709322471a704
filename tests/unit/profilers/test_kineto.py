"""Traces of torch.profiler, ours and other people's, give the same table as nsys."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.unit.facts import naming

from inferprof.case import Case
from inferprof.errors import ToolError, UserError
from inferprof.machine.hardware import Gpu, Machine
from inferprof.profilers import capture, kineto


def event(category: str, name: str, ts: Any, dur: Any, tid: int = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": ts, "dur": dur, "pid": 9, "tid": tid, "args": args}


def trace(folder: Path, *events: dict[str, Any]) -> Path:
    path = folder / "trace.json"
    path.write_text(json.dumps({"displayTimeUnit": "ms", "traceEvents": list(events)}))
    return path


def totals(frame: pd.DataFrame, level: str) -> dict[str, tuple[int, int]]:
    """Name → (instances, ns)."""
    rows = frame[(frame["level"] == level) & (frame["metric"] == "duration_total")]
    sums = rows.groupby("name")[["instances", "value"]].sum()
    return {str(name): (int(count), int(total)) for name, count, total in sums.itertuples()}


def total(frame: pd.DataFrame, level: str) -> tuple[int, int]:
    named = totals(frame, level).values()
    return sum(n for n, _ in named), sum(ns for _, ns in named)


LAUNCH = event("cuda_runtime", "cudaLaunchKernel", 2.0, 1.0, correlation=5)
KERNEL = event("kernel", "void k<float>(int)", 4.5, 2.25, 7, correlation=5, device=0, stream=7)


def test_microseconds_become_nanoseconds_and_ranges_hold_what_they_launched(tmp_path: Path) -> None:
    frame = kineto.read(trace(tmp_path, event("user_annotation", "iteration", 1, 9), LAUNCH, KERNEL))
    assert totals(frame, "kernel") == {"void k<float>(int)": (1, 2250)}
    assert totals(frame, "api") == {"cudaLaunchKernel": (1, 1000)}
    assert totals(frame, "range") == {"iteration": (1, 9000)}
    kernel = frame[frame["level"] == "kernel"].iloc[0]
    assert (kernel["range"], kernel["device"], kernel["stream"], kernel["tool"]) == ("iteration", 0, 7, "kineto")
    idle = frame[(frame["name"] == "iteration") & (frame["metric"] == "idle_launch")]
    assert idle["value"].tolist() == [3500]


def test_nanoseconds_since_the_epoch_stay_exact(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(
        '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "a", "ts": 1712195495505583.001, "dur": 1.001},'
        '{"ph": "X", "cat": "kernel", "name": "b", "ts": 1712195495505584.003, "dur": 2}]}'
    )
    frame = kineto.read(path)
    gpu = frame[frame["level"] == "run"].set_index("metric")["value"]
    assert (gpu["duration_total"], gpu["gpu_busy"], gpu["idle_unknown"]) == (3002, 3001, 1)


def test_copies_are_named_as_nsys_names_them(tmp_path: Path) -> None:
    copies = [
        event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 1, 2, bytes=4000, correlation=1),
        event("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 4, 1, bytes=10),
        event("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 6, 1, bytes=10),
        event("gpu_memset", "Memset (Device)", 8, 1, bytes=10),
    ]
    frame = kineto.read(trace(tmp_path, event("cuda_runtime", "cudaMemcpyAsync", 0, 3, correlation=1), *copies))
    assert list(totals(frame, "memcpy")) == ["DtoD", "DtoH pinned", "HtoD pageable"]
    assert totals(frame, "memset") == {"memset": (1, 1000)}
    rows = frame[frame["name"] == "HtoD pageable"].set_index("metric")["value"]
    assert (rows["bytes_total"], rows["bandwidth"]) == (4000, 2.0)
    assert totals(frame, "sync") == {"cudaMemcpyAsync": (1, 3000)}


def test_bytes_that_a_trace_leaves_out_are_not_zero(tmp_path: Path) -> None:
    copies = [
        event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 1, 2),
        event("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 4, 1, bytes=10),
        event("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 6, 1),
    ]
    frame = kineto.read(trace(tmp_path, *copies))
    assert totals(frame, "memcpy") == {"DtoH pinned": (2, 2000), "HtoD pinned": (1, 2000)}
    assert not frame["metric"].isin(["bytes_total", "bandwidth"]).any()


def test_flows_metadata_and_events_that_span_others_are_not_summed(tmp_path: Path) -> None:
    spans = [
        event("Trace", "PyTorch Profiler (0)", 0, 100),
        event("gpu_user_annotation", "iteration", 0, 100),
        event("overhead", "Buffer Flush", 0, 100),
        event("cuda_sync", "Stream Sync", 0, 100),
        {"ph": "M", "name": "process_name", "args": {"name": "python"}},
        {"ph": "s", "cat": "ac2g", "name": "ac2g", "ts": 1, "id": 1},
    ]
    frame = kineto.read(trace(tmp_path, LAUNCH, KERNEL, *spans))
    assert total(frame, "kernel") == (1, 2250)
    assert total(frame, "range") == (0, 0)


def test_kernels_of_one_graph_launch_share_their_call(tmp_path: Path) -> None:
    launch = event("cuda_runtime", "cudaGraphLaunch", 0, 5, correlation=3)
    kernels = [event("kernel", "k", 10 + 2 * i, 1, correlation=3, stream=7) for i in range(3)]
    frame = kineto.read(trace(tmp_path, event("user_annotation", "iteration", 0, 15), launch, *kernels))
    iteration = frame[frame["name"] == "iteration"].set_index("metric")["value"]
    assert (iteration["launches"], iteration["idle_queued"]) == (1, 2000)


def test_steps_of_the_profiler_are_one_range(tmp_path: Path) -> None:
    steps = [event("user_annotation", f"ProfilerStep#{i}", 10 * i, 5) for i in range(3)]
    assert totals(kineto.read(trace(tmp_path, LAUNCH, *steps)), "range") == {"ProfilerStep": (3, 15000)}


def test_a_trace_without_gpu_work_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=naming("no", "GPU", "ProfilerActivity.CUDA")):
        kineto.read(trace(tmp_path, event("cpu_op", "aten::add", 1, 2)))


def test_a_trace_that_was_cut_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text('{"traceEvents": [{"ph": "X"')
    with pytest.raises(UserError, match="not whole JSON"):
        kineto.read(path)


def test_our_capture_of_onnx_runtime(repository: Path) -> None:
    frame = kineto.read(repository / "tests/data/kineto/h100_ort_cuda_vit.json.gz")
    assert total(frame, "kernel") == (777, 6045955)
    assert {name: count for name, (count, _) in totals(frame, "memcpy").items()} == {
        "DtoH pageable": 3,
        "HtoD pageable": 3,
    }
    assert totals(frame, "range")["iteration"][0] == 3


REAL = {
    "hta_2023_simple_add_training": (79, 10728000),
    "hta_2023_cupti_profiler_counters": (0, 0),
    "hta_2023_fbgemm_sampled_us_ints": (1154, 606519000),
    "hta_2024_ns_resolution_displayTimeUnit": (4350, 468153602),
    "hta_triton_example": (1, 1760),
    "hta_amd_mi250_rocm6.2": (14, 110881),
    "tracelens_mi300_bert_small": (60, 388344),
    "tracelens_b200_eager": (768, 10862916),
    "tracelens_torch_compile_triton": (12, 12549021),
    "tracelens_sglang_qwen3_decode": (555, 9765437),
}


@pytest.mark.parametrize("name", REAL)
def test_other_peoples_traces(name: str, shared: Path) -> None:
    assert total(kineto.read(shared / f"real/kineto/{name}.json.gz"), "kernel") == REAL[name]


def test_other_peoples_trace_of_a_cpu_is_refused(shared: Path) -> None:
    with pytest.raises(UserError, match="no GPU activity"):
        kineto.read(shared / "real/kineto/hta_rank_non_gpu.json.gz")


def test_the_run_is_told_to_record() -> None:
    command = kineto.command(["inferprof", "run", "ort_cuda"], Path("c/b8.json.gz"))
    assert command == ["inferprof", "run", "ort_cuda", "--kineto", "c/b8.json.gz"]


def test_a_finished_trace_names_no_host_user_or_path(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    content = {
        "traceName": "/scratch/someone/t",
        "host_name": "a-host",
        "username": "u",
        "traceEvents": [LAUNCH, KERNEL],
    }
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    kineto.finish(path, lambda command: None)
    assert list(json.loads(gzip.decompress(path.read_bytes()))) == ["traceEvents"]
    assert total(kineto.read(path), "kernel") == (1, 2250)


@pytest.mark.slow
def test_recording_writes_a_trace_with_our_ranges(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "deep" / "trace.json.gz"
    with kineto.record(path), kineto.named_range("iteration"), kineto.named_range("stage:execute"):
        torch.ones(8).sum()
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    names = {found["name"] for found in events if found.get("cat") == "user_annotation"}
    assert names == {"iteration", "stage:execute"}


@pytest.mark.parametrize(("packages", "reason"), [({"torch": "2.11"}, None), ({}, "kineto: torch is not installed")])
def test_recording_needs_torch(packages: dict[str, str], reason: str | None) -> None:
    machine = Machine(Gpu("NVIDIA H100", (9, 0), None, "GPU-1", "580.1"), packages=packages)
    assert kineto.refuses(Case("vit", "fp16", "ort_cuda", "default", "b8"), machine) == reason


def test_a_run_that_recorded_nothing_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out" / "b8.json.gz"
    with pytest.raises(ToolError, match="kineto wrote no capture"):
        capture(kineto.KINETO, ["true"], out)
    assert list(out.parent.iterdir()) == []


def test_a_capture_is_what_the_run_recorded(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(
        "import gzip, json, sys\n"
        "with gzip.open(sys.argv[sys.argv.index('--kineto') + 1], 'wt') as file:\n"
        "    json.dump({'traceName': 'x', 'traceEvents': []}, file)\n"
    )
    out = tmp_path / "out" / "b8.json.gz"
    capture(kineto.KINETO, [sys.executable, str(script)], out)
    assert json.loads(gzip.decompress(out.read_bytes())) == {"traceEvents": []}


def test_the_categories_of_torch_up_to_1_11(tmp_path: Path) -> None:
    args = {"device": 0, "stream": 7, "correlation": 1, "bytes": 8}
    path = trace(
        tmp_path,
        event("Runtime", "cudaLaunchKernel", 1, 2, correlation=1),
        event("Kernel", "k", 10, 5, **args, grid=[1, 1, 1], block=[32, 1, 1]),
        event("Memcpy", "Memcpy HtoD (Pageable -> Device)", 20, 5, **args),
    )
    frame = kineto.read(path)
    totals = frame[
        frame["metric"].eq("duration_total") & frame["level"].isin(["kernel", "memcpy", "api", "launch_config"])
    ]
    assert sorted(totals[["level", "name", "value"]].to_numpy().tolist()) == [
        ["api", "cudaLaunchKernel", 2000.0],
        ["kernel", "k", 5000.0],
        ["launch_config", "k", 5000.0],
        ["memcpy", "HtoD pageable", 5000.0],
    ]
