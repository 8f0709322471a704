"""Reads the CSV pages of Nsight Compute: `--page details` and `--page raw` with `--csv`, of 2020 to 2026.

Before and after the table may stand a byte-order mark, `==PROF==` lines and what the program printed. The raw page
has a row per launch, its units in the second row; the details page has a row per metric of a launch, each with its
unit, and a row per rule result.
"""

from __future__ import annotations

import csv
import io
import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Literal

from inferprof.errors import UserError
from inferprof.files import text_of
from inferprof.readers.ncu_launches import SCOPES, Launch, RuleResult
from inferprof.readers.ncu_metrics import DURATION, TIMES, WANTED, scale_of

HEADER: Final = '"ID","Process ID",'
"""How the table of either page begins."""
_DETAILS: Final = ("Kernel Name", "Section Name", "Metric Name", "Metric Unit", "Metric Value")
"""Columns without which the details page tells nothing."""
COMMAND_LINE: Final = "Command line profiler metrics"
"""The section of --metrics, whose names are ncu's own."""
KINDS: Final = {"OPT": "optimization", "WRN": "warning", "INF": "information"}
_MESSAGE: Final = re.compile(r"^==(?:ERROR|WARNING)== (.*)$", re.MULTILINE)
_ROW: Final = re.compile(r'"\d*(?:"[,\r\n]|"?$)')
"""How a row of a table begins, perhaps cut: with a number, or nothing in front of units."""
_INSTANCES: Final = re.compile(r" \([^()]*\)$")
"""What `--print-metric-instances values` puts behind a value."""
_GROUPING: Final = re.compile("[\\s'\u2019]")
_WHOLE: Final = ("ns", "nsecond", "byte")
"""Units of which there are no parts."""
MOST: Final = 2**62
MOST_PERCENT: Final = 1_000
Sign = Literal[",", "."]


def _shows(decimal: str, group: str) -> tuple[Callable[[str], object], ...]:
    """What tells a decimal sign: of any number, of whole numbers by their groups, of percentages."""
    point, other = re.escape(decimal), re.escape(group)
    grouped = rf"-?\d{{1,3}}(?:{other}\d{{3}})"
    any_number = rf"{grouped}{{2,}}|{grouped}+{point}\d+|-?\d+{point}(?:\d{{1,2}}|\d{{4,}})"
    return tuple(re.compile(pattern).fullmatch for pattern in (any_number, grouped, rf"\d+{point}\d+"))


_SHOWS: Final[dict[Sign, tuple[Callable[[str], object], ...]]] = {",": _shows(",", "."), ".": _shows(".", ",")}

