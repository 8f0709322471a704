"""Text of `nsys stats`, of 2020 to 2026 and of any locale."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest
from tests.unit.facts import mentions, naming

from inferprof.errors import UserError
from inferprof.readers import nsys_stats
from inferprof.readers.kinds import nsys_text as kinds

HEADINGS = (
    *("Time (%)", "Total Time (ns)", "Instances", "Avg (ns)", "Med (ns)", "Min (ns)", "Max (ns)", "StdDev (ns)"),
    *("GridXYZ", "Name"),
)
ROWS = (
    ("92.5", "1234567", "2", "617283.5", "617283.5", "500000", "734567", "1000.0", "   8    1    1", "gemm (a b)"),
    ("7.5", "100000", "10", "10000.0", "10000.0", "9000", "12000", "100.0", "   1    1    1", "softmax"),
)
TITLE = "CUDA GPU Kernel Summary (cuda_gpu_kern_sum)"


def drawn(rows: Sequence[Sequence[str]] = ROWS, title: str = TITLE, headings: Sequence[str] = HEADINGS) -> str:
    """A table as nsys draws it."""
    widths = [max(len(cell) for cell in column) for column in zip(headings, *rows, strict=True)]
    lines = [headings, ["-" * width for width in widths], *rows]
    table = [
        " " + "  ".join(cell.rjust(width) for cell, width in zip(line[:-1], widths, strict=False)) + f"  {line[-1]}"
        for line in lines
    ]
    return "\n".join([f" ** {title}:", "", *table, "", ""])


def spelled(group: str, decimal: str) -> list[list[str]]:
    """The rows with the signs of another locale."""

    def number(cell: str) -> str:
        whole, point, rest = cell.partition(".")
        return f"{int(whole):,}".replace(",", group) + (f"{decimal}{rest}" if point else "")

    return [[number(cell) if cell.replace(".", "").isdigit() else cell for cell in row] for row in ROWS]


def read(tmp_path: Path, text: str) -> pd.DataFrame:
    """The tidy table of a text."""
    path = tmp_path / "stats.txt"
    path.write_text(text, encoding="utf-8")
    return nsys_stats.read(path, "nsys")


def totals(frame: pd.DataFrame, level: str = "kernel") -> dict[str, tuple[float, int]]:
    """Name → total ns and instances."""
    rows = frame[frame["level"].eq(level) & frame["metric"].eq("duration_total")]
    return {
        str(n): (float(v), int(i)) for n, v, i in zip(rows["name"], rows["value"], rows["instances"], strict=True)
    }


@pytest.mark.parametrize(("group", "decimal"), [("", "."), (",", "."), (".", ","), (" ", ","), ("\u202f", ",")])
def test_numbers_of_each_locale_are_the_same(tmp_path: Path, group: str, decimal: str) -> None:
    frame = read(tmp_path, drawn(spelled(group, decimal)))
    assert totals(frame) == {"gemm (a b)": (1_234_567.0, 2), "softmax": (100_000.0, 10)}
    mean = frame[frame["metric"].eq("duration_mean") & frame["name"].eq("gemm (a b)")]["value"]
    assert mean.tolist() == [617_283.5]


def test_other_units_are_converted(tmp_path: Path) -> None:
    text = drawn(headings=[heading.replace("(ns)", "(us)") for heading in HEADINGS])
    assert totals(read(tmp_path, text))["softmax"] == (100_000_000.0, 10)


def test_names_that_were_cut_alike_stay_two(tmp_path: Path) -> None:
    cut = [*ROWS[1][:-1], "void at::native::vectori…"]
    assert len(totals(read(tmp_path, drawn([ROWS[0], cut, cut])))) == 3


def test_reports_of_other_things_are_passed_over(tmp_path: Path) -> None:
    other = drawn(title="OpenMP Summary (openmp_sum)")
    assert len(totals(read(tmp_path, drawn() + other))) == 2
    with pytest.raises(UserError, match=naming("no", "nsys stats")):
        read(tmp_path, other)


def test_one_report_of_two_profiles_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="several times"):
        read(tmp_path, drawn() + drawn())


def test_what_an_excerpt_leaves_out_is_said(tmp_path: Path) -> None:
    frame = read(tmp_path, drawn(ROWS[1:]))
    (lacking,) = frame.loc[frame["metric"] == "untold_share", "value"]
    assert lacking == pytest.approx(0.925, abs=0.01)
    told = [lack.what for lack in kinds.read(tmp_path / "stats.txt").lacks]
    assert mentions(told[0], "92 %", "cuda_gpu_kern_sum") and len(told) == 2
    read(tmp_path, drawn())
    assert len(kinds.read(tmp_path / "stats.txt").lacks) == 1


EXPECTED = {
    "cuda_gpu_kern_sum_nvtxname_base_nsys2026.1.1_torch.txt": ("Kernel2", 5_234_369_323, 1455),
    "nsys_profile_stats_2020_dli_qdrep.txt": ("initWith(float, float*, int)", 1_869_641, 3),
    "nsys_profile_stats_nsys2022.4_gpukernsum_vecadd.txt": ("add(int, float *, float *)", 25_610_621_473, 1),
    "nsys_stats_all_nsys2021.1_comma_decimal_openacc.txt": ("loop_2_38_gpu", 2176, 1),
    "nsys_stats_all_nsys2022.4.2_cupy.txt": ("cupy_scan_naive", 705_510, 73),
    "nsys_stats_all_nsys2025.3.2_a100_clima.txt": (None, 271_046_731, 10),
    "nsys_stats_all_nsys2022.4.2_numba_shell_prompt.txt": (None, 222_334, 1),
    "nsys_stats_all_nsys2024.6.2_a100_graphtrace_skipped.txt": (None, 49_502, 10),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_other_peoples_text_tables_are_read(name: str, shared: Path) -> None:
    kernel, total, instances = EXPECTED[name]
    frame = nsys_stats.read(shared / "real/nsys_csv" / name, "nsys")
    first = frame[frame["level"].eq("kernel") & frame["metric"].eq("duration_total")].iloc[0]
    assert (first["value"], first["instances"]) == (total, instances)
    assert kernel in (None, first["name"])


def test_sizes_of_2021_are_in_units_of_1024(shared: Path) -> None:
    frame = nsys_stats.read(shared / "real/nsys_csv/nsys_stats_all_nsys2021.1_comma_decimal_openacc.txt", "nsys")
    sizes = frame[frame["metric"] == "bytes_total"].set_index("name")["value"].to_dict()
    assert sizes == {"HtoD": 19 * 1024, "DtoH": 11 * 1024}


def test_thousands_parted_by_blanks_of_several_bytes_do_not_move_columns(tmp_path: Path) -> None:
    path = tmp_path / "fr.txt"
    heads = " Time(%)  Total Time (ns)  Instances      Average    Minimum    Maximum      Name   "
    rows = [
        "    60,0  1\u202f200\u202f634        2      600\u202f317,0      171\u202f872  1\u202f028\u202f762  gemm  ",
        "    40,0  800\u202f423        1      800\u202f423,0      800\u202f423  800\u202f423  softmax  ",
    ]
    ruler = " -------  ---------------  ---------  -----------  ---------  ---------  ----------"
    path.write_text("\n".join(["CUDA Kernel Statistics:", "", heads, ruler, *rows, ""]))
    frame = nsys_stats.read(path, "nsys")
    total = frame[frame["metric"] == "duration_total"].set_index("name")["value"]
    assert total.to_dict() == {"gemm": 1_200_634, "softmax": 800_423}
