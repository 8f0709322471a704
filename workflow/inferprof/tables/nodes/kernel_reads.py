"""What a kernel must read, by the nodes that a trace ties it to: with it, data that are read again can be told."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from inferprof.documents.graph import Node
from inferprof.tables.counters.ncu_choice import function_name
from inferprof.tables.nodes import ort_kernels
from inferprof.tables.nodes.node_roofline import node_of
from inferprof.tables.records import rows_of

if TYPE_CHECKING:
    import pandas as pd


def of_functions(ties: pd.DataFrame, nodes: Iterable[Node]) -> dict[str, float]:
    """Kernel function → the bytes that a launch of it reads at least, each once; those of which all is known.

    ties: one case's table by ort_nodes; nodes: of the graph's cost. A function that serves several nodes is given
    what the largest of them reads, and each kernel of a node that has several all that the node reads: more than it
    must, so that what is said to be read again is.
    """
    costs = {node.name: node for node in nodes}
    reads: dict[str, list[int | None]] = {}
    for row in rows_of(ort_kernels.attributed(ties)):
        node = node_of(costs, row["owner"]) if isinstance(row["owner"], str) else None
        reads.setdefault(function_name(str(row["kernel"])), []).append(node.operands if node else None)
    return {name: float(max(size or 0 for size in own)) for name, own in reads.items() if None not in own}
