"""The report in memory: sections of text, tables and figures. TXT and HTML are two renderings of the same value."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Literal

from inferprof import escape
from inferprof.case import is_plain

Mark = Literal["pass", "warn", "fail"]
Role = Literal["headline", "plain", "item"]
NOT_MEASURED = "–"
"""What a missing number looks like in a table; a footnote says why it is missing."""


class Printed:
    """What holds texts that are printed as they are: control characters in them are spelled out from the start."""

    def __post_init__(self) -> None:
        for name, value in list(vars(self).items()):
            if isinstance(value, str):
                if (plain := escape.text(value)) != value:
                    object.__setattr__(self, name, plain)
            elif type(self).__annotations__.get(name) == "str":
                raise TypeError(f"{name} of a {type(self).__name__} is {value!r}, and no text")


@dataclass(frozen=True)
class Cell:
    """One entry of a table: `text` for people, `value` for the CSV. `missing` says why there is no value.

    `file` is where it comes from, relative to the results folder; the page links to it.
    """

    text: str
    value: str | float | None
    mark: Mark | None = None
    missing: str | None = None
    file: str | None = None

    def __post_init__(self) -> None:
        value = self.value
        fits = value is None or isinstance(value, str) or math.isfinite(value)
        if not (fits and isinstance(self.text, str)):
            raise TypeError(
                f"a cell is {self.text!r} with the value {self.value!r}; allowed: text, and a finite number, or None"
            )
        # As in Printed but for `value`, which the writer of CSVs makes harmless: cells are many.
        for name, value in (("text", self.text), ("missing", self.missing), ("file", self.file)):
            if value and (plain := escape.text(value)) != value:
                object.__setattr__(self, name, plain)


@dataclass(frozen=True)
class Column(Printed):
    """A column. `key` is its name in the CSV, with its unit; `title` stands above it in the report.

    `hidden` columns are in the CSV only: the report has the width of a page.
    """

    key: str
    title: str
    kind: Literal["text", "number", "path"] = "text"
    hidden: bool = False


@dataclass(frozen=True)
class Table(Printed):
    """A table and the name of its CSV; `title` may be empty where the section's says it all.

    Cells that repeat the row above are left blank in the first `groups` columns. Rows beyond `limit` are in the CSV
    only; so is all of a `csv_only` table, which the report mentions.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    groups: int = 0
    csv_only: bool = False
    limit: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError(f"a row of the table {self.name} does not have {len(self.columns)} cells")
        if not is_plain(self.name):
            raise ValueError(f"a table is named {self.name!r}, which no file can be")
        if not all(isinstance(cell, Cell) for row in self.rows for cell in row):
            raise TypeError(f"the table {self.name} holds something that is no cell")

    @property
    def page(self) -> tuple[tuple[Cell, ...], ...]:
        """The rows that the report shows."""
        return self.rows[: self.limit]

    @property
    def remark(self) -> str:
        """The note, and how many rows are in the CSV only."""
        rest = len(self.rows) - len(self.page)
        more = f"{rest:,} more row{'s' if rest > 1 else ''} in csv/{self.name}.csv." if rest else ""
        return f"{self.note} {more}".strip()

    @functools.cached_property
    def shown(self) -> tuple[int, ...]:
        """Positions of the columns that the report shows."""
        return tuple(index for index, column in enumerate(self.columns) if not column.hidden)

    @functools.cached_property
    def footnotes(self) -> tuple[str, ...]:
        """The reasons behind missing values, each once, in the order of the rows."""
        reasons = (row[index].missing for row in self.page for index in self.shown)
        return tuple(dict.fromkeys(reason for reason in reasons if reason))

    def label(self, cell: Cell) -> str:
        """What stands in the cell, with the number of its footnote where the value is missing."""
        return f"{cell.text}[{self.footnotes.index(cell.missing) + 1}]" if cell.missing else cell.text

    def repeats(self, row: int, column: int) -> bool:
        """Whether a cell says the same as the one above it, in a column that groups the rows."""
        if row == 0 or column >= self.groups:
            return False
        above, here = self.rows[row - 1], self.rows[row]
        return all(above[i].text == here[i].text for i in range(column + 1))


@dataclass(frozen=True)
class Text(Printed):
    """A paragraph: an answer in large letters, plain words, or an item of a list."""

    text: str
    role: Role = "plain"
    mark: Mark | None = None


@dataclass(frozen=True)
class Card:
    """An answer: what it is about, and lines of a label and a text each.

    A `listed` one is an answer to a capture, not to the study's question: in text it is a headline and a list.
    """

    title: str
    lines: tuple[tuple[str, str], ...]
    mark: Mark | None = None
    listed: bool = False

    def __post_init__(self) -> None:
        plain = tuple((escape.text(label), escape.text(text)) for label, text in self.lines)
        object.__setattr__(self, "title", escape.text(self.title))
        object.__setattr__(self, "lines", plain)


@dataclass(frozen=True)
class Figure(Printed):
    """A plot: the files that were written (relative to the report) and the SVG that the page embeds.

    `section` is the title of the section that it belongs to, and `card` that of the card which it stands below.
    """

    title: str
    caption: str
    file: str
    svg: str
    section: str
    card: str = ""


@dataclass(frozen=True)
class Entry(Printed):
    """A line with a figure at its end, which opens into others."""

    text: str
    figure: str = ""
    inside: tuple[Entry, ...] = ()
    mark: Mark | None = None


@dataclass(frozen=True)
class Outline(Printed):
    """Entries that a reader of the page opens one by one; on paper there is only where they are."""

    title: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Widget:
    """What the script of the page draws from `Report.data`; in no text. `kind` is which, and its id on the page.

    `section` is the title of the section that it belongs to, and `place` where that stands if nothing else is in it.
    `files`: a label and a path beside the page of each file with the same content.
    """

    kind: Literal["iteration", "compare"]
    title: str
    caption: str
    section: str
    place: int
    files: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "files", tuple((escape.text(label), path) for label, path in self.files))


Block = Text | Table | Card | Figure | Outline | Widget


@dataclass(frozen=True)
class SectionContent(Printed):
    """A heading and what stands under it: what a `Section` made. `place` is that among the others."""

    title: str
    blocks: tuple[Block, ...]
    place: int = 0


@dataclass(frozen=True)
class Report(Printed):
    """The whole report. `subtitle` says which machine it speaks of; `data` is what the page's widgets draw, JSON."""

    title: str
    subtitle: str
    sections: tuple[SectionContent, ...]
    data: str = ""

    @property
    def tables(self) -> tuple[Table, ...]:
        """All tables in order."""
        return tuple(b for section in self.sections for b in section.blocks if isinstance(b, Table))


def words(text: object, mark: Mark | None = None) -> Cell:
    """A cell of text."""
    return Cell(str(text), str(text), mark)


def number(value: float, text: str, mark: Mark | None = None) -> Cell:
    """A number and how it is written."""
    return Cell(text, value, mark)


def missing(reason: str) -> Cell:
    """No value, and why there is none."""
    return Cell(NOT_MEASURED, None, missing=f"not measured: {reason}")


def without_number(text: str) -> Cell:
    """A word in a column of numbers, where a number has no meaning: `baseline`, `identical`."""
    return Cell(text, None)
