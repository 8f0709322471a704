"""Tables declared once: each column together with the cell that a row has in it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar

from inferprof.report.common import (
    CASE_COLUMNS,
    NOT_RECORDED,
    in_mib,
    in_ms,
    in_percent,
    in_us,
    optional,
    scaled,
    short_kernel,
)
from inferprof.report.model import Cell, Column, Table, missing, words
from inferprof.report.numbers import three_digits

Row = TypeVar("Row", contravariant=True)
Named = Mapping[str, Any]
"""A row by the names of a frame's columns."""


@dataclass(frozen=True)
class Field(Generic[Row]):
    """A column, and the cell that a row has in it."""

    column: Column
    cell: Callable[[Row], Cell]


Fields = tuple[Field[Named], ...]
Reason = str | Callable[[Named], str]
"""Why there is no number, of every row or of one."""


class Unit(NamedTuple):
    """What a number is divided by, and how the quotient is written."""

    size: float
    write: Callable[[float], str] = three_digits


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


def hidden(fields: Fields, which: Callable[[Column], bool] = lambda column: True) -> Fields:
    """The fields with these columns, and no others, in the CSV only."""
    return tuple(replace(field, column=replace(field.column, hidden=which(field.column))) for field in fields)


def text(
    key: str, title: str | None = None, reason: str = "", *, of: str | None = None, hidden: bool = False
) -> Field[Named]:
    """The words of row[of], or row[key]; with a reason, why there are none where that is empty."""

    def cell(row: Named) -> Cell:
        said = row[of or key]
        return missing(reason) if reason and not said else words(said)

    return Field(Column(key, key if title is None else title, hidden=hidden), cell)


def kernel(of: str, reason: str = "") -> Field[Named]:
    """The name row[of] of a kernel, cut to its column; all of it in the CSV."""
    return Field(
        Column("kernel", "kernel"),
        lambda row: missing(reason) if reason and not row[of] else Cell(short_kernel(row[of]), row[of]),
    )


def plain(
    key: str,
    title: str | None = None,
    write: Callable[[Any], str] = str,
    reason: Reason = NOT_RECORDED,
    *,
    of: str | None = None,
    hidden: bool = False,
) -> Field[Named]:
    """The number row[of], or row[key], in the unit that it is in."""
    column = Column(key, key if title is None else title, "number", hidden)
    return Field(column, lambda row: optional(row[of or key], write, _why(reason, row)))


def in_unit(
    key: str, title: str, unit: Unit, of: str, reason: Reason = NOT_RECORDED, *, hidden: bool = False
) -> Field[Named]:
    """The number row[of] in another unit."""

    def cell(row: Named) -> Cell:
        return scaled(row[of], unit.size, lambda value: unit.write(value / unit.size), _why(reason, row))

    return Field(Column(key, title, "number", hidden), cell)


def ms(
    name: str, title: str, reason: Reason = NOT_RECORDED, *, of: str | None = None, hidden: bool = False
) -> Field[Named]:
    """The time row[of], or row[`name`_ns], in ms."""
    column = Column(f"{name}_ms", title, "number", hidden)
    return Field(column, lambda row: in_ms(row[of or f"{name}_ns"], _why(reason, row)))


def us(
    name: str, title: str, reason: Reason = NOT_RECORDED, *, of: str | None = None, hidden: bool = False
) -> Field[Named]:
    """The time row[of], or row[`name`_ns], in µs."""
    column = Column(f"{name}_us" if name else "us", title, "number", hidden)
    return Field(column, lambda row: in_us(row[of or f"{name}_ns"], _why(reason, row)))


def mib(key: str, title: str, reason: Reason = NOT_RECORDED, *, hidden: bool = False) -> Field[Named]:
    """The bytes row[key] in MiB."""
    column = Column(f"{key}_mib", title, "number", hidden)
    return Field(column, lambda row: in_mib(row[key], _why(reason, row)))


def percent(
    name: str, title: str, reason: Reason = NOT_RECORDED, *, of: str | None = None, hidden: bool = False
) -> Field[Named]:
    """The share row[of], or row[name], to one decimal."""
    column = Column(f"{name}_percent", title, "number", hidden)

    def cell(row: Named) -> Cell:
        share = row[of or name]
        return missing(_why(reason, row)) if share is None or math.isnan(share) else in_percent(share)

    return Field(column, cell)


def _why(reason: Reason, row: Named) -> str:
    return reason if isinstance(reason, str) else reason(row)


CASE = tuple(text(column.key, column.title) for column in CASE_COLUMNS)
