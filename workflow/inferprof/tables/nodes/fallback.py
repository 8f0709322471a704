"""What ONNX Runtime leaves to another execution provider than asked for: why, what it costs, what a move would gain.

The main provider of a session is the one that fuses nodes, else the one beside the CPU. A fallback is what runs
without a break, in the order of execution, between two of its nodes: nodes on other providers, the Memcpy nodes to
and from them, and the casts that ONNX Runtime inserts where the CPU has no kernel for a format. Times are of a run,
and the host's.

The gain of moving a fallback's nodes to the main provider lies between
    gain_low  = copies + casts           the nodes take as long there as here
    gain_high = copies + casts + nodes   they take no time there
and where a trace of the GPU is at hand neither is more than `kernel_idle` of the fallback: while the GPU computes,
the host waits for work that remains.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np
import pandas as pd

from inferprof.documents import Partition
from inferprof.tables.nodes.providers import COPY, CPU, EXCLUDED, SMALLEST, TRT_ENGINE
from inferprof.tables.records import rows_of

Why = Literal[
    "operator", "number format", "attributes", "dynamic shape", "subgraph size", "option", "on purpose", "not told"
]
WHYS: Final[dict[Why, str]] = {
    "operator": "the provider has no kernel for the operator",
    "number format": "it has one, not for these formats or this version of the operator",
    "attributes": "it has one, not for these attributes or inputs",
    "dynamic shape": "it has one, for fixed sizes only",
    "subgraph size": "the subgraph is smaller than the option allows",
    "option": "an option excludes the operator",
    "on purpose": "sizes of tensors: ONNX Runtime leaves their arithmetic to the CPU",
    "not told": "this version of ONNX Runtime does not say why",
}
_SAID: Final[tuple[tuple[str, Why], ...]] = (
    ("CUDA kernel not found", "operator"),
    ("CUDA kernel not supported", "attributes"),
    ("the CPU execution path is deemed faster", "on purpose"),
    (EXCLUDED, "option"),
    (SMALLEST, "subgraph size"),
)
"""How the reasons begin that a profile has: ONNX Runtime's own words (ort_told), or the name of an option."""
ON_PURPOSE: Final = "on purpose"
NOT_TOLD: Final = "not told"
SMALL_BYTES: Final = 1024
"""What the sizes of tensors take at most: 128 of them."""
_INTEGERS: Final = frozenset({"int64", "int32", "bool"})
_INSERTED_CAST: Final = re.compile(r"Inserted(?:PrecisionFree)?Cast_")
"""How ONNX Runtime names its own casts."""
TENSORRT: Final = "ort_tensorrt"
"""How the names of the backends begin whose provider has the parser of a partition."""
TEXTS: Final = ("nodes", "op_types", "providers", "why")
SUMMED: Final = ("nodes_ns", "copies_ns", "copies_bytes", "casts_ns", "casts_bytes", "gain_low", "gain_high")


def ledger(nodes: pd.DataFrame) -> pd.DataFrame:
    """One row per fallback, most expensive first.

    Columns: nodes, op_types, providers, executions, why, copies, casts (counts), SUMMED.
    nodes: as providers.per_run gives them, of one case. Empty for a session of the CPU alone. Bytes are missing where
    the profile does not tell them. Copies and casts with no node of another provider beside them are no fallback.
    """
    ordered = nodes.sort_values("position", kind="stable", ignore_index=True)
    copy = ordered["op_type"].str.startswith(COPY)
    cast = ordered["name"].str.match(_INSERTED_CAST)
    away = (ordered["provider"] != main_provider(nodes)) & ~copy & ~cast
    beside = away | copy | cast
    elsewhere = set(ordered.loc[~beside, "op_type"])
    stretch = (beside != beside.shift()).cumsum()
    rows = [
        _fallback(own, away[own.index], copy[own.index], elsewhere)
        for _, own in ordered[beside].groupby(stretch[beside])
        if away[own.index].any()
    ]
    columns = ["nodes", "op_types", "providers", "executions", "why", "copies", "casts", *SUMMED]
    table = pd.DataFrame(rows, columns=columns)
    return table.sort_values("gain_high", ascending=False, kind="stable", ignore_index=True)


