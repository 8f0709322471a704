"""Exports of every schema, ours and other people's, give the rows that their makers read off them."""

from __future__ import annotations

import csv
import sqlite3
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.unit.conftest import PID, SCHEMAS, THREAD, Export
from tests.unit.facts import naming

from inferprof.errors import UserError
from inferprof.profilers import nsys
from inferprof.readers.nsys_sqlite import read_timeline, without_version
from inferprof.tables.trace import aggregate

Total = tuple[int, int]


def totals(frame: pd.DataFrame, level: str) -> dict[str, Total]:
    """Name → (instances, ns)."""
    rows = frame[(frame["level"] == level) & (frame["metric"] == "duration_total")]
    sums = rows.groupby("name")[["instances", "value"]].sum()
    return {str(name): (int(count), int(total)) for name, count, total in sums.itertuples()}


def total(frame: pd.DataFrame, level: str) -> Total:
    """(instances, ns) of a level."""
    named = totals(frame, level).values()
    return sum(count for count, _ in named), sum(ns for _, ns in named)


def one_digit(value: Any) -> str:
    """As `nsys stats` prints: SQLite rounds halves up."""
    return str(Decimal(value).quantize(Decimal("0.1"), rounding=ROUND_HALF_UP))


def small_export(made: Export) -> Path:
    made.range("iteration", 1000, 9000)
    made.kernel(
        "void gemm<float>(float *)", 1500, 2500, made.call("cudaLaunchKernel_v7000", 1100, 1300), short="gemm"
    )
    made.kernel("void gemm<half>(half *)", 3000, 3600, made.call("cudaLaunchKernel_v7000", 1400, 1500), short="gemm")
    made.kernel("void gemm<half>(half *)", 4000, 4400, made.call("cuLaunchKernel", 1600, 1700), short="gemm")
    made.copy(6000, 7000, made.call("cudaMemcpyAsync_v3020", 5000, 6500), kind=1, source=0, target=2, size=2000)
    made.copy(7500, 7600, made.call("cudaMemcpyAsync_v3020", 7100, 7200), kind=2, source=2, target=1, size=50)
    made.memset(7700, 7710, made.call("cudaMemsetAsync_v3020", 7300, 7350), size=64)
    made.call("cudaStreamSynchronize_v3020", 7800, 9000)
    return made.done()


@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_schema_gives_the_same_table(schema: str, export: Callable[..., Export]) -> None:
    frame = nsys.read(small_export(export(schema)))
    assert totals(frame, "kernel") == {"void gemm<float>(float *)": (1, 1000), "void gemm<half>(half *)": (2, 1000)}
    assert totals(frame, "memcpy") == {"HtoD pageable": (1, 1000), "DtoH pinned": (1, 100)}
    assert totals(frame, "memset") == {"memset": (1, 10)}
    assert totals(frame, "range") == {"iteration": (1, 8000)}
    assert set(frame.loc[frame["level"] == "kernel", "range"]) == {"iteration"}


@pytest.mark.parametrize("schema", SCHEMAS)
def test_tables_may_be_absent_or_empty(schema: str, export: Callable[..., Export]) -> None:
    made = export(schema)
    made.kernel("k(int)", 100, 150, made.call("cuLaunchKernel", 10, 20))
    frame = nsys.read(made.done())
    assert totals(frame, "kernel") == {"k(int)": (1, 50)}
    assert total(frame, "memcpy") == (0, 0)
    assert total(frame, "range") == (0, 0)
    assert frame.loc[frame["level"] == "kernel", "range"].isna().all()


def test_graphs_traced_as_a_whole_are_graphs_and_no_kernels(export: Callable[..., Export]) -> None:
    made = export("3.16.1")
    launch = made.call("cudaGraphLaunch_v10000", 10, 20)
    made.graph(30, 130, launch, graph=3)
    frame = nsys.read(made.done())
    assert totals(frame, "graph") == {"CUDA graph 3": (1, 100)}
    assert total(frame, "kernel") == (0, 0)


def test_copy_rows_carry_bytes_and_bandwidth(export: Callable[..., Export]) -> None:
    frame = nsys.read(small_export(export()))
    rows = frame[frame["name"] == "HtoD pageable"].set_index("metric")
    assert rows.loc["bytes_total", "value"] == 2000
    assert rows.loc["bandwidth", "value"] == 2.0
    assert rows.loc["bandwidth", "unit"] == "GB/s"


