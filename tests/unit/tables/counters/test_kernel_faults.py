"""Verdicts on real kernels (of an H100 and a B200) and at each threshold."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from tests.unit.facts import facts, mentions

from inferprof.profilers import ncu
from inferprof.tables.counters import kernel_faults
from inferprof.tables.counters.kernel_faults import Finding, judge

DATA = Path(__file__).parents[3] / "data/ncu"
ADD, LAYER_NORM, GEMM = 0, 1, 2
"""Launches of the H100 capture: ONNX Runtime's add of 1,182 blocks, its layer norm, and cuBLASLt's nvjet."""

SOUND: dict[str, float | str] = {
    "name": "void gemm<__half>(int)",
    "duration_total": 1e6,
    "shared_wavefronts": 1000,
    "shared_wavefronts_excess": 0,
    "global_sectors": 1000,
    "global_sectors_excess": 0,
    "spill_requests": 0,
    "global_load_requests": 60,
    "global_store_requests": 39,
    "threads_per_instruction": 32,
    "threads_per_instruction_predicated": 30,
    "l2_atomic_sectors": 0,
    "l2_reduction_sectors": 0,
    "l2_bytes": 32_000,
    "l2_hit_rate": 80,
    "dram_throughput": 30,
    "dram_bytes_read": 8_000,
    "blocks": 132 * 8,
    "sms": 132,
    "block_limit_registers": 8,
    "block_limit_shared_memory": 20,
    "block_limit_warps": 8,
    "block_limit_blocks": 32,
    "sm_active": 95,
    "occupancy_achieved": 90,
    "occupancy_theoretical": 100,
    "sm_throughput": 70,
    "memory_throughput": 40,
    "pipe_tensor": 60,
}
"""Counters of a launch without a fault."""


def verdicts(counters: dict[str, float | str], must_read: float | None = None) -> dict[str, str]:
    return {finding.fault: finding.verdict for finding in judge(counters, must_read)}


def found(changes: dict[str, float | str], must_read: float | None = None) -> list[str]:
    """The faults of the sound launch with these changes."""
    return [fault for fault, verdict in verdicts({**SOUND, **changes}, must_read).items() if verdict == "found"]


def finding(table: pd.DataFrame, launch: int, fault: str) -> Finding:
    row = table[(table["launch"] == launch) & (table["fault"] == fault)].iloc[0]
    return Finding(row["fault"], row["verdict"], row["reason"], row["evidence"])


def table_of(page: Path) -> pd.DataFrame:
    return kernel_faults.of_launches(ncu.read(page))


@pytest.fixture(scope="module")
def h100() -> pd.DataFrame:
    return table_of(DATA / "h100_ort_cuda_vit_raw.csv.gz")


def test_real_launches_have_one_verdict_on_each_fault(h100: pd.DataFrame) -> None:
    assert h100.groupby(["launch", "fault"]).size().to_list() == [1] * 80
    assert list(h100.columns) == ["launch", "name", "duration_total", "fault", "verdict", "reason", "evidence"]
    assert h100["duration_total"].iloc[0] == 5504


def test_the_faults_of_a_real_capture(h100: pd.DataFrame) -> None:
    rows = h100[h100["verdict"] != "clear"]
    assert list(zip(rows["launch"], rows["fault"], rows["verdict"], strict=True)) == [
        (0, "tail", "found"),
        (1, "uncoalesced", "found"),
        (1, "low_occupancy", "found"),
        (5, "tail", "found"),
        (6, "tail", "found"),
        (7, "uncoalesced", "found"),
        (7, "low_occupancy", "found"),
    ]


def test_a_tail_is_waves_that_do_not_fill_the_gpu(h100: pd.DataFrame) -> None:
    """1,182 blocks, 8 on each of 132 SMs at once: a second wave of 126 blocks."""
    tail = finding(h100, ADD, "tail")
    assert tail.evidence["waves"] == 1182 / 1056
    assert tail.evidence["tail_waste"] == pytest.approx(100 * (2 * 1056 - 1182) / (2 * 1056))
    assert facts(tail.reason, "waves") == ["1.12", "waves", "44 %", "SMs", "47 %"]


def test_uncoalesced_accesses_are_the_sectors_beyond_the_ideal(h100: pd.DataFrame) -> None:
    """As NVIDIA's rule says of this launch: 226,944 excessive sectors of 605,184."""
    sectors = finding(h100, LAYER_NORM, "uncoalesced")
    assert sectors.evidence == {"global_sectors": 605184, "global_sectors_excess": 226944, "excess_percent": 37.5}
    assert facts(sectors.reason, "sectors") == ["37.5 %", "605,184", "sectors", "not"]


