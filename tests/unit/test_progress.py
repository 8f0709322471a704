"""Progress: what long verbs say, on a terminal and off one, and their silence elsewhere."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator

import pytest
from tests.unit.facts import facts, states

from inferprof import progress


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


def ticking(*seconds: float) -> Callable[[], float]:
    """A clock that gives these seconds, one a call."""
    moments: Iterator[float] = iter(seconds)
    return lambda: next(moments)


def test_nothing_is_said_without_a_display(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.task("Export toy", ("load",)):
        progress.step("load")
        assert list(progress.counted(["a", "b"], "batch")) == ["a", "b"]
    progress.step("nowhere")
    assert capsys.readouterr() == ("", "")


def test_off_a_terminal_each_step_is_a_line_with_what_is_done_and_what_is_left() -> None:
    out = io.StringIO()
    steps, budgets = ("load", "device", "call"), {"device": 4.0, "call": 4.0}
    clock = ticking(100, 100, 103, 107, 110)
    with progress.displayed(out, clock), progress.task("Measure toy", steps, budgets=budgets):
        progress.step("load")
        progress.step("device")
        progress.step("call")
    assert [facts(text, "load") for text in out.getvalue().splitlines()] == [
        ["inferprof", "load", "1", "3", "0 s", "most", "8 s"],
        ["inferprof", "device", "2", "3", "3 s", "most", "8 s"],
        ["inferprof", "call", "3", "3", "7 s", "most", "4 s"],
        ["inferprof", "10 s"],
    ]


def test_a_step_that_the_task_does_not_list_is_a_part_of_the_one_under_way() -> None:
    out = io.StringIO()
    with progress.displayed(out, lambda: 0), progress.task("Quantize toy", ("load", "convert")):
        progress.step("convert")
        progress.step("write the graph")
    assert facts(out.getvalue().splitlines()[1], "Quantize", "toy", "write") == [
        "inferprof",
        "Quantize",
        "toy",
        "write",
        "2",
        "2",
        "0 s",
    ]


def test_off_a_terminal_a_count_is_said_every_ten_seconds() -> None:
    out = io.StringIO()
    clock = ticking(0, 0, 4, 11, 13, 13)
    with progress.displayed(out, clock), progress.task("Judge toy", ("run",)):
        progress.step("run")
        assert list(progress.counted([1, 2, 3], "batch")) == [1, 2, 3]
    assert [facts(text, "batch", "run") for text in out.getvalue().splitlines()] == [
        ["inferprof", "run", "1", "1", "0 s"],
        ["inferprof", "run", "batch", "2", "3", "1", "1", "11 s"],
        ["inferprof", "13 s"],
    ]


def test_a_task_inside_of_another_is_a_part_of_it() -> None:
    out = io.StringIO()
    with (
        progress.displayed(out, lambda: 0),
        progress.task("Outer", ("one",)),
        progress.task("Inner", ("two",)),
    ):
        progress.step("one")
    assert "Inner" not in out.getvalue()


def test_a_task_that_fails_is_not_said_to_be_done() -> None:
    out = io.StringIO()
    with pytest.raises(ValueError, match="no"), progress.displayed(out, lambda: 0), progress.task("Fail", ()):
        raise ValueError("no")
    assert out.getvalue() == ""


def test_the_display_ends_with_its_block() -> None:
    out = io.StringIO()
    with progress.displayed(out, lambda: 0):
        pass
    with progress.task("Late", ("one",)):
        progress.step("one")
    assert out.getvalue() == ""


def test_on_a_terminal_the_line_is_redrawn_and_gone_at_the_end() -> None:
    out = Terminal()
    with (
        progress.displayed(out),
        progress.task("Measure [toy]", ("load", "call"), budgets={"call": 4.0}, measures=True),
    ):
        progress.step("call")
        drawn = out.getvalue()
    assert states(drawn, "call", "2", "2") and states(drawn, "most", "4 s")
    assert out.getvalue().endswith("\x1b[2K")  # the last thing done is to erase the line


@pytest.mark.parametrize(("measures", "threads"), [(True, 0), (False, 1)])
def test_no_thread_moves_a_clock_along_while_something_is_measured(measures: bool, threads: int) -> None:
    before = threading.active_count()
    with progress.displayed(Terminal()), progress.task("Measure toy", ("call",), measures=measures):
        progress.step("call")
        assert threading.active_count() - before == threads