def test_api_names_lose_their_version_and_pageable_copies_are_implicit_syncs(
    export: Callable[..., Export],
) -> None:
    frame = nsys.read(small_export(export()))
    assert totals(frame, "api")["cudaLaunchKernel"] == (2, 300)
    assert totals(frame, "sync") == {"cudaMemcpyAsync": (1, 1500), "cudaStreamSynchronize": (1, 1200)}
    kinds = frame[frame["metric"] == "sync_kind"].set_index("name")["text"]
    assert kinds.to_dict() == {"cudaMemcpyAsync": "implicit", "cudaStreamSynchronize": "explicit"}


def test_registered_texts_start_end_ranges_and_open_ranges(export: Callable[..., Export]) -> None:
    made = export()
    made.range("registered", 0, 100, registered=True)
    made.range("start-end", 200, 300, kind=60)
    made.range("a mark", 250, None, kind=34)
    made.range("never closed", 400, None)
    made.call("cudaFree", 10, 20)
    assert totals(nsys.read(made.done()), "range") == {"registered": (1, 100), "start-end": (1, 100)}


def test_serial_numbers_of_torch_do_not_split_ranges(export: Callable[..., Export]) -> None:
    made = export()
    for i in range(3):
        made.range(f"aten::add, op_id = {i}, sizes = [[8]]", i * 10, i * 10 + 5)
    made.call("cudaFree", 1, 2)
    assert totals(nsys.read(made.done()), "range") == {"aten::add, sizes = [[8]]": (3, 15)}


def test_a_call_logged_twice_counts_once(export: Callable[..., Export]) -> None:
    made = export("2.9.1")
    call = made.call("cudaMalloc", 10, 60)
    made._activity(
        "RUNTIME", start=11, end=59, globalTid=THREAD, correlationId=call, nameId=made.string("cudaMalloc_v3020")
    )
    assert totals(nsys.read(made.done()), "api") == {"cudaMalloc": (1, 50)}


def test_an_export_without_cuda_activity_is_refused_with_what_to_do(export: Callable[..., Export]) -> None:
    made = export()
    made.string("x")
    with pytest.raises(UserError, match=naming("no CUDA activity", "capture range")):
        nsys.read(made.done())


def test_a_schema_that_nobody_checked_is_refused(export: Callable[..., Export]) -> None:
    made = export()
    made.database.execute("UPDATE META_DATA_EXPORT SET value = '4.0.0'")
    with pytest.raises(UserError, match=naming("schema", "4.0.0", "2.x", "3.x")):
        nsys.read(made.done())


@pytest.mark.parametrize(
    "name",
    [
        "h100_ort_cuda_vit",
        "h100_ort_cuda_minilm",
        "h100_ort_cuda_graph_vit_tiny",
        "h100_torch_eager",
        "h100_torch_node_trace",
        "h100_tensorrt_vit2",
    ],
)
def test_kernels_equal_nsys_stats_to_the_last_digit(
    name: str, captured: Callable[[str], Path], repository: Path
) -> None:
    rows = aggregate.operations(read_timeline(captured(name)), keys=("name",))
    printed = repository / f"tests/data/nsys/{name}_cuda_gpu_kern_sum.csv"
    assert_equals_stats(rows[rows["level"] == "kernel"], printed, count="Instances")


@pytest.mark.parametrize("name", ["h100_ort_cuda_minilm", "h100_ort_cuda_graph_vit_tiny"])
def test_api_calls_equal_nsys_stats_to_the_last_digit(
    name: str, captured: Callable[[str], Path], repository: Path
) -> None:
    rows = aggregate.api_calls(read_timeline(captured(name)), keys=("name",))
    printed = repository / f"tests/data/nsys/{name}_cuda_api_sum.csv"
    assert_equals_stats(rows[rows["level"] == "api"], printed, count="Num Calls")


def assert_equals_stats(rows: pd.DataFrame, printed: Path, count: str) -> None:
    """Every line of a CSV of `nsys stats`, every number of it, as it prints them."""
    ours = rows.pivot(index="name", columns="metric", values="value")
    counts = rows.drop_duplicates("name").set_index("name")["instances"]
    with printed.open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == len(ours)
    for line in lines:
        name = without_version(line["Name"])
        row = ours.loc[name].fillna(0.0)
        assert int(line[count]) == counts[name]
        assert line["Total Time (ns)"] == f"{row['duration_total']:.0f}"
        assert line["Min (ns)"] == f"{row['duration_min']:.0f}"
        assert line["Max (ns)"] == f"{row['duration_max']:.0f}"
        assert line["Avg (ns)"] == one_digit(row["duration_mean"])
        assert line["Med (ns)"] == one_digit(row["duration_median"])
        assert line["StdDev (ns)"] == one_digit(row["duration_stddev"])


