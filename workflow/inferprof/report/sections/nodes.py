"""Which nodes of a graph the GPU's time went to: launches joined with the nodes of ONNX Runtime that made them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Section, Table, missing, number, words
from inferprof.report.numbers import NS_PER_MS, count, milliseconds
from inferprof.report.sections.common import CASE_COLUMNS, case_cells
from inferprof.report.sections.kernels import short
from inferprof.report.sections.operators import NAME_LENGTH
from inferprof.report.sections.profiled import SLOW_DOWN_COLUMN, Profile, caution, first_of, slow_down
from inferprof.tables import attribution
from inferprof.tables.ort_kernels import attributed
from inferprof.tables.providers import runs_of
from inferprof.tables.records import rows_of

if TYPE_CHECKING:
    import pandas as pd

TITLE = "Kernels by node"
TOOLS = ("ort_nodes",)
TOP_NODES = 5
NOBODY = {"owner": "", "op_type": "nobody's", "provider": ""}
SHARE_COLUMNS = (
    *CASE_COLUMNS,
    SLOW_DOWN_COLUMN,
    Column("kernel_time_ms", "kernels, ms", "number"),
    Column("attributed_percent", "one node's, %", "number"),
    Column("unattributed_percent", "nobody's, %", "number"),
)
NODE_COLUMNS = (
    *CASE_COLUMNS,
    Column("provider", "provider", hidden=True),
    Column("share_percent", "%", "number"),
    Column("kernel_time_ms", "ms", "number", hidden=True),
    Column("launches", "launches", "number"),
    Column("operator", "operator"),
    Column("node", "node"),
)
KERNEL_COLUMNS = (
    *CASE_COLUMNS,
    Column("node", "node"),
    Column("operator", "operator"),
    Column("kernel", "kernel"),
    Column("share_percent", "%", "number"),
    Column("launches", "launches", "number"),
)
NOTE = (
    "Of a run. A launch is the node's whose time on the host holds the call. One at the edge of two nodes, or "
    "outside of all, is nobody's and is spread over none."
)


def section(evidence: Evidence) -> Section:
    """Shares, then the nodes with the longest kernels; empty where no case was watched so."""
    joins = [(one, attributed(one.frame)) for one in first_of(evidence, TOOLS)]
    if not joins:
        return Section(TITLE, ())
    note = f"{NOTE} {caution(evidence, [one for one, _ in joins])}"
    title = f"The {TOP_NODES} nodes with the largest share of each case's kernel time"
    nodes = [(one, join, attribution.by_owner(join, "op")) for one, join in joins]
    shown = tuple(row for one, join, table in nodes for row in _nodes(one, join, table.dropna().head(TOP_NODES)))
    every = tuple(row for one, join, table in nodes for row in _nodes(one, join, table))
    kernels = tuple(row for one, join in joins for row in _kernels(one, join))
    blocks: tuple[Block, ...] = (
        Table("node_shares", "", SHARE_COLUMNS, tuple(_share(evidence, *pair) for pair in joins), note, groups=2),
        Table("nodes", title, NODE_COLUMNS, shown, groups=5),
        Table("all_nodes", "Every node", NODE_COLUMNS, every, csv_only=True),
        Table("node_kernels", "The kernels of every node", KERNEL_COLUMNS, kernels, csv_only=True),
    )
    return Section(TITLE, blocks)


def _share(evidence: Evidence, one: Profile, join: pd.DataFrame) -> tuple[Cell, ...]:
    rows = rows_of(attribution.shares(join))
    if not rows:
        return (*case_cells(one.case), slow_down(evidence, one), *[missing("no kernel was traced")] * 3)
    time = rows[0]["total_ns"] / runs_of(one.frame)
    shares = (rows[0]["attributed_share"], rows[0]["unattributed_share"])
    return (
        *case_cells(one.case),
        slow_down(evidence, one),
        number(time / NS_PER_MS, milliseconds(time)),
        *(_percent(share) for share in shares),
    )


def _nodes(one: Profile, join: pd.DataFrame, table: pd.DataFrame) -> list[tuple[Cell, ...]]:
    """The rows of attribution.by_owner; an owner that is missing is nobody."""
    runs = runs_of(one.frame)
    kinds = {row["owner"]: row for row in rows_of(join.dropna(subset=["owner"]))}
    return [_node(one, row, kinds.get(row["owner"], NOBODY), runs) for row in rows_of(table)]


def _node(one: Profile, row: dict[str, Any], kind: dict[str, Any], runs: int) -> tuple[Cell, ...]:
    name = str(kind["owner"])
    return (
        *case_cells(one.case),
        words(kind["provider"]),
        _percent(row["share"]),
        number(row["duration_ns"] / runs / NS_PER_MS, milliseconds(row["duration_ns"] / runs)),
        number(row["instances"] / runs, count(row["instances"] / runs)),
        words(kind["op_type"]),
        Cell(name if len(name) <= NAME_LENGTH else f"…{name[1 - NAME_LENGTH :]}", name),
    )


def _kernels(one: Profile, join: pd.DataFrame) -> list[tuple[Cell, ...]]:
    runs, total = runs_of(one.frame), float(join["duration_ns"].sum())
    own = join.dropna(subset=["owner"]).sort_values("duration_ns", ascending=False, kind="stable")
    return [
        (
            *case_cells(one.case),
            words(row["owner"]),
            words(row["op_type"]),
            Cell(short(row["kernel"]), row["kernel"]),
            _percent(row["duration_ns"] / total),
            number(row["instances"] / runs, count(row["instances"] / runs)),
        )
        for row in rows_of(own)
    ]


def _percent(share: float) -> Cell:
    return number(100 * share, f"{100 * share:.1f}")
