"""Tables of torch's profilers, as `print(prof.key_averages().table())` writes them, of torch 1.1 to 2.9: operators,
calls and kernels in rows, as text or as a table of Markdown.

A row of the GPU has no time of the CPU. Ranges of the user are such rows, too, and hold kernels that have rows of
their own: they are left out, as long as the shares of the others add up to more than all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pandas as pd

from inferprof.errors import UserError, in_one_line
from inferprof.files import text_of
from inferprof.findings import Answer, Finding, Gain, Total
from inferprof.readers.kind import Capture, Kind, Lack, says
from inferprof.readers.kinds.kineto import RECORD, SHOWN, TIMED
from inferprof.readers.nsys_csv import TIMES
from inferprof.words import counted, ms

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
    rows = list(_listed(columns, lines[1:]))
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


def _listed(columns: Sequence[str], lines: Sequence[str]) -> Iterator[TorchRow]:
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


TOOL: Final = "kineto"
IDLE: Final = 0.1
"""Ours: from this share of the host's time on a GPU that does nothing is worth a finding."""
STEP: Final = "ProfilerStep"
"""The range of a step: what it takes itself is the program between the operators."""
WORTH_SAYING: Final = 0.01
_LAUNCH: Final = re.compile(r"(?:cu|cuda|hip)(?:Ext)?(?:Module)?(?:Launch\w*|GraphLaunch)$")
_COPY: Final = re.compile(r"Memcpy (\w)\w*to?(\w)\w*|Mem(set|cpy)")
TRACE: Final = Lack(
    "when each operation ran, and what the GPU waits for", "prof.export_chrome_trace(…), and explain it"
)
ALL_ROWS: Final = "key_averages().table(row_limit=-1)"


def read(path: Path) -> Capture:
    """What the table with most time says. Raises UserError where none has rows, or a cell is no time."""
    try:
        every = [table for table in tables(text_of(path)) if table.rows]
    except ValueError as error:
        raise UserError(f"{path} is cut short or damaged ({in_one_line(error)}): print the table again") from None
    if not every:
        raise UserError(f"{path} holds the headings of torch's profiler and no rows: copy the table as a whole")
    table = max(every, key=lambda table: table.cpu_ns)
    notes = [f"{len(every)} tables: this is about the longest"] if every[1:] else []
    return _of_gpu(table, notes) if table.has_gpu else _of_cpu(table, notes)


def _of_cpu(table: TorchTable, notes: Sequence[str]) -> Capture:
    """Operators by what each takes itself on the host."""
    from inferprof.readers.kinds.ort import operators

    whole = table.cpu_ns
    own = {row.name: row.cpu_ns for row in table.rows if not row.name.startswith(STEP)}
    between = sum(row.cpu_ns for row in table.rows if row.name.startswith(STEP))
    nested = any(row.gpu_all_ns for row in table.rows)
    said = "its CUDA times hold those of the operators that each calls, and add up to nothing" if nested else ""
    return Capture(
        TOOL,
        ["torch.profiler's table", *([] if nested else ["no GPU"]), counted(len(table.rows), "row")],
        total=Total(whole, "the host's time, each operator without those that it calls") if whole else None,
        parts=_parts({**own, **({"between the operators": between} if between else {})}, whole),
        calls={row.name: float(row.calls) for row in table.rows},
        answers=[] if nested else list(operators(_shares(own, whole), TOOL)),
        notes=[*notes, *filter(None, [said])],
        lacks=[TIMED, RECORD] if not nested else [TIMED, TRACE],
    )


def _shares(own: Mapping[str, float], whole: float) -> pd.Series[float]:
    return pd.Series(own, dtype=float) / (whole or 1.0)


def _parts(own: Mapping[str, float], whole: float) -> dict[str, float]:
    top = dict(sorted(own.items(), key=lambda part: -part[1])[:SHOWN])
    others = sum(own.values()) - sum(top.values())
    left = whole - sum(own.values())
    named = {"others": others, "rows that the table leaves out": left}
    return {**top, **{name: ns for name, ns in named.items() if ns > WORTH_SAYING * whole}}


