"""What the GPU's time went to: launches joined with the nodes, operators and modules that made them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from inferprof import registry
from inferprof.plugins import Owner
from inferprof.report.common import (
    CASE_COLUMNS,
    NODE_NAME_LENGTH,
    case_cells,
    in_percent,
    optional,
    path_of,
    short_kernel,
)
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Entry, Outline, Table, missing, number, words
from inferprof.report.numbers import count, milliseconds, significant
from inferprof.report.profiled import SLOW_DOWN_COLUMN, Profile, caution, first_of, join_of, profiles, slow_down
from inferprof.report.section import section
from inferprof.tables.counters.ncu_timeline import COUNTERS, of_kernels
from inferprof.tables.nodes import attribution
from inferprof.tables.overhead import ITERATION
from inferprof.tables.records import key_of, rows_of
from inferprof.tables.trace.timeline import PATH_SEPARATOR
from inferprof.units import NS_PER_MS
from inferprof.words import counted

Counted = Mapping[str, Mapping[str, float]]
"""Kernel → its counters in percent."""
NOT_COUNTED = "ncu did not count it, or counted several of its name"
LEVELS: dict[str, str] = {"op": "node", "module": "module"}
OWNERS: tuple[Owner, ...] = ("node", "module")
"""Layers of engines have a section of their own."""
TOP = 5
OPENED = 20
"""Owners of a case that the page opens into their kernels, and kernels of each."""
SHARE_COLUMNS = (
    *CASE_COLUMNS,
    SLOW_DOWN_COLUMN,
    Column("kernel_time_ms", "kernels, ms", "number"),
    Column("owners", "owners"),
    Column("attributed_percent", "one's, %", "number"),
    Column("unattributed_percent", "nobody's, %", "number"),
)
OWNER_COLUMNS = (
    *CASE_COLUMNS,
    Column("level", "of", hidden=True),
    Column("share_percent", "%", "number"),
    Column("kernel_time_ms", "ms", "number", hidden=True),
    Column("launches", "launches", "number"),
    Column("operator", "operator"),
    Column("owner", "owner"),
)
KERNEL_COLUMNS = (
    *CASE_COLUMNS,
    Column("level", "of"),
    Column("owner", "owner"),
    Column("kernel", "kernel"),
    Column("share_percent", "%", "number"),
    Column("launches", "launches", "number"),
    *(Column(f"{metric}_percent", title, "number") for metric, title in COUNTERS.items()),
)
NOTE = (
    "Of an iteration. A launch is the node's, operator's or module's that lies around the call on the host, the "
    "innermost of several. One at the edge of two nodes, or outside of all, is nobody's and is spread over none."
)


@section("nodes", "Kernels by node", place=230, needs=("profiles",))
def build(evidence: Evidence) -> Sequence[Block]:
    """Shares, then the owners of the longest kernels; empty where no case was watched so."""
    joins = [
        (profile, join_of(profile).attributed(profile.frame))
        for profile in profiles(evidence, registry.joining(*OWNERS))
    ]
    if not joins:
        return ()
    note = f"{NOTE} {caution(evidence, [profile for profile, _ in joins])}"
    shares = tuple(row for profile, join in joins for row in _shares(evidence, profile, join))
    owned = [(profile, _owners(profile, join, level)) for profile, join in joins for level in LEVELS]
    every = tuple(row for _, rows in owned for _, row in rows)
    owners = [[row for is_owner, row in rows if is_owner] for _, rows in owned]
    longest = tuple(row for rows in owners for row in rows[:TOP])
    title = f"The {TOP} owners with the largest share of each case's kernel time"
    counters = {key_of(profile.case): profile.frame for profile in first_of(evidence, registry.counters())}
    counted = [
        of_kernels(join, counters[key_of(profile.case)]) if key_of(profile.case) in counters else {}
        for profile, join in joins
    ]
    with_counters = list(zip(joins, counted, strict=True))
    kernels = tuple(row for (profile, join), values in with_counters for row in _kernels(profile, join, values))
    blocks: tuple[Block, ...] = (
        Table("node_shares", "", SHARE_COLUMNS, shares, note, groups=6),
        Table("nodes", title, OWNER_COLUMNS, longest, groups=5),
        Outline(
            "Nodes and their kernels",
            tuple(
                _opened(profile, join[join["owner_level"] == level], values)
                for (profile, join), values in with_counters
                for level in _levels(join)
            ),
        ),
        Table("all_nodes", "Every owner", OWNER_COLUMNS, every, csv_only=True),
        Table("node_kernels", "The kernels of every owner", KERNEL_COLUMNS, kernels, csv_only=True),
    )
    return blocks


def _levels(join: pd.DataFrame) -> list[Any]:
    """The levels at which the join has owners."""
    return [level for level in LEVELS if join.loc[join["owner_level"] == level, "owner"].notna().any()]


def iterations_of(frame: pd.DataFrame) -> int:
    """How many iterations a table of one case is of; 1 where it has no such range."""
    rows = (frame["level"] == "range") & (frame["name"] == ITERATION) & (frame["metric"] == "duration_total")
    return int(frame.loc[rows, "instances"].sum()) or 1


def _shares(evidence: Evidence, profile: Profile, join: pd.DataFrame) -> list[tuple[Cell, ...]]:
    """A row per level of the join."""
    head = (*case_cells(profile.case), slow_down(evidence, profile))
    rows = []
    for level, row in attribution.shares(join).to_dict("index").items():
        time = row["total_ns"] / iterations_of(profile.frame)
        shares = (in_percent(row["attributed_share"]), in_percent(row["unattributed_share"]))
        rows.append((*head, number(time / NS_PER_MS, milliseconds(time)), words(f"{LEVELS[str(level)]}s"), *shares))
    return rows or [(*head, *[missing("no kernel was traced")] * 4)]


def _owners(profile: Profile, join: pd.DataFrame, level: Any) -> list[tuple[bool, tuple[Cell, ...]]]:
    """The owners of a level, longest first, each with whether it is one: the row of what is nobody's is not."""
    runs, own = iterations_of(profile.frame), join[join["owner_level"] == level]
    kinds = {row["owner"]: str(row.get("op_type", "")) for row in rows_of(own.dropna(subset=["owner"]))}
    return [
        (row["owner"] in kinds, _owner(profile, {**row, "level": level, "op_type": kinds.get(row["owner"])}, runs))
        for row in rows_of(attribution.by_owner(join, level))
    ]


