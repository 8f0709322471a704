"""Opens a SQLite export to be read, and refuses one that is damaged or cut short; its rows as columns of numbers."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import struct
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import adbc_driver_manager
import adbc_driver_sqlite.dbapi
import numpy as np
import pyarrow as pa

from inferprof.errors import UserError, in_one_line

_HEADER: Final = struct.Struct(">16xH6xII60xI")
"""Of SQLite's file format: page size, change counter, size in pages, and the change for which that size holds."""
_LARGEST_PAGE: Final = 1 << 16
"""Written as 1."""
_BATCH: Final = 1 << 16
"""Rows that are read at a time."""
_LEAST: Final = 1 << 18
"""Rows that are worth a piece of their own."""
_MOST_THREADS: Final = 4
Columns = dict[str, np.ndarray]


@contextlib.contextmanager
def database_of(path: Path) -> Iterator[sqlite3.Connection]:
    """The export, to be read. Raises UserError, also for what is read in the block: the file is cut short, damaged,
    or lacks what every export has."""
    sure = _holds_its_pages(path)
    try:
        with contextlib.closing(sqlite3.connect(address(path), uri=True)) as database:
            # A cut name of a kernel may end in half a character.
            database.text_factory = lambda text: text.decode("utf-8", errors="replace")
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


def read(path: Path, query: str, rows: range, made_of: Callable[[pa.RecordBatch], Columns]) -> Columns:
    """What is made of each batch of what a query finds, which ends in the name of its number of rows; all of it, or
    nothing where it finds none. Several threads read pieces of the rows (ADBC lets others work meanwhile)."""
    threads = min(_MOST_THREADS, len(os.sched_getaffinity(0)))
    step = max(_LEAST, -(-len(rows) // (2 * threads)))

    def of_piece(first: int) -> list[Columns]:
        with adbc_driver_sqlite.dbapi.connect(address(path)) as database, database.cursor() as cursor:
            cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(_BATCH)})
            cursor.execute(f"{query} BETWEEN {first} AND {first + step - 1}")
            return [made_of(batch) for batch in cursor.fetch_record_batch()]

    with ThreadPoolExecutor(threads) as pool:
        return joined([batch for piece in pool.map(of_piece, rows[::step]) for batch in piece])


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
