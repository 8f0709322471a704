"""What is worked out once of an object is kept with that object, and with no other."""

import dataclasses
from dataclasses import dataclass

import pytest

from inferprof.once import Derives


@dataclass(frozen=True, eq=False)
class Numbers(Derives):
    values: tuple[int, ...]
    asked: list[str]


def total(numbers: Numbers, factor: int = 1) -> int:
    numbers.asked.append(f"total {factor}")
    return factor * sum(numbers.values)


def test_a_function_is_called_once_per_object_and_arguments_in_any_order() -> None:
    one, two = Numbers((1, 2), []), Numbers((3, 4), [])
    assert [one.once(total), two.once(total), one.once(total), one.once(total, 2), two.once(total)] == [3, 7, 3, 6, 7]
    assert (one.asked, two.asked) == (["total 1", "total 2"], ["total 1"])


def test_a_changed_copy_keeps_nothing() -> None:
    numbers = Numbers((1, 2), [])
    assert numbers.once(total) == 3
    assert dataclasses.replace(numbers, values=(5,)).once(total) == 5


def test_what_raised_is_asked_again() -> None:
    def fail(numbers: Numbers) -> int:
        numbers.asked.append("fail")
        raise ValueError

    numbers = Numbers((), [])
    for _ in range(2):
        with pytest.raises(ValueError):
            numbers.once(fail)
    assert numbers.asked == ["fail", "fail"]
