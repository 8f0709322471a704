"""Tasks over several processes: others begin at once, and this one takes a share when it asks for the results."""

from __future__ import annotations

import concurrent.futures
import itertools
import multiprocessing
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from inferprof import registry
from inferprof.processes import die_with_parent

Result = TypeVar("Result")


def begin(
    task: Callable[..., Result], every: Sequence[tuple[Any, ...]], processes: int
) -> Callable[[], list[Result | Exception]]:
    """`task` of each of these arguments, by at most so many processes; what was raised in place of its result.

    The answer gives the results, in their order. Others take the tasks from first to last; what they have not begun
    by then this process takes from the end.
    """
    if processes == 1 or not every:
        return lambda: list(itertools.starmap(_settled, ((task, arguments) for arguments in every)))
    # Spawned, not forked: threads of libraries that are loaded here would not be there in a copy.
    others = concurrent.futures.ProcessPoolExecutor(
        processes - 1, multiprocessing.get_context("spawn"), initializer=_begin
    )
    theirs = [others.submit(task, *arguments) for arguments in every]

    def results() -> list[Result | Exception]:
        with others:
            places = reversed(range(len(every)))
            own = {place: _settled(task, every[place]) for place in places if theirs[place].cancel()}
            return [
                own[place] if place in own else _settled(future.result, ()) for place, future in enumerate(theirs)
            ]

    return results


def _begin() -> None:
    """What another process does first: what it is sent may be of a plug-in from outside the package."""
    die_with_parent()
    registry.load_outside(os.environ.get(registry.OUTSIDE, ""))


def _settled(task: Callable[..., Result], arguments: tuple[Any, ...]) -> Result | Exception:
    """The result, or why there is none; another process may also have got no task, or ended."""
    try:
        return task(*arguments)
    except Exception as error:
        return error
