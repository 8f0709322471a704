"""The events of an iteration as tracks, and as a trace that Perfetto reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from inferprof.explain import explain
from inferprof.profilers import nsys
from inferprof.tables.trace import one_iteration, tracks


def events(*rows: tuple[Any, ...]) -> pd.DataFrame:
    """name, kind, device, stream, start, end, node of each."""
    frame = pd.DataFrame(list(rows), columns=["name", "kind", "device", "stream", "start", "end", "node"])
    return frame.astype({"device": "Int64", "stream": "Int64"})


MADE = events(
    ("stage:execute", "range", None, None, 0.0, 900.0, None),
    ("/a/MatMul", "range", None, None, 100.0, 300.0, None),
    ("cudaLaunchKernel", "api", None, None, 150.0, 160.0, "/a/MatMul"),
    ("cudaStreamSynchronize", "api", None, None, 400.0, 900.0, None),
    ("gemm", "kernel", 0, 7, 200.0, 500.0, "/a/MatMul"),
    ("HtoD pageable", "memcpy", 0, 7, 50.0, 120.0, None),
    ("nccl", "kernel", 1, 9, 300.0, 450.0, None),
)


def summary(every: list[tracks.Track]) -> list[tuple[str, str, str, list[tuple[str, int, int]]]]:
    return [
        (t.process, t.label, t.kind, list(zip(t.events.name, t.thread.tolist(), t.depth.tolist(), strict=True)))
        for t in every
    ]


def test_host_and_each_stream_of_each_gpu_have_tracks_of_their_own_and_gaps_are_idle():
    assert summary(tracks.of_events(MADE)) == [
        ("host", "ranges", "range", [("stage:execute", 0, 0), ("/a/MatMul", 0, 1)]),
        ("host", "API calls", "call", [("cudaLaunchKernel", 0, 0)]),
        ("host", "synchronise", "sync", [("cudaStreamSynchronize", 0, 0)]),
        ("GPU 0", "stream 7: kernels", "kernel", [("gemm", 0, 0)]),
        ("GPU 0", "stream 7: copies", "copy", [("HtoD pageable", 0, 0)]),
        ("GPU 0", "idle", "idle", [("idle", 0, 0), ("idle", 0, 0)]),
        ("GPU 1", "stream 9: kernels", "kernel", [("nccl", 0, 0)]),
        ("GPU 1", "idle", "idle", [("idle", 0, 0)]),
    ]
    idle = [list(zip(t.events.start, t.events.end, strict=True)) for t in tracks.of_events(MADE)]
    assert idle[5] == [(0, 50), (120, 200)]
    assert idle[7] == [(0, 300)]


def test_events_that_cross_are_in_threads_of_their_own_and_never_cross_there():
    crossing = events(
        ("a", "range", None, None, 0.0, 10.0, None),
        ("b", "range", None, None, 5.0, 15.0, None),
        ("c", "range", None, None, 6.0, 9.0, None),
        ("d", "range", None, None, 10.0, 12.0, None),
    )
    (track,) = tracks.of_events(crossing)
    assert summary([track])[0][3] == [("a", 0, 0), ("b", 1, 0), ("c", 0, 1), ("d", 0, 0)]
    assert track.threads == 2


def test_a_trace_has_complete_events_in_microseconds_and_names_of_processes_and_threads():
    trace = tracks.chrome_trace(tracks.of_events(MADE), "vit")
    by_phase = {phase: [e for e in trace["traceEvents"] if e["ph"] == phase] for phase in "MX"}
    names = {(e["name"], e["pid"], e["tid"]): e["args"]["name"] for e in by_phase["M"] if e["name"].endswith("_name")}
    assert [names["process_name", pid, 0] for pid in range(3)] == ["host", "GPU 0", "GPU 1"]
    assert names["thread_name", 1, 4] == "stream 7: kernels"
    assert [e for e in by_phase["X"] if e["name"] == "gemm"] == [
        {
            **{"ph": "X", "name": "gemm", "cat": "kernel", "pid": 1, "tid": 4, "ts": 0.2, "dur": 0.3},
            "args": {"node": "/a/MatMul"},
        }
    ]
    assert len(by_phase["X"]) == len(MADE) + 3
    assert trace["otherData"] == {"title": "vit"}


def test_the_trace_of_a_capture_has_every_event_to_the_nanosecond(captured: Callable[[str], Path]):
    found = one_iteration.of_case(nsys.read(captured("h100_ort_cuda_graph_vit_tiny")))
    every = tracks.of_events(found)
    assert [(t.process, t.label, t.events.start.size) for t in every] == [
        ("host", "ranges", 6),
        ("host", "API calls", 3),
        ("host", "synchronise", 1),
        ("GPU 0", "stream 13: kernels", 284),
        ("GPU 0", "stream 13: copies", 2),
        ("GPU 0", "idle", 286),
    ]
    complete = [e for e in tracks.chrome_trace(every, "x")["traceEvents"] if e["ph"] == "X"]
    kernels = [e for e in complete if e["cat"] == "kernel"]
    own = found[found["kind"] == "kernel"]
    assert sum(round(e["dur"] * 1000) for e in kernels) == (own["end"] - own["start"]).sum()
    assert max(round((e["ts"] + e["dur"]) * 1000) for e in complete) == 2_020_706


@pytest.mark.parametrize("capture", ["h100_ort_cuda_graph_vit_tiny", "h100_ort_cuda_vit", "h100_tensorrt_vit2"])
def test_a_trace_keeps_the_rules_of_the_trace_event_format(captured: Callable[[str], Path], capture: str):
    """Slices of a thread lie beside or inside of each other: Perfetto's importer drops others."""
    (case,) = explain([captured(capture)])
    made = tracks.chrome_trace(tracks.of_events(one_iteration.of_case(case.rows)), "x")
    text = json.dumps(made, allow_nan=False)
    events = json.loads(text)["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X"}
    assert all(type(event["pid"]) is int and type(event["tid"]) is int and event["name"] for event in events)
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    slices = [event for event in events if event["ph"] == "X"]
    assert {(e["pid"], e["tid"]) for e in slices} == named
    for thread in named:
        own = [(round(e["ts"] * 1000), round(e["dur"] * 1000)) for e in slices if (e["pid"], e["tid"]) == thread]
        ends: list[int] = []
        for start, length in sorted(own, key=lambda event: (event[0], -event[1])):
            assert start >= 0 and length >= 0
            ends = [end for end in ends if end > start]
            assert not ends or start + length <= ends[-1]
            ends.append(start + length)


def test_layers_that_tensorrt_names_in_nvtx_are_the_nodes_of_its_kernels(captured: Callable[[str], Path]):
    (case,) = explain([captured("h100_tensorrt_vit2")])
    found = one_iteration.of_case(case.rows[case.rows["tool"] == "nsys"])
    kernels = found[found["kind"] == "kernel"]
    nodes = kernels["node"].value_counts().to_dict()
    assert (len(kernels), nodes["/p/Conv"], nodes["myelinGraphExecute"]) == (27, 1, 23)
