"""The derived quantities of our H100 captures, against a sweep in plain Python and against what was read by eye."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from inferprof.profilers import kineto, nsys
from inferprof.readers.nsys_sqlite import read_timeline
from inferprof.tables.trace import derived
from inferprof.tables.trace.idle import IDLE_CAUSES
from inferprof.tables.trace.timeline import Timeline

CAPTURES = (
    "h100_ort_cuda_vit",
    "h100_torch_eager",
    "h100_torch_node_trace",
    "h100_torch_graph_trace",
    "h100_tensorrt_vit2",
)


def swept_busy(timeline: Timeline, start: int, end: int) -> int:
    """Length of the union of all operations within [start, end), one by one."""
    busy, reached = 0, start
    for begin, finish in zip(timeline.ops["start"].tolist(), timeline.ops["end"].tolist(), strict=True):
        first, last = max(begin, reached), min(finish, end)
        if last > first:
            busy += last - first
            reached = last
    return busy


@pytest.mark.parametrize("name", CAPTURES)
def test_busy_equals_a_sweep_and_the_causes_add_up_in_every_window(
    name: str, captured: Callable[[str], Path]
) -> None:
    timeline = read_timeline(captured(name))
    window = pd.concat([derived.windows(timeline).head(30), derived.whole_capture(timeline)], ignore_index=True)
    found = derived.per_window(timeline, window)
    swept = [swept_busy(timeline, start, end) for start, end in zip(window["start"], window["end"], strict=True)]
    assert found["gpu_busy"].tolist() == swept
    causes = found[[f"idle_{cause}" for cause in IDLE_CAUSES]]
    assert (causes >= 0).all(axis=None)
    assert (causes.sum(axis=1) + found["gpu_busy"] == found["duration"]).all()


def iteration(frame: pd.DataFrame, name: str = "iteration") -> dict[str, float]:
    rows = frame[(frame["level"] == "range") & (frame["name"] == name)]
    return dict(zip(rows["metric"], rows["value"], strict=True))


def test_eager_torch_waits_for_launches_and_a_graph_does_not(captured: Callable[[str], Path]) -> None:
    eager = iteration(nsys.read(captured("h100_torch_eager")))
    assert eager["duration_mean"] == 8391923.0
    assert eager["kernel_busy"] == pytest.approx(0.5e6, rel=0.01)
    assert eager["launches"] == 138  # 126 kernels and 12 memsets
    assert eager["launch_bound"] == pytest.approx(0.93, abs=0.005)
    node = iteration(nsys.read(captured("h100_torch_node_trace")))
    assert (node["launches"], node["duration_mean"]) == (1, 656791.0)
    assert node["launch_bound"] == pytest.approx(0.13, abs=0.005)
    whole = iteration(nsys.read(captured("h100_torch_graph_trace")))
    assert whole["kernel_busy"] == 543032.1  # all of the ten replays' 5,430,321 ns lie inside the iterations
    assert whole["launch_bound"] == pytest.approx(0.05, abs=0.005)


def test_pageable_arrays_cost_copies_and_two_implicit_syncs_a_run(captured: Callable[[str], Path]) -> None:
    frame = nsys.read(captured("h100_ort_cuda_vit"))
    host, device = iteration(frame, "host_run"), iteration(frame, "device_run")
    assert (host["implicit_syncs"], device["implicit_syncs"]) == (2, 0)
    assert (host["syncs"], device["syncs"]) == (2, 4)
    assert host["gpu_busy"] - host["kernel_busy"] == pytest.approx(242887.4, abs=0.1)
    assert device["gpu_busy"] == device["kernel_busy"]


def test_nsys_and_kineto_agree_on_the_kernels_of_a_run(captured: Callable[[str], Path], repository: Path) -> None:
    by_nsys = iteration(nsys.read(captured("h100_ort_cuda_vit")), "host_run")
    by_kineto = iteration(kineto.read(repository / "tests/data/kineto/h100_ort_cuda_vit.json.gz"))
    assert by_kineto["launches"] == by_nsys["launches"] == 261
    assert by_kineto["kernel_busy"] == pytest.approx(by_nsys["kernel_busy"], rel=0.02)
