"""How fast a case could be on this GPU at the best: what its graph computes and moves, against the GPU's roofs.

Williams, Waterman and Patterson, "Roofline: An Insightful Visual Performance Model", CACM 52(4), 2009: work takes at
least FLOPs / peak of its type, and at least bytes / bandwidth.

Of a model there are two times at the roof:
- **fused**: as if one kernel did it all: the largest of the products' FLOPs at their types' peaks, of the other FLOPs
  at the CUDA cores' (these run beside the tensor cores), and of weights, inputs and outputs at the bandwidth. Nothing
  can be faster, unless the bytes stay in the L2 from one inference to the next;
- **unfused**: each node by itself at its own roof, one after the other. Runtimes that fuse may be faster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, Literal

import pandas as pd

from inferprof.documents import Cost
from inferprof.documents.graph import Node
from inferprof.tables.records import KEY, frame_of, key_of, options_of, rows_of
from inferprof.tables.roofs import CUDA_CORES, Roofs

Limit = Literal["compute", "memory"]
COLUMNS: Final = (
    *KEY,
    "device_ms",
    "flops",
    "bytes",
    "intensity",
    "kind",
    "peak_flops",
    "bandwidth",
    "fused_ms",
    "unfused_ms",
    "limit",
    "in_l2",
    "source",
    "uncounted",
    "not_known",
)
FOR_PLOTS: Final = dict.fromkeys(("flops", "intensity", "peak_flops", "bandwidth"), float)
"""The columns that the diagram is drawn of."""
NODE_COLUMNS: Final = ("name", "op", "kind", "flops", "bytes", "intensity", "roof_ns", "limit")


def by_case(
    measured: pd.DataFrame, records: pd.DataFrame, costs: Mapping[tuple[str, str, str], Cost | None], roofs: Roofs
) -> pd.DataFrame:
    """One row per case that has a device time: FLOPs, bytes and intensity of the fused graph, its times at the roof.

    measured: tables.join.measured; records: as read, for the variants' options; costs: (model, precision, shape) →
    .cost.json. `kind` is the type of most FLOPs, `peak_flops` what the mix of the products' types allows, `limit` the
    roof that binds the fused graph, `in_l2` whether its bytes fit in the L2, `uncounted` the nodes of unknown FLOPs.
    `source` names the sources of the roofs; `not_known` says why there is no time at the roof.
    """
    options = options_of(records)
    rows = []
    for row in rows_of(measured[measured["device_ms"].notna()]):
        key = key_of(row)
        graph = (row["model"], row["precision"], row["shape"])
        figures = {"not_known": f"there is no onnx/{graph[0]}/{graph[1]}.{graph[2]}.cost.json"}
        if cost := costs.get(graph):
            figures = of_graph(cost, roofs.of_variant(options.get(key, {})))
        rows.append({**dict(zip(KEY, key, strict=True)), "device_ms": row["device_ms"], **figures})
    return frame_of(rows, list(COLUMNS))


def of_graph(cost: Cost, roofs: Roofs) -> dict[str, Any]:
    """The columns of by_case of one graph, apart from KEY and what was measured."""
    flops: Counter[str] = Counter()
    nodes_of_graph = cost.nodes or []
    for node in nodes_of_graph:
        flops[roofs.kind(node)] += node.flops or 0
    moved = cost.moved
    facts = {
        "flops": flops.total(),
        "bytes": moved,
        "intensity": flops.total() / moved if moved else None,
        "kind": next((kind for kind, _ in flops.most_common(1)), None),
        "uncounted": sum(node.flops is None for node in nodes_of_graph),
    }
    needed = {kind for kind, count in flops.items() if count}
    if lacking := _lacking(moved, needed, roofs):
        return {**facts, "not_known": lacking}
    return {**facts, **_times(cost, moved or 0, needed, roofs)}


def nodes(cost: Cost, roofs: Roofs) -> pd.DataFrame:
    """One row per node of a graph at its own roof. `roof_ns` is None where it has neither FLOPs nor bytes to tell."""
    return frame_of([_node(node, roofs) for node in cost.nodes or ()], list(NODE_COLUMNS))


def _lacking(moved: int | None, needed: set[str], roofs: Roofs) -> str | None:
    """Why a graph has no time at the roof, or None."""
    if moved is None:
        return "sizes of its inputs, outputs or weights could not be inferred"
    if roofs.bandwidth is None:
        return "the GPU's bandwidth is neither measured nor on file"
    if unknown := sorted(needed - set(roofs.flops)):
        return f"the GPU's peak in {', '.join(unknown)} is neither measured nor on file"
    return None


def _times(cost: Cost, moved: int, needed: set[str], roofs: Roofs) -> dict[str, Any]:
    """The times at the roof of a graph of which all roofs are known."""
    assert roofs.bandwidth is not None
    products = [node for node in cost.nodes or () if node.product and node.flops]
    others = sum(node.flops or 0 for node in cost.nodes or () if not node.product)
    product_s = sum(roofs.compute_s(node) or 0.0 for node in products)
    compute_s = max(product_s, others / roofs.flops[CUDA_CORES].value if others else 0.0)
    memory_s = moved / roofs.bandwidth.value
    sources = {roofs.flops[kind].source for kind in needed} | {roofs.bandwidth.source}
    limit: Limit = "compute" if compute_s >= memory_s else "memory"
    return {
        "peak_flops": sum(node.flops or 0 for node in products) / product_s if products else None,
        "bandwidth": roofs.bandwidth.value,
        "fused_ms": max(compute_s, memory_s) * 1e3,
        "unfused_ms": sum(nodes(cost, roofs)["roof_ns"].dropna()) / 1e6,
        "limit": limit,
        "in_l2": roofs.l2_bytes is not None and moved <= roofs.l2_bytes,
        "source": ", ".join(sorted(sources, reverse=True)),
    }


def _node(node: Node, roofs: Roofs) -> dict[str, Any]:
    moved = node.moved
    times: dict[Limit, float] = {}
    if (seconds := roofs.compute_s(node)) is not None:
        times["compute"] = seconds
    if moved is not None and roofs.bandwidth is not None:
        times["memory"] = moved / roofs.bandwidth.value
    limit, slowest_s = max(times.items(), key=lambda item: item[1], default=(None, None))
    return {
        "name": node.name,
        "op": node.op,
        "kind": roofs.kind(node),
        "flops": node.flops,
        "bytes": moved,
        "intensity": node.flops / moved if moved and node.flops is not None else None,
        "roof_ns": None if slowest_s is None else slowest_s * 1e9,
        "limit": limit,
    }
