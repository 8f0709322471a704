"""Each case, its operators, nodes and kernels against the least time that they need on this GPU, and the roofs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import groupby, islice
from typing import Any

import pandas as pd

from inferprof import registry
from inferprof.report.common import (
    CASE_COLUMNS,
    by_case,
    case_cells,
    enumerated,
    optional,
    path_of,
    scaled,
    short_kernel,
    table,
)
from inferprof.report.evidence import Evidence
from inferprof.report.fields import CASE, Field, Unit, csv_of, in_unit, kernel, plain, table_of, text, us
from inferprof.report.model import Block, Cell, Column, Table, Text, missing, number, words
from inferprof.report.numbers import ratio, significant, three_digits
from inferprof.report.profiled import Profile, caution, first_of, join_of
from inferprof.report.section import section
from inferprof.tables import roofs
from inferprof.tables.counters import kernel_roofline
from inferprof.tables.limits import roofline
from inferprof.tables.nodes import attribution, node_roofline
from inferprof.tables.records import KEY, frame_of, key_of, options_of, rows_of
from inferprof.units import GIGA, MEGA, TERA

COLUMNS = (
    *CASE_COLUMNS,
    Column("gflop", "GFLOP", "number", hidden=True),
    Column("mb", "MB", "number", hidden=True),
    Column("flop_per_byte", "FLOP/B", "number"),
    Column("limit", "limit"),
    Column("roof_ms", "roof ms", "number"),
    Column("device_ms", "device", "number"),
    Column("times_roof", "× roof", "number"),
    Column("unfused_ms", "unfused ms", "number", hidden=True),
    Column("times_unfused", "× unfused", "number"),
    Column("source", "source of the roof", hidden=True),
    Column("kind", "type of most FLOPs", hidden=True),
    Column("tflop_per_s", "achieved TFLOP/s", "number", hidden=True),
    Column("peak_tflop_per_s", "peak of its types TFLOP/s", "number", hidden=True),
    Column("uncounted", "nodes of unknown FLOPs", "number", hidden=True),
)
ROOF_COLUMNS = (
    Column("what", "roof"),
    Column("measured", "measured", "number"),
    Column("datasheet", "datasheet", "number"),
    Column("percent", "%", "number"),
)
L2 = "L2"
BEYOND = 0.95
"""Below this share of the time at the roof a case is faster than it could be; ceilings vary by a few percent."""
NO_DEVICE = "No case has a device time: nothing ran on a GPU, so no roof is known."
UNKNOWN_BYTES = "a size is not known"


@section("roofline", "Roofline", place=130)
def build(evidence: Evidence) -> Sequence[Block]:
    """The cases, the roofs and the counted kernels; one line where nothing ran on a GPU."""
    rows = by_case(rows_of(evidence.roofline), evidence.order, lambda row: row["device_ms"])
    if not rows:
        return (Text(NO_DEVICE),)
    cases: tuple[Block, ...] = (_cases(evidence, rows), *_beyond_the_roof(rows))
    return (*cases, *_roofs(evidence), *_parts(evidence))


# --- cases -----------------------------------------------------------------------------------------------------


def _cases(evidence: Evidence, rows: list[dict[str, Any]]) -> Table:
    title = "The device median against the least time that the graph needs on this GPU, ms"
    note = (
        "FLOP/B: of all operators, by the bytes of weights, inputs and outputs, each once. Roof: as if one kernel "
        f"did it all; the slower of FLOPs and bytes is its limit ({L2}: bytes, but they fit in the L2, where they "
        "may lie from the inference before). × unfused: against each operator at its own roof, one after the other. "
        f"{_sources(evidence, rows)}"
    )
    return table("roofline", title, list(COLUMNS), [_case(row) for row in rows], note)


def _sources(evidence: Evidence, rows: list[dict[str, Any]]) -> str:
    """`The roofs of fp16, memory were measured here; int8 by the datasheet.`"""
    used = dict.fromkeys(row["kind"] for row in rows if row["fused_ms"] is not None)
    by_name = {kind: evidence.roofs.flops[kind] for kind in used}
    if evidence.roofs.bandwidth:
        by_name["memory"] = evidence.roofs.bandwidth
    measured, promised = (
        ", ".join(name for name, roof in by_name.items() if roof.source == source)
        for source in ("measured", "datasheet")
    )
    words = [f"measured here: {measured}"] if measured else []
    words += [f"by the datasheet: {promised}"] if promised else []
    return f"Roofs {'; '.join(words)}." if words else ""


def _case(row: dict[str, Any]) -> list[Cell]:
    why = row["not_known"] or UNKNOWN_BYTES
    device = row["device_ms"]
    limit = L2 if row["in_l2"] and row["limit"] == "memory" else row["limit"]
    return [
        *case_cells(row),
        scaled(row["flops"], GIGA, lambda value: three_digits(value / GIGA), why),
        scaled(row["bytes"], MEGA, lambda value: three_digits(value / MEGA), why),
        optional(row["intensity"], three_digits, why),
        words(limit) if limit else missing(why),
        optional(row["fused_ms"], three_digits, why),
        number(device, three_digits(device)),
        dataclasses.replace(
            optional(row["fused_ms"] and device / row["fused_ms"], ratio, why),
            mark="warn" if _beyond(row) else None,
        ),
        optional(row["unfused_ms"], significant, why),
        optional(row["unfused_ms"] and device / row["unfused_ms"], ratio, why),
        words(row["source"]) if row["source"] else missing(why),
        words(row["kind"]) if row["kind"] else missing(why),
        optional(row["flops"] and row["flops"] / device * 1e3 / TERA, three_digits, why),
        scaled(row["peak_flops"], TERA, lambda value: three_digits(value / TERA), why),
        optional(row["uncounted"], str, why),
    ]


def _beyond_the_roof(rows: list[dict[str, Any]]) -> list[Block]:
    """The cases that no roof allows: something is not as the graph or the ceiling says."""
    beyond = [path_of(row) for row in rows if _beyond(row)]
    if not beyond:
        return []
    who = enumerated(beyond, len(rows), "csv/roofline.csv")
    why = "its kernels compute in fewer bits than the graph says, leave out work, or the ceiling was measured too low"
    return [Text(f"Faster than the roof: {who}: {why}.", "item", "warn")]


def _beyond(row: dict[str, Any]) -> bool:
    at_roof = row["fused_ms"] is not None and not (row["limit"] == "memory" and row["in_l2"])
    return bool(at_roof and row["device_ms"] < BEYOND * row["fused_ms"])


# --- roofs -----------------------------------------------------------------------------------------------------


def _roofs(evidence: Evidence) -> list[Block]:
    """Measured and promised, side by side, and the document behind the promise."""
    gpu = roofs.gpu_in_use(evidence.environment.content)
    promised = roofs.datasheet(gpu) if gpu else None
    sheet = roofs.roofs(promised, None, None)
    machine_roofs = evidence.roofs
    entries = [("memory GB/s", machine_roofs.bandwidth, sheet.bandwidth, GIGA)] if machine_roofs.bandwidth else []
    entries += [
        (f"{kind} TFLOP/s", machine_roofs.flops[kind], sheet.flops.get(kind), TERA) for kind in machine_roofs.flops
    ]
    used = {f"{row['kind']} TFLOP/s" for row in rows_of(evidence.roofline)}
    entries.sort(key=lambda entry: entry[1].source != "measured" and entry[0] not in used)
    shown = sum(entry[1].source == "measured" or entry[0] in used for entry in entries)
    unmeasured = f"there is no {evidence.ceilings.file}"
    if evidence.ceilings.content is not None:
        unmeasured = evidence.ceilings.content.not_measured or f"not in {evidence.ceilings.file}"
    note = f"Datasheet: {promised.title}, {promised.url}" if promised else "Datasheet: none is on file for this GPU."
    if promised and promised.note:
        note += f" ({promised.note})"
    if promised and not promised.checked:
        note += "; not all of its numbers could be compared with a second source"
    rows = tuple(
        (
            words(name),
            number(roof.value / unit, three_digits(roof.value / unit))
            if roof.source == "measured"
            else missing(unmeasured),
            optional(on_sheet and on_sheet.value / unit, three_digits, "not on file"),
            optional(
                100 * roof.value / on_sheet.value if on_sheet and roof.source == "measured" else None,
                lambda value: f"{value:.0f}",
                "needs a measurement and a datasheet",
            ),
        )
        for name, roof, on_sheet, unit in entries
    )
    title = "The roofs: what a large matrix product and a copy reached here, and what the datasheet says (dense)"
    return [Table("roofs", title, ROOF_COLUMNS, rows, note, limit=max(shown, 1))] if rows else [Text(note, "item")]


TOP = 3
SURE = 0.8
"""From this confidence on a kernel is taken for a node's."""
UNKNOWN_FLOPS = "no FLOPs are known of this operator, or a size is not"
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


def _parts(evidence: Evidence) -> list[Block]:
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
