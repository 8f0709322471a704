"""Renders a report as plain text of at most WIDTH columns."""

from __future__ import annotations

import io
import itertools
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from inferprof.report.model import Block, Card, Figure, Outline, Report, SectionContent, Table, Text, Widget

if TYPE_CHECKING:
    import rich.table

WIDTH = 100
LINES = 300
"""What a reader of a text has patience for."""
FEWER = (20, 10, 5)
"""Rows of a table, and items of a list, where the text would be longer."""
DETAILS = range(30, 300)
"""Places of sections that may be left to the page: not the answer, what failed, and how it was measured."""
GAP, NARROW_GAP = 2, 1
"""Between columns; the narrow one where the table does not fit the page with the other."""
NARROWEST = 3
"""Width that a column of text can be folded to."""
BREAKABLE = range(9, 25)
"""Lengths of names that may be broken: longer ones are kernels, which are folded anywhere."""
BREAK = re.compile(r"(?<=[_-])(?=[^\W_])")
BREAK_PATH = re.compile(r"(?<=/)(?=.)")
"""Where a long name may be broken, and one of several parts."""


def render(report: Report, most: int | None = LINES) -> str:
    """The report as text: no line is longer than WIDTH, none ends in blanks, and there are at most `most` lines.

    Where it would be longer, lists and tables lose rows first, then sections that go into detail become an entry of
    a list, the last one first; all of it is on the page and in csv/.
    """
    head = "\n".join([report.title, "=" * len(report.title), _wrap(report.subtitle)])
    every = _of_text(report.sections)
    text = ""
    for rows in (None, *FEWER):
        sections = [_section(section, rows) for section in every]
        text = _joined(head, sections)
        if most is not None and _lines(text) > most and rows in FEWER[1:]:
            text = _without_details(head, every, sections, most, last=rows == FEWER[-1])
        if most is None or _lines(text) <= most:
            return text
    return text


def answers(report: Report) -> str:
    """The answers alone, for the end of a terminal's output; empty without any."""
    blocks = (block for section in report.sections for block in section.blocks)
    cards = [block for block in blocks if isinstance(block, Card) and not block.listed]
    return "".join(f"{_card(card)}\n" for card in cards)


def _of_text(sections: Sequence[SectionContent]) -> list[SectionContent]:
    """The sections without what is on the page alone, and with lists in place of cards that are listed."""
    kept = ((section, tuple(itertools.chain.from_iterable(map(_in_text, section.blocks)))) for section in sections)
    return [replace(section, blocks=blocks) for section, blocks in kept if blocks or not section.blocks]


def _in_text(block: Block) -> Iterator[Block]:
    if isinstance(block, Card) and block.listed:
        yield Text(block.title, "headline")
        yield from (Text(f"{label}: {text}" if label else text, "item") for label, text in block.lines)
    elif not isinstance(block, Widget):
        yield block


def _joined(head: str, sections: Iterable[str]) -> str:
    return "\n\n".join([head, *sections]) + "\n"


def _lines(text: str) -> int:
    return text.count("\n")


def _without_details(
    head: str, every: Sequence[SectionContent], texts: Sequence[str], most: int, *, last: bool
) -> str:
    """The text with as few sections in detail as `most` asks for; at last with as few answers."""
    kept = list(texts)
    left_out: list[SectionContent] = []
    for index in reversed(range(len(every))):
        if _lines(_joined(head, [*filter(None, kept), *_index(left_out)])) <= most:
            break
        if every[index].place in DETAILS:
            left_out.insert(0, every[index])
            kept[index] = ""
    over = _lines(_joined(head, [*filter(None, kept), *_index(left_out)])) - most
    if over > 0 and last:
        kept = [_fewer_answers(section, over) or text for section, text in zip(every, kept, strict=True)]
    return _joined(head, [*filter(None, kept), *_index(left_out)])


def _fewer_answers(section: SectionContent, over: int) -> str:
    """A section that is so many lines too long, with as many answers less; empty of one without answers."""
    cards = [block for block in section.blocks if isinstance(block, Card)]
    if not cards:
        return ""
    sizes = [_lines(_card(card)) + 2 for card in cards]
    fewer = len(cards)
    while fewer > 1 and sum(sizes[fewer:]) < over + 2:
        fewer -= 1
    rest = (block for block in section.blocks if not isinstance(block, Card | Figure))
    more = Text(f"The answers about {len(cards) - fewer} more models: csv/answers.csv.")
    return _section(replace(section, blocks=(*cards[:fewer], more, *rest)), FEWER[-1])