LABELS: Final = {
    ("GPU Speed Of Light", "Duration"): DURATION,
    ("GPU Speed Of Light", "Compute (SM) Throughput"): "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    ("GPU Speed Of Light", "Memory Throughput"): ("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"),
    ("GPU Speed Of Light", "DRAM Throughput"): "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    ("GPU Speed Of Light", "L2 Cache Throughput"): "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    ("GPU Speed Of Light", "L1/TEX Cache Throughput"): ("l1tex__throughput.avg.pct_of_peak_sustained_active"),
    ("GPU Speed Of Light", "SM Frequency"): "gpc__cycles_elapsed.avg.per_second",
    ("GPU Speed Of Light", "DRAM Frequency"): "dram__cycles_elapsed.avg.per_second",
    ("GPU Speed Of Light", "Elapsed Cycles"): "gpc__cycles_elapsed.max",
    ("GPU Speed Of Light", "SM Active Cycles"): "sm__cycles_active.avg",
    ("Memory Workload Analysis", "L1/TEX Hit Rate"): "l1tex__t_sector_hit_rate.pct",
    ("Memory Workload Analysis", "L2 Hit Rate"): "lts__t_sector_hit_rate.pct",
    ("Memory Workload Analysis", "Local Memory Spilling Requests"): "derived__local_spilling_requests",
    ("Scheduler Statistics", "One or More Eligible"): "smsp__issue_active.avg.pct_of_peak_sustained_active",
    ("Scheduler Statistics", "Eligible Warps Per Scheduler"): "smsp__warps_eligible.avg.per_cycle_active",
    ("Warp State Statistics", "Warp Cycles Per Issued Instruction"): (
        "smsp__average_warp_latency_per_inst_issued.ratio"
    ),
    ("Warp State Statistics", "Avg. Active Threads Per Warp"): "smsp__thread_inst_executed_per_inst_executed.ratio",
    ("Warp State Statistics", "Avg. Not Predicated Off Threads Per Warp"): (
        "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio"
    ),
    ("Instruction Statistics", "Executed Instructions"): "smsp__inst_executed.sum",
    ("Launch Statistics", "Block Size"): "launch__block_size",
    ("Launch Statistics", "Grid Size"): "launch__grid_size",
    ("Launch Statistics", "Registers Per Thread"): "launch__registers_per_thread",
    ("Launch Statistics", "# SMs"): "launch__sm_count",
    ("Launch Statistics", "Waves Per SM"): "launch__waves_per_multiprocessor",
    ("Occupancy", "Block Limit SM"): "launch__occupancy_limit_blocks",
    ("Occupancy", "Block Limit Registers"): "launch__occupancy_limit_registers",
    ("Occupancy", "Block Limit Shared Mem"): "launch__occupancy_limit_shared_mem",
    ("Occupancy", "Block Limit Warps"): "launch__occupancy_limit_warps",
    ("Occupancy", "Block Limit Barriers"): "launch__occupancy_limit_barriers",
    ("Occupancy", "Theoretical Occupancy"): "sm__maximum_warps_per_active_cycle_pct",
    ("Occupancy", "Achieved Occupancy"): "sm__warps_active.avg.pct_of_peak_sustained_active",
    ("Source Counters", "Branch Instructions"): "smsp__inst_executed_op_branch.sum",
    ("Source Counters", "Branch Efficiency"): "smsp__sass_average_branch_targets_threads_uniform.pct",
}
"""(section, label) of the details page → the metric that it is; rounded there to two decimals."""

OLDER_LABELS: Final = {
    "SM [%]": "Compute (SM) Throughput",
    "Memory [%]": "Memory Throughput",
    "SOL DRAM": "DRAM Throughput",
    "SOL FB": "DRAM Throughput",
    "SOL L1/TEX Cache": "L1/TEX Cache Throughput",
    "SOL TEX": "L1/TEX Cache Throughput",
    "SOL L2 Cache": "L2 Cache Throughput",
    "SOL L2": "L2 Cache Throughput",
    "Memory Frequency": "DRAM Frequency",
}
"""Labels of ncu 2019 to 2021, and what they are called since. The section had no `Throughput` in its name then."""

Row = dict[str, str]


def read(path: Path) -> list[Launch]:
    """The launches of one page, in the order of the file. Raises UserError where there are none, saying why, and
    where the file is cut short."""
    header, rows = _table(path, text_of(path))
    try:
        if set(_DETAILS) <= set(header):
            return details(rows)
        if not {"Section Name", "Metric Name"} & set(header) and "Kernel Name" in header:
            return _raw(rows)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None
    raise UserError(
        f"{path} is another page of Nsight Compute: `ncu --import X.ncu-rep --csv --page raw` writes what is read"
    )


def _table(path: Path, text: str) -> tuple[list[str], list[Row]]:
    """Header and rows. The table ends before a row whose first cell is no launch number, nor empty as the units'."""
    place = text.find(HEADER)
    if place < 0:
        raise _nothing(path, text)
    if text.find(HEADER, place + 1) > 0:
        raise UserError(f"{path} holds several tables of Nsight Compute: give each in a file of its own")
    header, *rows = _rows(path, text[place:])
    records = [dict(zip(header, cells, strict=False)) for cells in rows]
    if not any(row["ID"] for row in records):
        raise _nothing(path, text)
    return header, records


