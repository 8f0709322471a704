"""Traces of several ranks, a file each: one clock, one timeline, the same waiting and transfer as in one capture."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from inferprof.readers import kineto_json, kineto_ranks, nsys_sqlite
from inferprof.readers.capture_file import recognise
from inferprof.tables.trace import collectives, iterations
from inferprof.tables.trace.events import tidy
from inferprof.tables.trace.timeline import KERNEL, PATH_SEPARATOR, Timeline

ELEMENTS = 512 * 4096
OFF_NS = 2_000_000
"""By how much the clock of the second rank is fast."""


def as_kineto(timeline: Timeline, rank: int, off_ns: int = 0, world: int = 2) -> dict[str, Any]:
    """What Kineto writes of one process of an nsys capture: its GPU is device 0, its times count from a base."""
    ops = timeline.ops[timeline.ops["device"].eq(rank)]
    base = rank * 1_000_000
    threads = set(timeline.calls["thread"].to_numpy()[ops["call"][ops["call"] >= 0]])

    def event(kind: str, name: str, thread: int, row: Any, **args: Any) -> dict[str, Any]:
        start = (int(row.start) + off_ns - base) / 1e3
        times = {"ts": f"{start:.3f}", "dur": f"{(row.end - row.start) / 1e3:.3f}"}
        return {"ph": "X", "cat": kind, "name": name, "pid": 4000 + rank, "tid": thread, "args": args, **times}

    events = []
    kernels: Any = ops[ops["kind"].eq(KERNEL)].itertuples()
    ranges: Any = timeline.ranges.itertuples()
    for correlation, row in enumerate(kernels, 1):
        name = timeline.names[row.name]
        talks = {
            "Process Group Name": "0",
            "dtype": "BFloat16",
            "In msg nelems": ELEMENTS,
            "Out msg nelems": ELEMENTS,
        }
        args = {"device": 0, "stream": int(row.stream), "correlation": correlation}
        events.append(event("kernel", name, 7, row, **args, **(talks if "AllReduce" in name else {})))
        call = timeline.calls.iloc[row.call]
        events.append(event("cuda_runtime", timeline.names[call["name"]], 1, call, correlation=correlation))
    for row in ranges:
        if row.thread in threads:
            label = timeline.paths[row.path].split(PATH_SEPARATOR)[-1]
            events.append(event("user_annotation", label, 1, row))
    # Decimal numbers as text, as kineto_json reads them, become numbers again in the file.
    text = {"backend": "nccl", "rank": rank, "world_size": world}
    return {"distributedInfo": text, "baseTimeNanoseconds": base, "traceEvents": events}


def written(path: Path, trace: Mapping[str, Any]) -> Path:
    numbers = [{**e, "ts": float(e["ts"]), "dur": float(e["dur"])} for e in trace["traceEvents"]]
    path.write_text(json.dumps({**trace, "traceEvents": numbers}))
    return path


@pytest.fixture(scope="module")
def one_capture(captured: Callable[[str], Path]) -> Timeline:
    return nsys_sqlite.read_timeline(captured("h200x2_tensor_parallel"))


@pytest.fixture(scope="module")
def traces(one_capture: Timeline, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The second rank first."""
    folder = tmp_path_factory.mktemp("ranks")
    off = {0: 0, 1: OFF_NS}
    return [written(folder / f"r{rank}.json", as_kineto(one_capture, rank, off[rank])) for rank in (1, 0)]


def totals(timeline: Timeline) -> pd.DataFrame:
    """Metrics of all-reduces, a row per GPU."""
    rows = collectives.rows(iterations.of_case(timeline))
    return rows[rows["name"].eq("AllReduce")].pivot_table(index="device", columns="metric", values="value")


def test_kineto_of_two_ranks_and_nsys_of_both_tell_the_same(one_capture: Timeline, traces: list[Path]) -> None:
    ranks = kineto_ranks.joined(traces)
    assert ranks is not None
    by_nsys, by_kineto = totals(one_capture), totals(ranks.timeline)
    assert by_kineto["duration_total"].tolist() == by_nsys["duration_total"].tolist()
    count = 80
    for metric in ("waiting_total", "transfer_total"):
        allowed = np.maximum(5_000 * count, 0.05 * by_nsys[metric])
        assert ((by_kineto[metric] - by_nsys[metric]).abs() < allowed).all(), metric
    assert (by_kineto["inside_total"] / by_nsys["inside_total"] - 1).abs().max() < 0.03