def _index(sections: Sequence[SectionContent]) -> list[str]:
    """Where what is not here is: a list of titles and tables."""
    if not sections:
        return []
    entries = []
    for section in sections:
        names = [block.name for block in section.blocks if isinstance(block, Table)]
        entries.append(f"{section.title} ({', '.join(names)})" if names else section.title)
    heading = "In detail"
    return [
        f"{heading}\n{'-' * len(heading)}\n{_wrap('On the page, REPORT.html, and in csv/: ' + '; '.join(entries))}."
    ]


def _section(section: SectionContent, rows: int | None) -> str:
    text = f"{section.title}\n{'-' * len(section.title)}"
    previous: Block | None = None
    for block in _shortened(section.blocks, rows):
        in_list = isinstance(block, Text) and isinstance(previous, Text) and block.role == previous.role == "item"
        text += ("\n" if in_list or previous is None else "\n\n") + _block(block)
        previous = block
    return text


def _shortened(blocks: Sequence[Block], rows: int | None) -> Iterator[Block]:
    """The blocks with neighbouring plots in one line, at most so many rows in each table, and items in each list."""
    for kind, run in itertools.groupby(blocks, _kind):
        if kind is Figure:
            yield Text(f"Plots: {', '.join(block.file for block in run if isinstance(block, Figure))}")
        elif kind == "item" and rows is not None:
            items = list(run)
            yield from items[:rows]
            if len(items) > rows:
                yield Text(f"and {len(items) - rows} more on the page", "item")
        else:
            yield from (_fewer_rows(block, rows) if isinstance(block, Table) else block for block in run)


def _fewer_rows(table: Table, rows: int | None) -> Table:
    return table if rows is None else replace(table, limit=rows if table.limit is None else min(rows, table.limit))


def _kind(block: Block) -> object:
    return block.role if isinstance(block, Text) else type(block)


def _block(block: Block) -> str:
    match block:
        case Text(text=text, role="item"):
            return _wrap(text, first="  - ", rest="    ")
        case Text(text=text):
            return _wrap(text)
        case Card():
            return _card(block)
        case Outline(title=title):
            return _wrap(f"{title}: REPORT.html", rest="  ")
        case Table(csv_only=True):
            return _wrap(f"{block.title}: csv/{block.name}.csv")
        case Figure():
            return _wrap(f"Plot: {block.file}")
        case Widget():
            return ""
        case Table():
            return _table(block)


def _card(card: Card) -> str:
    """The title, and a line of each label, its text below itself where it is longer."""
    width = max(len(label) for label, _ in card.lines) + GAP
    lines = (_wrap(text, first=f"  {label:<{width}}", rest=" " * (width + 2)) for label, text in card.lines)
    return "\n".join([_wrap(card.title), *lines])


def _table(table: Table) -> str:
    """Title, body, note and footnotes."""
    parts = [_wrap(table.title)] if table.title else []
    parts.append(_body(table))
    if table.remark:
        parts.append(_wrap(table.remark, first="  ", rest="  "))
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

    shown = _breakable(table)
    padding = (0, _gap(table) - NARROW_GAP, 0, 0)  # the box is one of the blanks
    grid = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False, padding=padding, show_edge=False)
    whole = _whole(table, shown)
    for index in table.shown:
        column = table.columns[index]
        is_number = column.kind == "number"
        grid.add_column(
            rich.text.Text(_stacked(table, index) if is_number else column.title),
            justify="right" if is_number else "left",
            overflow="fold",
            no_wrap=index in whole,
        )
    for number in range(len(table.page)):
        if number and table.groups and not table.repeats(number, 0):
            grid.add_row()
        grid.add_row(*(rich.text.Text(shown(number, index)) for index in table.shown))
    return grid


