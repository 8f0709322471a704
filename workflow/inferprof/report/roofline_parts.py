"""Operators, nodes and kernels against their own roofs: what the roofline of a whole case is made of."""

from __future__ import annotations

from itertools import groupby, islice
from typing import Any

import pandas as pd

from inferprof import registry
from inferprof.report.common import short_kernel
from inferprof.report.evidence import Evidence
from inferprof.report.fields import CASE, Field, Unit, csv_of, in_unit, kernel, plain, table_of, text, us
from inferprof.report.model import Block, Cell, Column, Table
from inferprof.report.numbers import ratio, three_digits
from inferprof.report.profiled import Profile, caution, first_of, join_of
from inferprof.tables.counters import kernel_roofline
from inferprof.tables.limits import roofline
from inferprof.tables.nodes import attribution, node_roofline
from inferprof.tables.records import KEY, frame_of, key_of, options_of, rows_of
from inferprof.units import GIGA, MEGA

TOP = 3
SURE = 0.8
"""From this confidence on a kernel is taken for a node's."""
UNKNOWN_FLOPS = "no FLOPs are known of this operator, or a size is not"
UNKNOWN_BYTES = "a size is not known"
NO_ROOF = "no roof is known"
NO_BYTE = "it moves no byte of device memory"
OPERATORS = (
    text("model"),
    text("precision"),
    text("shape"),
    text("node", of="name"),
    text("operator", of="op"),
    text("kind", "type"),
    plain("flop", "FLOP", str, UNKNOWN_FLOPS, of="flops"),
    plain("bytes", None, str, UNKNOWN_BYTES),
    plain("flop_per_byte", "FLOP/B", three_digits, UNKNOWN_FLOPS, of="intensity"),
    us("roof", "roof µs", NO_ROOF),
    text("limit", None, NO_ROOF),
)
NODES = (
    *CASE,
    us("lost", "lost µs"),
    us("", "µs", of="duration_ns", hidden=True),
    us("roof", "roof µs", hidden=True),
    plain("times_roof", "× roof", ratio, of="distance"),
    text("limit"),
    text("operator", of="op", hidden=True),
    Field(Column("node", "node"), lambda row: Cell(short_kernel(row["owner"]), row["owner"])),
)
KERNELS = (
    *CASE,
    plain("launch", hidden=True),
    in_unit("gflop", "GFLOP", Unit(GIGA), "ops", hidden=True),
    in_unit("mb", "MB", Unit(MEGA), "bytes", hidden=True),
    plain("flop_per_byte", "FLOP/B", three_digits, NO_BYTE, of="intensity", hidden=True),
    us("roof", "roof µs", hidden=True),
    us("", "µs", of="duration_ns"),
    plain("times_roof", "× roof", ratio, "its time at the roof is 0", of="distance"),
    text("limit"),
    kernel("name"),
)


def blocks(evidence: Evidence) -> list[Block]:
    """The nodes that lose most, the longest kernels that were counted, and every operator as a CSV."""
    return [*_nodes(evidence), *_kernels(evidence), _operators(evidence)]


def _operators(evidence: Evidence) -> Table:
    """Every node of every graph that a case on the GPU ran; fp32 without TF32."""
    ran = dict.fromkeys((row["model"], row["precision"], row["shape"]) for row in rows_of(evidence.roofline))
    rows = [
        {**dict(zip(("model", "precision", "shape"), graph, strict=True)), **node}
        for graph in ran
        if (cost := evidence.costs[graph].content)
        for node in rows_of(roofline.nodes(cost, evidence.roofs))
    ]
    return csv_of("roofline_operators", "Every operator at its own roof", OPERATORS, rows)


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
    shown = table_of("node_roofline", title, NODES, _first(rows), note, groups=5)
    return [shown, csv_of("all_node_roofline", "Every node against its roof", NODES, rows)]


def _lost(evidence: Evidence, profile: Profile) -> pd.DataFrame:
    """tables.nodes.node_roofline of one case; no rows where its graph was not counted or no inference was traced."""
    join = join_of(profile)
    cost = evidence.costs[profile.case["model"], profile.case["precision"], profile.case["shape"]].content
    if not cost or not (runs := join.inferences(profile.frame)):
        return frame_of([], list(node_roofline.COLUMNS))
    options = options_of(evidence.records).get(key_of(profile.case), {})
    nodes = roofline.nodes(cost, evidence.roofs.of_variant(options))
    return node_roofline.of_owners(attribution.by_owner(join.attributed(profile.frame), "op", SURE), nodes, runs)


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
    shown = table_of("kernel_roofline", title, KERNELS, _first(rows), note, groups=5)
    return [shown, csv_of("all_kernel_roofline", "Every counted kernel against its roof", KERNELS, rows)]


def _first(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first TOP rows of each case."""
    return [row for _, group in groupby(rows, key_of) for row in islice(group, TOP)]