def _owner(profile: Profile, row: dict[str, Any], runs: int) -> tuple[Cell, ...]:
    name = "" if row["op_type"] is None else str(row["owner"])
    kind = "nobody's" if row["op_type"] is None else row["op_type"]
    return (
        *case_cells(profile.case),
        words(LEVELS[row["level"]]),
        in_percent(row["share"]),
        number(row["duration_ns"] / runs / NS_PER_MS, milliseconds(row["duration_ns"] / runs)),
        number(row["instances"] / runs, count(row["instances"] / runs)),
        words(kind),
        Cell(_brief(name), name),
    )


def _brief(name: str) -> str:
    """The end of a long name, which tells it from others: of a path the last part, if that is short enough."""
    if len(name) <= NODE_NAME_LENGTH:
        return name
    last = name.rpartition(PATH_SEPARATOR)[2]
    return f"… {last}" if len(last) < NODE_NAME_LENGTH - 1 else f"…{name[1 - NODE_NAME_LENGTH :]}"


def _kernels(profile: Profile, join: pd.DataFrame, counted: Counted) -> list[tuple[Cell, ...]]:
    runs = iterations_of(profile.frame)
    totals = join.groupby("owner_level")["duration_ns"].sum()
    own = join.dropna(subset=["owner"]).sort_values("duration_ns", ascending=False, kind="stable")
    return [
        (
            *case_cells(profile.case),
            words(LEVELS[row["owner_level"]]),
            words(row["owner"]),
            Cell(short_kernel(row["kernel"]), row["kernel"]),
            in_percent(row["duration_ns"] / float(totals[row["owner_level"]])),
            number(row["instances"] / runs, count(row["instances"] / runs)),
            *(optional(counted.get(row["kernel"], {}).get(metric), significant, NOT_COUNTED) for metric in COUNTERS),
        )
        for row in rows_of(own)
    ]


# --- what opens ------------------------------------------------------------------------------------------------


def _opened(profile: Profile, join: pd.DataFrame, counters: Counted) -> Entry:
    """A case at the level of `join`, its longest owners in it, and in each of them its kernels."""
    level = join["owner_level"].iloc[0]
    owners = attribution.by_owner(join, level).dropna(subset=["owner"])
    shown = rows_of(owners.head(OPENED))
    inside = [_opened_owner(profile, row, join[join["owner"] == row["owner"]], counters) for row in shown]
    if rest := len(owners) - len(inside):
        inside.append(Entry(f"{rest:,} more in csv/all_nodes.csv"))
    return Entry(f"{path_of(profile.case)} ({profile.tool})", counted(len(owners), LEVELS[level]), tuple(inside))


def _opened_owner(profile: Profile, row: dict[str, Any], kernels: pd.DataFrame, counted: Counted) -> Entry:
    runs = iterations_of(profile.frame)
    longest = (
        kernels.groupby("kernel")[["duration_ns", "instances"]].sum().sort_values("duration_ns", ascending=False)
    )
    inside = [
        Entry(
            f"{name} × {count(each['instances'] / runs)}{_counters(counted.get(str(name), {}))}",
            f"{milliseconds(each['duration_ns'] / runs)} ms",
        )
        for name, each in longest.head(OPENED).to_dict("index").items()
    ]
    return Entry(str(row["owner"]), f"{100 * row['share']:.1f} %", tuple(inside))


def _counters(values: Mapping[str, float]) -> str:
    """` (tensor 42 %, DRAM 10 %)`; nothing where nothing was counted."""
    parts = [f"{COUNTERS[metric].removesuffix(' %')} {value:.0f} %" for metric, value in values.items()]
    return f" ({', '.join(parts)})" if parts else ""
