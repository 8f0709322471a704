"""Which latency is in doubt."""

from __future__ import annotations

import pytest

from inferprof.tables import gate

GOOD = (True, None)
RESTLESS = (False, None)
DRIFTED = (True, -0.075)


@pytest.mark.parametrize(
    ("rounds", "in_doubt"),
    [
        ([GOOD], False),
        ([RESTLESS], True),
        ([DRIFTED], True),
        ([(True, 0.04)], False),
        ([DRIFTED, GOOD], True),
        ([DRIFTED, GOOD, GOOD], False),
        ([RESTLESS, GOOD, GOOD], False),
        ([RESTLESS, DRIFTED, GOOD], True),
        ([DRIFTED, GOOD, GOOD, RESTLESS], True),
    ],
)
def test_half_of_the_rounds_put_a_latency_in_doubt(rounds: list[tuple[bool, float | None]], in_doubt: bool) -> None:
    assert (gate.doubt(rounds, None) is not None) == in_doubt


def test_the_largest_drift_of_the_bad_rounds_is_named() -> None:
    assert "-9.0 %" in str(gate.doubt([(True, 0.06), (True, -0.09), GOOD], None))


def test_a_thread_that_waited_for_a_core_puts_good_rounds_in_doubt() -> None:
    assert gate.doubt([GOOD, GOOD], 0.06) is not None
    assert gate.doubt([GOOD, GOOD], 0.06, limit=0.1) is None
