"""What a case can do and needs: throughput, the stages of end_to_end, first use and memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from inferprof.case import STAGES
from inferprof.report import break_even, link
from inferprof.report.common import CASE_COLUMNS, NOT_RECORDED, by_case, case_cells, in_mib, in_ms, optional, table
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Table, Text, missing, number
from inferprof.report.numbers import significant, three_digits
from inferprof.report.section import Section
from inferprof.tables.join import MODES
from inferprof.tables.records import KEY, first_rounds, key_of, rows_of

RESOURCES = {
    "load_ns": ("load_ms", "load ms"),
    "first_inference_ns": ("first_inference_ms", "first inference ms"),
    "host_rss_bytes": ("host_rss_mib", "host MiB"),
    "device_bytes": ("device_mib", "device MiB"),
}


def build(evidence: Evidence) -> Sequence[Block]:
    """A table for each, or a sentence where nothing was measured."""
    blocks: list[Block] = [_throughput(evidence), _stages(evidence), *link.blocks(evidence), _resources(evidence)]
    blocks += break_even.blocks(evidence)
    return blocks


def _throughput(evidence: Evidence) -> Table | Text:
    """Items per second of the loops that were timed as a whole."""
    rows = by_case(rows_of(evidence.measured), evidence.order)
    if not rows or evidence.throughput.empty:
        return Text("Throughput was not measured.")
    why = _reasons(evidence.throughput, "mode")

    def cell(row: dict[str, Any], mode: str) -> Cell:
        return optional(row[f"{mode}_items_per_s"], significant, why.get((*key_of(row), mode), NOT_RECORDED))

    columns = [
        *CASE_COLUMNS,
        Column("back_to_back_items_per_s", "back to back", "number"),
        Column("pipelined_items_per_s", "pipelined", "number"),
        Column("overlap_percent", "overlap %", "number"),
    ]
    overlapped = evidence.throughput[evidence.throughput["overlap"].notna()].astype({"overlap": float})
    overlaps = overlapped.groupby(KEY)["overlap"].median().to_dict()

    def overlap(row: dict[str, Any]) -> Cell:
        return _overlap(overlaps.get(key_of(row)), why.get((*key_of(row), "pipelined")))

    body = [[*case_cells(row), *(cell(row, mode) for mode in MODES), overlap(row)] for row in rows]
    note = "Overlap: the share of the time between end_to_end and back to back that the pipeline hides."
    return table("throughput", "Throughput, items/s: batch × inferences / seconds", columns, body, note)


def _overlap(share: float | None, no_pipeline: str | None) -> Cell:
    if share is None:
        return missing(no_pipeline or "there is nothing worth hiding between end_to_end and back to back")
    return number(100 * share, f"{100 * share:.0f}")


def _stages(evidence: Evidence) -> Table | Text:
    """The stages of end_to_end, in ms."""
    rows = by_case(rows_of(evidence.stages), evidence.order)
    if not rows:
        return Text("The stages of end_to_end were not measured.")
    columns = [*CASE_COLUMNS, *(Column(f"{stage}_ms", stage.replace("_", " "), "number") for stage in STAGES)]
    why = _reasons(evidence.stage_samples, "stage")
    body = [[*case_cells(row), *(_stage(row, stage, why) for stage in STAGES)] for row in rows]
    note = "From a loop with a synchronise behind each stage, so their sum exceeds end_to_end where stages overlap."
    return table("stages", "Stages of end_to_end, median ms", columns, body, note)


def _resources(evidence: Evidence) -> Table | Text:
    """Time to the first answer and memory: of the first round, which is the first to load the files."""
    rows = by_case(rows_of(first_rounds(evidence.resources)), evidence.order)
    if not rows:
        return Text("First use and memory were not measured.")
    columns = [*CASE_COLUMNS, *(Column(key, title, "number") for key, title in RESOURCES.values())]
    body = [[*case_cells(row), *(_resource(row, name) for name in RESOURCES)] for row in rows]
    note = "Of the first round. Host: peak resident set of the process. Device: what came into use with the load."
    return table("first_use_memory", "First use and memory", columns, body, note)


def _stage(row: dict[str, Any], stage: str, why: Mapping[tuple[Any, ...], str]) -> Cell:
    return optional(row[f"{stage}_ms"], three_digits, why.get((*key_of(row), stage), NOT_RECORDED))


def _reasons(frame: pd.DataFrame, part: str) -> dict[tuple[Any, ...], str]:
    """(KEY, stage or mode) → why it was not measured."""
    return {(*key_of(row), row[part]): row["not_measured"] for row in rows_of(frame) if row["not_measured"]}


def _resource(row: dict[str, Any], name: str) -> Cell:
    if name.endswith("_ns"):
        return in_ms(row[name])
    return in_mib(row[name], "the process uses no device memory, or it could not be read")


SECTION = Section(
    name="use",
    title="Throughput, stages, first use and memory",
    place=70,
    build=build,
)
