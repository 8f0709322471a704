"""nsys and ONNX Runtime's profile of one process: the command, and the table of both files."""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.columns import check_columns, earlier
from tests.unit.conftest import PID, Export
from tests.unit.facts import facts, naming

from inferprof.case import Case
from inferprof.devices.ranges import LOOKS
from inferprof.errors import UserError
from inferprof.machine.hardware import Gpu, Machine
from inferprof.profilers import capturing, ort_nodes
from inferprof.tables import schema
from inferprof.tables.nodes import kernel_formats, ort_facts, ort_kernels

EPOCH = 1_795_827_994_389_722_342
TID = 17
CASE = Case("vit", "fp16", "ort_cuda", "default", "b8")


def looks(made: Export, at: int) -> None:
    for i in range(LOOKS):
        start = at + 1000 * i
        made.range("clock", start, start + 100)
        made.range(f"clock={EPOCH + start + 50}", start + 200, start + 300)


@pytest.fixture
def both(export: Callable[..., Export], tmp_path: Path) -> Path:
    """Two kernels of one run: the first in `a`, the second behind all nodes."""
    made = export(name="b8.sqlite")
    looks(made, 1_000_000)
    made.kernel("gemm", 2_010_000, 2_020_000, made.call("cudaLaunchKernel_v7000", 2_005_000, 2_008_000))
    made.kernel("gemm", 2_110_000, 2_112_000, made.call("cudaLaunchKernel_v7000", 2_105_000, 2_108_000))
    looks(made, 3_000_000)
    path = made.done()
    times = {"pid": PID, "tid": TID, "ph": "X"}
    told = {"op_name": "MatMul", "provider": "CUDAExecutionProvider"}
    events = [
        ort_facts.event(ort_facts.SessionFacts(EPOCH), PID),
        {"cat": "Node", **times, "ts": 2000, "dur": 50, "name": "a_kernel_time", "args": told},
        {"cat": "Session", **times, "ts": 1990, "dur": 80, "name": "model_run", "args": {}},
    ]
    ort_nodes.profile_of(path).write_text(json.dumps(events))
    return path


def test_the_run_is_watched_by_nsys_and_told_to_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capturing, "executable", lambda name, product: name)
    argv = ort_nodes.ORT_NODES.command(["inferprof", "run"], Path("c/b8.sqlite"))
    assert argv[:2] == ["nsys", "profile"]
    assert argv[-4:] == ["inferprof", "run", "--native-profile", "c/b8.ort.json.gz"]


def test_ranges_and_owners_are_apart_and_formats_are_told_also_of_a_table_of_before(both: Path) -> None:
    frame = ort_nodes.read(both)
    check_columns(frame)
    assert kernel_formats.tells(frame)
    table = both.with_suffix(".parquet")
    earlier(frame).to_parquet(table)
    assert kernel_formats.tells(schema.read_table(table))


def test_kernels_have_their_node_and_the_rest_nobody(both: Path) -> None:
    join = ort_kernels.attributed(ort_nodes.read(both))
    rows = join[["kernel", "duration_ns", "owner", "op_type", "provider"]].fillna("")
    assert sorted(rows.to_numpy().tolist()) == [
        ["gemm", 2000, "", "", ""],
        ["gemm", 10_000, "a", "MatMul", "CUDAExecutionProvider"],
    ]


def test_kineto_does_where_there_is_no_nsys(tmp_path: Path) -> None:
    trace = tmp_path / "b8.json.gz"
    argv = ort_nodes.ORT_NODES_KINETO.command(["inferprof", "run"], trace)
    assert argv == ["inferprof", "run", "--native-profile", f"{tmp_path}/b8.ort.json.gz", "--kineto", str(trace)]
    host = {"ph": "X", "pid": PID, "tid": TID}
    annotations = [
        {**host, "cat": "user_annotation", "name": name, "ts": at + start, "dur": 0.1}
        for at in (1000, 3000)
        for start, name in ((0, "clock"), (0.2, f"clock={EPOCH + at * 1000 + 50}"))
    ]
    launch = {
        **host,
        "cat": "cuda_runtime",
        "name": "cudaLaunchKernel",
        "ts": 2005,
        "dur": 3,
        "args": {"correlation": 7},
    }
    kernel = {**launch, "cat": "kernel", "name": "gemm", "ts": 2010, "dur": 10, "pid": 0, "tid": 7}
    trace.write_bytes(gzip.compress(json.dumps({"traceEvents": [*annotations, launch, kernel]}).encode()))
    times = {"pid": PID, "tid": TID, "ph": "X"}
    told = {"op_name": "MatMul", "provider": "CUDAExecutionProvider"}
    node = {"cat": "Node", **times, "ts": 2000, "dur": 50, "name": "a_kernel_time", "args": told}
    events = [ort_facts.event(ort_facts.SessionFacts(EPOCH), PID), node]
    ort_nodes.profile_of(trace).write_text(json.dumps(events))
    (row,) = ort_kernels.attributed(ort_nodes.read(trace)).to_dict("records")
    assert (row["kernel"], row["owner"], row["duration_ns"]) == ("gemm", "a", 10_000)


def test_an_export_without_its_profile_is_refused(both: Path) -> None:
    ort_nodes.profile_of(both).unlink()
    with pytest.raises(UserError, match=naming("ONNX", "Runtime", "profile", "b8.ort.json.gz")):
        ort_nodes.read(both)


def test_another_file_is_refused_with_the_tool_that_reads_it(both: Path) -> None:
    with pytest.raises(UserError, match=naming("read it with", "inferprof table ort_profile")):
        ort_nodes.read(ort_nodes.profile_of(both))


def test_a_case_needs_what_either_tool_needs() -> None:
    gpu = Gpu("NVIDIA H100", (9, 0), None, "GPU-0", "580")
    machine = Machine(gpu, tools={"nsys": "/usr/bin/nsys"})
    assert ort_nodes.ORT_NODES.refuses(CASE, machine) is None
    assert facts(ort_nodes.ORT_NODES.refuses(CASE, Machine(gpu))) == ["ort_nodes", "not", "PATH", "Nsight", "Systems"]
    torch = dataclasses.replace(CASE, backend="torch_eager")
    assert facts(ort_nodes.ORT_NODES.refuses(torch, machine)) == [
        "ort_nodes",
        "torch_eager",
        "not",
        "ONNX",
        "Runtime",
    ]
    on_cpu = dataclasses.replace(CASE, backend="ort_cpu")
    assert facts(ort_nodes.ORT_NODES.refuses(on_cpu, machine)) == ["ort_nodes", "ort_cpu", "CPU"]
