"""Operators, nodes and kernels against their own roofs: what the roofline of a whole case is made of."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

from inferprof import registry
from inferprof.report.common import CASE_COLUMNS, case_cells, in_us, optional, short_kernel
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Table, missing, number, words
from inferprof.report.numbers import ratio, three_digits
from inferprof.report.profiled import Profile, caution, first_of, join_of
from inferprof.tables.counters import kernel_roofline
from inferprof.tables.limits import roofline
from inferprof.tables.nodes import attribution, node_roofline
from inferprof.tables.records import KEY, frame_of, key_of, options_of, rows_of
from inferprof.units import GIGA, MEGA

if TYPE_CHECKING:
    import pandas as pd

TOP = 3
SURE = 0.8
"""From this confidence on a kernel is taken for a node's."""
UNKNOWN_FLOPS = "no FLOPs are known of this operator, or a size is not"
UNKNOWN_BYTES = "a size is not known"
NO_ROOF = "no roof is known"
OPERATOR_COLUMNS = (
    Column("model", "model"),
    Column("precision", "precision"),
    Column("shape", "shape"),
    Column("node", "node"),
    Column("operator", "operator"),
    Column("kind", "type"),
    Column("flop", "FLOP", "number"),
    Column("bytes", "bytes", "number"),
    Column("flop_per_byte", "FLOP/B", "number"),
    Column("roof_us", "roof µs", "number"),
    Column("limit", "limit"),
)
NODE_COLUMNS = (
    *CASE_COLUMNS,
    Column("lost_us", "lost µs", "number"),
    Column("us", "µs", "number", hidden=True),
    Column("roof_us", "roof µs", "number", hidden=True),
    Column("times_roof", "× roof", "number"),
    Column("limit", "limit"),
    Column("operator", "operator", hidden=True),
    Column("node", "node"),
)
KERNEL_COLUMNS = (
    *CASE_COLUMNS,
    Column("launch", "launch", "number", hidden=True),
    Column("gflop", "GFLOP", "number", hidden=True),
    Column("mb", "MB", "number", hidden=True),
    Column("flop_per_byte", "FLOP/B", "number", hidden=True),
    Column("roof_us", "roof µs", "number", hidden=True),
    Column("us", "µs", "number"),
    Column("times_roof", "× roof", "number"),
    Column("limit", "limit"),
    Column("kernel", "kernel"),
)


def blocks(evidence: Evidence) -> list[Block]:
    """The nodes that lose most, the longest kernels that were counted, and every operator as a CSV."""
    return [*_nodes(evidence), *_kernels(evidence), _operators(evidence)]


def _operators(evidence: Evidence) -> Table:
    """Every node of every graph that a case on the GPU ran; fp32 without TF32."""
    ran = dict.fromkeys((row["model"], row["precision"], row["shape"]) for row in rows_of(evidence.roofline))
    rows = [
        tuple(_operator(graph, node))
        for graph in ran
        if (cost := evidence.costs[graph].content)
        for node in rows_of(roofline.nodes(cost, evidence.roofs))
    ]
    return Table("roofline_operators", "Every operator at its own roof", OPERATOR_COLUMNS, tuple(rows), csv_only=True)


def _operator(graph: tuple[str, str, str], node: dict[str, Any]) -> list[Cell]:
    return [
        *(words(part) for part in (*graph, node["name"], node["op"], node["kind"])),
        optional(node["flops"], str, UNKNOWN_FLOPS),
        optional(node["bytes"], str, UNKNOWN_BYTES),
        optional(node["intensity"], three_digits, UNKNOWN_FLOPS),
        in_us(node["roof_ns"], NO_ROOF),
        words(node["limit"]) if node["limit"] else missing(NO_ROOF),
    ]


# --- nodes -----------------------------------------------------------------------------------------------------


