"""The nodes of a graph against their roofs, by the kernels that a trace ties to them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from inferprof.tables.records import frame_of, rows_of

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
COLUMNS: Final = ("owner", "op", "kind", "limit", "flops", "bytes", "roof_ns", "duration_ns", "distance", "lost_ns")
FUSED: Final = re.compile(r"/\w*Fusion\w*/?$")
"""What ONNX Runtime adds to the name of the node that it fuses others into: node_MatMul_61/MatMulScaleFusion/."""


def of_owners(owners: pd.DataFrame, nodes: pd.DataFrame, runs: int) -> pd.DataFrame:
    """One row per owner of kernels whose node has a roof, the one that loses most time to it first.

    owners: attribution.by_owner at level op, over so many runs; nodes: roofline.nodes of the case's graph.
    `duration_ns` is per run, `lost_ns` = duration_ns - roof_ns. A fused node counts as the one that it is named
    after: its roof is a lower bound of what the kernel does. Owners that are no node of the graph are left out.
    """
    by_name = {row["name"]: row for row in rows_of(nodes[nodes["roof_ns"].notna()])}
    rows = []
    for owner in rows_of(owners[owners["owner"].notna()]):
        node = node_of(by_name, owner["owner"])
        if node is None or not node["roof_ns"]:
            continue
        duration = owner["duration_ns"] / runs
        facts = {column: node[column] for column in ("op", "kind", "limit", "flops", "bytes", "roof_ns")}
        measured = {"duration_ns": duration, "distance": duration / node["roof_ns"]}
        rows.append({"owner": owner["owner"], **facts, **measured, "lost_ns": duration - node["roof_ns"]})
    rows.sort(key=lambda row: -row["lost_ns"])
    return frame_of(rows, list(COLUMNS))


def node_of(nodes: Mapping[str, T], owner: str) -> T | None:
    """The node that an owner of kernels is, or that it is fused into, out of nodes by name."""
    return nodes.get(owner) or nodes.get(FUSED.sub("", owner))