def _rows(path: Path, text: str) -> Iterator[list[str]]:
    """The header, and the rows under it as long as they are of the table. Raises UserError for half of one.

    A row of the details page needs no more cells than those of its metric; any other has all.
    """
    lines = list(io.StringIO(text, newline=""))
    reader = csv.reader(lines, strict=True)
    header: list[str] = []
    name = value = None
    while reader.line_num < len(lines):
        line = lines[reader.line_num]
        if header and not _ROW.match(line):
            break
        try:
            cells = next(reader)
        except csv.Error:
            cells = []
        if not header:
            header = cells
            name, value = (
                header.index(column) if column in header else None for column in ("Metric Name", "Metric Value")
            )
        # The result of a rule, whose words may end anywhere.
        rule = name is not None and not (len(cells) > name and cells[name])
        whole = len(cells) == len(header) > 0 or (not rule and value is not None and value < len(cells) < len(header))
        last = reader.line_num == len(lines) and not text.endswith(("\n", "\r"))
        if not whole or (last and (rule or text.endswith(","))):
            raise UserError(f"{path} is cut short or damaged at {line[:40].strip()!r}: export it again")
        yield cells


def _nothing(path: Path, text: str) -> UserError:
    """Why a file of ncu holds no launch: the first error in it, else a warning."""
    reasons = sorted(_MESSAGE.finditer(text), key=lambda match: "==ERROR==" not in match[0])
    reason = f" ({reasons[0][1].strip()})" if reasons else ""
    return UserError(
        f"{path}: ncu profiled no kernel{reason}; profile a process that launches kernels which the filters match"
    )


def _raw(rows: Sequence[Row]) -> list[Launch]:
    """The page with a column per metric; the row without an ID has the units."""
    of_units = [{name: unit for name, unit in row.items() if name in WANTED} for row in rows if not row["ID"]]
    if any(other != of_units[0] for other in of_units):
        raise ValueError("it has several rows of units: give each page in a file of its own")
    units = of_units[0] if of_units else {}
    launches = [row for row in rows if row["ID"]]
    comma = _decimal_comma((units.get(name, ""), row[name]) for row in launches for name in row if name in WANTED)
    parsed = []
    for row in _numbered(launches):
        cells = ((name, units.get(name, ""), row[name]) for name in row if name in WANTED)
        parsed.append(_launch(row, _numbers(cells, comma)))
    return parsed


def details(rows: Sequence[Row]) -> list[Launch]:
    """The page with a row per metric and per rule result."""
    comma = _decimal_comma((row.get("Metric Unit", ""), row.get("Metric Value", "")) for row in rows)
    parsed = []
    groups = [list(group) for _, group in itertools.groupby(rows, key=lambda row: (row["ID"], row["Process ID"]))]
    _numbered([own[0] for own in groups])
    _require_equal_sections(groups)
    for own in groups:
        cells = ((_name_of(row), row["Metric Unit"], row["Metric Value"]) for row in own if row["Metric Name"])
        rules = [_rule(row, comma) for row in own if not row["Metric Name"] and row.get("Rule Name")]
        parsed.append(_launch(own[0], _numbers(cells, comma), rules))
    return parsed


def _numbered(launches: Sequence[Row]) -> Sequence[Row]:
    """The same. Raises ValueError where two have one number."""
    numbers = Counter(row["ID"] for row in launches)
    if twice := [number for number, count in numbers.items() if count > 1]:
        raise ValueError(f"launch {twice[0]} is there twice: give one run of ncu in a file of its own")
    return launches


def _require_equal_sections(groups: Sequence[Sequence[Row]]) -> None:
    """Raise ValueError where the last launch lacks metrics that all others have, as where the end is cut off."""
    names = [{(row["Section Name"], row["Metric Name"]) for row in own if row["Metric Name"]} for own in groups]
    if len(names) > 1 and (lacking := set.intersection(*names[:-1]) - names[-1]):
        raise ValueError(f"the last launch lacks {len(lacking)} metrics that all others have: the file is cut short")


