"""Reads the tables that `key_averages().table()` of torch's profilers prints, of torch 1.1 to 2.9: operators, calls
and kernels in rows, as text or as a table of Markdown.

A row of the GPU has no time of the CPU. Ranges of the user are such rows, too, and hold kernels that have rows of
their own: they are left out, as long as the shares of the others add up to more than all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from inferprof.readers.nsys_csv import TIMES

HEADINGS: Final = re.compile(r"^[\s|]*Name\s*(?:\|| {2,})\s*Self CPU", re.MULTILINE)
_RULER: Final = re.compile(r"[\s|:-]*-{2,}[\s|:-]*$")
_TOTAL: Final = re.compile(r"^(?:Self )?(?P<device>\w+) time total: (?P<time>\S+)\s*$")
_TIME: Final = re.compile(r"-?(?P<number>[\d.]+)(?P<unit>ns|us|ms|s)$")
_CUT: Final = "..."
TELLS: Final = 0.05
"""Percent: a smaller share with two decimals tells what it is of to no better than 10 %."""
WHOLE: Final = 100.5
"""Percent: shares of kernels with two decimals add up to no more."""


@dataclass(frozen=True)
class TorchRow:
    """An operator, a call or a kernel: times without those of what it calls, ns; `gpu_all_ns` with them."""

    name: str
    calls: int
    cpu_ns: float
    cpu_all_ns: float
    gpu_ns: float | None
    gpu_all_ns: float
    cpu_percent: float
    gpu_percent: float

    @property
    def on_gpu(self) -> bool:
        """Whether it is an operation of the GPU itself."""
        return bool(self.gpu_ns) and not self.cpu_all_ns


@dataclass(frozen=True)
class TorchTable:
    """The rows of a table, and what its percentages are of, ns, by the lines below it or by the largest of them."""

    rows: Sequence[TorchRow]
    cpu_ns: float
    gpu_ns: float

    @property
    def has_gpu(self) -> bool:
        """Whether it has times of a GPU without those of called operators."""
        return any(row.gpu_ns is not None for row in self.rows)

    def kernels(self) -> list[TorchRow]:
        """The operations of the GPU, without ranges that hold others."""
        from inferprof.tables.trace.kernel_class import classify

        rows = [row for row in self.rows if row.on_gpu]
        of_cpu = {row.name for row in self.rows if not row.on_gpu}
        rows = [row for row in rows if row.name not in of_cpu and not row.name.startswith(("ProfilerStep", "## "))]
        held = sorted(rows, key=lambda row: (classify(row.name).kernel_class == "other", row.gpu_percent))
        while held and sum(row.gpu_percent for row in held) > WHOLE:
            held.pop()
        return [row for row in rows if row in held]


def tables(text: str) -> list[TorchTable]:
    """The tables of a text, in order. Raises ValueError for a cell that is no time."""
    lines = text.splitlines()
    heads = [number for number, line in enumerate(lines) if HEADINGS.match(line)]
    return [_table(lines[begin:end]) for begin, end in zip(heads, [*heads[1:], len(lines)], strict=True)]


def _table(lines: Sequence[str]) -> TorchTable:
    columns = _cells(lines[0])
    rows = list(_rows(columns, lines[1:]))
    totals = {match["device"]: _ns(match["time"]) for line in lines if (match := _TOTAL.match(line.strip()))}
    cpu = totals.pop("CPU", 0.0) or _whole([(row.cpu_ns, row.cpu_percent) for row in rows])
    gpu = next(iter(totals.values()), 0.0) or _whole([(row.gpu_ns or 0.0, row.gpu_percent) for row in rows])
    return TorchTable(rows, cpu, gpu)


def _whole(shares: Sequence[tuple[float, float]]) -> float:
    """What shares are of, by the largest of them; their sum where none is large enough to tell."""
    ns, percent = max(shares, key=lambda own: own[1], default=(0.0, 0.0))
    return 100 * ns / percent if percent >= TELLS else sum(ns for ns, _ in shares)


def _cells(line: str) -> list[str]:
    line = line.strip()
    return [cell.strip() for cell in line.strip("|").split("|")] if "|" in line else re.split(r"\s{2,}", line)


def _rows(columns: Sequence[str], lines: Sequence[str]) -> Iterator[TorchRow]:
    """The rows up to the ruler below them; texts behind the numbers, as of shapes, are not needed."""
    seen: dict[str, int] = {}
    rulers = 0
    for line in lines:
        if _RULER.match(line):
            rulers += 1
            if rulers > 1:
                return
            continue
        cells = dict(zip(columns, _cells(line), strict=False))
        calls = cells.get("# of Calls") or cells.get("Number of Calls") or ""
        if not calls.isdecimal():
            continue  # a further line of a place in the source, or what somebody printed
        name = cells["Name"]
        seen[name] = seen.get(name, 0) + 1
        if name.endswith(_CUT) and seen[name] > 1:  # may be of another kernel
            name = f"{name} ({seen[name]})"
        yield _row(name, int(calls), cells)


def _row(name: str, calls: int, cells: Mapping[str, str]) -> TorchRow:
    def named(*endings: str) -> str | None:
        return next((cells[column] for column in cells for end in endings if re.fullmatch(end, column)), None)

    own_gpu = named(r"Self (?!CPU)\w+")
    return TorchRow(
        name,
        calls,
        _ns(named(r"Self CPU(?: total)?") or "0us"),
        _ns(named("CPU total") or "0us"),
        None if own_gpu is None else _ns(own_gpu),
        _ns(named(r"(?!CPU|Self)\w+ total") or "0us"),
        _percent(named(r"Self CPU(?: total)? %")),
        _percent(named(r"Self (?!CPU)\w+ %")),
    )


def _percent(text: str | None) -> float:
    return float((text or "0").rstrip("%"))


def _ns(text: str) -> float:
    match = _TIME.match(text)
    if match is None:
        raise ValueError(f"{text!r} is no time")
    ns = float(match["number"]) * TIMES[match["unit"]]
    return -ns if text.startswith("-") else ns
