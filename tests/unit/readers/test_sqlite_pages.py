"""Rows out of the pages of a SQLite file are those that SQLite gives; what is no plain table is left to SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from tests.unit.facts import naming

from inferprof.errors import UserError
from inferprof.readers.sqlite_file import Tables, database_of
from inferprof.readers.sqlite_pages import Pages, Unusual

NULL = -7
EDGES = [
    0,
    1,
    -1,
    *(sign * (1 << bits) + step for bits in (7, 15, 23, 31, 47, 62) for sign in (1, -1) for step in (-1, 0)),
]


def written(path: Path, rows: Sequence[tuple[object, ...]], columns: str, before: Sequence[str] = ()) -> Path:
    with closing(sqlite3.connect(path)) as database:
        for statement in (*before, f"CREATE TABLE events ({columns})"):
            database.execute(statement)
        database.executemany(f"INSERT INTO events VALUES ({', '.join('?' * len(columns.split(',')))})", rows)
        database.commit()
    return path


def of_pages(path: Path, count: int, wanted: Sequence[int]) -> list[list[int]]:
    with closing(sqlite3.connect(path)) as database:
        (root,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'events'").fetchone()
    with path.open("rb") as file:
        pages = Pages.of(file.fileno())
        blocks = list(pages.columns(pages.leaves(root), count, dict.fromkeys(wanted, NULL)))
    return [np.concatenate(column).tolist() for column in zip(*blocks, strict=True)]


def made_up(count: int) -> Iterator[tuple[object, ...]]:
    random = np.random.default_rng(3)
    for number in range(count):
        edge = EDGES[number % len(EDGES)]
        wide = int(random.integers(-(2**63), 2**63 - 1)) >> int(random.integers(0, 63))
        yield edge, None if number % 5 == 0 else wide, "text" * (number % 9), number


@pytest.mark.parametrize("page", [512, 4096, 65536])
def test_whole_numbers_of_every_width_and_null_are_those_of_sqlite(tmp_path: Path, page: int) -> None:
    rows = list(made_up(20_000))
    path = written(tmp_path / "a", rows, "a INTEGER, b INTEGER, c TEXT, d INTEGER", [f"PRAGMA page_size = {page}"])
    expected = [
        [row[0] for row in rows],
        [NULL if row[1] is None else row[1] for row in rows],
        [row[3] for row in rows],
    ]
    assert of_pages(path, 4, [0, 1, 3]) == expected


def test_deleted_rows_and_rows_out_of_order_are_as_sqlite_has_them(tmp_path: Path) -> None:
    path = written(tmp_path / "a", [], "a INTEGER, b INTEGER")
    with closing(sqlite3.connect(path)) as database:
        places = np.random.default_rng(1).permutation(30_000).tolist()
        database.executemany("INSERT INTO events (rowid, a, b) VALUES (?, ?, ?)", [(p << 20, p, -p) for p in places])
        database.execute("DELETE FROM events WHERE a % 3 = 0")
        database.commit()
        rows = database.execute("SELECT a, b FROM events ORDER BY rowid").fetchall()
    assert of_pages(path, 2, [0, 1]) == [list(column) for column in zip(*rows, strict=True)]


def test_an_empty_table_has_no_rows(tmp_path: Path) -> None:
    assert of_pages(written(tmp_path / "a", [], "a INTEGER, b INTEGER"), 2, [0, 1]) == [[], []]


@pytest.mark.parametrize(
    ("rows", "columns", "count", "kind"),
    [
        ([(1, 2.5)], "a INTEGER, b INTEGER", 2, ""),
        ([(1, "x")], "a INTEGER, b INTEGER", 2, ""),
        ([("long" * 5000, 1)], "a TEXT, b INTEGER", 2, ""),
        ([(1, 2)], "a INTEGER, b INTEGER", 3, ""),
        ([(1, 2)], "a INTEGER PRIMARY KEY, b INTEGER", 2, "WITHOUT ROWID"),
    ],
    ids=["a fraction", "text", "a row longer than a page", "a row before a column was added", "no row numbers"],
)
def test_what_is_no_plain_table_of_whole_numbers_is_left_to_sqlite(
    tmp_path: Path, rows: list[tuple[object, ...]], columns: str, count: int, kind: str
) -> None:
    path = tmp_path / "a"
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"CREATE TABLE events ({columns}) {kind}")
        database.executemany("INSERT INTO events VALUES (?, ?)", rows)
        database.commit()
    with pytest.raises(Unusual):
        of_pages(path, count, [0, 1])


def test_pages_that_are_overwritten_are_left_to_sqlite(tmp_path: Path) -> None:
    path = written(tmp_path / "a", list(made_up(20_000)), "a INTEGER, b INTEGER, c TEXT, d INTEGER")
    whole = path.read_bytes()
    random = np.random.default_rng(0)
    for first in range(2 * 4096, len(whole) - 4096, 7 * 4096):
        path.write_bytes(whole[:first] + random.bytes(4096) + whole[first + 4096 :])
        with pytest.raises(Unusual):
            of_pages(path, 4, [0, 1, 3])


def test_a_column_added_later_and_a_key_are_read_all_the_same(tmp_path: Path) -> None:
    path = written(tmp_path / "a", [(5, 2), (9, None)], "a INTEGER PRIMARY KEY, b INTEGER")
    with closing(sqlite3.connect(path)) as database:
        database.execute("ALTER TABLE events ADD COLUMN c INTEGER DEFAULT 4")
        database.commit()
    with database_of(path) as database:
        read = Tables(path, database).integers(
            "events", {name: (name, NULL) for name in "abc"} | {"d": (None, 1)}, dict
        )
    assert {name: values.tolist() for name, values in read.items()} == {
        "a": [5, 9],
        "b": [2, NULL],
        "c": [4, 4],
        "d": [1, 1],
    }


def test_a_column_that_lacks_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "a", [(5, 2)], "a INTEGER, b INTEGER")
    with pytest.raises(UserError, match=naming("events", "streamId")), database_of(path) as database:
        Tables(path, database).integers("events", {"a": ("a", 0), "stream": ("streamId", 0)}, dict)