def test_a_product_that_keeps_the_tensor_cores_busy_needs_no_more_warps(h100: pd.DataFrame) -> None:
    occupancy = finding(h100, GEMM, "low_occupancy")
    assert occupancy.verdict == "clear"
    assert facts(occupancy.reason, "registers", "shared") == [
        "14 %",
        "SM",
        "63 %",
        "registers",
        "shared",
        "no",
        "more",
        "19 %",
    ]
    assert facts(finding(h100, GEMM, "tensor_cores_unused").reason, "gemm", "used") == ["used", "gemm", "fp16"]


def test_a_details_page_decides_what_its_figures_tell() -> None:
    table = table_of(DATA / "h100_ort_cuda_vit_details.csv.gz")
    norm = table[table["launch"] == LAYER_NORM].set_index("fault")
    assert norm["verdict"].to_dict() == {
        "bank_conflicts": "not assessed",
        "uncoalesced": "not assessed",
        "spills": "clear",
        "divergence": "clear",
        "atomics": "not assessed",
        "l2_misses": "clear",
        "tail": "clear",
        "small_grid": "clear",
        "low_occupancy": "found",
        "tensor_cores_unused": "clear",
    }
    assert norm.loc["uncoalesced", "reason"] == "needs global_sectors, global_sectors_excess"
    assert finding(table, GEMM, "low_occupancy").reason == "needs pipe_tensor"


def launches_with(rule: str) -> dict[int, float]:
    """Launch → speed-up of the kernel in percent, where NVIDIA's rule expects one."""
    rows = ncu.read(DATA / "h100_ort_cuda_vit_details.csv.gz")
    told = rows[(rows["name"] == rule) & (rows["metric"] == "rule_speed_up_kernel")]
    return dict(zip(told["launch"], told["value"], strict=True))


def found_in(table: pd.DataFrame, fault: str) -> list[int]:
    return table.loc[(table["fault"] == fault) & (table["verdict"] == "found"), "launch"].to_list()


def test_uncoalesced_accesses_are_found_where_nvidias_rule_finds_them(h100: pd.DataFrame) -> None:
    assert found_in(h100, "uncoalesced") == list(launches_with("UncoalescedGlobalAccess"))


def test_a_tail_is_found_where_nvidias_rule_expects_half_of_the_time_but_not_for_a_wave_half_full(
    h100: pd.DataFrame,
) -> None:
    """The rule takes the whole last wave for lost: of launch 3, 4.48 waves, a fifth, where 10 % is empty."""
    rule = launches_with("LaunchConfiguration")
    assert rule == {0: 50, 3: 20, 5: 50, 6: 50}
    assert found_in(h100, "tail") == [0, 5, 6]
    assert facts(finding(h100, 3, "tail").reason, "waves") == ["4.48", "waves", "10 %", "SMs"]


def test_products_without_tensor_cores_on_a_real_b200(shared: Path) -> None:
    """FlashInfer's attention on bf16, for which the capture has the tensor pipe but not device memory."""
    table = table_of(shared / "real/ncu_csv/ncu_raw_b200_flashinfer_decode_16launches.csv")
    first = finding(table, 0, "tensor_cores_unused")
    assert (first.verdict, first.reason) == ("not assessed", "needs dram_throughput")
    assert facts(finding(table, 0, "small_grid").reason, "blocks") == ["148", "blocks", "148", "SMs"]


def test_a_sound_launch_is_clear_of_everything() -> None:
    assert set(verdicts(SOUND).values()) == {"clear"}


@pytest.mark.parametrize(
    ("fault", "sound", "faulty"),
    [
        ("bank_conflicts", {"shared_wavefronts_excess": 99}, {"shared_wavefronts_excess": 100}),
        ("uncoalesced", {"global_sectors_excess": 99}, {"global_sectors_excess": 100}),
        ("spills", {"spill_requests": 0.99}, {"spill_requests": 1}),
        ("divergence", {"threads_per_instruction": 24}, {"threads_per_instruction": 23.9}),
        ("divergence", {}, {"threads_per_instruction_predicated": 23.9}),
        ("atomics", {"l2_atomic_sectors": 60, "l2_reduction_sectors": 39}, {"l2_reduction_sectors": 100}),
        ("tail", {"blocks": 1690, "sm_active": 80}, {"blocks": 1689, "sm_active": 80}),
        ("tail", {"blocks": 132 * 8 + 1, "sm_active": 81}, {"blocks": 132 * 8 + 1, "sm_active": 80}),
        ("tail", {"blocks": 132 * 4, "sm_active": 50}, {"blocks": 132 * 8 * 2 + 1, "sm_active": 50}),
        ("small_grid", {"blocks": 132}, {"blocks": 131}),
        ("tensor_cores_unused", {"pipe_tensor": 10}, {"pipe_tensor": 0}),
    ],
)
def test_each_fault_begins_at_its_threshold(
    fault: str, sound: dict[str, float | str], faulty: dict[str, float | str]
) -> None:
    assert found(sound) == []
    assert found(faulty) == [fault]


