"""Each case against the least time that its graph needs on this GPU, and where the roofs come from."""

from __future__ import annotations

from typing import Any

from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Section, Table, Text, missing, number, words
from inferprof.report.numbers import ratio, significant
from inferprof.report.sections.common import CASE_COLUMNS, by_case, case_cells, key_of, optional, scaled, table
from inferprof.report.sections.kernels import short
from inferprof.tables import kernel_roofline, roofs
from inferprof.tables import roofline as rooflines
from inferprof.tables.records import KEY, rows_of

GIGA = 1e9
MEGA = 1e6
TERA = 1e12
COLUMNS = (
    *CASE_COLUMNS,
    Column("gflop", "GFLOP", "number"),
    Column("mb", "MB", "number"),
    Column("flop_per_byte", "FLOP/B", "number"),
    Column("roof_ms", "roof ms", "number"),
    Column("limit", "limit"),
    Column("device_ms", "device ms", "number"),
    Column("times_roof", "× roof", "number"),
    Column("unfused_ms", "unfused ms", "number", hidden=True),
    Column("times_unfused", "× unfused", "number"),
    Column("source", "source of the roof", hidden=True),
    Column("kind", "type of most FLOPs", hidden=True),
    Column("tflop_per_s", "achieved TFLOP/s", "number", hidden=True),
    Column("peak_tflop_per_s", "peak of its types TFLOP/s", "number", hidden=True),
    Column("uncounted", "nodes of unknown FLOPs", "number", hidden=True),
)
NODE_COLUMNS = (
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
ROOF_COLUMNS = (
    Column("what", "roof"),
    Column("measured", "measured", "number"),
    Column("datasheet", "datasheet", "number"),
    Column("percent", "%", "number"),
)
KERNEL_COLUMNS = (
    *CASE_COLUMNS,
    Column("launch", "launch", "number", hidden=True),
    Column("kernel", "kernel"),
    Column("gflop", "GFLOP", "number", hidden=True),
    Column("mb", "MB", "number", hidden=True),
    Column("flop_per_byte", "FLOP/B", "number"),
    Column("roof_us", "roof µs", "number"),
    Column("us", "µs", "number"),
    Column("times_roof", "×", "number"),
    Column("limit", "limit"),
)
KERNELS_SHOWN = 20
NO_DEVICE = "No case has a device time: nothing ran on a GPU, so no roof is known."
UNKNOWN_FLOPS = "no FLOPs are known of this operator, or a size is not"
UNKNOWN_BYTES = "a size is not known"


def section(evidence: Evidence) -> Section:
    """The cases, the roofs and the counted kernels; one line where nothing ran on a GPU."""
    rows = by_case(rows_of(evidence.roofline), evidence.order, lambda row: row["device_ms"])
    if not rows:
        return Section("Roofline", (Text(NO_DEVICE),))
    return Section("Roofline", (_cases(rows), *_roofs(evidence), _nodes(evidence), *_kernels(evidence)))


# --- cases -----------------------------------------------------------------------------------------------------


def _cases(rows: list[dict[str, Any]]) -> Table:
    title = "How far each case is from the least time that its graph needs on this GPU"
    note = (
        "GFLOP: of all operators. MB: weights, inputs and outputs, each once. Roof: as if one kernel did it all, by "
        "the slower of FLOPs and bytes (limit); L2: the bytes fit there, so that memory is no limit from one "
        "inference to the next. × unfused: against each operator at its own roof, one after the other. "
        f"{_sources(rows)}"
    )
    return table("roofline", title, list(COLUMNS), [_case(row) for row in rows], note)


def _sources(rows: list[dict[str, Any]]) -> str:
    """Where the roofs come from, in words."""
    found = list(dict.fromkeys(row["source"] for row in rows if row["source"]))
    return f"Roofs: {'; '.join(found)}." if found else ""


def _case(row: dict[str, Any]) -> list[Cell]:
    why = row["not_known"] or UNKNOWN_BYTES
    device = row["device_ms"]
    limit = f"{row['limit']}, L2" if row["in_l2"] and row["limit"] == "memory" else row["limit"]
    return [
        *case_cells(row),
        scaled(row["flops"], GIGA, lambda value: significant(value / GIGA, 3), why),
        scaled(row["bytes"], MEGA, lambda value: significant(value / MEGA, 3), why),
        optional(row["intensity"], lambda value: significant(value, 3), why),
        optional(row["fused_ms"], significant, why),
        words(limit) if limit else missing(why),
        number(device, significant(device)),
        optional(row["fused_ms"] and device / row["fused_ms"], ratio, why),
        optional(row["unfused_ms"], significant, why),
        optional(row["unfused_ms"] and device / row["unfused_ms"], ratio, why),
        words(row["source"]) if row["source"] else missing(why),
        words(row["kind"]) if row["kind"] else missing(why),
        optional(row["flops"] and row["flops"] / device * 1e3 / TERA, lambda value: significant(value, 3), why),
        scaled(row["peak_flops"], TERA, lambda value: significant(value / TERA, 3), why),
        optional(row["uncounted"], str, why),
    ]


def _nodes(evidence: Evidence) -> Table:
    """Every node of every graph that a case on the GPU ran; fp32 without TF32."""
    ran = dict.fromkeys((row["model"], row["precision"], row["shape"]) for row in rows_of(evidence.roofline))
    rows = [
        tuple(_node(graph, node))
        for graph in ran
        if (cost := evidence.costs[graph].content)
        for node in rows_of(rooflines.nodes(cost, evidence.roofs))
    ]
    title = "Every operator at its own roof"
    return Table("roofline_nodes", title, NODE_COLUMNS, tuple(rows), csv_only=True)


def _node(graph: tuple[str, str, str], node: dict[str, Any]) -> list[Cell]:
    return [
        *(words(part) for part in (*graph, node["name"], node["op"], node["kind"])),
        optional(node["flops"], str, UNKNOWN_FLOPS),
        optional(node["bytes"], str, UNKNOWN_BYTES),
        optional(node["intensity"], lambda value: significant(value, 3), UNKNOWN_FLOPS),
        scaled(node["roof_ns"], 1e3, lambda value: significant(value / 1e3, 3), "no roof is known"),
        words(node["limit"]) if node["limit"] else missing("no roof is known"),
    ]


# --- roofs -----------------------------------------------------------------------------------------------------


def _roofs(evidence: Evidence) -> list[Block]:
    """Measured and promised, side by side, and the document behind the promise."""
    gpu = roofs.gpu_in_use(evidence.environment.content)
    promised = roofs.datasheet(gpu) if gpu else None
    sheet = roofs.roofs(promised, None, None)
    known = evidence.roofs
    entries = [(f"{kind} TFLOP/s", known.flops[kind], sheet.flops.get(kind), TERA) for kind in known.flops]
    if known.bandwidth:
        entries.append(("memory GB/s", known.bandwidth, sheet.bandwidth, GIGA))
    unmeasured = f"there is no {evidence.ceilings.file}"
    if evidence.ceilings.content is not None:
        unmeasured = f"not in {evidence.ceilings.file}"
    note = f"Datasheet: {promised.title}, {promised.url}" if promised else "Datasheet: none is on file for this GPU."
    if promised and promised.note:
        note += f" ({promised.note})"
    rows = tuple(
        (
            words(name),
            number(roof.value / unit, significant(roof.value / unit, 3))
            if roof.source == "measured"
            else missing(unmeasured),
            optional(on_sheet and on_sheet.value / unit, lambda value: significant(value, 3), "not on file"),
            optional(
                100 * roof.value / on_sheet.value if on_sheet and roof.source == "measured" else None,
                lambda value: f"{value:.0f}",
                "needs both",
            ),
        )
        for name, roof, on_sheet, unit in entries
    )
    title = "The roofs: what a large matrix product and a copy reached here, and what the datasheet says (dense)"
    return [Table("roofs", title, ROOF_COLUMNS, rows, note)] if rows else [Text(note, "item")]


# --- kernels ---------------------------------------------------------------------------------------------------


def _kernels(evidence: Evidence) -> list[Block]:
    """The kernels that ncu counted, the longest first; nothing where it counted none."""
    counted = evidence.profiles[evidence.profiles["tool"] == "ncu"]
    found = [
        {**dict(zip(KEY, key, strict=True)), **row}
        for key, frame in counted.groupby(KEY, sort=False)
        for row in rows_of(kernel_roofline.of_case(frame, evidence.roofs))
    ]
    if not found:
        return []
    found.sort(key=lambda row: (key_of(row), -row["duration_ns"]))
    note = (
        "By ncu, with cold caches: operations of the tensor cores, bytes of device memory. ×: duration over the time "
        "at the roof; what the CUDA cores compute is not in it."
    )
    rows = tuple(tuple(_kernel(row)) for row in found)
    title = "Kernels against their roofs"
    return [Table("kernel_roofline", title, KERNEL_COLUMNS, rows, note, groups=5, limit=KERNELS_SHOWN)]


def _kernel(row: dict[str, Any]) -> list[Cell]:
    def micro(ns: float) -> Cell:
        return number(ns / 1e3, significant(ns / 1e3, 3))

    return [
        *case_cells(row),
        number(row["launch"], str(row["launch"])),
        Cell(short(row["name"]), row["name"]),
        number(row["ops"] / GIGA, significant(row["ops"] / GIGA, 3)),
        number(row["bytes"] / MEGA, significant(row["bytes"] / MEGA, 3)),
        optional(row["intensity"], lambda value: significant(value, 3), "it moves no byte of device memory"),
        micro(row["roof_ns"]),
        micro(row["duration_ns"]),
        optional(row["distance"], ratio, "its time at the roof is 0"),
        words(row["limit"]),
    ]