@pytest.mark.parametrize(
    ("name", "kernels", "copies", "graphs"),
    [
        ("h100_ort_cuda_vit", (9065, 70311660), (121, 23979805), (0, 0)),
        ("h100_torch_eager", (1891, 7460568), (152, 413545), (0, 0)),
        ("h100_torch_node_trace", (2271, 8788207), (152, 421483), (0, 0)),
        ("h100_torch_graph_trace", (1011, 3951064), (152, 410820), (10, 5430321)),
        ("h100_tensorrt_vit2", (270, 2451209), (3, 3055667), (0, 0)),
    ],
)
def test_our_captures(
    name: str, kernels: Total, copies: Total, graphs: Total, captured: Callable[[str], Path]
) -> None:
    frame = nsys.read(captured(name))
    assert (total(frame, "kernel"), total(frame, "memcpy"), total(frame, "graph")) == (kernels, copies, graphs)


REAL = {
    "nsys2020_noversion_v100": ((22, 7736883740), {"HtoD pageable": 89, "DtoH": 23}),
    "nsys2021.5.2_schema2.7.0_a100_nvtx_cudnn": ((1106, 67790352), {"DtoD": 6}),
    "nsys2022.2.1_schema2.9.1_a100_mpi_nvtx": ((5, 88573480), {"HtoD pageable": 10}),
    "nsys2023.3.1_schema3.4.0_rtx3060": ((1, 50141024507), {"HtoD pageable": 75, "DtoH": 9}),
    "nsys2024.6.2_schema3.16.1_a100_graphtrace": ((30, 78270), {}),
    "nsys2025.3.2_schema3.20.3_a100_resnet50_infer": ((1785, 159443486), {"HtoD pageable": 320}),
    "nsys2026.1.1_schema3.24.14_rtx3080_small": ((2, 4129), {"DtoH": 1}),
    "nsys2026.3.1_schema3.27.0_a100_torch_fwd": ((632, 43541000), {}),
}


@pytest.mark.parametrize("name", REAL)
def test_other_peoples_exports(name: str, shared: Path) -> None:
    kernels, copies = REAL[name]
    frame = nsys.read(shared / "real/nsys_sqlite" / f"{name}.sqlite")
    assert total(frame, "kernel") == kernels
    found = totals(frame, "memcpy")
    for kind, count in copies.items():
        assert sum(n for copy, (n, _) in found.items() if copy.startswith(kind)) == count


def test_other_peoples_details(shared: Path) -> None:
    folder = shared / "real/nsys_sqlite"
    old = nsys.read(folder / "nsys2020_noversion_v100.sqlite")
    copies = old[(old["name"] == "HtoD pageable") & (old["metric"] == "bytes_total")]
    assert copies["value"].sum() == 8589932548
    tensorflow = totals(nsys.read(folder / "nsys2021.5.2_schema2.7.0_a100_nvtx_cudnn.sqlite"), "kernel")
    assert len(tensorflow) == 116
    top = max(tensorflow, key=lambda name: tensorflow[name][1])
    assert top.startswith("void tensorflow::functor::ColumnReduceKernel<const Eigen::half *,")
    assert tensorflow[top] == (30, 12487861)
    mpi = nsys.read(folder / "nsys2022.2.1_schema2.9.1_a100_mpi_nvtx.sqlite")
    assert totals(mpi, "range")["MPI_Init"] == (1, 645678983)
    assert totals(mpi, "memcpy")["HtoD pageable"] == (10, 186001123)
    graphs = nsys.read(folder / "nsys2024.6.2_schema3.16.1_a100_graphtrace.sqlite")
    assert total(graphs, "graph") == (10, 7811141695)
    resnet = totals(nsys.read(folder / "nsys2025.3.2_schema3.20.3_a100_resnet50_infer.sqlite"), "kernel")
    batch_norm = [value for name, value in resnet.items() if "bn_fw_inf_1C11_kernel_NCHW" in name]
    assert (batch_norm, len(resnet)) == ([(424, 36917512)], 13)
    newest = nsys.read(folder / "nsys2026.3.1_schema3.27.0_a100_torch_fwd.sqlite")
    assert totals(newest, "kernel")["ampere_sgemm_128x32_tn"] == (24, 13656632)
    assert totals(newest, "range")["forward pass"] == (1, 54815349)
    assert total(newest, "memset")[0] == 60


