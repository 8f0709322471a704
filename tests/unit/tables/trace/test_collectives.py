"""Collectives over several GPUs, on timelines whose answer is computed by hand and on a capture of two H200s."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
import pytest

from inferprof.profilers import nsys
from inferprof.tables.trace import collectives
from inferprof.tables.trace.collectives import ALL, NotPaired
from inferprof.tables.trace.timeline import KERNEL, MEMCPY, Timeline, assemble

NAMES = [
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
    "gemm",
    "HtoD",
    "ncclDevKernel_SendRecv",
    "ncclDevKernel_Generic",
]
REDUCE, GEMM, COPY, SEND, GENERIC = range(len(NAMES))

Op = tuple[int, int, int, int]
"""start, end, name, device."""


def timeline(ops: Sequence[Op], iteration: tuple[int, int] | None = None) -> Timeline:
    """With an iteration, in which each operation is launched as it begins."""
    rows = [
        (s, e, MEMCPY if name == COPY else KERNEL, name, device, 7, 0, number if iteration else -1)
        for number, (s, e, name, device) in enumerate(ops)
    ]
    columns = ["start", "end", "kind", "name", "device", "stream", "bytes", "correlation"]
    calls = pd.DataFrame(
        [(op[0], op[0], GEMM, 1, number) for number, op in enumerate(ops) if iteration],
        columns=["start", "end", "name", "thread", "correlation"],
        dtype="int64",
    )
    ranges = pd.DataFrame(
        [(*iteration, "iteration", 1)] if iteration else [], columns=["start", "end", "label", "thread"]
    )
    return assemble(pd.DataFrame(rows, columns=columns), calls, ranges, NAMES)


def metrics(rows: pd.DataFrame, name: str, device: int) -> dict[str, float]:
    own = rows[rows["name"].eq(name) & rows["device"].eq(device)]
    return dict(zip(own["metric"], own["value"], strict=True))


TWO_RANKS: Sequence[Op] = (
    (0, 100, GEMM, 0),
    (0, 100, GEMM, 1),
    (100, 130, REDUCE, 0),
    (100, 132, REDUCE, 1),
    # GPU 1 computes 60 longer, copies 20, and is idle for 10.
    (130, 200, GEMM, 0),
    (132, 262, GEMM, 1),
    (262, 282, COPY, 1),
    (200, 320, REDUCE, 0),
    (292, 324, REDUCE, 1),
)


def test_waiting_is_told_from_transfer_and_given_to_what_the_last_gpu_did_longer() -> None:
    rows = collectives.rows(timeline(TWO_RANKS))
    first, second = (metrics(rows, "AllReduce", device) for device in (0, 1))
    assert first == {
        "duration_total": 150,
        "waiting_total": 92,
        "transfer_total": 58,
        "inside_total": 58,
        "spread_total": 6,
        "last_count": 1,
        "waiting_compute": 60,
        "waiting_copy": 20,
        "waiting_idle": 10,
    }
    assert (second["waiting_total"], second["transfer_total"], second["last_count"]) == (0, 64, 2)
    assert second["waiting_compute"] == second["waiting_copy"] == second["waiting_idle"] == 0


def waits(pairs: int, clock_ns: int) -> Sequence[Op]:
    """GPU 1 begins each 50 µs later, as a clock shows it that is fast by so much; ends are up to 400 ns apart."""
    ops: list[Op] = []
    for number in range(pairs):
        start = number * 200_000
        end = start + 80_000
        ops.append((start, end, REDUCE, 0))
        ops.append((start + 50_000 + clock_ns, end + number % 5 * 100 + clock_ns, REDUCE, 1))
    return ops


@pytest.mark.parametrize("clock_ns", [-10_400, 0, 10_400])
def test_a_gpus_clock_that_is_off_is_tied_by_the_ends_of_collectives(clock_ns: int) -> None:
    rows = collectives.rows(timeline(waits(40, clock_ns)))
    first, second = (metrics(rows, "AllReduce", device) for device in (0, 1))
    assert abs(first["waiting_total"] / 40 - 50_000) < 400 and second["waiting_total"] == 0
    assert abs(first["transfer_total"] / 40 - 30_000) < 400
    assert abs(metrics(rows, ALL, 1).get("clock_offset", 0) - clock_ns) <= 200
    assert "clock_offset" not in metrics(rows, ALL, 0)


def test_collectives_in_iterations_are_tied_by_all_that_a_capture_has() -> None:
    """Of 40 before, clocks agree; ends of 10 in iterations are 12 µs apart, as beside computation."""
    late = [(s + 10_000_000, e + 10_000_000 + 12_000 * gpu, name, gpu) for s, e, name, gpu in waits(10, 0)]
    rows = collectives.rows(timeline([*waits(40, 0), *late], (9_000_000, 20_000_000)))
    assert "clock_offset" not in metrics(rows, ALL, 1)
    assert abs(metrics(rows, "AllReduce", 0)["waiting_total"] / 10 - 50_000) < 400


def test_of_few_collectives_the_ends_tell_nothing_about_clocks() -> None:
    rows = collectives.rows(timeline(waits(7, 10_400)))
    assert "clock_offset" not in metrics(rows, ALL, 1)
    assert metrics(rows, "AllReduce", 0)["waiting_total"] == 7 * 60_400


def test_pairs_outside_of_iterations_that_lie_apart_do_not_matter() -> None:
    outside = [(0, 10, REDUCE, 0), (20, 30, REDUCE, 1)]
    inside = [(200, 250, REDUCE, 0), (210, 250, REDUCE, 1)]
    assert metrics(collectives.rows(timeline([*outside, *inside], (150, 300))), "AllReduce", 0)["waiting_total"] == 10


def test_communication_outside_of_iterations_does_not_count() -> None:
    own = timeline(
        [(0, 100, REDUCE, 0), (0, 100, REDUCE, 1), (200, 250, REDUCE, 0), (210, 250, REDUCE, 1)], (150, 300)
    )
    rows = collectives.rows(own)
    assert metrics(rows, ALL, 0) == {"duration_total": 50, "hidden_total": 0, "exposed_total": 50}
    assert metrics(rows, "AllReduce", 0)["waiting_total"] == 10
    before = collectives.rows(timeline([(0, 100, REDUCE, 0), (0, 100, REDUCE, 1), (200, 210, GEMM, 0)], (150, 300)))
    assert before["metric"].tolist() == ["not_paired"]


@pytest.mark.parametrize("delay", [0, 50_000, 250_000, 1_000_000])
def test_a_delay_of_one_gpu_is_found_whole_and_leaves_the_transfer_alone(delay: int) -> None:
    ops = [
        (0, 10, GEMM, 0),
        (0, 10, GEMM, 1),
        (10, 40_000 + delay, REDUCE, 0),
        (10 + delay, 40_000 + delay, REDUCE, 1),
    ]
    rows = collectives.rows(timeline(ops))
    assert [metrics(rows, "AllReduce", device)["waiting_total"] for device in (0, 1)] == [delay, 0]
    assert [metrics(rows, "AllReduce", device)["transfer_total"] for device in (0, 1)] == [39_990, 39_990]


def test_communication_beside_computation_of_the_same_gpu_is_hidden() -> None:
    rows = collectives.rows(
        timeline([(0, 100, GEMM, 0), (40, 160, REDUCE, 0), (0, 160, GEMM, 1), (40, 160, REDUCE, 1)])
    )
    assert metrics(rows, ALL, 0) == {"duration_total": 120, "hidden_total": 60, "exposed_total": 60}
    assert metrics(rows, ALL, 1) == {"duration_total": 120, "hidden_total": 120, "exposed_total": 0}


@pytest.mark.parametrize(
    ("ops", "reason"),
    [
        ([(0, 10, REDUCE, 0), (20, 30, GEMM, 0)], "one GPU"),
        ([(0, 10, REDUCE, 0), (0, 10, REDUCE, 1), (20, 30, REDUCE, 1)], "1 and 2 times"),
        ([(0, 10, REDUCE, 0), (20, 30, REDUCE, 1)], "1 of 1 pairs"),
        ([(0, 10, SEND, 0), (0, 10, SEND, 1), (0, 10, SEND, 2)], "no collective"),
        ([(0, 10, SEND, 0), (20, 30, SEND, 1)], "no collective"),
    ],
)
def test_what_order_does_not_pair_is_not_paired_and_says_why(ops: Sequence[Op], reason: str) -> None:
    pairs = collectives.paired(timeline(ops), collectives.communication(timeline(ops)))
    assert isinstance(pairs, NotPaired)
    assert reason in pairs.reason
    rows = collectives.rows(timeline(ops))
    assert rows.loc[rows["metric"].eq("not_paired"), "text"].tolist() == [pairs.reason]
    assert rows["name"].unique().tolist() == [ALL]


def test_a_capture_without_communication_has_no_rows() -> None:
    assert collectives.rows(timeline([(0, 10, GEMM, 0), (0, 10, GEMM, 1)])).empty


@pytest.mark.parametrize(
    ("kernel", "operation"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "AllReduce"),
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", "AllGather"),
        ("ncclDevKernel_ReduceScatter_Sum_f16_RING_SIMPLE", "ReduceScatter"),
        ("void vllm::cross_device_reduce_1stage<__half, 2>(vllm::RankData*)", "AllReduce"),
        ("multimem_all_reduce_kernel<c10::BFloat16>", "AllReduce"),
        ("ncclDevKernel_Broadcast_RING_LL", "Broadcast"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL", "Reduce"),
        ("ncclDevKernel_Generic", "ncclDevKernel_Generic"),
    ],
)
def test_the_operation_is_told_by_the_kernels_name(kernel: str, operation: str) -> None:
    assert collectives.operation_of(kernel) == operation


def test_two_h200s_wait_for_the_second_and_all_numbers_are_those_of_an_independent_script(
    captured: Callable[[str], Path],
) -> None:
    frame = nsys.read(captured("h200x2_tensor_parallel"), None)
    first, second = (metrics(frame[frame["level"].eq("collective")], "AllReduce", device) for device in (0, 1))
    assert (first["duration_total"], second["duration_total"]) == (17_637_796, 4_620_042)
    assert (first["waiting_total"], second["waiting_total"]) == (14_905_884, 1_845_555)
    assert first["inside_total"] == second["inside_total"] == 2_724_147
    assert (first["last_count"], second["last_count"]) == (10, 70)
    assert first["waiting_idle"] > 0.8 * first["waiting_total"]
