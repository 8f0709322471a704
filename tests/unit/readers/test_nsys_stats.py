"""CSVs of `nsys stats` as they were written."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from tests.unit.cuts import accepted, places
from tests.unit.facts import naming

from inferprof.errors import UserError
from inferprof.profilers import nsys
from inferprof.readers import nsys_stats

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
        f'Time (%),Total Time (ns),Instances,{STATISTICS},Name\n100.0,600,3,200.0,190.0,150,260,55.7,"k<a, b>(int)"\n'
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
    assert set(frame["level"]) == {"kernel", "run"}
    assert set(frame.loc[frame["level"] == "kernel", "instances"]) == {3}


def test_the_header_names_the_unit(tmp_path: Path) -> None:
    text = "Time (%),Total Time (ms),Instances,Avg (ms),Name\n100.0,1.25,2,0.625,k\n"
    assert values(nsys.read(written(tmp_path, text)), "k") == {"duration_total": 1250000, "duration_mean": 625000}


def test_api_calls_and_ranges(tmp_path: Path) -> None:
    api = nsys.read(
        written(tmp_path, f"Time (%),Total Time (ns),Num Calls,{STATISTICS},Name\n100.0,9,3,3,3,3,3,0,cudaFree\n")
    )
    assert totals(api, "api") == [("cudaFree", 3, 9.0)]
    nvtx = nsys.read(
        written(
            tmp_path,
            f"Time (%),Total Time (ns),Instances,{STATISTICS},Style,Range\n100.0,8,2,4,4,4,4,0,PushPop,:iteration\n",
        )
    )
    assert totals(nvtx, "range") == [("iteration", 2, 8.0)]


def test_copies_by_time_and_by_size_in_the_same_words_as_other_readers(tmp_path: Path) -> None:
    rows = "[CUDA memcpy Host-to-Device]", "[CUDA memcpy DtoH]", "[CUDA memset]", "[CUDA Unified Memory memcpy HtoD]"
    lines = "\n".join(f"25.0,50,2,25,25,20,30,7.1,{row}" for row in rows)
    time = nsys.read(written(tmp_path, f"Time (%),Total Time (ns),Count,{STATISTICS},Operation\n{lines}\n"))
    assert totals(time, "memcpy") == [("HtoD", 2, 50.0), ("DtoH", 2, 50.0), ("HtoD unified memory", 2, 50.0)]
    assert totals(time, "memset") == [("memset", 2, 50.0)]
    size = nsys.read(
        written(tmp_path, "Total (MB),Count,Avg (MB),Operation\n4.194,2,2.097,[CUDA memcpy Device-to-Device]\n")
    )
    assert totals(size, "memcpy", "bytes_total") == [("DtoD", 2, 4194000.0)]


def test_a_report_that_is_not_read_is_refused_with_those_that_are(tmp_path: Path) -> None:
    text = "Time (%),Total Time (ns),Instances,Avg (ns),GridXYZ,Kernel\n1,2,3,4,5,6\n"
    with pytest.raises(UserError, match=naming("none", "nsys stats", "cuda_gpu_kern_sum", "cuda_api_sum")):
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
    with pytest.raises(UserError, match=naming("b1_cuda_gpu_kern_sum.csv", "cut short or damaged", "write it again")):
        nsys.read(path)


# --- what is printed, and other units ----------------------------------------------------------------------------

HEADER = f"Time (%),Total Time (ns),Instances,{STATISTICS},Name\n"


@pytest.fixture
def printed(repository: Path) -> Path:
    """Folder of what `nsys stats --format csv` printed."""
    return repository / "tests/data/nsys/printed"


def untold(frame: pd.DataFrame) -> dict[str, float]:
    """Report → share of the time that may be missing."""
    rows = frame[frame["metric"] == "untold_share"]
    return dict(rows[["name", "value"]].itertuples(index=False, name=None))


def test_what_stands_around_a_table_is_passed_over(printed: Path, tmp_path: Path) -> None:
    assert totals(nsys.read(printed / "preamble.csv"), "kernel") == [("k", 10, 700.0)]
    table = (printed / "preamble.csv").read_text().rstrip()
    progress = "[1/8] [====100%] r.sqlite\nmy, program\nSKIPPED: r.sqlite does not contain NV data.\n"
    path = written(tmp_path, f"{progress}{table}\nProcessing [r.sqlite] with [x.py]...\n\n$ ls, -l\n")
    assert totals(nsys.read(path), "kernel") == [("k", 10, 700.0)]
    path.write_bytes(b"\xef\xbb\xbf" + table.replace("\n", "\r\n").encode() + b"\r\n")
    assert totals(nsys.read(path), "kernel") == [("k", 10, 700.0)]


def test_all_reports_of_a_file_are_read(printed: Path) -> None:
    frame = nsys.read(printed / "two_reports.csv")
    assert totals(frame, "kernel") == [("k", 10, 700.0)]
    assert totals(frame, "memcpy") == [("HtoD", 5, 500.0)]
    assert set(untold(frame)) == {"cuda_gpu_kern_sum", "cuda_gpu_mem_time_sum"}


def test_calls_of_another_api_are_not_cudas(tmp_path: Path) -> None:
    system = f"Time (%),Total Time (ns),Num Calls,{STATISTICS},Name\n100.0,9,3,3,3,3,3,0,sem_wait\n"
    with pytest.raises(UserError, match=naming("none", "nsys stats")):
        nsys.read(written(tmp_path, system))
    both = nsys.read(written(tmp_path, f"{system}\n{HEADER}100.0,8,2,4,4,4,4,0,k\n"))
    assert set(both["level"]) == {"kernel", "run"}


def test_a_trace_in_other_units(printed: Path) -> None:
    in_us = nsys.read(printed / "trace_us.csv")
    assert totals(in_us, "kernel") == [("k", 1, 2250.0)]
    in_bytes = nsys.read(printed / "trace_byte.csv")
    assert totals(in_bytes, "memcpy") == [("HtoD pageable", 1, 50.0)]
    assert totals(in_bytes, "memcpy", "bytes_total") == [("HtoD pageable", 1, 4096.0)]


@pytest.mark.parametrize(("unit", "total"), [("us", 1500.0), ("ms", 1.5e6), ("s", 1.5e9)])
def test_ranges_in_other_units(unit: str, total: float, tmp_path: Path) -> None:
    columns = f"Start ({unit}),End ({unit}),Name,TID,NumChild,RangeId,ParentId,NameTree"
    frame = nsys.read(written(tmp_path, f"{columns}\n0.250,1.750,:step,9,0,1,,:step\n"))
    assert totals(frame, "range") == [("step", 1, total)]


@pytest.mark.parametrize(("unit", "size"), [("kB", 4e3), ("KiB", 4096.0), ("MiB", 4194304.0), ("B", 4.0)])
def test_sizes_in_other_units(unit: str, size: float, tmp_path: Path) -> None:
    frame = nsys.read(written(tmp_path, f"Total ({unit}),Count,Operation\n4.000,1,[CUDA memcpy DtoH]\n"))
    assert totals(frame, "memcpy", "bytes_total") == [("DtoH", 1, size)]


@pytest.mark.parametrize(
    "text",
    [
        "Total (pages),Count,Operation\n4.0,1,[CUDA memset]\n",
        "Time (%),Total Time (MB),Instances,Name\n100.0,4,1,k\n",
        "Time (%),Total Time,Instances,Name\n100.0,4,1,k\n",
    ],
)
def test_units_of_something_else_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=naming("nsys stats --timeunit nsec")):
        nsys.read(written(tmp_path, text))


@pytest.mark.parametrize(
    "text",
    [
        HEADER + "100.0,2.176,1,2.176,2.176,2.176,2.176,0,k\n",
        HEADER + '100.0,"2,176",1,"2,176","2,176","2,176","2,176",0,k\n',
        HEADER + '"100,0",2176,1,2176,2176,2176,2176,0,k\n',
        HEADER.replace(",", ";") + "100,0;2.176;1;2.176;2.176;2.176;2.176;0;k\n",
        HEADER + "100.0,nan,1,1,1,1,1,0,k\n",
    ],
)
def test_numbers_of_other_locales_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="write it again"):
        nsys.read(written(tmp_path, text))


def test_other_peoples_transcript(shared: Path) -> None:
    frame = nsys.read(shared / "real/nsys_csv/cuda_gpu_kern_sum_in_transcript_nvhpc_openmp.txt")
    assert [(count, total) for _, count, total in totals(frame, "kernel")] == [(25, 507879.0), (25, 506176.0)]


# --- cut short ---------------------------------------------------------------------------------------------------


def test_a_row_that_is_cut_is_refused(printed: Path) -> None:
    with pytest.raises(UserError, match=naming("trace_cut.csv", "cut short or damaged")):
        nsys.read(printed / "trace_cut.csv")


SUMMARIES = [
    "h100_ort_cuda_graph_vit_tiny_cuda_api_sum",
    "h100_ort_cuda_graph_vit_tiny_cuda_gpu_kern_sum",
    "h100_ort_cuda_minilm_cuda_gpu_mem_time_sum",
]


@pytest.mark.parametrize("name", SUMMARIES)
def test_a_summary_is_refused_at_every_cut_that_its_percentages_tell(
    name: str, repository: Path, tmp_path: Path
) -> None:
    content = (repository / f"tests/data/nsys/{name}.csv").read_bytes()

    def time_of(frame: pd.DataFrame) -> float:
        return float(frame.loc[frame["metric"] == "duration_total", "value"].sum())

    path = written(tmp_path, content.decode())
    whole = time_of(nsys.read(path))
    cut = list(accepted(content, "cut.csv", nsys.read, tmp_path, places(content, 40)))
    for place in cut:
        path.write_bytes(content[:place])
        (may_lack,) = untold(nsys.read(path)).values()
        assert content[place - 1] == ord("\n")
        assert 0 < 1 - time_of(nsys.read(path)) / whole <= may_lack < 0.002
    assert len(cut) < 15


TRACE = (
    "Start (ns),Duration (ns),CorrId,GrdX,Bytes (MB),SrcMemKd,DstMemKd,Device,Ctx,Strm,Name\n"
    '100,50,1,1,,,,GPU (0),1,7,"k<a, b>(int)"\n160,50,1,,0.125,Pinned,Device,GPU (0),1,7,[CUDA memcpy HtoD]\n'
    "220,50,1,1,,,,GPU (0),1,7,k\n"
)
SIZES = "Total (MB),Count,Operation\n4.0,1,[CUDA memcpy HtoD]\n1.0,1,[CUDA memset]\n"


@pytest.mark.parametrize("text", [TRACE, SIZES], ids=["trace", "sizes"])
def test_a_table_without_totals_is_refused_at_every_cut_but_behind_a_row_and_says_so(
    text: str, tmp_path: Path
) -> None:
    content = text.encode()
    cut = list(accepted(content, "cut.csv", nsys.read, tmp_path, range(len(content))))
    ends = [place + 1 for place, byte in enumerate(content) if byte == ord("\n")]
    assert cut == ends[1:-1]
    assert set(untold(nsys.read(written(tmp_path, text))).values()) == {1.0}


def test_several_reports_are_refused_at_every_cut_but_between_them(printed: Path, tmp_path: Path) -> None:
    content = (printed / "two_reports.csv").read_bytes()
    cut = list(accepted(content, "cut.csv", nsys.read, tmp_path, range(len(content))))
    first = content.index(b"\n\n") + 1
    assert cut == [first, first + 1]


def test_a_summary_of_ranges_is_refused_at_every_cut(tmp_path: Path) -> None:
    rows = "".join(f"10.0,{100 + i % 2},4,25.0,PushPop,:range {i}\n" for i in range(10))
    content = f"Time (%),Total Time (ns),Instances,Avg (ns),Style,Range\n{rows}".encode()
    assert list(accepted(content, "cut.csv", nsys.read, tmp_path, range(len(content)))) == []


def test_a_trace_of_ranges_is_refused_where_ranges_lack_those_inside(shared: Path, tmp_path: Path) -> None:
    content = (shared / "real/nsys_csv/nvtx_pushpop_trace_nsys2025.3.2_jetson_thor.csv").read_bytes()
    ends = [place + 1 for place, byte in enumerate(content) if byte == ord("\n")]
    cut = list(accepted(content, "cut.csv", nsys.read, tmp_path))
    assert cut == ends[1:5]  # four outermost ranges; the fifth has three inside


SUM = "Time (%),Total Time (ns),Instances,Avg (ns),Name\n"
TRACE = (
    "Start (ns),Duration (ns),CorrId,Bytes (MB),SrcMemKd,DstMemKd,Device,Strm,Name\n"
    "1,2,3,{},Pageable,Device,GPU (0),7,[CUDA memcpy Host-to-Device]\n"
)


@pytest.mark.parametrize(
    "text",
    [
        f"{SUM}100.0,600,-3,-200.0,k\n",
        f"{SUM}100.0,-600,3,-200.0,k\n",
        f"{SUM}-100.0,600,3,200.0,k\n",
        f"{SUM}100.0,600,{'9' * 40},200.0,k\n",
        *(TRACE.format(size) for size in ("-1.000", "inf", "nan", "1e3")),
    ],
)
def test_what_is_less_than_nothing_or_no_number_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no plain number"):
        nsys.read(written(tmp_path, text))


@pytest.mark.parametrize("row", ["100.0,600,0,200.0,k", "100.0,600,3,2.0,k", "100.0,600000,3,200.0,k"])
def test_a_total_that_is_not_its_mean_times_its_count_is_refused(row: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="are not the total"):
        nsys.read(written(tmp_path, f"{SUM}{row}\n"))


def test_one_report_of_two_profiles_is_not_added_up(tmp_path: Path) -> None:
    text = f"{SUM}100.0,600,3,200.0,k\n"
    with pytest.raises(UserError, match="several times"):
        nsys.read(written(tmp_path, f"{text}\n{text}"))


def test_a_row_of_all_the_time_lacks_nothing(tmp_path: Path) -> None:
    frame = nsys.read(
        written(tmp_path, "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Name\n100.0,600,3,200.0,190.0,k\n")
    )
    assert values(frame, "cuda_gpu_kern_sum")["untold_share"] < 0.001


def test_cells_that_are_all_in_quotes_are_the_same_cells(tmp_path: Path) -> None:
    plain, quoted, between = tmp_path / "plain.csv", tmp_path / "quoted.csv", '","'
    plain.write_text("Time (%),Total Time (ns),Instances,Avg (ns),Name\n100.0,40,4,10.0,gemm\n")
    quoted.write_text("\n".join(f'"{line.replace(",", between)}"' for line in plain.read_text().splitlines()) + "\n")
    pd.testing.assert_frame_equal(nsys_stats.read(quoted, "nsys"), nsys_stats.read(plain, "nsys"))
