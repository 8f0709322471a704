"""What a long verb is doing: a line that is redrawn on a terminal, lines below each other elsewhere.

Modules say `task` and `step` where they know them; without a display, which only the command line installs, both do
nothing. A step is said between measurements, never inside of one, and a task that measures is redrawn at its steps
alone: the thread that moves a clock along would take time from what is measured.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TextIO, TypeVar

from inferprof import escape

T = TypeVar("T")
COUNT_EVERY_S = 10.0
"""Where lines stand below each other, a count is worth one this often."""


@dataclass
class Task:
    """A verb at work: what it does, in order, and the seconds that steps with a budget take at most."""

    title: str
    steps: Sequence[str]
    budgets: Mapping[str, float]
    measures: bool
    step: str = ""
    number: int = 0
    """Which of the steps is under way, from 1."""
    count: str = ""
    """How far the step itself is: `batch 3 of 8`."""
    update: Callable[[], None] = lambda: None
    """Brings the view up to date."""

    def say(self, step: str, count: str = "") -> None:
        """Go on; a step that the task does not list is a part of the one under way."""
        if step in self.steps:
            self.number = self.steps.index(step) + 1
        self.step, self.count = step, count
        self.update()

    @property
    def doing(self) -> str:
        """`run, batch 3 of 8 (2 of 4)`."""
        step = ", ".join(filter(None, (self.step, self.count)))
        return f"{step} ({self.number} of {len(self.steps)})"

    @property
    def left(self) -> str:
        """`at most 12 s of budget left`; empty where no step has a budget."""
        seconds = sum(self.budgets.get(step, 0) for step in self.steps[max(self.number - 1, 0) :])
        return f"at most {math.ceil(seconds)} s of budget left" if seconds else ""


Display = Callable[[Task], "AbstractContextManager[Any]"]
_DISPLAY: ContextVar[Display | None] = ContextVar("display", default=None)
_TASK: ContextVar[Task | None] = ContextVar("task", default=None)


@contextlib.contextmanager
def task(
    title: str, steps: Sequence[str], *, budgets: Mapping[str, float] | None = None, measures: bool = False
) -> Iterator[None]:
    """Show a task; one inside of another is a part of that one, and is not shown by itself."""
    display = _DISPLAY.get()
    if display is None or _TASK.get():
        yield
        return
    current = Task(title, steps, budgets or {}, measures)
    with display(current):
        token = _TASK.set(current)
        try:
            yield
        finally:
            _TASK.reset(token)


def step(name: str) -> None:
    """Say what comes next."""
    if current := _TASK.get():
        current.say(name)


def counted(items: Sequence[T], unit: str) -> Iterator[T]:
    """Go through the items, and say which of them is under way."""
    for number, item in enumerate(items, 1):
        if current := _TASK.get():
            current.say(current.step, f"{unit} {number} of {len(items)}")
        yield item


@contextlib.contextmanager
def displayed(stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Show tasks on a stream, by default stderr: drawn by Rich on a terminal, as plain lines elsewhere."""
    out = sys.stderr if stream is None else stream
    drawn = out.isatty() and importlib.util.find_spec("rich")  # the core runs on machines without Rich
    token = _DISPLAY.set((lambda shown: _drawn(shown, out)) if drawn else (lambda shown: _lines(shown, out, clock)))
    try:
        yield
    finally:
        _DISPLAY.reset(token)


@contextlib.contextmanager
def _lines(shown: Task, out: TextIO, clock: Callable[[], float]) -> Iterator[None]:
    """`inferprof: Measure vit_tiny/…: device (3 of 8), 12 s; at most 14 s of budget left`, a line per step."""
    begun = said_at = clock()
    said = ""

    def update() -> None:
        nonlocal said, said_at
        now = clock()
        if shown.step != said or now - said_at >= COUNT_EVERY_S:
            said, said_at = shown.step, now
            line = "; ".join(filter(None, (f"{shown.doing}, {now - begun:.0f} s", shown.left)))
            out.write(escape.line(f"inferprof: {shown.title}: {line}") + "\n")
            out.flush()

    shown.update = update
    yield
    out.write(f"inferprof: {escape.line(shown.title)}: done in {clock() - begun:.0f} s\n")
    out.flush()


@contextlib.contextmanager
def _drawn(shown: Task, out: TextIO) -> Iterator[None]:
    """Title, step, bar, time so far and what is left in one line, which is gone at the end."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    says, left = (TextColumn(f"{{task.{part}}}", markup=False) for part in ("description", "fields[left]"))
    columns = (says, BarColumn(), TimeElapsedColumn(), left)
    console = Console(file=out, force_terminal=True)
    with Progress(*columns, console=console, transient=True, auto_refresh=not shown.measures) as bar:
        row = bar.add_task(escape.line(shown.title), total=len(shown.steps), left="")

        def update() -> None:
            text = f"{shown.title}: {shown.doing}"
            bar.update(row, description=escape.line(text), completed=max(shown.number - 1, 0), left=shown.left)
            bar.refresh()

        shown.update = update
        yield
