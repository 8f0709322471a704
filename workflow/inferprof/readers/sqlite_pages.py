"""Columns of whole numbers of a SQLite table, straight from the pages of its file.

SQLite hands a row over value by value, which is most of what a large export takes to read; here the rows of hundreds
of pages are decoded at once. The format: https://www.sqlite.org/fileformat2.html, 1.6 (pages of a B-tree) and 2.1
(records). Whatever is no plain table of whole numbers raises Unusual: SQLite itself is to read it.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Places = np.ndarray[Any, np.dtype[np.int64]]
Eights = np.ndarray[Any, np.dtype[np.bytes_]]
"""The eight bytes from each byte on."""
_HEADER: Final = struct.Struct(">16xHxxB")
"""Page size, and how many bytes are not used at the end of each page."""
_LARGEST_PAGE: Final = 1 << 16
"""Written as 1."""
_PAGE: Final = struct.Struct(">BxxHxxxI")
"""Of an interior page: its kind, the number of its cells, and the child behind those that they name."""
_CHILD: Final = struct.Struct(">I")
_INTERIOR, _LEAF = 5, 13
_LEAF_HEADER: Final = 8
_COUNT: Final = 3
"""Where a page says how many cells it has."""
_MOST_LEVELS: Final = 20
_TOGETHER: Final = 1 << 20
"""Bytes of pages that are decoded together: few enough for the processor's cache."""
_EIGHT: Final = 8
_BYTES: Final = f"S{_EIGHT}"
"""Not a number, which NumPy takes from odd places in three times the time."""
_BEHIND: Final = _EIGHT
"""Bytes behind pages: each value is taken as eight bytes, also the last one of a page."""
_GOES_ON: Final = 128
"""A varint goes on behind a byte of so much or more; codes of types are below."""
_MOST_OUTSIDE: Final = 35
"""Of a page's usable bytes, which a record may not need; a longer one goes on in another page."""
_ZERO, _ONE, _NULL = 8, 9, 0
"""Types of values that take no bytes."""
_WIDTH: Final = np.array([0, 1, 2, 3, 4, 6, 8, 8, *[0] * 4, *((code - 12) // 2 for code in range(12, 256))])
"""Bytes of a value by its type."""
_NO_BYTES: Final = 63
_SHIFT: Final = np.array([_NO_BYTES, 56, 48, 40, 32, 16, 0, 0, *[_NO_BYTES] * 248])
"""Bits by which the eight bytes that begin with a value are longer than it; _NO_BYTES of what takes none."""
_WHOLE: Final = np.isin(np.arange(256), [_NULL, 1, 2, 3, 4, 5, 6, _ZERO, _ONE])
"""Whether a type is a whole number, or NULL."""


class Unusual(Exception):
    """SQLite is to read this table."""


@dataclass(frozen=True)
class Pages:
    """The pages of an open file: its descriptor, how long each is, and how much of that is used."""

    file: int
    size: int
    usable: int

    @classmethod
    def of(cls, file: int) -> Pages:
        """The pages of a SQLite file."""
        size, unused = _HEADER.unpack(os.pread(file, _HEADER.size, 0))
        size = _LARGEST_PAGE if size == 1 else size
        return cls(file, size, size - unused)

    def leaves(self, root: int) -> Places:
        """The pages that hold the rows of a table, in order; root: the page that its B-tree begins with."""
        level = np.array([root])
        for _ in range(_MOST_LEVELS):
            first = self._read(int(level[0]), 1)
            if first[0] == _LEAF:
                return level
            level = np.array([child for page in level.tolist() for child in self._children(page)])
            if level.min() < 1:
                raise Unusual
        raise Unusual

    def _children(self, number: int) -> Iterator[int]:
        page = self._read(number, 1)
        kind, cells, last = _PAGE.unpack_from(page)
        if kind != _INTERIOR:
            raise Unusual
        try:
            for (place,) in struct.iter_unpack(">H", page[_PAGE.size : _PAGE.size + 2 * cells]):
                yield _CHILD.unpack_from(page, place)[0]
        except struct.error:
            raise Unusual from None
        yield last

    def _read(self, number: int, count: int) -> bytes:
        content = os.pread(self.file, count * self.size, (number - 1) * self.size) if number > 1 else b""
        if len(content) < count * self.size:
            raise Unusual
        return content

    def counts(self, leaves: Places) -> list[int]:
        """How many rows each of these pages holds."""
        places = ((leaves - 1) * self.size + _COUNT).tolist()
        return [int.from_bytes(os.pread(self.file, 2, place), "big") for place in places]

    def columns(self, leaves: Places, count: int, wanted: Mapping[int, int]) -> Iterator[list[np.ndarray]]:
        """The wanted columns of the rows of these pages, some pages at a time. count: of all columns of the table;
        wanted: their numbers in order, and what stands for NULL. Raises Unusual."""
        together = max(1, _TOGETHER // self.size)
        room = memoryview(bytearray(min(together, leaves.size) * self.size + _BEHIND))
        for begin in range(0, leaves.size, together):
            some = leaves[begin : begin + together]
            place = 0
            for run in np.split(some, np.flatnonzero(np.diff(some) != 1) + 1):
                length = run.size * self.size
                if os.preadv(self.file, [room[place : place + length]], (int(run[0]) - 1) * self.size) < length:
                    raise Unusual
                place += length
            try:
                yield self._decoded(np.frombuffer(room[: place + _BEHIND], np.uint8), count, wanted)
            except IndexError:
                raise Unusual from None

    def _decoded(self, content: Bytes, count: int, wanted: Mapping[int, int]) -> list[np.ndarray]:
        eights = np.ndarray((content.size - _EIGHT + 1,), _BYTES, content, strides=(1,))
        cell = self._cells(content[:-_BEHIND])
        rowid = cell + 1
        size: Bytes | Places = content[cell]
        if (size >= _GOES_ON).any():
            size, rowid = self._long(content, cell)
        if size.max(initial=0) > self.usable - _MOST_OUTSIDE:
            raise Unusual
        header = _behind_varint(content, eights, rowid)
        if (content[header] != count + 1).any():
            raise Unusual
        return _values(content, eights, header + 1, count, wanted)

    def _long(self, content: Bytes, cell: Places) -> tuple[Places, Places]:
        """Sizes of records of which some are told in two bytes, and what is behind these."""
        size, second = content[cell].astype(np.int64), content[cell + 1]
        long = size >= _GOES_ON
        if (long & (second >= _GOES_ON)).any():
            raise Unusual
        return np.where(long, (size - _GOES_ON) << 7 | second, size), cell + 1 + long

    def _cells(self, content: Bytes) -> Places:
        """Where the rows of pages begin."""
        pages = content.reshape(-1, self.size)
        cells = pages[:, _COUNT].astype(np.int64) << 8 | pages[:, _COUNT + 1]
        if (pages[:, 0] != _LEAF).any() or (_LEAF_HEADER + 2 * cells > self.size).any():
            raise Unusual
        page = np.repeat(np.arange(len(pages)) * self.size, cells)
        number = np.arange(page.size) - np.repeat(np.cumsum(cells) - cells, cells)
        place: Places = page + content.view(">u2")[(page + _LEAF_HEADER) // 2 + number]
        return place


def _behind_varint(content: Bytes, eights: Eights, place: Places) -> Places:
    first = eights[place].view("<u8")
    of_all, of_any = int(np.bitwise_and.reduce(first)), int(np.bitwise_or.reduce(first))
    for byte in range(_EIGHT):
        going_on = 1 << 8 * byte + 7
        if not of_any & going_on:
            return place + (byte + 1)
        if not of_all & going_on:  # of some, as where numbers of rows become longer
            break
    goes_on = content[place] >= _GOES_ON
    place = place + 1
    while goes_on.any():
        place += goes_on
        goes_on &= content[place - 1] >= _GOES_ON
    return place


def _values(content: Bytes, eights: Eights, types: Places, count: int, wanted: Mapping[int, int]) -> list[np.ndarray]:
    """types: where those of each record begin, in front of its values."""
    place, skipped = types, count
    columns = []
    for first in range(0, max(wanted) + 1, _EIGHT):
        codes = eights[types + first].view("<u8")
        differs = np.bitwise_or.reduce(codes ^ codes[:1]).tobytes() if codes.size else bytes(_EIGHT)
        same = codes[:1].view(np.uint8)
        for column in range(first, min(first + _EIGHT, max(wanted) + 1)):
            # Most columns have values of one type; those that nobody wants are then skipped.
            code = content[types + column] if differs[column - first] else same[column - first : column - first + 1]
            if code.max(initial=0) >= _GOES_ON:
                raise Unusual
            index = code.astype(np.int64)
            width = _WIDTH.take(index)
            if column in wanted:
                if not _WHOLE.take(index).all():
                    raise Unusual
                columns.append(_stored(eights, place + skipped, index, wanted[column]))
            if differs[column - first]:
                place = place + width
            else:
                skipped += int(width.sum())
    return columns


def _stored(eights: Eights, place: Places, code: Places, null: int) -> Places:
    """The values at these places, of types that are one for each, or one for all."""
    shift = _SHIFT.take(code)
    bare = shift == _NO_BYTES
    if code.size < 2 and bare.any():
        return np.broadcast_to(np.where(code == _NULL, null, code == _ONE), place.shape)
    stored: Places = eights[place].view(np.int64).byteswap(inplace=True)
    stored >>= shift
    if bare.any():
        few = np.flatnonzero(bare)
        stored[few] = np.where(code[few] == _NULL, null, code[few] == _ONE)
    return stored
