"""A start is worth it from the first number of inferences on with which the case is done sooner in all."""

from __future__ import annotations

import pytest

from inferprof.tables.limits.break_even import Candidate, stretches

MS = 1e6


def case(name: str, start_ms: float, ms: float, width: float = 0.01) -> Candidate:
    return Candidate((name,), (start_ms * MS,), ms * MS, ms * (1 - width) * MS, ms * (1 + width) * MS)


def told(*candidates: Candidate) -> list[tuple[int, str]]:
    return [(one.first, one.case.key[0]) for one in stretches(candidates)]


def test_an_engine_takes_over_where_its_build_is_earned_back() -> None:
    # 100 + 10 N > 1000 + 7 N from N = 301 on; at 300 both take as long.
    assert told(case("provider", 100, 10), case("engine", 1000, 7)) == [(1, "provider"), (301, "engine")]


@pytest.mark.parametrize("inferences", [1, 50, 51, 200, 1000, 10_000])
def test_with_any_number_of_inferences_the_one_told_is_done_first(inferences: int) -> None:
    candidates = [case("a", 10, 10), case("b", 110, 8), case("c", 900, 5), case("d", 700, 9)]
    found = [one for one in stretches(candidates) if one.first <= inferences][-1].case
    totals = {one.key: one.start_ns + inferences * one.median_ns for one in candidates}
    assert totals[found.key] == min(totals.values())
    assert "d" not in {name for _, name in told(*candidates)}  # slower to start than b, and slower


def test_who_starts_first_and_infers_fastest_is_never_left() -> None:
    assert told(case("slow", 200, 9), case("fast", 100, 3)) == [(1, "fast")]


def test_what_chance_may_have_made_faster_takes_nothing_over() -> None:
    assert told(case("a", 10, 10, width=0.2), case("b", 1000, 9, width=0.2)) == [(1, "a")]


def test_without_cases_nobody_is_first() -> None:
    assert told() == []


def test_of_two_that_are_alike_the_first_is_told() -> None:
    assert told(case("a", 10, 10), case("b", 110, 5), case("c", 110, 5)) == [(1, "a"), (21, "b")]
