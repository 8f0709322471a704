"""The kernels of matrix products and convolutions that a case launches, and the nodes that traces tie them to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from inferprof.documents.graph import Node
from inferprof.tables.counters.ncu_choice import function_name
from inferprof.tables.nodes import ort_kernels
from inferprof.tables.nodes.node_roofline import FUSED, node_of
from inferprof.tables.records import rows_of
from inferprof.tables.trace.kernel_class import KernelClass, classify
from inferprof.tables.trace.kernel_compare import per_iteration
from inferprof.tables.trace.tile_names import Tile, parse

PRODUCT_CLASSES: Final[tuple[KernelClass, ...]] = ("gemm", "convolution")
Ties = Mapping[str, frozenset[str]]
"""Node → the kernels of products that a trace ties to it; a node that no trace ties to any is not in it."""


@dataclass(frozen=True)
class Kernel:
    """A kernel that computes products, in one launch configuration."""

    name: str
    tile: Tile | None
    blocks: int | None
    launches: int
    """Per iteration."""
    duration: float
    """ns per launch, mean."""


def kernels_of(frame: pd.DataFrame) -> list[Kernel]:
    """The kernels of products in one case's timeline, by launch configuration where the tool tells it.

    Configurations are those of the whole capture; a kernel's launches in iterations are shared out by them.
    """
    table = per_iteration(frame)
    table = table[table["kernel_class"].isin(PRODUCT_CLASSES)]
    configs = _configs(frame)
    merged = table.merge(configs, on="name", how="left", validate="one_to_many").astype(object)
    kernels = [_kernel(row) for row in rows_of(merged.where(merged.notna(), None))]
    return [kernel for kernel in kernels if kernel.launches]


def _kernel(row: Mapping[str, Any]) -> Kernel:
    """A row of per_iteration with one of the kernel's configurations, whose columns are None where not told."""
    grid = row["grid"]
    return Kernel(
        name=row["name"],
        tile=parse(row["name"]),
        blocks=None if grid is None else math.prod(int(size) for size in grid.split(",")),
        launches=round(row["launches"] * (1.0 if grid is None else row["config_share"])),
        duration=row["duration"] / row["launches"] if grid is None else row["config_mean"],
    )


def _configs(frame: pd.DataFrame) -> pd.DataFrame:
    """name, grid, config_share (of the kernel's launches) and config_mean (ns) of each launch configuration."""
    configs = frame[frame["level"].eq("launch_config")]
    mean = configs.loc[configs["metric"].eq("duration_mean"), ["name", "launch", "instances", "value"]]
    grid = configs.loc[configs["metric"].eq("grid"), ["name", "launch", "text"]]
    table = mean.merge(grid, on=["name", "launch"], validate="one_to_one")
    share = table["instances"] / table.groupby("name")["instances"].transform("sum")
    table = table.assign(config_share=share).rename(columns={"text": "grid", "value": "config_mean"})
    return table[["name", "grid", "config_share", "config_mean"]]


def ties_of(frame: pd.DataFrame) -> Ties:
    """The ties in one case's table by ort_nodes; a fused node is taken for the one that it is named after."""
    ties: dict[str, set[str]] = {}
    for row in rows_of(ort_kernels.attributed(frame).dropna(subset=["owner"])):
        if classify(row["kernel"]).kernel_class in PRODUCT_CLASSES:
            ties.setdefault(FUSED.sub("", row["owner"]), set()).add(row["kernel"])
    return {node: frozenset(kernels) for node, kernels in ties.items()}


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
