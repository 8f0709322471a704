"""What ONNX Runtime ran on which of its providers, by its own profile: operators, copies, and nodes on the CPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from inferprof import registry
from inferprof.report.common import CASE_COLUMNS, NODE_NAME_LENGTH, case_cells, in_percent, in_us
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Table, number, words
from inferprof.report.numbers import count, milliseconds
from inferprof.report.profiled import SLOW_DOWN_COLUMN, Profile, caution, first_of, slow_down
from inferprof.report.section import Section
from inferprof.tables.nodes.fallback import subgraphs
from inferprof.tables.nodes.providers import by_provider, on_cpu, per_run
from inferprof.tables.records import rows_of
from inferprof.units import NS_PER_MS

if TYPE_CHECKING:
    import pandas as pd

TOP_TYPES = 2
TOP_NODES = 3
ONE_RUN = "the profile has no first run apart from others"
PARTS = ("subgraphs", "largest")
"""Names are cut to this on the page, at the front: a node's name ends with what tells it from others."""
PROVIDER_COLUMNS = (
    *CASE_COLUMNS,
    dataclasses.replace(SLOW_DOWN_COLUMN, hidden=True),
    Column("provider", "provider"),
    Column("share_percent", "%", "number"),
    Column("duration_ms", "ms", "number", hidden=True),
    Column("nodes", "nodes", "number"),
    Column("subgraphs", "subgraphs", "number"),
    Column("largest_subgraph", "largest subgraph", "number", hidden=True),
    Column("copies", "copies", "number"),
    Column("largest", "largest"),
)
NODE_COLUMNS = (
    *CASE_COLUMNS,
    Column("provider", "provider", hidden=True),
    Column("share_percent", "%", "number"),
    Column("executions", "a run", "number", hidden=True),
    Column("duration_us", "µs", "number", hidden=True),
    Column("first_run_us", "first run, µs", "number", hidden=True),
    Column("operator", "operator"),
    Column("node", "node"),
)
NOTE = (
    "Of the nodes' time on the host, without the first run: on a GPU a node ends with its launch, so its share says "
    "nothing of kernels. subgraphs: stretches of nodes without another provider between them. copies: Memcpy nodes."
)
ON_CPU_NOTE = (
    "Some are there on purpose: ONNX Runtime leaves the arithmetic of shapes to the CPU. A node in the middle of the "
    "work costs a copy there and one back. The rest is in csv/all_operators.csv."
)


def build(evidence: Evidence) -> Sequence[Block]:
    """Providers, then the nodes left to the CPU; empty where no case has such a profile."""
    joining = registry.joining("node")  # of several that watched a case the cheapest counts, which sees no kernel
    seen = first_of(evidence, sorted(registry.sessions(), key=lambda tool: tool in joining))
    if not seen:
        return ()
    nodes = [(profile, per_run(profile.frame)) for profile in seen]
    shares = tuple(row for profile, table in nodes for row in _providers(evidence, profile, table))
    everything = tuple(_node(profile, row) for profile, table in nodes for row in rows_of(table))
    title = "Operators of a run by execution provider"
    blocks: tuple[Block, ...] = (
        Table("providers", title, PROVIDER_COLUMNS, shares, f"{NOTE} {caution(evidence, seen)}", groups=5),
        *_left_to_the_cpu(nodes),
        Table("all_operators", "Every node", NODE_COLUMNS, everything, csv_only=True),
    )
    return blocks


def _providers(evidence: Evidence, profile: Profile, nodes: pd.DataFrame) -> list[tuple[Cell, ...]]:
    parts = {row["provider"]: row for row in rows_of(subgraphs(nodes))}
    return [
        (
            *case_cells(profile.case),
            slow_down(evidence, profile),
            Cell(str(row["provider"]).removesuffix("ExecutionProvider"), row["provider"]),
            in_percent(row["share"]),
            number(row["duration"] / NS_PER_MS, milliseconds(row["duration"])),
            number(row["nodes"], count(row["nodes"])),
            *(number(parts[row["provider"]][key], count(parts[row["provider"]][key])) for key in PARTS),
            number(row["copies"], count(row["copies"])),
            words(_largest(nodes[nodes["provider"] == row["provider"]])),
        )
        for row in rows_of(by_provider(nodes))
    ]


def _largest(nodes: pd.DataFrame) -> str:
    """`MatMul 19%, Gemm 12%`: the types with the largest shares of the whole run."""
    shares = nodes.groupby("op_type")["share"].sum().sort_values(ascending=False, kind="stable")
    return ", ".join(f"{name} {100 * share:.0f}%" for name, share in shares.head(TOP_TYPES).items())


def _left_to_the_cpu(nodes: list[tuple[Profile, pd.DataFrame]]) -> list[Table]:
    """The longest per case, of sessions that have another provider."""
    left = [(profile, on_cpu(table)) for profile, table in nodes]
    rows = tuple(_node(profile, row) for profile, table in left for row in rows_of(table.head(TOP_NODES)))
    title = f"Nodes on the CPU beside another provider, the {TOP_NODES} longest of each case"
    return [Table("cpu_nodes", title, NODE_COLUMNS, rows, ON_CPU_NOTE, groups=5)] if rows else []


def _node(profile: Profile, row: dict[str, Any]) -> tuple[Cell, ...]:
    name = str(row["name"])
    return (
        *case_cells(profile.case),
        words(row["provider"]),
        in_percent(row["share"]),
        number(row["executions"], count(row["executions"])),
        *(in_us(row[key], ONE_RUN) for key in ("duration", "first_run")),
        words(row["op_type"]),
        Cell(name if len(name) <= NODE_NAME_LENGTH else f"…{name[1 - NODE_NAME_LENGTH :]}", name),
    )


SECTION = Section(
    name="operators",
    title="Operators by provider",
    place=240,
    build=build,
    needs=("profiles",),
)
