"""Ranges as paths: nested ones all at once, crossing ones one by one, with the same result."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from inferprof.tables.trace import timeline
from inferprof.tables.trace.timeline import Nesting

RANGE = st.tuples(st.integers(0, 12), st.integers(0, 6), st.sampled_from([1, 2]), st.sampled_from("ab"))


def walked(rows: list[tuple[int, int, int, str]]) -> tuple[list[str], dict[int, list[tuple[float, str]]]]:
    """The path of each range in order, and of each thread what the innermost path changes to, range by range."""
    paths: list[tuple[int, int, int, str]] = []
    changes: dict[int, list[tuple[float, str]]] = {}
    for thread in sorted({row[2] for row in rows}):
        open_: list[tuple[float, str]] = [(np.inf, "")]
        told = changes.setdefault(thread, [])

        def close(until: float, open_: list[tuple[float, str]] = open_, told: list[tuple[float, str]] = told) -> None:
            while open_[-1][0] <= until and len(open_) > 1:
                end, _ = open_.pop()
                told.append((end, open_[-1][1]))

        for start, length, _, label in sorted((r for r in rows if r[2] == thread), key=lambda r: (r[0], -r[1])):
            close(start)
            path = f"{open_[-1][1]} > {label}" if open_[-1][1] else label
            paths.append((start, -length, thread, path))
            told.append((start, path))
            open_.append((min(start + length, open_[-1][0]), path))
        close(1e9)
    return [path for *_, path in paths], changes


@given(st.lists(RANGE, max_size=12, unique_by=lambda row: row[:3]))
def test_ranges_are_nested_as_one_after_the_other_opens_and_closes(rows: list[tuple[int, int, int, str]]) -> None:
    frame = pd.DataFrame(
        [(start, start + length, thread, label) for start, length, thread, label in rows],
        columns=["start", "end", "thread", "label"],
    )
    nesting = Nesting(frame)
    paths, changes = walked(rows)
    found = nesting.ranges.sort_values(["thread", "start", "end"], ascending=[True, True, False], kind="stable")
    assert [nesting.paths[code] for code in found["path"]] == paths
    for thread, told in changes.items():
        for time in range(21):
            before = [path for at, path in told if at <= time]
            code = nesting.path_at(np.array([thread]), np.array([time]))[0]
            assert nesting.paths[code] == (before[-1] if before else "")


def test_paths_are_numbered_as_they_first_open() -> None:
    rows = [(0, 9, "a"), (1, 2, "b"), (3, 4, "c"), (10, 20, "c"), (11, 12, "b")]
    frame = pd.DataFrame(rows, columns=["start", "end", "label"]).assign(thread=1)
    assert Nesting(frame).paths == ["", "a", "a > b", "a > c", "c", "c > b"]


def test_ranges_that_cross_are_walked() -> None:
    start, end = np.array([0, 5, 11]), np.array([10, 15, 12])
    nested = timeline._nested(start, end)
    assert (nested.depth.tolist(), nested.end.tolist()) == ([0, 1, 0], [10, 10, 12])
