"""Times in words."""

import pytest

from inferprof.diagnosis.times import ms


@pytest.mark.parametrize(
    ("ns", "text"), [(2_333_333.0, "2.33 ms"), (14_400.0, "0.0144 ms"), (1_107_600_000.0, "1,108 ms")]
)
def test_milliseconds_have_three_digits_and_no_exponent_from_a_second_on(ns: float, text: str) -> None:
    assert ms(ns) == text
