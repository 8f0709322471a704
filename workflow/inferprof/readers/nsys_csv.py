"""The tables in what `nsys stats --format csv` wrote to files or printed: cells, and the unit of each column.

What a program or nsys printed around the tables is passed over. A row that lacks cells, a heading without rows and a
last line without its end are refused as cut short. That a further report followed behind a whole one is not told.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from inferprof.errors import UserError, in_one_line
from inferprof.files import text_of

TIMES: Final[Mapping[str, int]] = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
"""Unit → ns; `--timeunit` chooses it."""
SIZES: Final[Mapping[str, int]] = {
    **dict.fromkeys(("byte", "bytes", "B"), 1),
    **{"kB": 1_000, "KB": 1_000, "MB": 1_000_000, "GB": 1_000_000_000},
    **{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30},
}
"""Unit → bytes."""
OLDER_COLUMNS: Final[Mapping[str, str]] = {
    "Time(%)": "Time (%)",
    "Operations": "Count",
    "Calls": "Num Calls",
    "Total": "Total (KiB)",
    **{
        f"{long}{unit}": f"{short} (ns)"
        for long, short in (("Average", "Avg"), ("Minimum", "Min"), ("Maximum", "Max"), ("StdDev", "StdDev"))
        for unit in ("", " (ns)")
    },
}
"""How columns were called up to 2021 → how since."""
_HEADER: Final = re.compile(r'"?(?:Time ?\(%\)|Total(?: \([^)]+\))?|Start \([^)]+\))"?(?P<between>[,;\t])')
_COLUMN: Final = re.compile(r"(?P<name>[^(]+?) \((?P<unit>[^)]+)\)")
_NUMBER: Final = re.compile(r"\d{1,18}(?:\.\d+)?")
_ROW: Final = re.compile(r"-?\d")
"""How a row begins."""


class NotPlain(ValueError):
    """A cell that is no number as nsys writes it by default."""


@dataclass(frozen=True)
class Table:
    """One report: its cells as text, the names of its columns without units, and the units; none is an empty one."""

    cells: pd.DataFrame
    units: Mapping[str, str]
    excerpt: bool = False
    """Rows may be missing, as people leave them out of what they copy from a terminal."""

    def ns(self, column: str) -> pd.Series[float]:
        """A column of times in ns. Raises KeyError (the unit) for a unit that is not known."""
        factor = TIMES[self.units[column]]
        if factor == 1 and column not in ("Avg", "Med", "StdDev"):
            return self.whole(column).astype(float)
        return (self.numbers(column) * factor).round(6)

    def times(self, column: str) -> pd.Series[int]:
        """The same as whole ns, of moments and of durations of single events."""
        if self.units[column] == "ns":
            return self.whole(column)
        return self.ns(column).round().astype(np.int64)

    def numbers(self, column: str) -> pd.Series[float]:
        """A column as numbers. Raises NotPlain for anything else."""
        for cell in self.cells[column].unique():
            if not _NUMBER.fullmatch(cell):
                raise NotPlain(f"{column} {cell!r}")
        return self.cells[column].astype(float)

    def whole(self, column: str) -> pd.Series[int]:
        """A column as whole numbers. Raises NotPlain for anything else: `2.176` may be 2,176 of another locale."""
        plain = self.cells[column].str.removesuffix(".0")
        for cell in plain.unique():
            if not _NUMBER.fullmatch(cell) or "." in cell:
                raise NotPlain(f"{column} {cell!r}")
        return plain.astype(np.int64)

    def half_places(self, column: str) -> pd.Series[float]:
        """By how much a printed number may be off: half of its last place; of whole numbers nothing."""
        places = self.cells[column].map(lambda cell: len(cell.rpartition(".")[2]) if "." in cell else 0)
        return (0.5 * 10.0**-places).where(places > 0, 0.0)


def is_csv(path: Path) -> bool:
    """Whether any line of a file begins a table with separators."""
    return any(_HEADER.match(line) for line in text_of(path).split("\n"))


def tables(path: Path) -> list[Table]:
    """All tables that have rows. Raises UserError where there are none, or one of them is cut short."""
    try:
        lines = text_of(path, errors="strict").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is no text as `nsys stats` writes it ({in_one_line(error)}): write it again"
        ) from None
    heads = [number for number, line in enumerate(lines) if _HEADER.match(line)]
    try:
        if lines[-1]:
            raise NotPlain("its last line does not end")
        read = [_table(lines, number) for number in heads]
    except (csv.Error, NotPlain) as error:
        raise UserError(f"{path} is cut short or damaged ({in_one_line(error)}): write it again") from None
    if all(len(table.cells) for table in read):
        return read
    what = "nothing of its kind was traced" if len(read) == 1 else "it is cut short; write it again"
    raise UserError(f"{path} has a heading and no rows: {what}")


def _table(lines: Sequence[str], head: int) -> Table:
    match = _HEADER.match(lines[head])
    if match is None or match["between"] != ",":
        raise NotPlain("its columns are not separated by commas")
    columns, *_ = csv.reader([lines[head].rstrip()], strict=True)
    units = dict(name_and_unit(column) for column in columns)
    if len(units) < len(columns):
        raise NotPlain("it has two columns of a name")
    rows = []
    for number, line in enumerate(lines[head + 1 :], head + 1):
        cells = next(csv.reader([line.rstrip()], strict=True), [])
        if not cells or not _ROW.match(cells[0]):
            break  # an empty line, the next report, or what somebody printed
        if len(cells) != len(columns):
            raise NotPlain(f"line {number + 1} has {len(cells)} of {len(columns)} cells")
        rows.append(cells)
    return Table(pd.DataFrame(rows, columns=list(units), dtype=object), units)


def name_and_unit(column: str) -> tuple[str, str]:
    """`Total Time (ns)` → name and unit, as they are called since 2022; no unit is an empty one."""
    column = OLDER_COLUMNS.get(column, column)
    match = _COLUMN.fullmatch(column)
    return (match["name"], match["unit"]) if match else (column, "")