def explained(fallbacks: pd.DataFrame, backend: str, partition: Partition | None) -> pd.DataFrame:
    """The ledger with the parser's reason where ONNX Runtime tells none of why TensorRT left a node.

    backend: the case's; partition: the content of its graph's .partition.json (backends.tensorrt_partition), or None.
    """
    asked = partition.left if partition and backend.startswith(TENSORRT) else {}
    left = {name: node.why for name, node in asked.items()}
    reasons = zip(fallbacks["nodes"], fallbacks["why"], strict=True)
    return fallbacks.assign(why=[left.get(node, why) if why == NOT_TOLD else why for node, why in reasons])


def alike(fallbacks: pd.DataFrame, by: Sequence[str] = TEXTS[1:]) -> pd.DataFrame:
    """The ledger with fallbacks of the same operators, provider and reason as one row, most expensive first.

    `fallbacks` is how many they are, `nodes` names those of all, as do TEXTS that are not in `by`; numbers add up: a
    fallback is time of its own.
    """
    texts = {name: (name, ", ".join) for name in TEXTS if name not in by}
    numbers = {name: (name, _whole) for name in ("executions", "copies", "casts", *SUMMED)}
    table = fallbacks.groupby([*by], sort=False, as_index=False).agg(fallbacks=("nodes", "size"), **texts, **numbers)
    return table.sort_values("gain_high", ascending=False, kind="stable", ignore_index=True)


def _whole(column: pd.Series) -> float:
    """The sum; missing where one is."""
    return float(column.sum(skipna=False))


def main_provider(nodes: pd.DataFrame) -> str:
    """The provider that was to run all: the one of fused nodes, else the one with the most nodes beside the CPU's."""
    fused = nodes.loc[nodes["op_type"] == TRT_ENGINE, "provider"]
    if len(fused):
        return str(fused.iloc[0])
    others = nodes.loc[nodes["provider"] != CPU, "provider"]
    return str(others.mode().iloc[0]) if len(others) else CPU


def _fallback(own: pd.DataFrame, away: pd.Series, copy: pd.Series, elsewhere: Collection[str]) -> dict[str, Any]:
    nodes, copies, casts = own[away], own[copy], own[~away & ~copy]
    bridge = copies["duration"].sum() + casts["duration"].sum()
    idle = (own["kernel_idle"] * own["executions"]).sum() if own["kernel_idle"].notna().all() else np.inf
    reasons = sorted({why(node, elsewhere, bool(len(copies))) for node in rows_of(nodes)})
    return {
        "nodes": ", ".join(nodes["name"].where(nodes["name"] != "", nodes["op_type"])),
        "op_types": ", ".join(dict.fromkeys(nodes["op_type"])),
        "providers": ", ".join(dict.fromkeys(nodes["provider"])),
        "executions": nodes["executions"].sum(),
        "why": ", ".join(reasons),
        "copies": copies["executions"].sum(),
        "casts": casts["executions"].sum(),
        "nodes_ns": nodes["duration"].sum(),
        "copies_ns": copies["duration"].sum(),
        "copies_bytes": _bytes(copies),
        "casts_ns": casts["duration"].sum(),
        "casts_bytes": _bytes(casts),
        "gain_low": min(bridge, idle),
        "gain_high": min(bridge + nodes["duration"].sum(), idle),
    }


def _bytes(nodes: pd.DataFrame) -> float:
    """What the nodes of a run write; missing where one does not say."""
    return float((nodes["output_bytes"].astype(float) * nodes["executions"]).sum(skipna=False))


def why(node: Mapping[str, Any], elsewhere: Collection[str], copied: bool) -> Why:
    """Why a node is with another provider: as ONNX Runtime said it, or as what the node works on shows.

    elsewhere: the types of nodes that another provider did take; copied: a copy was needed for the node's fallback.
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
    for, where that is told, else as often as it ran.
    """
    ordered = nodes[~nodes["op_type"].str.startswith(COPY)].sort_values("position", kind="stable", ignore_index=True)
    size = ordered["subgraph_nodes"].astype(float)
    ordered = ordered.assign(
        stretch=(ordered["provider"] != ordered["provider"].shift()).cumsum(), size=size.fillna(ordered["executions"])
    )
    sizes = ordered.groupby(["provider", "stretch"], sort=False)["size"].sum()
    table = sizes.groupby("provider", sort=False).agg(subgraphs="size", nodes="sum", largest="max", smallest="min")
    return table.reset_index()
