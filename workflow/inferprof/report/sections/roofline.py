"""Each case against the least time that its graph needs on this GPU, and where the roofs come from."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from inferprof.report import roofline_parts
from inferprof.report.common import CASE_COLUMNS, by_case, case_cells, enumerated, optional, path_of, scaled, table
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Table, Text, missing, number, words
from inferprof.report.numbers import ratio, significant, three_digits
from inferprof.report.section import Section
from inferprof.tables import roofs
from inferprof.tables.records import rows_of
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


def build(evidence: Evidence) -> Sequence[Block]:
    """The cases, the roofs and the counted kernels; one line where nothing ran on a GPU."""
    rows = by_case(rows_of(evidence.roofline), evidence.order, lambda row: row["device_ms"])
    if not rows:
        return (Text(NO_DEVICE),)
    cases: tuple[Block, ...] = (_cases(evidence, rows), *_beyond_the_roof(rows))
    return (*cases, *_roofs(evidence), *roofline_parts.blocks(evidence))


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


SECTION = Section(
    name="roofline",
    title="Roofline",
    place=130,
    build=build,
)