def _of_gpu(table: TorchTable, notes: Sequence[str]) -> Capture:
    """The GPU's operations, how long it had none, and why."""
    kernels = table.kernels()
    listed = sum(row.gpu_ns or 0.0 for row in kernels)
    operators = {row.name: row.gpu_ns or 0.0 for row in table.rows if not row.on_gpu and row.gpu_ns}
    gpu, host = table.gpu_ns, table.cpu_ns
    lacks = [TIMED, TRACE]
    if kernels and gpu and (left := 1 - listed / gpu) > WORTH_SAYING:
        lacks.insert(
            0,
            Lack(
                f"{100 * left:.0f} % of the GPU's time: rows are left out, and shares of kernels are of the others",
                ALL_ROWS,
            ),
        )
    if host >= gpu:
        total = Total(host, "the host's time")
        parts = {"the GPU computes or copies": gpu, "the GPU has nothing to do": host - gpu}
    else:
        total = Total(gpu, "the GPU's time")
        own = {row.name: row.gpu_ns or 0.0 for row in kernels} or operators
        parts = _parts(own, gpu)
    findings = [*_waiting(table, host, gpu), *([] if kernels else _longest(operators, gpu, total.ns))]
    return Capture(
        TOOL,
        ["torch.profiler's table", counted(len(table.rows), "row")],
        rows=_rows(kernels) if kernels else None,
        total=total if total.ns else None,
        parts=parts,
        answers=[Answer("torch_table", "host", "found", findings=tuple(findings))] if findings else [],
        notes=[*notes, f"GPU {ms(gpu)}, host {ms(host)}", *_calls(table)],
        lacks=lacks,
    )


def _waiting(table: TorchTable, host: float, gpu: float) -> Iterator[Finding]:
    """A GPU that has less to do than the host."""
    if host <= 0 or (idle := host - gpu) < IDLE * host:
        return
    launches = [row for row in table.rows if _LAUNCH.match(row.name)]
    count = sum(row.calls for row in launches)
    took = f"; {counted(count, 'launch')} take it {ms(sum(row.cpu_ns for row in launches))}" if count else ""
    reason = f"the host takes {ms(host)}, in which the GPU has work for {ms(gpu)}{took}: the host sets the pace"
    advice = 'fewer launches: a CUDA graph (torch.compile(mode="reduce-overhead")), or a larger batch'
    evidence = {"host_ns": host, "gpu_ns": gpu, "launches": float(count)}
    yield Finding("", "launch", idle / host, reason, evidence, TOOL, Gain(0.0, idle), advice, "medium")


def _longest(operators: Mapping[str, float], gpu: float, whole: float) -> Iterator[Finding]:
    """The operator with most of the GPU's time, where the table names no kernels."""
    if operators and gpu:
        name = max(operators, key=lambda name: operators[name])
        reason = f"its kernels take {ms(operators[name])}, {100 * operators[name] / gpu:.1f} % of the GPU's time"
        advice = "see which kernels it runs (nsys, or the trace), and what bounds them (ncu)"
        share = operators[name] / whole
        yield Finding(name, "kernels", share, reason, {"share": share}, TOOL, None, advice, "medium")


def _calls(table: TorchTable) -> Iterator[str]:
    """The calls of CUDA that take the host longest."""
    calls = [row for row in table.rows if re.match(r"(?:cu|hip)[A-Z]|cuda[A-Z]", row.name) and row.cpu_ns]
    top = sorted(calls, key=lambda row: -row.cpu_ns)[:3]
    if top:
        yield "calls: " + "; ".join(f"{row.name} {row.calls:,} × {ms(row.cpu_ns / row.calls)}" for row in top)


def _rows(kernels: Sequence[TorchRow]) -> pd.DataFrame:
    """The sums of kernels, copies and memsets, as `nsys stats` has them."""
    from inferprof.tables.schema import conform

    rows: list[dict[str, Any]] = []
    for row in kernels:
        level, name = "kernel", row.name
        if match := _COPY.match(row.name):
            level = "memset" if match[3] == "set" else "memcpy"
            name = "memset" if level == "memset" else f"{match[1]}to{match[2]}" if match[1] else row.name
        place = {"level": level, "name": name, "instances": row.calls}
        rows.append({**place, "metric": "duration_total", "value": row.gpu_ns})
        rows.append({**place, "metric": "duration_mean", "value": (row.gpu_ns or 0.0) / max(1, row.calls)})
    return conform(pd.DataFrame(rows), TOOL)


TORCH_TABLE: Final = Kind(
    name="torch_table",
    title="a table of torch's profiler",
    recognises=says(HEADINGS),
    read=read,
    rank=14,
)
