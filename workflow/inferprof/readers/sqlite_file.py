"""Opens a SQLite export to be read, and refuses one that is damaged or cut short; its rows as columns of numbers.

Whole numbers come from the pages of the file; text and unusual tables from ADBC, in half the time of Python's
sqlite3.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

import adbc_driver_manager
import adbc_driver_sqlite.dbapi
import numpy as np
import pyarrow as pa

from inferprof.errors import UserError, in_one_line
from inferprof.readers.sqlite_pages import Pages, Unusual

_HEADER: Final = struct.Struct(">16xH6xII60xI")
"""Of SQLite's file format: page size, change counter, size in pages, and the change for which that size holds."""
_LARGEST_PAGE: Final = 1 << 16
"""Written as 1."""
_BATCH: Final = 1 << 16
"""Rows that are read at a time."""
_LEAST_ROWS: Final = 1 << 18
"""Rows that are worth a piece of their own."""
_LEAST_PAGES: Final = 1 << 11
"""Pages that are."""
_MOST_THREADS: Final = 4
T = TypeVar("T")
Columns = dict[str, np.ndarray]
Wanted = Mapping[str, tuple[str | None, int]]
"""Name → the column of the table, if there is one, and what stands for what it does not tell."""


@contextlib.contextmanager
def database_of(path: Path) -> Iterator[sqlite3.Connection]:
    """The export, to be read. Raises UserError, also for what is read in the block: the file is cut short, damaged,
    or lacks what every export has."""
    sure = _holds_its_pages(path)
    try:
        with contextlib.closing(sqlite3.connect(address(path), uri=True)) as database:
            database.text_factory = text_of
            if not sure:
                _require_sound(database)
            yield database
    except (sqlite3.Error, adbc_driver_manager.Error, ValueError, OverflowError) as error:
        raise UserError(
            f"{path} is damaged, or no export as nsys writes it ({in_one_line(error)}): "
            "export it again with `nsys export --type sqlite`"
        ) from None


def address(path: Path) -> str:
    """The URI of an export that nobody writes to."""
    return f"{path.absolute().as_uri()}?mode=ro&immutable=1"


def text_of(value: object) -> str:
    """A text, also one that was stored as bytes; a cut one may end in half a character."""
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else str(value)