def test_an_export_of_an_untraced_process_is_refused(shared: Path) -> None:
    with pytest.raises(UserError, match="holds no CUDA activity"):
        nsys.read(shared / "real/nsys_sqlite/nsys2025.3.2_schema3.20.3_nokernels_vllm.sqlite")


def test_host_memory_of_unknown_kind_is_not_called_pageable(export: Callable[..., Export]) -> None:
    made = export()
    made.copy(30, 40, made.call("cudaMemcpyAsync", 10, 20), kind=1, source=7, target=2, size=8)
    made.database.execute("UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET srcKind = NULL")
    frame = nsys.read(made.done())
    assert totals(frame, "memcpy") == {"HtoD": (1, 10)}
    assert totals(frame, "sync") == {}


def test_large_stream_numbers_are_kept(export: Callable[..., Export]) -> None:
    made = export()
    for stream in (7, 2**40):
        made.kernel("k", 30, 40, made.call("cuLaunchKernel", 10, 20), stream=stream)
    frame = nsys.read(made.done())
    assert sorted(frame.loc[frame["level"] == "kernel", "stream"].unique()) == [7, 2**40]


def test_nodes_of_a_cuda_graph_lead_back_to_the_range_in_which_they_were_made(export: Callable[..., Export]) -> None:
    made = export()
    made.range("capture", 1000, 2000)
    made.range("first", 1100, 1200)
    made.range("second", 1300, 1400)
    for node, at in ((1 << 32, 1150), (1 << 32 | 1, 1350)):
        made.node(node, at)
        made.node(node + (1 << 32), 1900, original=node)  # what is launched is a copy, made when it is instantiated
    made.node(7 << 32, 1350, thread=THREAD + 1)
    made.range("iteration", 3000, 4000)
    launch = made.call("cudaGraphLaunch_v10000", 3100, 3200)
    made.kernel("b", 3400, 3410, launch, node=(2 << 32) + 1)
    made.kernel("a", 3300, 3310, launch, node=2 << 32)
    made.kernel("c", 3500, 3510, launch, node=7 << 32)
    made.kernel("d", 3600, 3610, made.call("cudaLaunchKernel_v7000", 3150, 3160))
    timeline = read_timeline(made.done())
    kernels = [timeline.names[code] for code in timeline.ops["name"]]
    paths = [timeline.paths[code] for code in timeline.wanted_path]
    assert dict(zip(kernels, paths, strict=True)) == {
        **{"a": "capture > first", "b": "capture > second"},
        **{"c": "iteration", "d": "iteration"},
    }
    assert {timeline.paths[code] for code in timeline.op_path} == {"iteration"}


def test_a_capture_without_graphs_node_by_node_has_no_such_column(export: Callable[..., Export]) -> None:
    timeline = read_timeline(small_export(export()))
    assert "made" not in timeline.ops
    assert (timeline.wanted_path == timeline.op_path).all()


@pytest.mark.parametrize("change", ["-correlationId", "correlationId + (3 << 32)"])
def test_correlations_of_another_sign_or_size_change_no_process(change: str, export: Callable[..., Export]) -> None:
    made = export()
    small = small_export(made)
    whole = nsys.read(small)
    with sqlite3.connect(small) as database:
        for kind in ("KERNEL", "MEMCPY", "MEMSET", "RUNTIME"):
            database.execute(f"UPDATE CUPTI_ACTIVITY_KIND_{kind} SET correlationId = {change}")
    database.close()
    assert read_timeline(small).ops["process"].unique().tolist() == [PID]
    pd.testing.assert_frame_equal(nsys.read(small), whole)


@pytest.mark.parametrize("original", [5, 6])
def test_nodes_that_copy_each_other_end(original: int, export: Callable[..., Export]) -> None:
    made = export()
    made.node(5, 20, original)
    made.node(6, 30, 5)
    made.kernel("k", 100, 150, made.call("cudaGraphLaunch_v10000", 60, 70), node=5)
    assert totals(nsys.read(made.done()), "kernel") == {"k": (1, 50)}


def test_nodes_that_tell_nothing_are_none(export: Callable[..., Export]) -> None:
    made = export()
    made.node(5, 20)
    made.kernel("k", 100, 150, made.call("cudaGraphLaunch_v10000", 60, 70), node=5)
    made.database.execute("UPDATE CUDA_GRAPH_NODE_EVENTS SET start = NULL")
    assert totals(nsys.read(made.done()), "kernel") == {"k": (1, 50)}
