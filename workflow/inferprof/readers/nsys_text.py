"""The tables that `nsys stats` and `nsys profile --stats` print on a terminal, of 2020 to 2026 and of any locale.

Columns are told by the line of dashes, since names hold blanks. Which sign parts decimals is a vote of the whole
file: percentages have one decimal, and whole numbers have none. Names that nsys cut off with … are kept apart.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pandas as pd

from inferprof.errors import UserError
from inferprof.files import text_of
from inferprof.readers.nsys_csv import Table, name_and_unit

WANTED: Final = re.compile(
    r"\b(?:gpukernsum|cuda_gpu_kern(?:_gb)?_sum|cudaapisum|cuda_api_sum|gpumem(?:time|size)sum|"
    r"cuda_gpu_mem_(?:time|size)_sum|nvtx(?:pp)?sum|nvtx_(?:pushpop_|startend_)?sum)\b|"
    r"CUDA (?:Kernel|API|Memory Operation) Statistics|NVTX.*Statistics"
)
"""How the reports that are read are called in the lines above their tables."""
_TITLE: Final = re.compile(r"\*\* .*:\s*$|Statistics.*:\s*$|\breports/\w+\.py\b|'\w+' stats report")
_DASHES: Final = re.compile(r"\s*-{3,}(?: +-{3,})+\s*$")
_TEXTS: Final = ("Name", "Operation", "Range", "Style", "GridXYZ", "BlockXYZ", "Domain")
_CUT: Final = "…"
_GROUPED: Final = re.compile(r"\d{1,3}(?:([.,])\d{3})+")
_BLANKS: Final = re.compile("[\\s'\u2019]")


def tables(path: Path) -> list[Table]:
    """All tables of reports that are read. Raises UserError where there is none, or a report is there twice."""
    lines = text_of(path).splitlines()
    drawn = [_drawn(lines, number) for number, line in enumerate(lines) if number and _DASHES.match(line)]
    wanted = [(title, columns, rows) for title, columns, rows in drawn if title is None or WANTED.search(title)]
    wanted = [(title, columns, rows) for title, columns, rows in wanted if rows]
    if not wanted:
        raise UserError(
            f"{path} holds no table of kernels, calls, copies or ranges: print them with `nsys stats`, or read the "
            ".sqlite export, which holds more"
        )
    kinds = Counter(tuple(columns) for _, columns, _ in wanted)
    if max(kinds.values()) > 1:
        raise UserError(f"{path} holds one report several times, of several profiles: give each in a file of its own")
    comma = _decimal_comma(wanted)
    return [_table(columns, rows, comma=comma) for _, columns, rows in wanted]


def _drawn(lines: Sequence[str], dashes: int) -> tuple[str | None, list[str], list[list[str]]]:
    """What stands above a table, its headings, and its cells."""
    spans = [match.span() for match in re.finditer("-+", lines[dashes])]
    columns = re.split(r"\s{2,}", lines[dashes - 1].strip())
    if "Time(%)" in columns:  # of 2020, which writes the unit above the table, and knows no other
        columns = [f"{column} (ns)" if column == "Total Time" else column for column in columns]
    above = (line for line in reversed(lines[max(0, dashes - 8) : dashes - 1]) if line.strip())
    title = next((line for line in above if _TITLE.search(line)), None)
    if len(columns) != len(spans):
        return title, columns, []
    ends = [end for _, end in spans[:-1]]
    rows = []
    for line in lines[dashes + 1 :]:
        cells = [line[begin:end].strip() for begin, end in zip([0, *ends], [*ends, None], strict=True)]
        between = re.split(r"\s{2,}", line.strip())
        moved = any("  " in cell for cell in cells[:-1])  # where blanks that part thousands take more bytes than one
        cells = between if moved and len(between) == len(columns) else cells
        if not cells[0] or not cells[0][0].isdigit():
            break
        rows.append(cells)
    return title, columns, rows


def _decimal_comma(drawn: Sequence[tuple[str | None, list[str], list[list[str]]]]) -> bool:
    """Whether a comma parts the decimals of this file's numbers."""
    votes: Counter[str] = Counter()
    for _, columns, rows in drawn:
        for number, column in enumerate(columns):
            name, unit = name_and_unit(column)
            for row in rows:
                votes += Counter(_votes(name, unit, _BLANKS.sub("", row[number])))
    return votes[","] > votes["."]


def _votes(name: str, unit: str, cell: str) -> Iterator[str]:
    """The decimal signs that a cell speaks for."""
    if unit == "%" and (match := re.fullmatch(r"\d+([.,])\d+", cell)):
        yield match[1]
    whole = name in ("Total Time", "Min", "Max", "Instances", "Num Calls", "Count") and unit in ("ns", "")
    if whole and (match := _GROUPED.fullmatch(cell)):
        yield "," if match[1] == "." else "."
    if {",", "."} <= set(cell) and (match := re.fullmatch(r"\d{1,3}(?:[.,]\d{3})*([.,])\d+", cell)):
        yield match[1]


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, comma: bool) -> Table:
    units = dict(map(name_and_unit, columns))
    plain = [
        [cell if name in _TEXTS else _plain(cell, comma=comma) for name, cell in zip(units, row, strict=True)]
        for row in rows
    ]
    cells = pd.DataFrame(plain, columns=list(units), dtype=object)
    if "Name" in cells:
        cells["Name"] = _kept_apart(cells["Name"].tolist())
    return Table(cells, units, excerpt=True)


def _plain(cell: str, *, comma: bool) -> str:
    """A number without groups of thousands, with a point."""
    cell = _BLANKS.sub("", cell)
    return cell.replace(".", "").replace(",", ".") if comma else cell.replace(",", "")


def _kept_apart(names: Sequence[str]) -> list[str]:
    """Names that were cut off alike with a number behind: they may be of different kernels."""
    seen: Counter[str] = Counter()
    apart = []
    for name in names:
        seen[name] += 1
        apart.append(f"{name} ({seen[name]})" if name.endswith(_CUT) and seen[name] > 1 else name)
    return apart
