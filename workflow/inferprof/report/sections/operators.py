"""What ONNX Runtime ran on which of its providers, by its own profile: operators, copies, and nodes on the CPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pandas as pd

from inferprof import registry
from inferprof.report.common import NODE_NAME_LENGTH
from inferprof.report.evidence import Evidence
from inferprof.report.fields import CASE, Field, csv_of, ms, percent, plain, table_of, text, us
from inferprof.report.model import Block, Cell, Column, Table
from inferprof.report.numbers import count
from inferprof.report.profiled import SLOW_DOWN_COLUMN, Profile, caution, first_of, slow_down
from inferprof.report.section import section
from inferprof.tables.nodes.fallback import subgraphs
from inferprof.tables.nodes.providers import by_provider, by_type, on_cpu, per_run
from inferprof.tables.records import rows_of

TOP_TYPES = 2
TOP_NODES = 3
ONE_RUN = "the profile has no first run apart from others"
PROVIDERS = (
    *CASE,
    Field(dataclasses.replace(SLOW_DOWN_COLUMN, hidden=True), lambda row: row["slow_down"]),
    Field(
        Column("provider", "provider"),
        lambda row: Cell(str(row["provider"]).removesuffix("ExecutionProvider"), row["provider"]),
    ),
    percent("share", "%"),
    ms("duration", "ms", of="duration", hidden=True),
    plain("nodes", None, count),
    plain("subgraphs", None, count),
    plain("largest_subgraph", "largest subgraph", count, of="largest", hidden=True),
    plain("copies", None, count),
    text("largest", of="types"),
)
NODES = (
    *CASE,
    text("provider", hidden=True),
    percent("share", "%"),
    plain("executions", "a run", count, hidden=True),
    us("duration", "µs", ONE_RUN, of="duration", hidden=True),
    us("first_run", "first run, µs", ONE_RUN, of="first_run", hidden=True),
    text("operator", of="op_type"),
    Field(Column("node", "node"), lambda row: _end_of(str(row["name"]))),
)
NOTE = (
    "Of the nodes' time on the host, without the first run: on a GPU a node ends with its launch, so its share says "
    "nothing of kernels. subgraphs: stretches of nodes without another provider between them. copies: Memcpy nodes."
)
ON_CPU_NOTE = (
    "Some are there on purpose: ONNX Runtime leaves the arithmetic of shapes to the CPU. A node in the middle of the "
    "work costs a copy there and one back. The rest is in csv/all_operators.csv."
)


@section("operators", "Operators by provider", place=240, needs=("profiles",))
def build(evidence: Evidence) -> Sequence[Block]:
    """Providers, then the nodes left to the CPU; empty where no case has such a profile."""
    joining = registry.joining("node")  # of several that watched a case the cheapest counts, which sees no kernel
    seen = first_of(evidence, sorted(registry.sessions(), key=lambda tool: tool in joining))
    if not seen:
        return ()
    nodes = [(profile, per_run(profile.frame)) for profile in seen]
    shares = [row for profile, table in nodes for row in _providers(evidence, profile, table)]
    every = [{**profile.case, **row} for profile, table in nodes for row in rows_of(table)]
    title = "Operators of a run by execution provider"
    blocks: tuple[Block, ...] = (
        table_of("providers", title, PROVIDERS, shares, f"{NOTE} {caution(evidence, seen)}", groups=5),
        *_left_to_the_cpu(nodes),
        csv_of("all_operators", "Every node", NODES, every),
    )
    return blocks


def _providers(evidence: Evidence, profile: Profile, nodes: pd.DataFrame) -> list[dict[str, Any]]:
    parts = {row["provider"]: row for row in rows_of(subgraphs(nodes))}
    watched = {**profile.case, "slow_down": slow_down(evidence, profile)}
    return [
        {
            **watched,
            **row,
            **{key: parts[row["provider"]][key] for key in ("subgraphs", "largest")},
            "types": _largest(nodes[nodes["provider"] == row["provider"]]),
        }
        for row in rows_of(by_provider(nodes))
    ]


def _largest(nodes: pd.DataFrame) -> str:
    """`MatMul 19%, Gemm 12%`: the types with the largest shares of the whole run."""
    shares = by_type(nodes)
    return ", ".join(f"{name} {100 * share:.0f}%" for name, share in shares.head(TOP_TYPES).items())


def _left_to_the_cpu(nodes: list[tuple[Profile, pd.DataFrame]]) -> list[Table]:
    """The longest per case, of sessions that have another provider."""
    rows = [{**profile.case, **row} for profile, table in nodes for row in rows_of(on_cpu(table).head(TOP_NODES))]
    title = f"Nodes on the CPU beside another provider, the {TOP_NODES} longest of each case"
    return [table_of("cpu_nodes", title, NODES, rows, ON_CPU_NOTE, groups=5)] if rows else []


def _end_of(name: str) -> Cell:
    """A node's name ends with what tells it from others."""
    return Cell(name if len(name) <= NODE_NAME_LENGTH else f"…{name[1 - NODE_NAME_LENGTH :]}", name)
