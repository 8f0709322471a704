"""What GPUs send each other in an iteration: how long each waits and transfers, and what its computation hides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import pandas as pd

from inferprof.report.common import CASE_COLUMNS, case_cells, in_us, optional, path_of, told
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Table, Text, number, words
from inferprof.report.numbers import three_digits
from inferprof.report.profiled import Profile, profiles
from inferprof.report.section import section
from inferprof.tables.limits import scaling
from inferprof.tables.trace.collectives import ALL, LEVEL, iterations_of
from inferprof.units import MEGA

Row = Mapping[str, float]
TOOL: Final = Column("tool", "tool")
GPUS: Final = (
    *CASE_COLUMNS,
    TOOL,
    Column("device", "GPU", "number"),
    Column("communication_us", "communication", "number"),
    Column("hidden_us", "hidden", "number"),
    Column("exposed_us", "exposed", "number"),
    Column("beside_us", "beside", "number", hidden=True),
    Column("slowed_us", "slowed", "number"),
    Column("bubble_us", "bubbles", "number"),
    Column("clock_us", "clock", "number"),
)
GPUS_NOTE: Final = (
    "µs of an iteration. Communication: waiting included. Hidden: while the GPU computes. Slowed: what that costs "
    "kernels that also run alone. Bubbles: a stage of a pipeline neither computes, copies nor transfers. Clock: how "
    "far it was off by the ends of collectives, which is taken off."
)
OPERATIONS: Final = (
    *CASE_COLUMNS,
    TOOL,
    Column("device", "GPU", "number"),
    Column("operation", "operation"),
    Column("calls", "calls", "number"),
    Column("waiting_us", "waiting", "number"),
    Column("last_percent", "last %", "number"),
    Column("transfer_us", "transfer", "number"),
    Column("spread_us", "±", "number"),
    Column("mb", "MB", "number"),
    Column("bus_gb_s", "bus GB/s", "number"),
    Column("link_gb_s", "link", "number"),
    *(
        Column(f"waiting_{cause}_us", f"waiting_{cause}", "number", hidden=True)
        for cause in ("compute", "copy", "idle")
    ),
)
OPERATIONS_NOTE: Final = (
    "Of all calls in an iteration, µs. Waiting: until the last GPU began; last: how many of the calls this GPU began "
    "last. Transfer: from then on; ±: how far it differs between the GPUs. Bus bandwidth by the formulas of "
    "nccl-tests; link: what it was measured to do with messages of this size (links.json)."
)
NOT_SEEN: Final = "not told of this case"
NO_SIZES: Final = "the tool tells no sizes of messages"
NO_LINKS: Final = "no links.json with this operation and size"


@section("collectives", "Waiting and transfer between GPUs", place=155)
def build(evidence: Evidence) -> Sequence[Block]:
    """Empty where no GPU communicated with another."""
    talking = [profile for profile in profiles(evidence) if profile.frame["level"].eq(LEVEL).any()]
    gpus = [row for profile in talking for row in _gpus(profile)]
    operations = [row for profile in talking for row in _operations(evidence, profile)]
    blocks: list[Block] = []
    if gpus:
        blocks.append(Table("communication", "", _told(GPUS, gpus), tuple(gpus), GPUS_NOTE, groups=2))
    if operations:
        columns = _told(OPERATIONS, operations)
        blocks.append(Table("collectives", "By operation", columns, tuple(operations), OPERATIONS_NOTE, groups=2))
    return (*blocks, *(Text(text, "item") for profile in talking for text in _not_paired(profile)))


def _told(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> tuple[Column, ...]:
    """The columns, without those on the page that are told of no row, and the tool where there is one."""
    tools = {row[columns.index(TOOL)].value for row in rows}
    return tuple(
        replace(column, hidden=True) if column == TOOL and len(tools) == 1 else column
        for column in told(columns, rows)
    )


def _not_paired(profile: Profile) -> list[str]:
    own = profile.frame[profile.frame["metric"].eq("not_paired")]
    return [
        f"{path_of(profile.case)}, {profile.tool}: no waiting and no transfer: {reason}" for reason in own["text"]
    ]


def _wide(profile: Profile, whole: bool) -> Mapping[tuple[int, str], Row]:
    """GPU and operation → metric → value per iteration, with `calls`."""
    rows = profile.frame[profile.frame["level"].eq(LEVEL) & profile.frame["device"].notna()]
    rows = rows[rows["name"].eq(ALL) if whole else rows["name"].ne(ALL)]
    count = iterations_of(profile.frame)
    table: dict[tuple[int, str], dict[str, float]] = {}
    for device, name, metric, value, calls in zip(
        *(rows[key] for key in ("device", "name", "metric", "value", "instances")), strict=True
    ):
        if not pd.isna(value):
            own = table.setdefault((int(device), str(name)), {"calls": calls / count})
            own[str(metric)] = float(value) if metric == "clock_offset" else float(value) / count
    return table


def _us(row: Row, metric: str, reason: str = NOT_SEEN) -> Cell:
    return in_us(row.get(metric), reason)


def _gpus(profile: Profile) -> list[tuple[Cell, ...]]:
    metrics = ("duration_total", "hidden_total", "exposed_total", "beside_total", "slowed_total", "bubble_total")
    return [
        (*_head(profile, device), *(_us(row, metric) for metric in (*metrics, "clock_offset")))
        for (device, _), row in _wide(profile, whole=True).items()
    ]


def _operations(evidence: Evidence, profile: Profile) -> list[tuple[Cell, ...]]:
    return [
        (
            *_head(profile, device),
            words(operation),
            number(row["calls"], three_digits(row["calls"])),
            _us(row, "waiting_total"),
            optional(_share(row, "last_count", "calls", 100), three_digits),
            *(_us(row, metric) for metric in ("transfer_total", "spread_total")),
            optional(_share(row, "message_total", "calls", 1 / MEGA), three_digits, NO_SIZES),
            optional(_share(row, "bus_total", "transfer_total", 1), three_digits, NO_SIZES),
            optional(_link(evidence, operation, row), three_digits, NO_LINKS),
            *(_us(row, f"waiting_{cause}") for cause in ("compute", "copy", "idle")),
        )
        for (device, operation), row in _wide(profile, whole=False).items()
    ]


def _head(profile: Profile, device: int) -> list[Cell]:
    return [*case_cells(profile.case), words(profile.tool), number(device, str(device))]


def _share(row: Row, part: str, whole: str, times: float) -> float | None:
    return times * row[part] / row[whole] if part in row and row.get(whole) else None


def _link(evidence: Evidence, operation: str, row: Row) -> float | None:
    """The bus bandwidth of the link with messages of this size."""
    links = evidence.links.content
    if links is None or "bus_total" not in row:
        return None
    alone = scaling.message_ns(links, operation, row["message_total"] / row["calls"])
    return row["bus_total"] / row["calls"] / alone if alone else None
