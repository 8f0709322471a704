"""Nsight Compute's CSV pages of 2023 to 2026 read to the values that a person reads in them."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from inferprof.errors import UserError
from inferprof.readers import ncu_csv, ncu_launches
from inferprof.readers.ncu_launches import Launch
from inferprof.tables.schema import by_launch

HEADER = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device",'
    '"CC","Section Name","Metric Name","Metric Unit","Metric Value"'
)
ROW = '"{}","7","app","127.0.0.1","gemm(float *)","1","13","(128, 1, 1)","(4, 2, 1)","0","9.0","{}","{}","{}","{}"'


def durations(launches: list[Launch]) -> list[float]:
    """In ns."""
    return [launch.raw["gpu__time_duration.sum"] for launch in launches]


def details(tmp_path: Path, *cells: tuple[str, str, str, str], before: str = "", after: str = "") -> list[Launch]:
    """One launch of a details page: (section, label, unit, value) of each row."""
    path = tmp_path / "details.csv"
    table = "\n".join([HEADER, *(ROW.format(0, *cell) for cell in cells)])
    path.write_text(f"{before}{table}\n{after}", encoding="utf-8")
    return ncu_csv.read(path)


# --- other people's files, read in place -----------------------------------------------------------------------


def test_a_raw_page_of_a_b200(shared: Path) -> None:
    launches = ncu_csv.read(shared / "real/ncu_csv/ncu_raw_b200_flashinfer_decode_16launches.csv")
    assert len(launches) == 16
    assert launches[0].name.startswith("void PersistentVariableLengthMergeStatesKernel<")
    assert (durations(launches)[0], sum(durations(launches))) == (9920, 266496)


def test_a_raw_page_in_the_old_long_units(shared: Path) -> None:
    launches = ncu_csv.read(shared / "real/ncu_csv/ncu_raw_rtx30_spec_xc_918launches.csv.gz")
    assert len(launches) == 918
    assert launches[0].name.startswith("cmuldual2DKernel(")
    assert durations(launches)[0] == pytest.approx(3002048)
    assert sum(durations(launches)) == pytest.approx(2311.128576e6, rel=1e-9)
    assert launches[0].raw["launch__shared_mem_per_block"] == 1024
    assert launches[0].raw["gpc__cycles_elapsed.avg.per_second"] == pytest.approx(937.574e6)


@pytest.mark.parametrize(
    ("name", "first", "last", "rules"),
    [
        ("ncu_details_a100_julia_rules.csv", 56060, 30.86e6, 61),
    ],
)
def test_a_details_page_whose_units_differ_from_row_to_row(
    name: str, first: float, last: float, rules: int, shared: Path
) -> None:
    launches = ncu_csv.read(shared / "real/ncu_csv" / name)
    assert len(launches) == 6
    assert durations(launches)[0] == pytest.approx(first)
    assert durations(launches)[1] == pytest.approx(55550)
    assert durations(launches)[-1] == pytest.approx(last)
    assert sum(len(launch.rules) for launch in launches) == rules


@pytest.mark.parametrize(
    ("name", "duration", "kernel"), [("saxpy", 292928, "saxpy_kernel"), ("gemm_naive", 9589248, "gemm_naive")]
)
def test_a_page_of_named_metrics_behind_a_byte_order_mark_and_a_programs_output(
    name: str, duration: float, kernel: str, shared: Path
) -> None:
    path = shared / f"real/ncu_csv/ncu_metrics_rtx5070_windows_bom_stdout_{name}.csv"
    (launch,) = ncu_csv.read(path)
    assert kernel in launch.name
    assert durations([launch]) == [duration]
    if name == "saxpy":
        assert launch.raw["dram__bytes_op_read.sum"] == 134221568
        assert (launch.grid, launch.block) == ("65536,1,1", "256,1,1")


def test_a_file_of_messages_alone_says_that_no_kernel_was_profiled(shared: Path) -> None:
    with pytest.raises(UserError, match="ncu profiled no kernel"):
        ncu_csv.read(shared / "real/ncu_csv/ncu_no_kernels_only_prof_lines.csv")


# --- our own captures ------------------------------------------------------------------------------------------


def test_both_pages_of_one_capture_agree_as_far_as_the_details_page_is_not_rounded(repository: Path) -> None:
    folder = repository / "tests/data/ncu"
    raw, rounded = (ncu_csv.read(folder / f"h100_ort_cuda_vit_{page}.csv.gz") for page in ("raw", "details"))
    assert [launch.name for launch in raw] == [launch.name for launch in rounded]
    assert durations(raw) == pytest.approx([5504, 11872, 15264, 9888, 15808, 4960, 5280, 12128])
    for exact, shown in zip(raw, rounded, strict=True):
        assert (shown.grid, shown.block, shown.stream) == (exact.grid, exact.block, exact.stream)
        for name in shown.raw:
            # Two decimals in the unit of the row: up to 0.5 % of a number that is shown as 1.00.
            assert shown.raw[name] == pytest.approx(exact.raw[name], rel=0.006, abs=0.006), name


def test_rule_results_keep_what_they_say_and_their_estimated_speed_up(repository: Path) -> None:
    launches = ncu_csv.read(repository / "tests/data/ncu/h100_ort_cuda_vit_details.csv.gz")
    found = {result.rule: result for result in launches[2].rules}
    assert (found["TheoreticalOccupancy"].kind, found["TheoreticalOccupancy"].scope) == ("optimization", "kernel")
    assert found["TheoreticalOccupancy"].speed_up == 49.11
    assert (found["IssueSlotUtilization"].scope, found["IssueSlotUtilization"].speed_up) == ("unit", 49.11)
    assert found["SOLBottleneck"].message.startswith("This workload exhibits low")
    assert (found["HighPipeUtilization"].kind, found["HighPipeUtilization"].speed_up) == ("information", None)


def test_the_tidy_table_has_a_row_per_launch_and_metric_and_the_rules_beside_them(repository: Path) -> None:
    launches = ncu_csv.read(repository / "tests/data/ncu/h100_ort_cuda_vit_raw.csv.gz")
    wide = by_launch(ncu_launches.rows(launches, "ncu"))
    gemm = wide.iloc[2]
    assert gemm["name"] == "nvjet_sm90_hsh_256x144_64x4_2x1_v_bz_coopA_NNT"
    expected = {
        "duration_total": 15264,
        "grid": "2,66,1",
        "block": "384,1,1",
        "sm_throughput": 50.892702,
        "dram_bytes_read": 7162368,
        "l2_hit_rate": 76.066371,
        "occupancy_theoretical": 18.75,
        "occupancy_limiter": "registers, shared memory",
        "registers": 168,
        "shared_memory": 222404,
        "waves": 1,
        "tail_waste": 0,
        "pipe_tensor": 62.874968,
        "pipe_tensor_float": 62.874968,
        "tensor_ops_fp16": 7474249728,
        "stall_top": "long_scoreboard",
        "sm_clock": pytest.approx(1730.854),
        "replay_passes": 38,
        "shared_wavefronts": 1408176,
        "shared_wavefronts_excess": 0,
    }
    assert {metric: gemm[metric] for metric in expected} == expected
    norm = wide.iloc[1]
    assert norm["flop_fp32"] == pytest.approx((312.350339 + 131.691575 + 2 * 612.763722) * 24557.015152)
    assert norm["flop_fp16"] == pytest.approx((2 * 197.152299 + 4 * 73.933090) * 24557.015152)
    assert norm["global_sectors_excess"] / norm["global_sectors"] == pytest.approx(0.375)
    assert norm["global_load_sectors_per_request"] == 3.5
    assert norm["occupancy_limiter"] == "registers"


def test_a_rule_that_speaks_several_times_of_a_launch_gets_numbers(repository: Path) -> None:
    launches = ncu_csv.read(repository / "tests/data/ncu/h100_torch_vit_tiny_details.csv.gz")
    rows = ncu_launches.rows(launches, "ncu").query("level == 'ncu_rule' and launch == 0")
    speed_ups = rows[rows["metric"] == "rule_speed_up_kernel"].set_index("name")["value"].to_dict()
    twice = {name: value for name, value in speed_ups.items() if str(name).startswith("WorkloadImbalance")}
    assert list(twice) == ["WorkloadImbalance", *(f"WorkloadImbalance {number}" for number in (2, 3, 4))]
    assert set(rows["owner"]) == {launches[0].name}


# --- what pages may hold ---------------------------------------------------------------------------------------

TIME = "GPU Speed Of Light Throughput"


def test_thousands_commas_are_no_decimals(tmp_path: Path) -> None:
    (launch,) = details(tmp_path, (TIME, "Duration", "ns", "1,234"), (TIME, "DRAM Throughput", "%", "65.77"))
    assert launch.raw == {
        "gpu__time_duration.sum": 1234,
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": 65.77,
    }


@pytest.mark.parametrize("percentage", ["65,77", "65,770000"])
def test_decimal_commas_are_told_by_the_percentages(percentage: str, tmp_path: Path) -> None:
    (launch,) = details(tmp_path, (TIME, "Duration", "ns", "117.344"), (TIME, "DRAM Throughput", "%", percentage))
    assert launch.raw == {
        "gpu__time_duration.sum": 117344,
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": 65.77,
    }


def test_what_a_program_prints_behind_the_table_is_not_of_it(tmp_path: Path) -> None:
    cell = (TIME, "Duration", "us", "5.00")
    launches = details(tmp_path, cell, before="==PROF== Connected\nhello\n", after="==PROF== Disconnected\nbye, 1\n")
    assert durations(launches) == [5000]


def test_two_metrics_of_one_label_are_told_apart_by_their_section(tmp_path: Path) -> None:
    (launch,) = details(
        tmp_path,
        (TIME, "Memory Throughput", "%", "39.85"),
        ("Memory Workload Analysis", "Memory Throughput", "Gbyte/s", "469.97"),
    )
    assert launch.raw == {"gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": 39.85}


OLDER = '"ID","Process ID","Process Name","Host Name","Kernel Name","Kernel Time","Context","Stream"'


def test_labels_of_2020_are_read_as_those_of_today(tmp_path: Path) -> None:
    """As rows of the details page then were, with a time of day in place of grid, block and device."""
    cells = {"Memory Frequency": ("cycle/second", "768683274.02"), "SOL FB": ("%", "46.47"), "SM [%]": ("%", "22.48")}
    cells["Duration"] = ("nsecond", "8992")
    head = '"0","28439","cfd","127.0.0.1","step(int,float*)","2020-May-29 12:02:46","1","7","GPU Speed Of Light"'
    path = tmp_path / "2020.csv"
    table = [f'{head},"{label}","{unit}","{value}"' for label, (unit, value) in cells.items()]
    path.write_text("\n".join([f'{OLDER},"Section Name","Metric Name","Metric Unit","Metric Value"', *table]))
    (launch,) = ncu_csv.read(path)
    assert launch.raw == {
        "dram__cycles_elapsed.avg.per_second": 768683274.02,
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": 46.47,
        "sm__throughput.avg.pct_of_peak_sustained_elapsed": 22.48,
        "gpu__time_duration.sum": 8992,
    }
    rows = ncu_launches.rows([launch], "ncu")
    assert "grid" not in set(rows["metric"])


def test_a_raw_page_of_2021_has_a_time_in_place_of_grid_and_block(tmp_path: Path) -> None:
    path = tmp_path / "2021.csv"
    path.write_text(
        "==PROF== Connected to process 5268\n"
        f'{OLDER},"launch__grid_size","sm__warps_active.avg.pct_of_peak_sustained_active"\n'
        '"","","","","","","","","","%"\n'
        '"0","12440","app","127.0.0.1","vectorAdd(float *)","2021-Nov-08 19:56:53","1","7","196","77.969567"\n'
    )
    (launch,) = ncu_csv.read(path)
    assert launch.raw == {"launch__grid_size": 196, "sm__warps_active.avg.pct_of_peak_sustained_active": 77.969567}
    assert (launch.grid, launch.stream, launch.device) == ("", 7, None)


def test_a_value_that_is_no_number_is_left_out(tmp_path: Path) -> None:
    (launch,) = details(tmp_path, (TIME, "Duration", "us", "n/a"), (TIME, "SM Frequency", "Ghz", "nan"))
    assert launch.raw == {}


def test_a_counter_below_0_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"gpu__time_duration\.sum is -5"):
        details(tmp_path, (TIME, "Duration", "us", "-5"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "==PROF== Connected to process 1\n==WARNING== No kernels were profiled.\n",
            r"\(No kernels were profiled.\)",
        ),
        (
            "==WARNING== Note: clocks.\n==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n",
            r"\(ERR_NVGPUCTRPERM - The user",
        ),
        (f"{HEADER}\n", "profiled no kernel;"),
    ],
)
def test_a_page_without_a_launch_says_why(text: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "empty.csv"
    path.write_text(text)
    with pytest.raises(UserError, match=reason):
        ncu_csv.read(path)


def test_another_page_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "session.csv.gz"
    path.write_bytes(gzip.compress(b'"ID","Process ID","Attribute"\n"0","7","Host"\n'))
    with pytest.raises(UserError, match="--page raw"):
        ncu_csv.read(path)


# --- what no ncu writes ----------------------------------------------------------------------------------------

DURATION = ("GPU Speed Of Light Throughput", "Duration", "us", "40.00")


def test_two_values_of_a_metric_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="twice"):
        details(tmp_path, DURATION, (*DURATION[:3], "80.00"))
    assert durations(details(tmp_path, DURATION, DURATION)) == [40_000]


def test_a_share_of_15000_percent_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="15000"):
        details(tmp_path, DURATION, (DURATION[0], "Memory Throughput", "%", "15000.00"))


def test_a_page_without_sections_is_another_one(tmp_path: Path) -> None:
    path = tmp_path / "details.csv"
    path.write_text(
        f"{HEADER}\n{ROW.format(0, *DURATION)}\n".replace('"Section Name",', "").replace(f'"{DURATION[0]}",', "")
    )
    with pytest.raises(UserError, match="another page"):
        ncu_csv.read(path)


@pytest.mark.parametrize("column", ["0", "13"])
def test_a_number_of_40_digits_is_no_device_and_no_stream(column: str, tmp_path: Path) -> None:
    path = tmp_path / "details.csv"
    path.write_text(f"{HEADER}\n{ROW.format(0, *DURATION)}\n".replace(f'"{column}","', f'"{"9" * 40}","'))
    with pytest.raises(UserError, match="9999"):
        ncu_csv.read(path)


RAW = '"ID","Process ID","Kernel Name","gpu__time_duration.sum","dram__bytes_read.sum"'


def raw(tmp_path: Path, *rows: str) -> list[Launch]:
    path = tmp_path / "raw.csv"
    path.write_text("\n".join([RAW, *rows, ""]))
    return ncu_csv.read(path)


@pytest.mark.parametrize(
    ("unit", "size"), [("MiB", 1.5 * 2**20), ("Mbyte", 1.5e6), ("KB", 1.5e3), ("GiB", 1.5 * 2**30), ("byte", 1.5)]
)
def test_units_of_bytes(unit: str, size: float, tmp_path: Path) -> None:
    (launch,) = raw(tmp_path, f'"","","","us","{unit}"', '"0","1","k","40.00","1.50"')
    assert launch.raw["dram__bytes_read.sum"] == size


def test_instances_behind_a_value_are_no_part_of_it(tmp_path: Path) -> None:
    (launch,) = raw(tmp_path, '"","","","us","byte"', '"0","1","k","40.00 (10.00; 30.00)","5"')
    assert launch.raw["gpu__time_duration.sum"] == 40_000


def test_pages_in_two_units_one_behind_the_other_are_refused(tmp_path: Path) -> None:
    first = ['"","","","us","byte"', '"0","1","k","40.00","5"']
    with pytest.raises(UserError, match="several rows of units"):
        raw(tmp_path, *first, '"","","","ms","byte"', '"1","1","k","40.00","5"')
