"""Tables declared once: each column together with the cell that a row has in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from inferprof.report.common import CASE_COLUMNS, NOT_RECORDED, in_mib, in_ms, optional, scaled
from inferprof.report.model import Cell, Column, Table, words

Row = TypeVar("Row", contravariant=True)
Named = Mapping[str, Any]
"""A row by the names of a frame's columns."""
Reason = str | Callable[[Named], str]
"""Why there is no number, of every row or of one."""
PERCENT = 0.01


@dataclass(frozen=True)
class Field(Generic[Row]):
    """A column, and the cell that a row has in it."""

    column: Column
    cell: Callable[[Row], Cell]


def table_of(
    name: str, title: str, fields: Iterable[Field[Row]], rows: Iterable[Row], note: str = "", groups: int = 2
) -> Table:
    """The table with a row of each of `rows`; grouped by model and shape unless told otherwise."""
    of_rows = tuple(fields)
    cells = tuple(tuple(field.cell(row) for field in of_rows) for row in rows)
    return Table(name, title, tuple(field.column for field in of_rows), cells, note, groups)


def csv_of(name: str, title: str, fields: Iterable[Field[Row]], rows: Iterable[Row]) -> Table:
    """The same as a CSV alone."""
    return replace(table_of(name, title, fields, rows, groups=0), csv_only=True)


def text(key: str, title: str | None = None, *, hidden: bool = False) -> Field[Named]:
    """The words of row[key]."""
    return Field(Column(key, key if title is None else title, hidden=hidden), lambda row: words(row[key]))


def plain(
    key: str,
    title: str | None = None,
    write: Callable[[Any], str] = str,
    reason: Reason = NOT_RECORDED,
    *,
    hidden: bool = False,
) -> Field[Named]:
    """The number row[key] in the unit that it is in."""
    column = Column(key, key if title is None else title, "number", hidden)
    return Field(column, lambda row: optional(row[key], write, _why(reason, row)))


def ms(name: str, title: str, reason: Reason = NOT_RECORDED, *, hidden: bool = False) -> Field[Named]:
    """The time row[`name`_ns]."""
    column = Column(f"{name}_ms", title, "number", hidden)
    return Field(column, lambda row: in_ms(row[f"{name}_ns"], _why(reason, row)))


def mib(key: str, title: str, reason: Reason = NOT_RECORDED, *, hidden: bool = False) -> Field[Named]:
    """The bytes row[key]."""
    column = Column(f"{key}_mib", title, "number", hidden)
    return Field(column, lambda row: in_mib(row[key], _why(reason, row)))


def percent(
    name: str, title: str, reason: Reason = NOT_RECORDED, *, of: str | None = None, hidden: bool = False
) -> Field[Named]:
    """The share row[of], or row[name], to one decimal."""
    column = Column(f"{name}_percent", title, "number", hidden)
    return Field(column, lambda row: scaled(row[of or name], PERCENT, _one_decimal, _why(reason, row)))


def _one_decimal(share: float) -> str:
    return f"{share / PERCENT:.1f}"


def _why(reason: Reason, row: Named) -> str:
    return reason if isinstance(reason, str) else reason(row)


CASE = tuple(text(column.key, column.title) for column in CASE_COLUMNS)