class Tables:
    """The tables of an export, and their rows as columns. Several threads read pieces of the rows (ADBC and NumPy let
    others work meanwhile)."""

    def __init__(self, path: Path, database: sqlite3.Connection) -> None:
        self._path = path
        self._database = database
        self._types: dict[str, dict[str, str]] = {}
        columns = database.execute(
            "SELECT tables.name, columns.name, IIF(columns.pk, '', columns.type) "
            "FROM sqlite_master AS tables, pragma_table_info(tables.name) AS columns ORDER BY columns.cid"
        )
        for table, column, kind in columns:
            self._types.setdefault(table, {})[column] = kind

    def columns(self, table: str) -> set[str]:
        """Those of a table; none where it does not exist."""
        return set(self._types.get(table, ()))

    def integers(self, table: str, wanted: Wanted, made_of: Callable[[Columns], Columns]) -> Columns:
        """What is made of some rows at a time, a row of each. Raises ValueError for a value that is no integer and
        for a column that is not there."""
        named = (column for column, _ in wanted.values() if column is not None)
        if lacking := [column for column in named if column not in self._types[table]]:
            raise ValueError(f"{table} has no column {', '.join(lacking)}")
        (root,) = self._database.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        if not root:
            raise ValueError(f"{table} is a view, which has no rows of its own")
        try:
            return self._of_pages(table, root, wanted, made_of)
        except Unusual:
            selection = (f'{_told(*column)} AS "{name}"' for name, column in wanted.items())
            query = f"SELECT {', '.join(selection)} FROM {table} WHERE TRUE"
            return self.selected(table, query, lambda batch: made_of(numbers(table, batch)))

    def _of_pages(self, table: str, root: int, wanted: Wanted, made_of: Callable[[Columns], Columns]) -> Columns:
        """The same out of the pages of the file. Raises Unusual."""
        kinds = self._types[table]
        stored = {name: (column, null) for name, (column, null) in wanted.items() if column is not None}
        if not all("INT" in kinds[column].upper() for column, _ in stored.values()):
            raise Unusual
        places = {name: list(kinds).index(column) for name, (column, _) in stored.items()}
        nulls = {places[name]: null for name, (_, null) in stored.items()}

        def made(values: Sequence[np.ndarray]) -> Columns:
            by_place = dict(zip(sorted(nulls), values, strict=True))
            return made_of({
                name: by_place[places[name]] if name in places else np.full(values[0].size, null)
                for name, (_, null) in wanted.items()
            })  # fmt: skip

        with self._path.open("rb") as file:
            pages = Pages.of(file.fileno())
            leaves = pages.leaves(root)
            end = np.cumsum(pages.counts(leaves))
            # One array from the beginning: many small ones would leave holes in memory.
            whole = {
                name: np.empty(end[-1], values.dtype)
                for name, values in made([np.empty(0, np.int64)] * len(nulls)).items()
            }

            def of_piece(piece: slice) -> None:
                begin = int(end[piece.start - 1]) if piece.start else 0
                for values in pages.columns(leaves[piece], len(kinds), nulls):
                    for name, column in made(values).items():
                        whole[name][begin : begin + column.size] = column
                    begin += values[0].size

            for _ in _in_pieces(range(leaves.size), _LEAST_PAGES, of_piece):
                pass
        return whole

    def selected(self, table: str, query: str, made_of: Callable[[pa.RecordBatch], Columns]) -> Columns:
        """What is made of each batch of what a query finds, which ends in a condition; all of it, or nothing where it
        finds none."""
        # One by one SQLite knows them without reading all rows.
        least, most = (f"(SELECT {which}(rowid) FROM {table})" for which in ("MIN", "MAX"))
        first, last = self._database.execute(f"SELECT {least}, {most}").fetchone()

        def of_piece(piece: slice) -> list[Columns]:
            with adbc_driver_sqlite.dbapi.connect(address(self._path)) as database, database.cursor() as cursor:
                cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(_BATCH)})
                cursor.execute(f"{query} AND {table}.rowid BETWEEN {piece.start} AND {piece.stop - 1}")
                return [made_of(batch) for batch in cursor.fetch_record_batch()]

        rows = range(0) if first is None else range(first, last + 1)
        return joined([part for piece in _in_pieces(rows, _LEAST_ROWS, of_piece) for part in piece])


def _told(column: str | None, null: int) -> str:
    return str(null) if column is None else f"COALESCE({column}, {null})"


def _in_pieces(every: range, least: int, of_piece: Callable[[slice], T]) -> Iterator[T]:
    """What is made of pieces of a range, which several threads take turns in."""
    threads = min(_MOST_THREADS, len(os.sched_getaffinity(0)))
    step = max(least, -(-len(every) // (2 * threads)))
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(lambda first: of_piece(slice(first, min(first + step, every.stop))), every[::step])


def numbers(table: str, batch: pa.RecordBatch) -> Columns:
    """The columns of a batch, 0 where nothing is told. Raises ValueError for what is no integer."""
    if types := {str(column.type) for column in batch.columns} - {"int64"}:
        raise ValueError(f"{table} holds values of type {', '.join(sorted(types))} where integers belong")
    return {name: batch.column(name).fill_null(0).to_numpy() for name in batch.schema.names}


def joined(parts: Sequence[Columns]) -> Columns:
    """The parts behind each other. They are emptied one column at a time, so that memory holds but this one twice."""
    return {name: np.concatenate([part.pop(name) for part in parts]) for name in list(parts[0] if parts else ())}


def _holds_its_pages(path: Path) -> bool:
    """Whether the file is as large as its header says; False where that says nothing. Raises UserError where it is
    cut short."""
    with path.open("rb") as file:
        header = file.read(_HEADER.size)
    size = path.stat().st_size
    if len(header) == _HEADER.size:
        page, changes, pages, of_change = _HEADER.unpack(header)
        page = _LARGEST_PAGE if page == 1 else page
        if size % max(page, 1) == 0 and (changes != of_change or size >= page * pages):
            return bool(changes == of_change)  # a writer older than SQLite 3.7 leaves the number of pages as it was
    raise UserError(f"{path} is cut short: it holds {size:,} bytes of a larger SQLite file; copy it again")


def _require_sound(database: sqlite3.Connection) -> None:
    """Read every page. Raises ValueError where one is missing."""
    (said,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if said != "ok":
        raise ValueError(said)
