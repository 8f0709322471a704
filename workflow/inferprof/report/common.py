"""What the sections share: the columns of a case, cells of optional numbers, and words for a case."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from inferprof import stats
from inferprof.report.evidence import Evidence
from inferprof.report.model import NOT_MEASURED, Cell, Column, Mark, Table, missing, number, words
from inferprof.report.numbers import half_width, mebibytes, microseconds, milliseconds, ratio
from inferprof.tables.records import CASE_KEY, key_of, rows_of
from inferprof.units import MIB, NS_PER_MS, NS_PER_US

CASE_COLUMNS = (
    Column("model", "model"),
    Column("shape", "shape"),
    Column("precision", "precision"),
    Column("backend", "backend"),
    Column("variant", "variant"),
)
EXAMPLES = 4
"""Up to how many names of a list are given."""
NARROW = 24
"""Characters of a narrow column."""
NOT_RECORDED = "not in the record"
KERNEL_NAME_LENGTH = 32
"""Kernel names are cut to this on the page; the CSV has them in full."""
NODE_NAME_LENGTH = 36
NO_FILE = "the ONNX file is not here"
FEW = "too few independent samples for an interval"
ABOUT_ITSELF = "the interval of the ratio is wider than itself"
ONE_ROUND = (
    "One round only (R = 1): each case ran in a single process, so the spread between processes is unknown and only "
    "differences of 5 % or more are called. More are `rounds:` under `protocol:`, on a CPU `cpu_rounds:`."
)
FIRST_ROUND = (
    "Of the first round alone: the spread between processes is not known yet. Only differences of 5 % or more are "
    "called."
)


def of_rounds(evidence: Evidence) -> str:
    """What a single round says of its numbers; empty of several."""
    if evidence.rounds != 1:
        return ""
    return ONE_ROUND if evidence.waiting is None else FIRST_ROUND


def case_cells(row: Mapping[str, Any]) -> list[Cell]:
    """The cells of CASE_COLUMNS."""
    return [words(row[column.key]) for column in CASE_COLUMNS]


def name_of(row: Mapping[str, Any]) -> str:
    """`fp16/ort_cuda/graph`, as `baseline:` of the config writes it."""
    return "/".join(str(row[key]) for key in ("precision", "backend", "variant"))


def sources_of(evidence: Evidence) -> dict[tuple[str, ...], str]:
    """(machine, case) → its records, relative to the results folder."""
    return {key_of(row): braced(row["files"]) for row in rows_of(evidence.outcomes) if row["files"]}


def onnx_bytes(evidence: Evidence, model: str, precision: str) -> int | None:
    """The size of a graph: of the file where it is here, else as it was recorded."""
    document = evidence.documents[model, precision, "convert"]
    file = evidence.results / document.file.replace(".convert.json", ".onnx")
    if file.exists():
        return file.stat().st_size
    return document.content.bytes if document.content else None


def path_of(row: Mapping[str, Any]) -> str:
    """The case as the middle of a path."""
    return "/".join(str(row[key]) for key in CASE_KEY)


def both_ends(name: str) -> Cell:
    """As much of a name as a narrow column has room for; all of it in the CSV."""
    half = NARROW // 2
    return Cell(name if len(name) <= NARROW else f"{name[:half]}…{name[1 - half :]}", name)


def short_kernel(name: str) -> str:
    """A kernel's name as the page has it."""
    brief = name.removeprefix("void ")
    return brief if len(brief) <= KERNEL_NAME_LENGTH else f"{brief[: KERNEL_NAME_LENGTH - 1]}…"


def few(names: Iterable[str]) -> str:
    """`a, b, c`; of more than EXAMPLES `a, b, c, d and 33 more`: a list must not grow with the study."""
    every = list(dict.fromkeys(names))
    rest = f" and {len(every) - EXAMPLES:,} more" if len(every) > EXAMPLES else ""
    return f"{', '.join(every[:EXAMPLES])}{rest}"


def enumerated(cases: Iterable[str], total: int, where: str) -> str:
    """How many of all, a few by name, and `where` the rest is: `37 of 40 (a, b, c, d and 33 more; csv/x.csv)`."""
    names = list(dict.fromkeys(cases))
    if len(names) == total > 1:
        return f"all {total}"
    rest = f"; {where}" if len(names) > EXAMPLES else ""
    return f"{len(names)} of {total} ({few(names)}{rest})"


def braced(files: list[str]) -> str:
    """`a/r0.json`, `a/r1.json` → `a/r{0,1}.json`, which a shell expands."""
    if len(files) == 1:
        return files[0]
    folder = PurePosixPath(files[0]).parent
    return f"{folder}/r{{{','.join(PurePosixPath(file).stem[1:] for file in files)}}}.json"


def factor(value: float, low: float | None, high: float | None) -> tuple[Cell, Cell]:
    """A ratio of two times, and ± how much; neither where it is not told, but in the CSV."""
    if low is None or high is None:
        return number(value, ratio(value)), missing(FEW)
    spread = half_width(value, low, high)
    if not stats.is_told(value, low, high):
        return Cell(NOT_MEASURED, value, missing=f"not told: {ABOUT_ITSELF}"), Cell("", spread)
    return number(value, ratio(value)), words(spread)


def optional(value: Any, write: Callable[[float], str], reason: str = NOT_RECORDED) -> Cell:
    """A number, or why there is none. NaN is how a frame says "missing"."""
    return missing(reason) if value is None or math.isnan(value) else number(value, write(value))


def scaled(value: Any, unit: float, write: Callable[[float], str], reason: str = NOT_RECORDED) -> Cell:
    """A number in another unit than it was recorded in; `write` takes the recorded one."""
    return missing(reason) if value is None or math.isnan(value) else number(value / unit, write(value))


def in_ms(ns: Any, reason: str = NOT_RECORDED) -> Cell:
    """A time in ms."""
    return scaled(ns, NS_PER_MS, milliseconds, reason)


def in_us(ns: Any, reason: str = NOT_RECORDED) -> Cell:
    """A time in µs."""
    return scaled(ns, NS_PER_US, microseconds, reason)


def in_mib(size: Any, reason: str = NOT_RECORDED) -> Cell:
    """Bytes in MiB."""
    return scaled(size, MIB, mebibytes, reason)


def in_percent(share: float, mark: Mark | None = None) -> Cell:
    """A share as percent, to one decimal."""
    return number(100 * share, f"{100 * share:.1f}", mark)


def by_case(
    rows: list[dict[str, Any]],
    order: Mapping[tuple[str, str], int],
    rank: Callable[[dict[str, Any]], Any] = lambda row: 0,
) -> list[dict[str, Any]]:
    """Rows in the order of model and shape, within them by `rank`, else as they come."""
    return sorted(rows, key=lambda row: (order[row["model"], row["shape"]], rank(row)))


def told(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> tuple[Column, ...]:
    """The columns, those of them hidden that are told of no row."""
    return tuple(
        replace(column, hidden=column.hidden or all(row[place].value is None for row in rows))
        for place, column in enumerate(columns)
    )


def table(name: str, title: str, columns: list[Column], rows: list[list[Cell]], note: str = "") -> Table:
    """A table whose rows are grouped by model and shape."""
    return Table(name, title, tuple(columns), tuple(tuple(row) for row in rows), note, groups=2)
