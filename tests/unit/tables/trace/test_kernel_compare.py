"""Kernels of two cases side by side, per iteration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from tests.unit.facts import naming

from inferprof.profilers import nsys
from inferprof.tables.trace.kernel_compare import as_iterations, by_class, by_name, per_iteration

GEMM16, GEMM8, NORM = "nvjet_sm90_hsh_64x8_TNT", "nvjet_qqtst_128x64_TNT", "void cuApplyLayerNorm<__half>(int)"


def case(iterations: int, *kernels: tuple[str, int, float], tool: str = "nsys") -> pd.DataFrame:
    """A table of kernels in iterations, with one launched before them that does not count."""
    rows: list[tuple[object, ...]] = [("kernel", name, "iteration > stage:execute", n, ns) for name, n, ns in kernels]
    rows += [("kernel", "warm_up_kernel", None, 1, 1e9), ("range", "iteration", None, iterations, 1e6)]
    columns = ["level", "name", "range", "instances", "value"]
    return pd.DataFrame(rows, columns=columns).assign(metric="duration_total", tool=tool, owner=None)


FP16 = case(10, (GEMM16, 200, 4000.0), (NORM, 20, 1000.0))
FP8 = case(5, (GEMM8, 100, 1000.0), (NORM, 10, 550.0))


def test_counts_and_times_are_per_iteration_and_only_of_iterations() -> None:
    assert per_iteration(FP16).to_numpy().tolist() == [
        [GEMM16, "gemm", "fp16", 20.0, 400.0],
        [NORM, "normalisation", "fp16", 2.0, 100.0],
    ]


def test_new_and_gone_kernels_with_the_largest_change_first() -> None:
    table = by_name(FP16, FP8)
    rows = table[["name", "status", "duration_a", "duration_b", "change"]].to_numpy().tolist()
    assert rows == [
        [GEMM16, "gone", 400.0, 0.0, -400.0],
        [GEMM8, "new", 0.0, 200.0, 200.0],
        [NORM, "both", 100.0, 110.0, 10.0],
    ]


def test_by_class_the_same_work_meets() -> None:
    table = by_class(by_name(FP16, FP8))
    assert table[["kernel_class", "launches_a", "launches_b", "change"]].to_numpy().tolist() == [
        ["gemm", 20.0, 20.0, -200.0],
        ["normalisation", 2.0, 2.0, 10.0],
    ]


def test_a_profile_without_iterations_is_one_as_a_whole() -> None:
    frame = case(1, (NORM, 3, 30.0)).assign(range=None)
    table = per_iteration(frame[frame["name"] == NORM])
    assert table[["launches", "duration"]].to_numpy().tolist() == [[3.0, 30.0]]


def test_another_programs_ranges_are_its_iterations() -> None:
    other = FP16.assign(
        name=FP16["name"].replace("iteration", "host_run"), range=FP16["range"].str.replace("iteration", "host_run")
    )
    assert per_iteration(other)["launches"].tolist() != per_iteration(FP16)["launches"].tolist()
    pd.testing.assert_frame_equal(per_iteration(as_iterations(other, "host_run")), per_iteration(FP16))


def test_tools_that_spell_names_differently_are_not_compared() -> None:
    with pytest.raises(ValueError, match=naming("kernels", "kineto", "nsys", "cannot")):
        by_name(FP16, case(1, (NORM, 1, 1.0), tool="kineto"))


def test_a_cuda_graph_runs_the_kernels_of_eager(captured: Callable[[str], Path]) -> None:
    eager, graph = nsys.read(captured("h100_torch_eager")), nsys.read(captured("h100_torch_node_trace"))
    table = by_name(eager, graph)
    assert set(table["status"]) == {"both"}
    assert table["launches_a"].sum() == table["launches_b"].sum() == 126
    assert abs(table["change"].sum()) < 0.05 * table["duration_a"].sum()
