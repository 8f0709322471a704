"""What a ranking advises, in one sentence."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.facts import facts

from inferprof.sensitivity import answer


def tried(left_out: int, joint_db: float | None, *, meets: bool) -> dict[str, Any]:
    return {"left_out": left_out, "joint_db": joint_db, "overflow": False, "meets": meets}


@pytest.mark.parametrize(
    ("joint_db", "sets", "exclude", "numbers"),
    [
        (66.0, [], [], ["66.0 dB"]),
        (
            5.6,
            [tried(8, 22.0, meets=True), tried(6, 21.2, meets=True), tried(3, 9.0, meets=False)],
            ["a"],
            ["5.6 dB", "6", "21.2 dB"],
        ),
        (5.6, [tried(1, 21.0, meets=True)], ["a"], ["5.6 dB", "1", "21.0 dB"]),
        (5.6, [tried(4, 8.0, meets=False), tried(8, None, meets=False)], None, ["5.6 dB", "8.0 dB"]),
    ],
)
def test_the_conclusion_has_the_loss_of_all_and_of_the_smallest_set_that_will_do(
    joint_db: float, sets: list[dict[str, Any]], exclude: list[str] | None, numbers: list[str]
) -> None:
    result = {"precision": "int8", "joint_db": joint_db, "tried": sets, "exclude": exclude}
    assert [fact for fact in facts(answer.conclusion(result)) if fact[0].isdigit()] == numbers
