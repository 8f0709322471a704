"""Union, coverage and overlap of intervals."""

from __future__ import annotations

import numpy as np
import pytest

from inferprof.tables.trace.intervals import Intervals, at_least_two, last_before


def intervals(*pairs: tuple[int, int]) -> Intervals:
    times = np.array(pairs, np.int64).reshape(-1, 2)
    return Intervals.union(times[:, 0], times[:, 1])


def pairs(found: Intervals) -> list[tuple[int, int]]:
    return list(zip(found.start.tolist(), found.end.tolist(), strict=True))


def test_what_overlaps_or_touches_becomes_one() -> None:
    assert pairs(intervals((0, 10), (5, 7), (10, 12), (20, 30), (25, 40))) == [(0, 12), (20, 40)]


def test_the_order_of_the_input_does_not_matter_and_empty_ones_count_for_nothing() -> None:
    assert pairs(intervals((20, 30), (5, 5), (0, 10))) == [(0, 10), (20, 30)]


def test_nothing_covers_nothing() -> None:
    empty = intervals()
    assert empty.total == 0
    assert empty.covered(np.array([5])).tolist() == [0]
    assert pairs(at_least_two([])) == []


def test_coverage_counts_up_to_a_time_and_within_a_window() -> None:
    found = intervals((10, 20), (30, 50))
    assert found.total == 30
    assert found.covered(np.array([0, 10, 15, 20, 25, 40, 50, 99])).tolist() == [0, 0, 5, 10, 10, 20, 30, 30]
    assert found.within(np.array([15, 0]), np.array([35, 99])).tolist() == [10, 30]


def test_overlap_is_where_two_or_more_sets_are() -> None:
    one, two, three = intervals((0, 10), (20, 30)), intervals((5, 25)), intervals((8, 9), (24, 40))
    assert pairs(at_least_two([one, two, three])) == [(5, 10), (20, 30)]


def test_sets_that_only_touch_do_not_overlap() -> None:
    assert pairs(at_least_two([intervals((0, 10)), intervals((10, 20))])) == []


def test_nanoseconds_since_the_epoch_stay_exact() -> None:
    start = 1_764_290_000_000_000_001
    assert intervals((start, start + 3)).total == 3


@pytest.mark.parametrize("times", [[0, 9, 10, 11, 20, 20, 35], [35, 0, 20, 10, 9, 11, 20]])
def test_the_last_edge_before_a_time_is_the_same_in_any_order_of_the_times(times: list[int]) -> None:
    edges = np.array([10, 20, 20, 30])
    assert last_before(edges, np.array(times)).tolist() == [sum(edge <= time for edge in edges) - 1 for time in times]
