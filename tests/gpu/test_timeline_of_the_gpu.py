"""nsys and Kineto on a real GPU: equal to `nsys stats`, and three cases whose bottleneck is known told apart."""

from __future__ import annotations

import csv
import dataclasses
import shutil
import subprocess
import sys
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from inferprof.profilers import kineto, nsys
from inferprof.readers import nsys_sqlite, nsys_stats
from inferprof.tables.trace import aggregate
from inferprof.tables.trace.timeline import Timeline

pytestmark = pytest.mark.gpu
PROGRAM = """
import contextlib, sys, time
from pathlib import Path
import torch
from torch.cuda import nvtx
from inferprof.profilers import kineto

case, trace = sys.argv[1], sys.argv[2:]
gpu = torch.device("cuda")
small = torch.ones(64, device=gpu)
large = torch.ones(8192, 8192, device=gpu, dtype=torch.float16)
host = torch.ones(64 << 20, dtype=torch.uint8)

def launches():
    x = small
    for _ in range(500):
        x = x * 1.0001
    torch.cuda.synchronize()

def copies():
    host.to(gpu)
    torch.cuda.synchronize()

def products():
    for _ in range(20):
        large @ large
    torch.cuda.synchronize()

work = {"launches": launches, "copies": copies, "products": products, "graph": launches}[case]
work()
if case == "graph":
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream), torch.cuda.graph(graph, stream=stream):
        x = small
        for _ in range(500):
            x = x * 1.0001
    def work():
        graph.replay()
        torch.cuda.synchronize()
    work()

@contextlib.contextmanager
def iteration():
    with nvtx.range("iteration"), (kineto.named_range("iteration") if trace else contextlib.nullcontext()):
        yield

torch.cuda.profiler.start()
with kineto.record(Path(trace[0])) if trace else contextlib.nullcontext():
    for _ in range(10):
        with iteration():
            work()
torch.cuda.profiler.stop()
"""
CASES = ("launches", "copies", "products", "graph")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    path = tmp_path_factory.mktemp("program") / "program.py"
    path.write_text(PROGRAM)
    return path