def _name_of(row: Row) -> str:
    """ncu's name of a details row; an unknown label stays one, and is not wanted."""
    if row["Section Name"] == COMMAND_LINE:
        return row["Metric Name"]
    section = row["Section Name"].removesuffix(" Throughput")
    label = OLDER_LABELS.get(row["Metric Name"], row["Metric Name"])
    return LABELS.get((section, label), label)


def _launch(row: Row, raw: dict[str, float], rules: Sequence[RuleResult] = ()) -> Launch:
    return Launch(
        number=_id(row["ID"]),
        name=row["Kernel Name"],
        grid=_sizes(row.get("Grid Size", "")),
        block=_sizes(row.get("Block Size", "")),
        device=_id(row["Device"]) if row.get("Device", "").isdecimal() else None,
        stream=_id(row["Stream"]) if row.get("Stream", "").isdecimal() else None,
        raw=raw,
        rules=rules,
    )


def _id(text: str) -> int:
    """The number of a launch, device or stream. Raises ValueError for one that no tool gives."""
    number = int(text)
    if number > MOST:
        raise ValueError(f"{text[:40]} is the number of no launch, device or stream")
    return number


def _rule(row: Row, comma: bool) -> RuleResult:
    return RuleResult(
        rule=row["Rule Name"],
        kind=KINDS.get(row["Rule Type"], row["Rule Type"]),
        message=row["Rule Description"],
        speed_up=_number(row.get("Estimated Speedup", ""), comma),
        scope=SCOPES.get(row.get("Estimated Speedup Type", "")),
    )


def _sizes(text: str) -> str:
    """`(1182, 1, 1)` → `1182,1,1`."""
    return ",".join(re.findall(r"\d+", text))


def _numbers(cells: Iterable[tuple[str, str, str]], comma: bool) -> dict[str, float]:
    """(name, unit, text) → name → number in base units; words and what has no value are left out.

    Raises ValueError for a duration in an unknown unit, for two values of a name, for what is below 0, and for shares
    that no counter reaches.
    """
    numbers: dict[str, float] = {}
    for name, unit, text in cells:
        if name in WANTED and (value := _number(text, comma)) is not None:
            if name == DURATION and unit not in TIMES:
                raise ValueError(f"{name} in {unit or 'no unit'}: known are {', '.join(TIMES)}")
            if value < 0:
                raise ValueError(f"{name} is {text}, and nothing that ncu counts is below 0: export it again")
            if unit == "%" and value > MOST_PERCENT:
                raise ValueError(f"{name} is {text} %: write the page again with LC_ALL=C")
            if numbers.setdefault(name, value * scale_of(unit)) != value * scale_of(unit):
                raise ValueError(f"{name} of a launch is there twice: give one run of ncu in a file of its own")
    return numbers


def _number(text: str, comma: bool) -> float | None:
    """Of any locale's groups of thousands: a blank, an apostrophe, and what is not its decimal sign."""
    plain = _GROUPING.sub("", _INSTANCES.sub("", text))
    plain = plain.replace(".", "").replace(",", ".") if comma else plain.replace(",", "")
    try:
        value = float(plain)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _decimal_comma(cells: Iterable[tuple[str, str]]) -> bool:
    """Whether `65,77` is a number in this file: (unit, text) of its cells, some of which tell.

    A number with two groups has its thousands apart, ns and bytes are whole, and percentages are below 1,000.
    Raises ValueError where some say so and some the opposite.
    """
    signs = Counter(
        sign for unit, text in cells if (sign := _sign(unit, _GROUPING.sub("", _INSTANCES.sub("", text))))
    )
    if len(signs) > 1:
        raise ValueError("its numbers are of two locales, so 1,234 may be either: give one page as ncu wrote it")
    return "," in signs


def _sign(unit: str, text: str) -> Sign | None:
    """The decimal sign that a cell shows; None where it may be either's."""
    if "," not in text and "." not in text:
        return None
    for decimal, (tells, grouped, fraction) in _SHOWS.items():
        if tells(text) or (unit in _WHOLE and grouped(text)) or (unit == "%" and fraction(text)):
            return decimal
    return None
