"""Times and counts in words."""

import pytest

from inferprof.words import counted, ms


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