@pytest.fixture(scope="module")
def captured(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The nsys export of a case, captured once."""
    if shutil.which("nsys") is None:
        pytest.skip("nsys is not on PATH")
    folder = tmp_path_factory.mktemp("captures")

    def capture(case: str) -> Path:
        out = folder / f"{case}.sqlite"
        if not out.exists():
            nsys.capture([sys.executable, str(program), case], out)
        return out

    return capture


def printed(value: Any, digits: str = "0.1") -> str:
    """As `nsys stats` prints: SQLite rounds halves up; one instance has no deviation, which is printed as 0."""
    number = 0.0 if pd.isna(value) else float(value)
    return str(Decimal(number).quantize(Decimal(digits), rounding=ROUND_HALF_UP))


def by_name(rows: pd.DataFrame, level: str) -> dict[str, list[str]]:
    """Name → what `nsys stats` prints for it: count, total, mean, median, least, most, deviation."""
    chosen = rows[rows["level"] == level]
    wide = chosen.pivot(index="name", columns="metric", values="value")
    counts = chosen.drop_duplicates("name").set_index("name")["instances"].to_dict()
    statistics = ("mean", "median", "min", "max", "stddev")
    digits = ("0.1", "0.1", "1", "1", "0.1")
    return {
        str(name): [
            str(counts[name]),
            printed(row["duration_total"], "1"),
            *(printed(row.get(f"duration_{s}"), d) for s, d in zip(statistics, digits, strict=True)),
        ]
        for name, row in wide.iterrows()
    }


def stats(path: Path, named_by: str, counted_by: str) -> dict[str, list[str]]:
    """The same out of a CSV that nsys wrote."""
    columns = (counted_by, "Total Time (ns)", "Avg (ns)", "Med (ns)", "Min (ns)", "Max (ns)", "StdDev (ns)")
    with path.open(encoding="utf-8") as file:
        return {row[named_by]: [row[column] for column in columns] for row in csv.DictReader(file)}


def without_host_memory(timeline: Timeline) -> Timeline:
    """Copies by direction alone, as `nsys stats` sums them."""
    names = [name.removesuffix(" pageable").removesuffix(" pinned") for name in timeline.names]
    codes = np.array([names.index(name) for name in names])
    return dataclasses.replace(
        timeline, names=names, ops=timeline.ops.assign(name=codes[timeline.ops["name"].to_numpy()])
    )


@pytest.mark.parametrize("case", CASES)
def test_kernels_and_api_calls_equal_nsys_stats_to_the_last_digit(case: str, captured: Callable[[str], Path]) -> None:
    export = captured(case)
    timeline = nsys_sqlite.read_timeline(export)
    kernels = (
        stats(export.with_name(f"{case}_cuda_gpu_kern_sum.csv"), "Name", "Instances") if case != "copies" else {}
    )
    assert by_name(aggregate.operations(timeline, keys=("name",)), "kernel") == kernels
    api = stats(export.with_name(f"{case}_cuda_api_sum.csv"), "Name", "Num Calls")
    assert by_name(aggregate.api_calls(timeline, keys=("name",)), "api") == {
        nsys_sqlite.without_version(name): row for name, row in api.items()
    }


def test_copies_equal_nsys_stats_to_the_last_digit(captured: Callable[[str], Path]) -> None:
    export = captured("copies")
    rows = aggregate.operations(without_host_memory(nsys_sqlite.read_timeline(export)), keys=("name",))
    time = stats(export.with_name("copies_cuda_gpu_mem_time_sum.csv"), "Operation", "Count")
    assert by_name(rows, "memcpy") == {nsys_stats.operation_name(name): row for name, row in time.items()}
    size = nsys.read(export.with_name("copies_cuda_gpu_mem_size_sum.csv"))
    ours = rows[rows["metric"] == "bytes_total"].set_index("name")["value"]
    theirs = size[size["metric"] == "bytes_total"].set_index("name")["value"]
    assert {name: round(value, -3) for name, value in ours.items()} == theirs.to_dict()


def shares(frame: pd.DataFrame) -> dict[str, float]:
    """Shares of an iteration: computing, idle for the host's launch, and in copies or waiting for them."""
    rows = frame[(frame["level"] == "range") & (frame["name"] == "iteration")]
    found = dict(zip(rows["metric"], rows["value"], strict=True))
    copying = found["gpu_busy"] - found["kernel_busy"] + found["idle_copy"]
    duration = found["duration_mean"]
    return {
        "compute": found["kernel_busy"] / duration,
        "launch": found["idle_launch"] / duration,
        "copy": copying / duration,
    }


@pytest.mark.parametrize(("case", "bound"), [("launches", "launch"), ("copies", "copy"), ("products", "compute")])
def test_nsys_tells_launch_copy_and_compute_bound_apart(
    case: str, bound: str, captured: Callable[[str], Path]
) -> None:
    found = shares(nsys.read(captured(case)))
    assert max(found, key=lambda share: found[share]) == bound
    assert found[bound] > 0.5


def test_a_graph_takes_the_launches_away(captured: Callable[[str], Path]) -> None:
    """In time: what is left is a large share of an iteration that is much shorter."""
    eager, graph = idle_launch_ns(nsys.read(captured("launches"))), idle_launch_ns(nsys.read(captured("graph")))
    assert graph < eager / 2


def idle_launch_ns(frame: pd.DataFrame) -> float:
    """How long the GPU waits for the host's launches in an iteration."""
    rows = frame[(frame["level"] == "range") & (frame["name"] == "iteration") & (frame["metric"] == "idle_launch")]
    return float(rows["value"].iloc[0])


@pytest.mark.parametrize(("case", "bound"), [("launches", "launch"), ("copies", "copy"), ("products", "compute")])
def test_kineto_tells_them_apart_too(case: str, bound: str, program: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json.gz"
    subprocess.run([sys.executable, str(program), case, str(trace)], check=True)
    found = shares(kineto.read(trace))
    assert max(found, key=lambda share: found[share]) == bound
