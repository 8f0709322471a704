"""Renders a report as plain text of at most WIDTH columns."""

from __future__ import annotations

import io
import textwrap
from typing import TYPE_CHECKING

from inferprof.report.model import Block, Figure, Report, Section, Table, Text

if TYPE_CHECKING:
    import rich.table

WIDTH = 100


def render(report: Report) -> str:
    """The report as text: no line is longer than WIDTH, none ends in blanks."""
    head = [report.title, "=" * len(report.title), _wrap(report.subtitle)]
    parts = ["\n".join(head), *(_section(section) for section in report.sections)]
    return "\n\n".join(parts) + "\n"


def _section(section: Section) -> str:
    heading = f"{section.title}\n{'-' * len(section.title)}"
    text = heading
    previous: Block | None = None
    for block in section.blocks:
        in_list = isinstance(block, Text) and isinstance(previous, Text) and block.role == previous.role == "item"
        text += ("\n" if in_list or previous is None else "\n\n") + _block(block)
        previous = block
    return text


def _block(block: Block) -> str:
    match block:
        case Text(text=text, role="item"):
            return _wrap(text, first="  - ", rest="    ")
        case Text(text=text):
            return _wrap(text)
        case Figure(title=title, file=file):
            return _wrap(f"Plot: {title}: {file}", rest="  ")
        case Table(csv_only=True):
            return _wrap(f"{block.title}: csv/{block.name}.csv")
        case Table():
            return _table(block)


def _table(table: Table) -> str:
    """Title, body, note and footnotes."""
    parts = [_wrap(table.title)] if table.title else []
    parts.append(_body(table))
    if table.note:
        parts.append(_wrap(table.note, first="  ", rest="  "))
    for index, reason in enumerate(table.footnotes, start=1):
        parts.append(_wrap(f"[{index}] {reason}", first="  ", rest="      "))
    return "\n".join(parts)


def _body(table: Table) -> str:
    """The grid, drawn by Rich: it shares out the width, and folds what is too long instead of cutting it."""
    from rich.console import Console

    out = io.StringIO()
    # Without a height, Rich takes the size of a "dumb" terminal instead of the width given.
    console = Console(file=out, width=WIDTH, height=25, color_system=None, force_terminal=False, legacy_windows=False)
    console.print(_grid(table))
    return "\n".join(line.rstrip() for line in out.getvalue().strip("\n").splitlines())


def _grid(table: Table) -> rich.table.Table:
    import rich.box
    import rich.table
    import rich.text

    grid = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for index in table.shown:
        column = table.columns[index]
        is_number = column.kind == "number"
        grid.add_column(
            rich.text.Text(_stacked(table, index) if is_number else column.title),
            justify="right" if is_number else "left",
            overflow="fold",
            no_wrap=is_number,
        )
    for number, row in enumerate(table.rows):
        if number and table.groups and not table.repeats(number, 0):
            grid.add_row()
        cells = ("" if table.repeats(number, index) else table.label(row[index]) for index in table.shown)
        grid.add_row(*(rich.text.Text(cell) for cell in cells))
    return grid


def _stacked(table: Table, index: int) -> str:
    """A heading with its words above each other as far as that makes its column narrower."""
    width = max((len(table.label(row[index])) for row in table.rows), default=0)
    words = table.columns[index].title.split()
    return textwrap.fill(" ".join(words), max(width, *(len(word) for word in words), 1), break_on_hyphens=False)


def _wrap(text: str, first: str = "", rest: str = "") -> str:
    """Each line of `text` folded to WIDTH."""
    lines = text.splitlines() or [""]
    folded = [
        textwrap.fill(line, WIDTH, initial_indent=rest if index else first, subsequent_indent=rest)
        for index, line in enumerate(lines)
    ]
    return "\n".join(folded)