def test_a_clock_that_is_fast_is_moved_back_and_the_error_of_that_is_told(traces: list[Path]) -> None:
    ranks = kineto_ranks.joined(traces)
    assert ranks is not None and (ranks.ranks, ranks.world) == ([0, 1], 2)
    (clock,) = ranks.clocks
    assert (clock.rank, clock.collectives) == (1, 80)
    assert abs(clock.moved - OFF_NS) < 5_000 and clock.spread < 5_000


def test_sizes_of_messages_give_the_bus_bandwidth_by_the_formula_of_nccl_tests(traces: list[Path]) -> None:
    ranks = kineto_ranks.joined(traces)
    assert ranks is not None
    table = totals(ranks.timeline)
    assert table["message_total"].tolist() == [80 * 2 * ELEMENTS] * 2
    assert table["bus_total"].tolist() == [80 * 2 * ELEMENTS * 2 * (2 - 1) / 2] * 2


@pytest.mark.parametrize(
    "second",
    [
        {"distributedInfo": {"rank": 0, "world_size": 2}},
        {"distributedInfo": {"rank": 1, "world_size": 4}},
        {"distributedInfo": {"world_size": 2}},
        {"distributedInfo": None},
        {"distributedInfo": {"rank": -1, "world_size": 2}},
        {"distributedInfo": {"rank": 2, "world_size": 2}},
    ],
)
def test_traces_that_are_not_ranks_of_one_program_stay_apart(
    tmp_path: Path, one_capture: Timeline, second: dict[str, Any]
) -> None:
    first = as_kineto(one_capture, 0)
    paths = [written(tmp_path / "a.json", first), written(tmp_path / "b.json", {**first, **second})]
    assert kineto_ranks.joined(paths) is None


def test_traces_that_were_put_together_read_as_those_apart_do(traces: list[Path], tmp_path: Path) -> None:
    apart, trace = kineto_ranks.joined(traces), kineto_ranks.merged(traces)
    assert apart is not None and trace is not None
    (clock,) = trace["clocks"]
    assert (clock["rank"], clock["collectives"]) == (1, 80) and abs(clock["moved"] - OFF_NS) < 5_000
    path = tmp_path / "merged.json"
    path.write_text(json.dumps(trace))
    merged = kineto_json.read_timeline(path)
    assert merged.ops["process"].value_counts().to_dict() == {1: 480, 2: 480}
    pd.testing.assert_frame_equal(merged.ops, apart.timeline.ops)
    assert totals(merged).equals(totals(apart.timeline))


def test_explain_reads_several_ranks_files_as_one_program(traces: list[Path]) -> None:
    join = recognise(traces[0]).join
    assert join is not None and (capture := join(traces)) is not None
    assert "ranks 0, 1 of 2" in capture.ran and len(capture.notes) == 1
    assert capture.timeline is not None and capture.timeline.ops["device"].nunique() == 2


def test_of_each_rank_only_its_own_iterations_count(one_capture: Timeline, traces: list[Path]) -> None:
    def iterations_of(timeline: Timeline) -> list[float]:
        rows = tidy(iterations.of_case(timeline), "kineto")
        own = rows[rows["level"].eq("range") & rows["name"].eq("iteration") & rows["metric"].eq("gpu_busy")]
        return sorted(own.groupby("device")["instances"].sum())

    ranks = kineto_ranks.joined(traces)
    assert ranks is not None
    assert iterations_of(ranks.timeline) == iterations_of(one_capture) == [10, 10]


def test_groups_of_some_gpus_are_not_paired_with_those_of_others() -> None:
    kernels = pd.DataFrame(
        {"start": [0, 0, 5, 5], "end": [4, 4, 9, 9], "device": [0, 1, 2, 3], "operation": "AllReduce"}
    ).assign(group=[0, 0, 1, 1])
    groups = list(collectives._groups(kernels))
    assert [(key, own["device"].tolist()) for key, own in groups] == [
        (("AllReduce", 0), [0, 1]),
        (("AllReduce", 1), [2, 3]),
    ]


@pytest.mark.parametrize(
    ("operation", "ranks", "factor"),
    [
        *[("AllReduce", 2, 1.0), ("AllReduce", 8, 1.75), ("AllGather", 4, 0.75), ("ReduceScatter", 4, 0.75)],
        *[("AllToAll", 8, 0.875), ("Broadcast", 8, 1.0), ("Reduce", 8, 1.0)],
    ],
)
def test_the_factors_are_those_of_nccl_tests(operation: str, ranks: int, factor: float) -> None:
    assert collectives.BUS[operation](ranks) == factor
