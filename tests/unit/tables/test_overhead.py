"""The ledger of what profilers cost."""

from __future__ import annotations

import pandas as pd
from tests.unit.made_records import document

from inferprof.documents import Watched
from inferprof.tables.overhead import NO_BARE, NO_ITERATION, ledger, profiled_runs
from inferprof.tables.records import CASE_KEY, KEY

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


def runs(*rows: tuple[dict[str, str], str, dict[str, object]]) -> pd.DataFrame:
    """The records of profiled runs, each with the `iterations` given."""
    return profiled_runs(
        (
            case["machine"],
            tool,
            document("watched", {"case": {key: case[key] for key in CASE_KEY}, "iterations": iterations}),
        )
        for case, tool, iterations in rows
    )


def plain(frame: pd.DataFrame) -> list[list[object]]:
    """The rows with None for what is missing."""
    return [[None if pd.isna(value) else value for value in row] for row in frame.itertuples(index=False)]


COLUMNS = ["variant", "tool", "bare_ns", "profiled_ns", "iterations", "slow_down", "not_measured"]


def test_the_same_case_bare_and_watched() -> None:
    bare = latency((CASE, "call", 1.0), (CASE, "end_to_end", 5_330_000.0))
    watched = pd.DataFrame(
        [
            profile(CASE, "nsys", "iteration", 8_394_750.0),
            profile(CASE, "nsys", "iteration", 1.0, "gpu_busy"),
            profile(CASE, "kineto", "iteration", 10_660_000.0),
        ]
    )
    table = ledger(bare, watched, runs())
    assert plain(table[COLUMNS]) == [
        ["default", "kineto", 5_330_000.0, 10_660_000.0, 10, 2.0, None],
        ["default", "nsys", 5_330_000.0, 8_394_750.0, 10, 1.575, None],
    ]


def test_a_tool_without_iterations_is_known_by_the_clock_of_the_run_that_it_watched() -> None:
    bare = latency((CASE, "end_to_end", 4_000_000.0), (CASE, "call", 1.0))
    watched = pd.DataFrame(
        [profile(CASE, "ort_profile", "model_run", 1_000_000.0), profile(CASE, "nsys", "iteration", 9.0)]
    )
    records = runs(
        (CASE, "ort_profile", {"samples_ns": [4_900_000, 9_000_000, 5_000_000]}),
        (CASE, "nsys", {"samples_ns": [6_000_000]}),
    )
    assert plain(ledger(bare, watched, records)[COLUMNS]) == [
        ["default", "nsys", 4_000_000.0, 6_000_000.0, 10, 1.5, None],
        ["default", "ort_profile", 4_000_000.0, 5_000_000.0, 3, 1.25, None],
    ]


def test_a_run_that_was_watched_without_its_graph_is_not_held_against_one_with_it() -> None:
    bare = latency((CASE, "end_to_end", 4_000_000.0))
    watched = pd.DataFrame([profile(CASE, "ort_nodes", "iteration", 9_000_000.0)])
    table = ledger(bare, watched, runs((CASE, "ort_nodes", {"not_measured": "without the graph"})))
    assert plain(table[COLUMNS]) == [["default", "ort_nodes", 4_000_000.0, None, 10, None, "without the graph"]]


def test_what_is_missing_is_said_and_never_zero() -> None:
    bare = latency((CASE, "end_to_end", 5_000_000.0))
    watched = pd.DataFrame([profile(CASE, "nsys", "load", 1.0), profile(OTHER, "nsys", "iteration", 2.0)])
    table = ledger(bare, watched, runs())
    assert table[["variant", "not_measured"]].to_numpy().tolist() == [["default", NO_ITERATION], ["graph", NO_BARE]]
    assert table["slow_down"].isna().all()


def test_a_record_of_before_iterations_were_timed_has_no_row() -> None:
    assert profiled_runs([("h100", "nsys", Watched())]).empty


def test_without_profiles_the_ledger_is_empty() -> None:
    nothing = pd.DataFrame(columns=[*KEY, "tool", "level", "name", "metric", "value", "instances"])
    assert ledger(latency((CASE, "call", 1.0)), nothing, runs()).empty


def test_the_ledger_has_the_columns_that_cases_are_joined_on() -> None:
    watched = pd.DataFrame([profile(CASE, "nsys", "iteration", 1.0)])
    assert list(ledger(latency((CASE, "end_to_end", 1.0)), watched, runs()))[: len(KEY)] == KEY
