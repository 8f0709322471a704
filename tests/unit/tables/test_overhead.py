"""The ledger of what profilers cost."""

from __future__ import annotations

import pandas as pd

from inferprof.tables.overhead import NO_END_OF_WORK, NO_ITERATION, ledger, no_bare, slow_down
from inferprof.tables.records import KEY

CASE = {
    "machine": "h100",
    "model": "vit",
    "precision": "fp16",
    "backend": "torch_eager",
    "variant": "default",
    "shape": "b8",
}
OTHER = {**CASE, "variant": "graph"}


def latency(*rows: tuple[dict[str, str], str, float | None]) -> pd.DataFrame:
    return pd.DataFrame([{**case, "boundary": boundary, "median": median} for case, boundary, median in rows])


def profile(
    case: dict[str, str], tool: str, name: str, value: float, metric: str = "duration_median"
) -> dict[str, object]:
    return {**case, "tool": tool, "level": "range", "name": name, "metric": metric, "value": value, "instances": 10}


def test_the_same_case_bare_and_watched() -> None:
    bare = latency((CASE, "call", 1.0), (CASE, "end_to_end", 5_330_000.0))
    watched = pd.DataFrame(
        [
            profile(CASE, "nsys", "iteration", 8_394_750.0),
            profile(CASE, "nsys", "iteration", 1.0, "gpu_busy"),
            profile(CASE, "kineto", "iteration", 10_660_000.0),
        ]
    )
    table = ledger(bare, watched)
    rows = table[["tool", "bare_ns", "profiled_ns", "iterations", "slow_down"]].to_numpy().tolist()
    assert rows == [["kineto", 5_330_000.0, 10_660_000.0, 10, 2.0], ["nsys", 5_330_000.0, 8_394_750.0, 10, 1.575]]
    assert table["not_measured"].isna().all()
    assert slow_down(table, CASE, "nsys") == "1.57 times slower under nsys (8.39 ms, bare 5.33 ms)"


def test_what_is_missing_is_said_and_never_zero() -> None:
    bare = latency((CASE, "end_to_end", 5_000_000.0))
    watched = pd.DataFrame([profile(CASE, "nsys", "load", 1.0), profile(OTHER, "nsys", "iteration", 2.0)])
    table = ledger(bare, watched)
    assert table[["variant", "not_measured"]].to_numpy().tolist() == [
        ["default", NO_ITERATION],
        ["graph", no_bare("end_to_end")],
    ]
    assert table["slow_down"].isna().all()
    assert slow_down(table, CASE, "nsys") == f"slow-down under nsys not measured: {NO_ITERATION}"
    assert slow_down(table, CASE, "kineto") == "slow-down under kineto not measured: it did not watch this case"


def test_a_run_of_onnx_runtime_is_compared_with_call_and_only_where_it_ends_with_the_work() -> None:
    bare = latency((CASE, "call", 4_000_000.0), (CASE, "end_to_end", 5.0), (OTHER, "call", 4_000_000.0))
    watched = pd.DataFrame(
        [
            profile(CASE, "ort_profile", "call", 5_000_000.0),
            profile(OTHER, "ort_profile", "model_run", 1_000_000.0),
            profile(CASE, "nsys", "iteration", 10.0),
        ]
    )
    table = ledger(bare, watched)
    assert plain(table[["variant", "tool", "bare_ns", "slow_down"]]) == [
        ["default", "nsys", 5.0, 2.0],
        ["default", "ort_profile", 4_000_000.0, 1.25],
        ["graph", "ort_profile", 4_000_000.0, None],
    ]
    assert plain(table[["not_measured"]]) == [[None], [None], [NO_END_OF_WORK]]


def plain(frame: pd.DataFrame) -> list[list[object]]:
    """The rows with None for what is missing."""
    return [[None if pd.isna(value) else value for value in row] for row in frame.itertuples(index=False)]


def test_without_profiles_the_ledger_is_empty() -> None:
    nothing = pd.DataFrame(columns=[*KEY, "tool", "level", "name", "metric", "value", "instances"])
    assert ledger(latency((CASE, "call", 1.0)), nothing).empty


def test_the_ledger_has_the_columns_that_cases_are_joined_on() -> None:
    table = ledger(latency((CASE, "end_to_end", 1.0)), pd.DataFrame([profile(CASE, "nsys", "iteration", 1.0)]))
    assert list(table)[: len(KEY)] == KEY
