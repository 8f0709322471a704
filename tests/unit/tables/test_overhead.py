"""The ledger of what profilers cost."""

from __future__ import annotations

import pandas as pd

from inferprof.tables.overhead import NO_BARE, NO_ITERATION, ledger, slow_down
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
    assert table[["variant", "not_measured"]].to_numpy().tolist() == [["default", NO_ITERATION], ["graph", NO_BARE]]
    assert table["slow_down"].isna().all()
    assert slow_down(table, CASE, "nsys") == f"slow-down under nsys not measured: {NO_ITERATION}"
    assert slow_down(table, CASE, "kineto") == "slow-down under kineto not measured: it did not watch this case"


def test_the_ledger_has_the_columns_that_cases_are_joined_on() -> None:
    table = ledger(latency((CASE, "end_to_end", 1.0)), pd.DataFrame([profile(CASE, "nsys", "iteration", 1.0)]))
    assert list(table)[: len(KEY)] == KEY
