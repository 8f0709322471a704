"""CSVs of `nsys stats` as they were written."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from inferprof.errors import UserError
from inferprof.profilers import nsys

STATISTICS = "Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns)"


def written(folder: Path, text: str) -> Path:
    path = folder / "x.csv"
    path.write_text(text)
    return path


def values(frame: pd.DataFrame, name: str) -> dict[str, float]:
    """Metric → value of a name."""
    return dict(frame.loc[frame["name"] == name, ["metric", "value"]].itertuples(index=False, name=None))


def totals(frame: pd.DataFrame, level: str, metric: str = "duration_total") -> list[tuple[str, int, float]]:
    rows = frame[(frame["level"] == level) & (frame["metric"] == metric)]
    return list(rows[["name", "instances", "value"]].itertuples(index=False, name=None))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Time (%),Total Time (parsec),Instances,Name\n100.0,1.25,2,k\n", "is in parsec: write it again"),
        ("Time (%),Total Time (ns),Instances,Name\n", "has a heading and no rows"),
    ],
)
def test_a_unit_that_is_not_known_and_a_report_of_nothing_are_refused(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        nsys.read(written(tmp_path, text))


def test_kernels(tmp_path: Path) -> None:
    text = (
        f'Time (%),Total Time (ns),Instances,{STATISTICS},Name\n60.0,600,3,200.0,190.0,150,260,55.7,"k<a, b>(int)"\n'
    )
    frame = nsys.read(written(tmp_path, text))
    assert values(frame, "k<a, b>(int)") == {
        "duration_total": 600,
        "duration_mean": 200,
        "duration_median": 190,
        "duration_min": 150,
        "duration_max": 260,
        "duration_stddev": 55.7,
    }
    assert set(frame["level"]) == {"kernel"}
    assert set(frame["instances"]) == {3}


def test_the_header_names_the_unit(tmp_path: Path) -> None:
    text = "Time (%),Total Time (ms),Instances,Avg (ms),Name\n100.0,1.25,2,0.625,k\n"
    assert values(nsys.read(written(tmp_path, text)), "k") == {"duration_total": 1250000, "duration_mean": 625000}


def test_api_calls_and_ranges(tmp_path: Path) -> None:
    api = nsys.read(
        written(tmp_path, f"Time (%),Total Time (ns),Num Calls,{STATISTICS},Name\n1.0,9,3,3,3,3,3,0,cudaFree\n")
    )
    assert totals(api, "api") == [("cudaFree", 3, 9.0)]
    nvtx = nsys.read(
        written(
            tmp_path,
            f"Time (%),Total Time (ns),Instances,{STATISTICS},Style,Range\n1.0,8,2,4,4,4,4,0,PushPop,:iteration\n",
        )
    )
    assert totals(nvtx, "range") == [("iteration", 2, 8.0)]


def test_copies_by_time_and_by_size_in_the_same_words_as_other_readers(tmp_path: Path) -> None:
    rows = "[CUDA memcpy Host-to-Device]", "[CUDA memcpy DtoH]", "[CUDA memset]", "[CUDA Unified Memory memcpy HtoD]"
    lines = "\n".join(f"1.0,50,2,25,25,20,30,7.1,{row}" for row in rows)
    time = nsys.read(written(tmp_path, f"Time (%),Total Time (ns),Count,{STATISTICS},Operation\n{lines}\n"))
    assert totals(time, "memcpy") == [("HtoD", 2, 50.0), ("DtoH", 2, 50.0), ("HtoD unified memory", 2, 50.0)]
    assert totals(time, "memset") == [("memset", 2, 50.0)]
    size = nsys.read(
        written(tmp_path, "Total (MB),Count,Avg (MB),Operation\n4.194,2,2.097,[CUDA memcpy Device-to-Device]\n")
    )
    assert totals(size, "memcpy", "bytes_total") == [("DtoD", 2, 4194000.0)]


def test_a_report_that_is_not_read_is_refused_with_those_that_are(tmp_path: Path) -> None:
    text = "Time (%),Total Time (ns),Instances,Avg (ns),GridXYZ,Kernel\n1,2,3,4,5,6\n"
    with pytest.raises(UserError, match=r"none of the `nsys stats` reports .*: cuda_gpu_kern_sum, cuda_api_sum"):
        nsys.read(written(tmp_path, text))


def test_other_peoples_kernels_and_sizes(shared: Path) -> None:
    folder = shared / "real/nsys_csv"
    kernels = totals(nsys.read(folder / "cuda_gpu_kern_sum_nsys2025.3.2_a100_vllm_qwen2.5-7b.csv"), "kernel")
    assert kernels[0] == ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_32x6_tn", 3258, 665015457.0)
    assert (len(kernels), sum(n for _, n, _ in kernels), sum(ns for _, _, ns in kernels)) == (65, 39002, 2081145534)
    sizes = nsys.read(folder / "cuda_gpu_mem_size_sum_nsys2025.3.2_a100_vllm_qwen2.5-7b.csv")
    assert totals(sizes, "memcpy", "bytes_total")[0] == ("HtoD", 1256, 15231546000.0)
    assert totals(sizes, "memset", "bytes_total") == [("memset", 3408, 3865000.0)]


def test_other_peoples_traces(shared: Path) -> None:
    folder = shared / "real/nsys_csv"
    trace = nsys.read(folder / "cuda_gpu_trace_nsys2025.3.2_jetson_thor.csv")
    operations = [totals(trace, level) for level in ("kernel", "memcpy", "memset")]
    assert sum(n for rows in operations for _, n, _ in rows) == 16
    assert sum(n for _, n, _ in operations[0]) == 4
    assert sum(ns for _, _, ns in operations[0]) == 108448
    pushpop = nsys.read(folder / "nvtx_pushpop_trace_nsys2025.3.2_jetson_thor.csv")
    ranges = {name: ns for name, _, ns in totals(pushpop, "range")}
    assert sum(n for _, n, _ in totals(pushpop, "range")) == 8
    assert ranges["NvtxAnnotation.G1"] == 12003953


def test_a_summary_that_is_cut_short_is_one_line(repository: Path, tmp_path: Path) -> None:
    whole = (repository / "tests/data/nsys/h100_ort_cuda_graph_vit_tiny_cuda_gpu_kern_sum.csv").read_bytes()
    path = tmp_path / "b1_cuda_gpu_kern_sum.csv"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"b1_cuda_gpu_kern_sum.csv is cut short or damaged \(.*\): write it again$"):
        nsys.read(path)
