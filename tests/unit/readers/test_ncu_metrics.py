"""Units of Nsight Compute, and what is computed of several of its metrics."""

from __future__ import annotations

import pytest

from inferprof.readers.ncu_metrics import SOURCES, ours, scale_of
from inferprof.tables.metrics import METRICS, STALLS

STALLED = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"


@pytest.mark.parametrize(
    ("unit", "scale"),
    [
        ("ns", 1),
        ("nsecond", 1),
        ("us", 1e3),
        ("usecond", 1e3),
        ("msecond", 1e6),
        ("s", 1e9),
        ("byte", 1),
        ("Kbyte", 1e3),
        ("Kbyte/block", 1e3),
        ("Gbyte/s", 1e9),
        ("Ghz", 1e9),
        ("hz", 1),
        ("cycle/nsecond", 1e9),
        ("cycle/usecond", 1e6),
        ("cycle/s", 1),
        ("%", 1),
        ("", 1),
        ("register/thread", 1),
        ("byte/sector", 1),
        ("inst/cycle", 1),
    ],
)
def test_units_are_brought_to_ns_bytes_and_hz(unit: str, scale: float) -> None:
    assert scale_of(unit) == scale


def test_every_metric_that_comes_of_a_name_is_known() -> None:
    assert set(SOURCES) <= set(METRICS)


def test_what_was_not_counted_is_left_out() -> None:
    assert ours({}) == {}
    assert ours({"gpu__time_duration.sum": 5.0}) == {"duration_total": 5.0}


def test_the_newer_name_of_a_counter_is_read_too() -> None:
    assert ours({"dram__bytes_op_read.sum": 64.0}) == {"dram_bytes_read": 64.0}


def test_all_that_allow_no_more_blocks_limit_the_occupancy() -> None:
    limits = {"registers": 2.0, "shared_mem": 2.0, "warps": 4.0, "blocks": 32.0}
    found = ours({f"launch__occupancy_limit_{name}": value for name, value in limits.items()})
    assert found["occupancy_limiter"] == "registers, shared memory"


@pytest.mark.parametrize(("waves", "waste"), [(1.0, 0.0), (1.12, 44.0), (4.48, 10.4)])
def test_the_tail_is_what_is_empty_in_the_last_wave(waves: float, waste: float) -> None:
    assert ours({"launch__waves_per_multiprocessor": waves})["tail_waste"] == pytest.approx(waste)


def test_below_one_wave_only_sms_without_a_block_are_wasted() -> None:
    raw = {"launch__waves_per_multiprocessor": 0.25, "launch__grid_size": 99.0, "launch__sm_count": 132.0}
    assert ours(raw)["tail_waste"] == pytest.approx(25.0)


def test_sectors_are_of_32_bytes() -> None:
    ops = ("global_op_ld", "global_op_st", "local_op_ld", "local_op_st")
    raw = {
        f"l1tex__t_sectors_pipe_lsu_mem_{op}.sum": count for op, count in zip(ops, (8.0, 4.0, 2.0, 1.0), strict=True)
    }
    found = ours({**raw, "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": 2.0, "lts__t_sectors.sum": 16.0})
    assert (found["l1_bytes"], found["l2_bytes"]) == (480, 512)
    assert (found["local_bytes_loaded"], found["local_bytes_stored"]) == (64, 32)
    assert found["global_load_sectors_per_request"] == 4
    assert "global_store_sectors_per_request" not in found


def test_a_part_that_is_missing_makes_no_sum() -> None:
    assert "l1_bytes" not in ours({"l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": 8.0})


def test_nothing_is_divided_by_no_requests() -> None:
    raw = {
        "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": 0.0,
        "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": 0.0,
    }
    assert "global_load_sectors_per_request" not in ours(raw)


def test_stalls_are_shares_of_the_cycles_between_two_instructions() -> None:
    cycles = {"long_scoreboard": 6.0, "wait": 1.0, "not_selected": 2.0, "selected": 1.0}
    found = ours({STALLED.format(reason): value for reason, value in cycles.items()})
    assert found == {
        "stall_long_scoreboard": 60.0,
        "stall_wait": 10.0,
        "stall_not_selected": 20.0,
        "stall_top": "long_scoreboard",
    }


def test_a_warp_that_waits_for_its_turn_is_not_stalled_by_anything() -> None:
    found = ours({STALLED.format("not_selected"): 9.0, STALLED.format("wait"): 1.0})
    assert found["stall_top"] == "wait"
    assert set(STALLS) >= {"not_selected", "wait"}


def test_the_busier_generation_of_tensor_cores_counts() -> None:
    names = ("pipe_tensor_cycles_active", "pipe_tc_cycles_active")
    raw = {
        f"sm__{name}.avg.pct_of_peak_sustained_active": share for name, share in zip(names, (1.0, 70.0), strict=True)
    }
    assert ours(raw)["pipe_tensor"] == 70.0


def test_dense_and_sparse_fp8_are_one_sum() -> None:
    raw = {f"sm__ops_path_tensor_src_fp8_sparsity_{state}.sum": ops for state, ops in (("off", 3.0), ("on", 4.0))}
    assert ours(raw) == {"tensor_ops_fp8": 7.0}


def test_operations_outside_of_tensor_cores_are_rates_times_cycles() -> None:
    rate = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum.per_cycle_elapsed"
    raw = {rate.format(op): value for op, value in (("fadd", 1.0), ("fmul", 2.0), ("ffma", 3.0), ("hadd", 5.0))}
    assert "flop_fp32" not in ours(raw)
    assert ours({**raw, "smsp__cycles_elapsed.avg": 10.0}) == {"flop_fp32": 90.0}


def test_a_kernel_without_branches_has_no_branch_efficiency() -> None:
    efficiency = "smsp__sass_average_branch_targets_threads_uniform.pct"
    divergent = "smsp__sass_branch_targets_threads_divergent.sum"
    assert ours({efficiency: 0.0, divergent: 0.0}) == {"branches_divergent": 0.0}
    assert ours({efficiency: 0.0, divergent: 5.0})["branch_efficiency"] == 0.0
    assert ours({efficiency: 97.5, divergent: 0.0})["branch_efficiency"] == 97.5
