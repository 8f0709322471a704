"""What ONNX Runtime leaves to the CPU in a session of another provider: why, what it costs, what a move would gain.

A stay is what runs without a break, in the order of execution, between two nodes of the other provider: nodes on the
CPU, the Memcpy nodes to and from them, and the casts that ONNX Runtime inserts where the CPU has no kernel for a
format. Times are the host's, of one run.

The gain of moving a stay's nodes lies between
    gain_low  = copies + casts           the nodes take as long on the GPU as on the CPU
    gain_high = copies + casts + nodes   they take no time there
and where a trace of the GPU is at hand neither is more than `kernel_idle` of the stay: while the GPU computes, the
host waits for work that remains.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final, Literal

import numpy as np
import pandas as pd

from inferprof.tables.providers import COPY, CPU
from inferprof.tables.records import rows_of

Why = Literal["operator", "number format", "attributes", "subgraph size", "option", "on purpose", "not told"]
WHYS: Final[dict[Why, str]] = {
    "operator": "the provider has no kernel for the operator",
    "number format": "it has one, not for these formats or this version of the operator",
    "attributes": "it has one, not for these attributes or inputs",
    "subgraph size": "the subgraph is smaller than the option allows",
    "option": "an option excludes the operator",
    "on purpose": "sizes of tensors: ONNX Runtime leaves their arithmetic to the CPU",
    "not told": "this version of ONNX Runtime does not say",
}
_SAID: Final[tuple[tuple[str, Why], ...]] = (
    ("CUDA kernel not found", "operator"),
    ("CUDA kernel not supported", "attributes"),
    ("the CPU execution path is deemed faster", "on purpose"),
)
"""How ONNX Runtime's own words begin (ort_told)."""
SMALL_BYTES: Final = 1024
"""What the sizes of tensors take at most: 128 of them."""
_INTEGERS: Final = frozenset({"int64", "int32", "bool"})
_INSERTED_CAST: Final = re.compile(r"Inserted(?:PrecisionFree)?Cast_")
"""How ONNX Runtime names its own casts."""
SUMMED: Final = ("nodes_ns", "copies_ns", "copies_bytes", "casts_ns", "casts_bytes", "gain_low", "gain_high")


def ledger(nodes: pd.DataFrame) -> pd.DataFrame:
    """One row per stay, dearest first: nodes, op_types, executions, why, copies and casts (counts), SUMMED.

    nodes: as providers.per_run gives them, of one case. Empty for a session of the CPU alone. Bytes are missing where
    the profile does not tell them. A session of a CPU and a Memcpy node with no node of the CPU beside it: no stay.
    """
    ordered = nodes.sort_values("position", kind="stable", ignore_index=True)
    copy = ordered["op_type"].str.startswith(COPY)
    cast = ordered["name"].str.match(_INSERTED_CAST)
    on_cpu = (ordered["provider"] == CPU) & ~copy & ~cast
    beside = on_cpu | copy | cast
    elsewhere = set(ordered.loc[~beside, "op_type"])
    stay = (beside != beside.shift()).cumsum()
    rows = [
        _stay(own, on_cpu[own.index], copy[own.index], elsewhere)
        for _, own in ordered[beside].groupby(stay[beside])
        if on_cpu[own.index].any() and not beside.all()
    ]
    table = pd.DataFrame(rows, columns=["nodes", "op_types", "executions", "why", "copies", "casts", *SUMMED])
    return table.sort_values("gain_high", ascending=False, kind="stable", ignore_index=True)


def _stay(own: pd.DataFrame, on_cpu: pd.Series, copy: pd.Series, elsewhere: Collection[str]) -> dict[str, Any]:
    cpu, copies, casts = own[on_cpu], own[copy], own[~on_cpu & ~copy]
    bridge = copies["duration"].sum() + casts["duration"].sum()
    idle = (own["kernel_idle"] * own["executions"]).sum() if own["kernel_idle"].notna().all() else np.inf
    reasons = sorted({why(node, elsewhere, bool(len(copies))) for node in rows_of(cpu)})
    return {
        "nodes": ", ".join(cpu["name"]),
        "op_types": ", ".join(dict.fromkeys(cpu["op_type"])),
        "executions": cpu["executions"].sum(),
        "why": ", ".join(reasons),
        "copies": copies["executions"].sum(),
        "casts": casts["executions"].sum(),
        "nodes_ns": cpu["duration"].sum(),
        "copies_ns": copies["duration"].sum(),
        "copies_bytes": _bytes(copies),
        "casts_ns": casts["duration"].sum(),
        "casts_bytes": _bytes(casts),
        "gain_low": min(bridge, idle),
        "gain_high": min(bridge + cpu["duration"].sum(), idle),
    }


def _bytes(nodes: pd.DataFrame) -> float:
    """What the nodes of a run write; missing where one does not say."""
    return float((nodes["output_bytes"].astype(float) * nodes["executions"]).sum(skipna=False))


def why(node: Mapping[str, Any], elsewhere: Collection[str], copied: bool) -> Why:
    """Why a node is on the CPU: as ONNX Runtime said it, or as what the node works on shows.

    elsewhere: the types of nodes that another provider did take; copied: a copy was needed for the node's stay.
    """
    for words, reason in _SAID:
        if str(node["fallback_reason"]).startswith(words):
            return "number format" if reason == "operator" and node["op_type"] in elsewhere else reason
    formats = set(str(node["input_types"]).split(", "))
    if not copied and formats <= _INTEGERS and node["output_bytes"] <= SMALL_BYTES:
        return "on purpose"
    return "not told"


def subgraphs(nodes: pd.DataFrame) -> pd.DataFrame:
    """Per provider, in the order of first use: subgraphs (stretches without a break), nodes, and their largest size.

    nodes: as for `ledger`; copies count for nothing. A fused node counts as the nodes of the graph that it stands
    for, where that is told, else as one.
    """
    ordered = nodes[~nodes["op_type"].str.startswith(COPY)].sort_values("position", kind="stable", ignore_index=True)
    size = ordered["subgraph_nodes"].astype(float)
    ordered = ordered.assign(
        stretch=(ordered["provider"] != ordered["provider"].shift()).cumsum(), size=size.fillna(1)
    )
    sizes = ordered.groupby(["provider", "stretch"], sort=False)["size"].sum()
    table = sizes.groupby("provider", sort=False).agg(subgraphs="size", nodes="sum", largest="max", smallest="min")
    return table.reset_index()
