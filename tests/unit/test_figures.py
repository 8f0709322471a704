"""Numbers in sentences have no exponents, and what doubles leave of a difference is none."""

from __future__ import annotations

import pytest

from inferprof.words import figure, ms


@pytest.mark.parametrize(
    ("value", "expected"),
    [(3412.0, "3,412"), (999.9, "1000"), (2.3456, "2.35"), (0.00002134, "0.0000213"), (-9.31e-10, "0"), (0.0, "0")],
)
def test_a_number_has_no_exponent(value: float, expected: str) -> None:
    assert figure(value) == expected


@pytest.mark.parametrize(("ns", "expected"), [(2.33e6, "2.33 ms"), (50, "50 ns"), (-9.31e-10, "0 ns"), (0.0, "0 ms")])
def test_a_duration_of_less_than_100_ns_is_in_ns(ns: float, expected: str) -> None:
    assert ms(ns) == expected
