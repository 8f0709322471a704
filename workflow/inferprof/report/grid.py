"""Draws a table as plain text of at most WIDTH columns: numbers stay whole, and what is too wide goes on below."""

from __future__ import annotations

import bisect
import io
import itertools
import re
import textwrap
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from inferprof.report.model import Cell, Table

if TYPE_CHECKING:
    import rich.table

WIDTH = 100
"""Of every line of a report in text."""
GAP, NARROW_GAP = 2, 1
"""Between columns; the narrow one where the table does not fit the page with the other."""
NARROWEST = 3
"""Width that a column of text can be folded to."""
LONGEST_NAME = 60
"""Longer words are kernels' names, which are folded anywhere."""
BREAK = re.compile(r"(?<=[/_-])(?=[^\W_])")
"""Where a name may be broken."""


def body(table: Table) -> str:
    """The table, or its parts below each other where it is too wide."""
    return "\n\n".join(_drawn(part) for part in _parts(table))


def _parts(table: Table) -> list[Table]:
    """A table whose columns fit beside each other; else several, each with the first columns, which name its rows."""
    _, _, pieces = _measured(table)
    taken = {index: width + NARROW_GAP for index, width in pieces.items()}
    named = list(itertools.takewhile(lambda index: table.columns[index].kind != "number", table.shown))
    room = WIDTH + NARROW_GAP - sum(taken[index] for index in named)
    rest = [index for index in table.shown if index not in named]
    if not named or sum(taken[index] for index in rest) <= room:
        return [table]
    parts: list[list[int]] = [[]]
    for index in rest:
        if parts[-1] and sum(taken[each] for each in (*parts[-1], index)) > room:
            parts.append([])
        parts[-1].append(index)
    return [_with_columns(table, {*named, *part}) for part in parts]


def _with_columns(table: Table, kept: Collection[int]) -> Table:
    """The table with these columns alone; the numbers of its footnotes stay."""
    columns = (replace(column, hidden=index not in kept) for index, column in enumerate(table.columns))
    rows = (tuple(_labelled(table, index, cell) for index, cell in enumerate(row)) for row in table.page)
    return replace(table, columns=tuple(columns), rows=tuple(rows), limit=None)


def _labelled(table: Table, index: int, cell: Cell) -> Cell:
    """A cell with the number of its footnote in its text; columns that are not shown have none."""
    return replace(cell, text=table.label(cell), missing=None) if index in table.shown else cell


def _drawn(table: Table) -> str:
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

    gap, widths = _widths(table)
    padding = (0, gap - NARROW_GAP, 0, 0)  # the box is one of the blanks
    grid = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False, padding=padding, show_edge=False)
    for index, width in widths.items():
        is_number = table.columns[index].kind == "number"
        title = _stacked(table, index) if is_number else _folded(table.columns[index].title, width)
        grid.add_column(rich.text.Text(title), justify="right" if is_number else "left", overflow="fold", width=width)
    for number in range(len(table.page)):
        if number and table.groups and not table.repeats(number, 0):
            grid.add_row()
        grid.add_row(
            *(rich.text.Text(_folded(_shown(table, number, index), width)) for index, width in widths.items())
        )
    return grid


def _shown(table: Table, number: int, index: int) -> str:
    """What stands in a cell: nothing where the line above says the same."""
    return "" if table.repeats(number, index) else table.label(table.page[number][index])


def _widths(table: Table) -> tuple[int, dict[int, int]]:
    """The blanks between two columns, and the width of each column.

    Where not all fit, the widest share what the others leave; but none is narrower than its longest piece, if that
    can be had: numbers stay whole, and text breaks between words, then behind the marks of BREAK.
    """
    wanted, words, pieces = _measured(table)
    gaps = len(wanted) - 1
    for least in (words, pieces):
        for gap in (GAP, NARROW_GAP):
            if sum(least.values()) + gap * gaps <= WIDTH:
                return gap, _shared(wanted, least, WIDTH - gap * gaps)
    least = {index: width if table.columns[index].kind == "number" else NARROWEST for index, width in words.items()}
    return NARROW_GAP, _shared(wanted, least, max(sum(least.values()), WIDTH - NARROW_GAP * gaps))


def _measured(table: Table) -> tuple[dict[int, int], dict[int, int], dict[int, int]]:
    """What each column takes for its longest cell, its longest word and the longest piece of one."""
    wanted, words, pieces = {}, {}, {}
    for index in table.shown:
        cells = [_shown(table, number, index) for number in range(len(table.page))]
        number = table.columns[index].kind == "number"
        title = _stacked(table, index).splitlines() if number else [table.columns[index].title]
        wanted[index] = max(map(len, [*title, *cells]))
        texts = [*table.columns[index].title.split(), *(cells if number else " ".join(cells).split())]
        words[index] = max(map(len, texts), default=0)
        pieces[index] = (
            words[index] if number else max((len(piece) for text in texts for piece in _pieces(text)), default=0)
        )
    return wanted, words, pieces


def _shared(wanted: Mapping[int, int], least: Mapping[int, int], total: int) -> dict[int, int]:
    """Widths that add up to `total` at most: as wanted up to one limit for all, and not under `least`."""

    def limited(limit: int) -> dict[int, int]:
        return {index: max(least[index], min(width, limit)) for index, width in wanted.items()}

    limits = range(1, max(wanted.values(), default=0) + 1)
    return limited(bisect.bisect(limits, total, key=lambda limit: sum(limited(limit).values())))


def _pieces(word: str) -> list[str]:
    """A word in the pieces between which it may be broken; a kernel's name is folded anywhere."""
    return BREAK.split(word) if len(word) <= LONGEST_NAME else textwrap.wrap(word, NARROWEST)


def _folded(text: str, width: int) -> str:
    """A text in lines of at most `width`: broken between words, and within those that are longer."""
    if len(text) <= width:
        return text
    lines = [""]
    for word in text.split():
        lines[-1] += " " if lines[-1] else ""
        for piece in [word] if len(word) <= width else _pieces(word):
            for part in textwrap.wrap(piece, width):
                if len(lines[-1]) + len(part) > width:
                    lines.append("")
                lines[-1] += part
    return "\n".join(line.rstrip() for line in lines).strip()


def _stacked(table: Table, index: int) -> str:
    """A heading with its words above each other as far as that makes its column narrower."""
    width = max((len(table.label(row[index])) for row in table.page), default=0)
    words = table.columns[index].title.split()
    return textwrap.fill(" ".join(words), max(width, *(len(word) for word in words), 1), break_on_hyphens=False)