def _whole(table: Table, shown: Callable[[int, int], str]) -> set[int]:
    """The columns that Rich must not narrow: of numbers and names, if these fit beside the longest words of the
    others; else of numbers, which it would cut off, if at least these fit."""
    cells = {index: [shown(number, index) for number in range(len(table.page))] for index in table.shown}
    numbers = {index for index in table.shown if table.columns[index].kind == "number"}
    names = numbers | {index for index, texts in cells.items() if not any(" " in text for text in texts)}

    def least(index: int) -> int:
        pieces = [piece for text in cells[index] for piece in text.split()]
        return max(map(len, [*_stacked(table, index).split(), *pieces]), default=0)

    if sum(map(least, table.shown)) + _gap(table) * (len(table.shown) - 1) <= WIDTH:
        return names
    return numbers if _number_width(table) <= WIDTH else set()


def _breakable(table: Table) -> Callable[[int, int], str]:
    """What stands in a cell: where a column must be narrower, names break behind _ and -, not in mid-word."""
    narrower = _narrower(table)

    def shown(row: int, index: int) -> str:
        text = "" if table.repeats(row, index) else table.label(table.page[row][index])
        return _broken(text) if index in narrower else text

    return shown


def _narrower(table: Table) -> set[int]:
    """The columns whose names have to break for the table to fit the page, the widest first.

    None where it is enough that sentences are wrapped between their words.
    """
    widths = dict(zip(table.shown, _widths(table), strict=True))
    chosen: set[int] = set()
    gaps = _gap(table) * (len(widths) - 1)
    if sum(widths.values()) + gaps - _wrappable(table) <= WIDTH:
        return chosen
    for index in sorted(widths, key=lambda index: -widths[index]):
        if sum(widths.values()) + gaps <= WIDTH:
            break
        if table.columns[index].kind == "text":
            chosen.add(index)
            pieces = (_broken(table.label(row[index])).splitlines() or [""] for row in table.page)
            title = _stacked(table, index).split()
            widths[index] = max(map(len, [*title, *(piece for cell in pieces for piece in cell)]), default=0)
    return chosen


def _wrappable(table: Table) -> int:
    """By how much the columns become narrower when all their sentences are wrapped, as Rich does first."""
    narrower = 0
    for index, width in zip(table.shown, _widths(table), strict=True):
        if table.columns[index].kind != "number":
            texts = [table.columns[index].title, *(table.label(row[index]) for row in table.page)]
            narrower += width - max(len(word) for text in texts for word in text.split(" "))
    return narrower


def _broken(text: str) -> str:
    """A name in pieces; sentences and texts that are short or long anyway stay as they are."""
    if " " in text or len(text) < BREAKABLE.start:
        return text
    if "/" in text:
        return BREAK_PATH.sub("\n", text)
    return BREAK.sub("\n", text) if len(text) in BREAKABLE else text


def _number_width(table: Table) -> int:
    """The least width of a table whose numbers stay whole; Rich would cut off what exceeds the page."""
    kinds = [table.columns[index].kind for index in table.shown]
    columns = zip(_widths(table), kinds, strict=True)
    return sum(width if kind == "number" else NARROWEST for width, kind in columns) + _gap(table) * (len(kinds) - 1)


def _gap(table: Table) -> int:
    """The blanks between two columns."""
    widths = _widths(table)
    total = sum(widths) - _wrappable(table)
    gaps = len(widths) - 1
    return NARROW_GAP if total + GAP * gaps > WIDTH else GAP


def _widths(table: Table) -> list[int]:
    """What each column would like to have."""
    titles = (_stacked(table, index).splitlines() for index in table.shown)
    cells = ([table.label(row[index]) for row in table.page] for index in table.shown)
    return [max(map(len, [*title, *column])) for title, column in zip(titles, cells, strict=True)]


def _stacked(table: Table, index: int) -> str:
    """A heading with its words above each other as far as that makes its column narrower."""
    width = max((len(table.label(row[index])) for row in table.page), default=0)
    words = table.columns[index].title.split()
    return textwrap.fill(" ".join(words), max(width, *(len(word) for word in words), 1), break_on_hyphens=False)


def _wrap(text: str, first: str = "", rest: str = "") -> str:
    """Each line of `text` folded to WIDTH."""
    lines = text.splitlines() or [""]
    folded = [
        textwrap.fill(
            line, WIDTH, initial_indent=rest if index else first, subsequent_indent=rest, break_on_hyphens=False
        )
        for index, line in enumerate(lines)
    ]
    return "\n".join(folded)