def test_barriers_limit_a_wave_where_they_are_told() -> None:
    counters: dict[str, float | str] = {"blocks": 132 * 4 + 1, "sm_active": 50}
    assert found(counters) == []
    assert found({**counters, "block_limit_barriers": 4}) == ["tail"]


def test_few_warps_are_a_fault_where_no_part_of_the_gpu_is_busy() -> None:
    few: dict[str, float | str] = {"occupancy_achieved": 49, "pipe_tensor": 30}
    assert found({**few, "sm_throughput": 60}) == []
    assert found({**few, "sm_throughput": 59}) == ["low_occupancy"]
    assert found({"sm_throughput": 59, "pipe_tensor": 30}) == []


def test_the_limit_of_the_occupancy_is_named() -> None:
    counters = {
        **SOUND,
        "occupancy_achieved": 10,
        "occupancy_theoretical": 12.5,
        "occupancy_limiter": "shared memory",
    }
    occupancy = next(finding for finding in judge(counters) if finding.fault == "low_occupancy")
    assert facts(occupancy.reason, "registers", "shared")[-4:] == ["shared", "no", "more", "12 %"]


def test_data_that_device_memory_sends_twice_is_told_from_a_stream_by_what_must_be_read() -> None:
    misses: dict[str, float | str] = {"l2_hit_rate": 49, "dram_throughput": 50}
    assert found(misses, must_read=4_000) == ["l2_misses"]
    assert found(misses, must_read=4_001) == []
    unknown = next(finding for finding in judge({**SOUND, **misses}) if finding.fault == "l2_misses")
    assert unknown.verdict == "not assessed" and mentions(unknown.reason, "needs bytes", "must read")


def test_atomics_of_one_number_are_told_from_those_of_many() -> None:
    counters = {**SOUND, "l2_reduction_sectors": 200, "global_atomics": 0, "global_reductions": 50}
    atomics = next(finding for finding in judge(counters) if finding.fault == "atomics")
    assert facts(atomics.reason, "atomics") == ["20.0 %", "L2", "atomics", "4.0"]


def test_misses_matter_where_device_memory_is_busy() -> None:
    assert found({"l2_hit_rate": 0, "dram_throughput": 49}, must_read=1) == []
    assert found({"l2_hit_rate": 50, "dram_throughput": 90}, must_read=1) == []


def test_local_memory_without_a_count_of_spills_is_not_called_spills() -> None:
    counters = {metric: value for metric, value in SOUND.items() if metric != "spill_requests"}
    assert verdicts({**counters, "local_bytes_loaded": 0, "local_bytes_stored": 0})["spills"] == "clear"
    used = judge({**counters, "local_bytes_loaded": 32, "local_bytes_stored": 0})
    spills = next(finding for finding in used if finding.fault == "spills")
    assert (spills.verdict, facts(spills.reason, "memory", "spills")) == (
        "not assessed",
        ["spill_requests", "memory", "spills"],
    )


@pytest.mark.parametrize(
    ("name", "changes", "verdict"),
    [
        ("gemm_fp32", {}, "clear"),
        ("elementwise_f16", {}, "clear"),
        ("gemm_f16", {"dram_throughput": 49}, "found"),
        ("gemm_f16", {"dram_throughput": 50}, "clear"),
        ("gemm_f16", {"tensor_ops_fp16": 0, "pipe_tensor": 30}, "found"),
        ("gemm_f16", {"tensor_ops_fp16": 1}, "clear"),
        ("gemm_f16", {"pipe_tensor": 9.9}, "not assessed"),
        ("gemm_e2m1", {"tensor_ops_fp16": 0, "pipe_tensor": 30}, "clear"),
        ("gemm_of_some_kind", {}, "not assessed"),
        ("gemm_of_some_kind", {"pipe_tensor": 30}, "clear"),
    ],
)
def test_tensor_cores_are_missed_by_products_in_formats_that_they_have(
    name: str, changes: dict[str, float | str], verdict: str
) -> None:
    """fp32 has none while TF32 is off. Operations count before their pipe, which other arithmetic uses too."""
    counters = {**SOUND, "name": name, "pipe_tensor": 0, **changes}
    assert verdicts(counters)["tensor_cores_unused"] == verdict


def test_without_counters_nothing_is_clear() -> None:
    assert set(verdicts({"name": "gemm_f16"}).values()) == {"not assessed"}
