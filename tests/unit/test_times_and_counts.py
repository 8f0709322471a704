"""Times and counts in words."""

import pytest

from inferprof.words import counted, ms, ms_range, spread


@pytest.mark.parametrize(
    ("ns", "digits", "text"),
    [
        (2_333_333.0, 3, "2.33 ms"),
        (14_400.0, 3, "0.0144 ms"),
        (1_107_600_000.0, 3, "1,108 ms"),
        (70_312_345.0, 4, "70.31 ms"),
        (29_009_177_465.0, 4, "29,009 ms"),
    ],
)
def test_milliseconds_have_so_many_digits_and_no_exponent_from_a_second_on(ns: float, digits: int, text: str) -> None:
    assert ms(ns, digits) == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (66.5, 114.0, "66.5 ns to 114 ns"),
        (2_040_000.0, 2_330_000.0, "2.04 ms to 2.33 ms"),
        (50.0, 60.0, "50 ns to 60 ns"),
        (50.0, 5e6, "0.00005 ms to 5 ms"),
        (0.0, 114.0, "0 ms to 0.000114 ms"),
        (-20.0, 5e6, "-0.00002 ms to 5 ms"),
    ],
)
def test_a_range_has_one_unit(low: float, high: float, text: str) -> None:
    assert ms_range(low, high) == text


@pytest.mark.parametrize(
    ("lengths", "parts", "differ"),
    [
        ([], (), False),
        ([5e6], (), False),
        ([5e6, 5e6 + 1], (), False),
        ([5e6, 5.2e6, 5.1e6], ("5.1 ms", "5 ms to 5.2 ms"), False),
        ([2.9e6, 3e6, 15e6, 17e6, 19e6], ("15 ms", "2.9 ms to 19 ms", "6.6 times"), True),
        ([*[5e6] * 20, 80e6], ("5 ms", "5 ms to 80 ms"), False),  # one outlier
    ],
)
def test_iterations_that_differ_have_their_median_and_range(
    lengths: list[float], parts: tuple[str, ...], differ: bool
) -> None:
    said = spread(lengths)
    assert bool(said) == bool(parts)
    assert all(part in said for part in parts)
    assert ("times" in said) == differ


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (1, "launch", "1 launch"),
        (0, "node", "0 nodes"),
        (9065, "launch", "9,065 launches"),
        (2.0, "copy", "2 copies"),
        (1.02, "call", "1 call"),
        (2.5, "replay", "2.5 replays"),
        (3, "process", "3 processes"),
    ],
)
def test_a_noun_agrees_with_its_count(count: float, noun: str, text: str) -> None:
    assert counted(count, noun) == text
