"""Tasks over several processes."""

from __future__ import annotations

import os
import time

import pytest

from inferprof import spread

TASKS = [(number,) for number in (0, 1, -1, 4, 9)]


def root_and_process(number: int) -> tuple[float, int]:
    if number < 0:
        raise ValueError(number)
    return number**0.5, os.getpid()


@pytest.mark.parametrize("processes", [1, 2])
def test_results_are_in_their_order_and_what_raises_is_in_its_place(processes: int) -> None:
    with spread.over(processes) as every:
        results = every.begin(root_and_process, TASKS)()
    roots = [result if isinstance(result, Exception) else result[0] for result in results]
    assert roots[:2] == [0.0, 1.0] and roots[3:] == [2.0, 3.0]
    assert isinstance(roots[2], ValueError) and roots[2].args == (-1,)


def test_both_this_process_and_another_one_take_tasks() -> None:
    with spread.over(2) as every:
        taken = every.begin(root_and_process, [(number,) for number in range(50)])()
    processes = {result[1] for result in taken if not isinstance(result, Exception)}
    assert os.getpid() in processes and len(processes) == 2


def test_tasks_that_were_given_later_come_after_the_first_and_all_have_an_answer() -> None:
    with spread.over(2) as every:
        first, second = (every.begin(root_and_process, [(number,)] * 20) for number in (4, 9))
        assert [result[0] for result in second() if not isinstance(result, Exception)] == [3.0] * 20
        assert [result[0] for result in first() if not isinstance(result, Exception)] == [2.0] * 20


def test_what_nobody_asked_for_is_not_waited_for() -> None:
    began = time.monotonic()
    with pytest.raises(ValueError, match="planted"), spread.over(2) as every:
        every.begin(time.sleep, [(1.0,)] * 30)
        raise ValueError("planted")
    assert time.monotonic() - began < 25