def _nodes(evidence: Evidence) -> list[Block]:
    """The nodes whose kernels take longest beyond their roofs, by the traces that tie kernels to nodes."""
    seen = first_of(evidence, registry.joining("node", "layer"))
    rows = [{**profile.case, **row} for profile in seen for row in rows_of(_lost(evidence, profile))]
    if not rows:
        return []
    note = (
        "Kernel time of the node beyond its own roof, per run. What a runtime fuses into a node is not in that "
        f"node's roof. {caution(evidence, seen)}"
    )
    title = f"The {TOP} nodes of each case that lose most time"
    shown = Table("node_roofline", title, NODE_COLUMNS, (), note, groups=5)
    return _tables(shown, "Every node against its roof", rows, _node)


def _lost(evidence: Evidence, profile: Profile) -> pd.DataFrame:
    """tables.nodes.node_roofline of one case; no rows where its graph was not counted or no inference was traced."""
    join = join_of(profile)
    cost = evidence.costs[profile.case["model"], profile.case["precision"], profile.case["shape"]].content
    if not cost or not (runs := join.inferences(profile.frame)):
        return frame_of([], list(node_roofline.COLUMNS))
    options = options_of(evidence.records).get(key_of(profile.case), {})
    nodes = roofline.nodes(cost, evidence.roofs.of_variant(options))
    return node_roofline.of_owners(attribution.by_owner(join.attributed(profile.frame), "op", SURE), nodes, runs)


def _node(row: dict[str, Any]) -> list[Cell]:
    return [
        *case_cells(row),
        *(in_us(row[f"{what}_ns"]) for what in ("lost", "duration", "roof")),
        number(row["distance"], ratio(row["distance"])),
        words(row["limit"]),
        words(row["op"]),
        Cell(short_kernel(row["owner"]), row["owner"]),
    ]


# --- kernels ---------------------------------------------------------------------------------------------------


def _kernels(evidence: Evidence) -> list[Block]:
    """The kernels that ncu counted, the longest first; nothing where it counted none."""
    counted = evidence.profiles[evidence.profiles["tool"].isin(registry.counters())]
    rows = [
        {**dict(zip(KEY, key, strict=True)), **row}
        for key, frame in counted.groupby(KEY, sort=False)
        for row in rows_of(kernel_roofline.of_case(frame, evidence.roofs).sort_values("duration_ns", ascending=False))
    ]
    if not rows:
        return []
    note = (
        "By ncu, with cold caches: operations of the tensor cores and bytes of device memory; what the CUDA cores "
        "compute is not in the roof."
    )
    title = f"The {TOP} longest kernels of each case against their roofs"
    shown = Table("kernel_roofline", title, KERNEL_COLUMNS, (), note, groups=5)
    return _tables(shown, "Every counted kernel against its roof", rows, _kernel)


def _kernel(row: dict[str, Any]) -> list[Cell]:
    return [
        *case_cells(row),
        number(row["launch"], str(row["launch"])),
        number(row["ops"] / GIGA, three_digits(row["ops"] / GIGA)),
        number(row["bytes"] / MEGA, three_digits(row["bytes"] / MEGA)),
        optional(row["intensity"], three_digits, "it moves no byte of device memory"),
        *(in_us(row[f"{what}_ns"]) for what in ("roof", "duration")),
        optional(row["distance"], ratio, "its time at the roof is 0"),
        words(row["limit"]),
        Cell(short_kernel(row["name"]), row["name"]),
    ]


# --- both ------------------------------------------------------------------------------------------------------


def _tables(
    shown: Table, every: str, rows: list[dict[str, Any]], cells: Callable[[dict[str, Any]], list[Cell]]
) -> list[Block]:
    """The first TOP rows of each case on the page, and all of them as a CSV whose title is `every`."""
    first = [row for _, group in groupby(rows, key_of) for row in islice(group, TOP)]
    name = f"all_{shown.name}"
    return [
        dataclasses.replace(shown, rows=tuple(tuple(cells(row)) for row in first)),
        Table(name, every, shown.columns, tuple(tuple(cells(row)) for row in rows), csv_only=True),
    ]
