"""Reads the CSV pages of Nsight Compute: `--page details` and `--page raw` with `--csv`, of 2020 to 2026.

Before and after the table may stand a byte-order mark, `==PROF==` lines and what the program printed. The raw page
has a row per launch, its units in the second row; the details page has a row per metric of a launch, each with its
unit, and a row per rule result.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from inferprof.errors import UserError
from inferprof.files import opened
from inferprof.tables.counters.ncu_launches import SCOPES, Launch, RuleResult
from inferprof.tables.counters.ncu_metrics import DURATION, WANTED
from inferprof.tables.counters.ncu_units import scale_of

HEADER: Final = '"ID","Process ID",'
"""How the table of either page begins."""
COMMAND_LINE: Final = "Command line profiler metrics"
"""The section of --metrics, whose names are ncu's own."""
KINDS: Final = {"OPT": "optimization", "WRN": "warning", "INF": "information"}
_MESSAGE: Final = re.compile(r"^==(?:ERROR|WARNING)== (.*)$", re.MULTILINE)
_COMMA_DECIMAL: Final = re.compile(r"\d{1,3}(?:\.\d{3})*,(?!\d{3}$)\d+")
_NOT_A_NUMBER: Final = ("", "nan", "no data", "n/a")

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
    """The launches of one page, in the order of the file. Raises UserError where there are none, saying why."""
    with opened(path) as file:
        text = file.read().decode("utf-8-sig", errors="replace")
    header, rows = _table(path, text)
    if "Metric Name" in header:
        return _details(rows)
    if "Section Name" not in header and "Kernel Name" in header:
        return _raw(rows)
    raise UserError(
        f"{path} is another page of Nsight Compute: `ncu --import X.ncu-rep --csv --page raw` writes what is read"
    )


def _table(path: Path, text: str) -> tuple[list[str], list[Row]]:
    """Header and rows. The table ends before a row whose first cell is no launch number, nor empty as the units'."""
    place = text.find(HEADER)
    if place < 0:
        raise _nothing(path, text)
    reader = csv.reader(io.StringIO(text[place:]))
    header = next(reader)
    taken = itertools.takewhile(lambda cells: bool(cells) and (not cells[0] or cells[0].isdecimal()), reader)
    rows = [dict(zip(header, cells, strict=False)) for cells in taken]
    if not any(row["ID"] for row in rows):
        raise _nothing(path, text)
    return header, rows


def _nothing(path: Path, text: str) -> UserError:
    """Why a file of ncu holds no launch: the first error in it, else a warning."""
    reasons = sorted(_MESSAGE.finditer(text), key=lambda match: "==ERROR==" not in match[0])
    reason = f" ({reasons[0][1].strip()})" if reasons else ""
    return UserError(
        f"{path}: ncu profiled no kernel{reason}; profile a process that launches kernels which the filters match"
    )


def _raw(rows: Sequence[Row]) -> list[Launch]:
    """The page with a column per metric; the row without an ID has the units."""
    units = next((row for row in rows if not row["ID"]), {})
    launches = [row for row in rows if row["ID"]]
    comma = _decimal_comma((units.get(name, ""), cell) for row in launches for name, cell in row.items())
    found = []
    for row in launches:
        cells = ((name, units.get(name, ""), row[name]) for name in row if name in WANTED)
        found.append(_launch(row, _numbers(cells, comma)))
    return found


def _details(rows: Sequence[Row]) -> list[Launch]:
    """The page with a row per metric and per rule result."""
    comma = _decimal_comma((row.get("Metric Unit", ""), row.get("Metric Value", "")) for row in rows)
    found = []
    for _, group in itertools.groupby(rows, key=lambda row: row["ID"]):
        own = list(group)
        cells = ((_name_of(row), row["Metric Unit"], row["Metric Value"]) for row in own if row["Metric Name"])
        rules = [_rule(row) for row in own if not row["Metric Name"] and row.get("Rule Name")]
        found.append(_launch(own[0], _numbers(cells, comma), rules))
    return found


def _name_of(row: Row) -> str:
    """ncu's name of a details row; an unknown label stays one, and is not wanted."""
    if row["Section Name"] == COMMAND_LINE:
        return row["Metric Name"]
    section = row["Section Name"].removesuffix(" Throughput")
    label = OLDER_LABELS.get(row["Metric Name"], row["Metric Name"])
    return LABELS.get((section, label), label)


def _launch(row: Row, raw: dict[str, float], rules: Sequence[RuleResult] = ()) -> Launch:
    return Launch(
        number=int(row["ID"]),
        name=row["Kernel Name"],
        grid=_sizes(row.get("Grid Size", "")),
        block=_sizes(row.get("Block Size", "")),
        device=int(row["Device"]) if row.get("Device", "").isdecimal() else None,
        stream=int(row["Stream"]) if row.get("Stream", "").isdecimal() else None,
        raw=raw,
        rules=rules,
    )


def _rule(row: Row) -> RuleResult:
    speed_up = row.get("Estimated Speedup", "")
    return RuleResult(
        rule=row["Rule Name"],
        kind=KINDS.get(row["Rule Type"], row["Rule Type"]),
        message=row["Rule Description"],
        speed_up=float(speed_up.replace(",", "")) if speed_up else None,
        scope=SCOPES.get(row.get("Estimated Speedup Type", "")),
    )


def _sizes(text: str) -> str:
    """`(1182, 1, 1)` → `1182,1,1`."""
    return ",".join(re.findall(r"\d+", text))


def _numbers(cells: Iterable[tuple[str, str, str]], comma: bool) -> dict[str, float]:
    """(name, unit, text) → name → number in base units; words and what has no value are left out."""
    return {
        name: value * scale_of(unit)
        for name, unit, text in cells
        if name in WANTED and (value := _number(text, comma)) is not None
    }


def _number(text: str, comma: bool) -> float | None:
    if text.lower() in _NOT_A_NUMBER:
        return None
    plain = text.replace(".", "").replace(",", ".") if comma else text.replace(",", "")
    try:
        return float(plain)
    except ValueError:
        return None


def _decimal_comma(cells: Iterable[tuple[str, str]]) -> bool:
    """Whether `65,77` is a number in this file: told by its percentages, none of which has three decimals."""
    percentages: Iterator[str] = (text for unit, text in cells if unit == "%")
    return any(_COMMA_DECIMAL.fullmatch(text) for text in percentages)
