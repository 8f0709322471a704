"""Tasks over several processes: others begin at once, and this one takes a share when it asks for the results."""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

from inferprof import registry
from inferprof.errors import without_exit
from inferprof.processes import die_with_parent

Result = TypeVar("Result")


class Processes:
    """This process, and others that take tasks as soon as these are given."""

    def __init__(self, others: concurrent.futures.Executor | None = None) -> None:
        self._others = others

    def begin(
        self, task: Callable[..., Result], every: Sequence[tuple[Any, ...]]
    ) -> Callable[[], list[Result | Exception]]:
        """`task` of each of these arguments; what was raised in place of its result.

        The answer gives the results, in their order. Others take the tasks from first to last, after those that were
        given before; what they have not begun by then this process takes from the end.
        """
        if self._others is None:
            return lambda: list(itertools.starmap(_settled, ((task, arguments) for arguments in every)))
        theirs = [self._others.submit(task, *arguments) for arguments in every]

        def results() -> list[Result | Exception]:
            places = reversed(range(len(every)))
            own = {place: _settled(task, every[place]) for place in places if theirs[place].cancel()}
            return [
                own[place] if place in own else _settled(future.result, ()) for place, future in enumerate(theirs)
            ]

        return results


HERE: Final = Processes()
"""This process alone: it does the tasks when it is asked for the results."""


@contextlib.contextmanager
def over(processes: int) -> Iterator[Processes]:
    """So many processes, this one among them: the others start with the first tasks, and end with the context."""
    if processes <= 1:
        yield HERE
        return
    # Spawned, not forked: threads of libraries that are loaded here would not be there in a copy.
    others = concurrent.futures.ProcessPoolExecutor(
        processes - 1, multiprocessing.get_context("spawn"), initializer=_begin
    )
    try:
        yield Processes(others)
    finally:
        others.shutdown(cancel_futures=True)


def _begin() -> None:
    """What another process does first: what it is sent may be of a plug-in from outside the package."""
    die_with_parent()
    registry.load_outside(os.environ.get(registry.OUTSIDE, ""))


def _settled(task: Callable[..., Result], arguments: tuple[Any, ...]) -> Result | Exception:
    """The result, or why there is none; another process may also have got no task, or ended."""
    try:
        with without_exit():
            return task(*arguments)
    except Exception as error:
        return error
