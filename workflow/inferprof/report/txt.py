"""Renders a report as plain text of at most grid.WIDTH columns."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from inferprof.report import grid
from inferprof.report.model import Block, Card, Figure, Outline, Report, SectionContent, Table, Text, Widget

LINES = 300
"""What a reader of a text has patience for."""
FEWER = (20, 10, 5)
"""Rows of a table, and items of a list, where the text would be longer."""
DETAILS = range(30, 300)
"""Places of sections that may be left to the page: not the answer, what failed, and how it was measured."""


def render(report: Report, most: int | None = LINES) -> str:
    """The report as text: no line is longer than grid.WIDTH, none ends in blanks, and there are at most `most` lines.

    Where it would be longer, lists and tables lose rows first, then sections that go into detail become an entry of
    a list, the last one first; all of it is on the page and in csv/.
    """
    head = "\n".join([report.title, "=" * len(report.title), _wrap(report.subtitle)])
    every = _of_text(report.sections)
    text = ""
    for rows in (None, *FEWER):
        if most is not None and rows not in FEWER[1:] and _rows(every, rows) > most:
            continue  # in vain: to draw thousands of rows takes long
        sections = [_section(section, rows) for section in every]
        text = _joined(head, sections)
        if most is not None and _lines(text) > most and rows in FEWER[1:]:
            text = _without_details(head, every, sections, most, last=rows == FEWER[-1])
        if most is None or _lines(text) <= most:
            return text
    return text


def _rows(sections: Sequence[SectionContent], rows: int | None) -> int:
    """How many rows all tables have together, of each at most so many."""
    tables = [block for section in sections for block in section.blocks if isinstance(block, Table)]
    return sum(len(_fewer_rows(table, rows).page) for table in tables if not table.csv_only)


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
        kept = [
            _fewer_answers(section, _lines(text) - over) or text for section, text in zip(every, kept, strict=True)
        ]
    return _joined(head, [*filter(None, kept), *_index(left_out)])


def _fewer_answers(section: SectionContent, most: int) -> str:
    """A section with as many answers as fit into so many lines, one at least; empty of one without answers."""
    cards = [block for block in section.blocks if isinstance(block, Card)]
    if not cards:
        return ""
    rest = [block for block in section.blocks if not isinstance(block, Card | Figure)]
    text = ""
    for fewer in reversed(range(1, len(cards))):
        more = Text(f"The answers about {len(cards) - fewer} more models: csv/answers.csv.")
        text = _section(replace(section, blocks=(*cards[:fewer], more, *rest)), FEWER[-1])
        if _lines(text) <= most:
            break
    return text


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
    width = max(len(label) for label, _ in card.lines) + grid.GAP
    lines = (_wrap(text, first=f"  {label:<{width}}", rest=" " * (width + 2)) for label, text in card.lines)
    return "\n".join([_wrap(card.title), *lines])


def _table(table: Table) -> str:
    """Title, body, note and footnotes."""
    parts = [_wrap(table.title)] if table.title else []
    parts.append(grid.body(table))
    if table.remark:
        parts.append(_wrap(table.remark, first="  ", rest="  "))
    for index, reason in enumerate(table.footnotes, start=1):
        parts.append(_wrap(f"[{index}] {reason}", first="  ", rest="      "))
    return "\n".join(parts)


def _wrap(text: str, first: str = "", rest: str = "") -> str:
    """Each line of `text` folded to grid.WIDTH."""
    lines = text.splitlines() or [""]
    folded = [
        textwrap.fill(
            line, grid.WIDTH, initial_indent=rest if index else first, subsequent_indent=rest, break_on_hyphens=False
        )
        for index, line in enumerate(lines)
    ]
    return "\n".join(folded)
