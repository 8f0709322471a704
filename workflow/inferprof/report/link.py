"""The way of inputs and outputs over the link, against the least that the link needs for them."""

from __future__ import annotations

import math
from typing import Any

from inferprof.report.common import CASE_COLUMNS, EXAMPLES, by_case, case_cells, optional, path_of, table
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Text
from inferprof.report.numbers import ratio, three_digits
from inferprof.tables.records import key_of, rows_of
from inferprof.units import MEGA

SHARE_OF_END_TO_END = 0.1
"""What is above the floor is worth a sentence from this share of end_to_end on."""
ARRAYS = {"h2d": "inputs", "d2h": "outputs"}
BESIDE = {"h2d": "stage_inputs", "d2h": "extract"}
"""The stage on the host that belongs to the copy."""
COLUMNS = [
    *CASE_COLUMNS,
    *(
        column
        for direction, arrays in ARRAYS.items()
        for column in (
            Column(f"{direction}_ms", direction, "number"),
            Column(f"{direction}_floor_ms", "floor", "number"),
            Column(f"{direction}_times_floor", "×", "number"),
            Column(f"{arrays}_mb", f"{arrays} MB", "number", hidden=True),
        )
    ),
]


def blocks(evidence: Evidence) -> list[Block]:
    """The table, and the copies that take much longer than they need; nothing where nothing crosses a link."""
    rows = by_case(rows_of(evidence.floors), evidence.order)
    if not rows:
        return []
    note = (
        "Floor: what the link needs for as many bytes in one copy of page-locked memory, by the latency and "
        f"bandwidth of {evidence.bandwidth.file}."
    )
    body = [[*case_cells(row), *_cells(evidence, row, "h2d"), *_cells(evidence, row, "d2h")] for row in rows]
    return [
        table("link_floor", "Copies over the link, median ms, against the link's floor", COLUMNS, body, note),
        *_above_the_floor(evidence, rows),
    ]


def _cells(evidence: Evidence, row: dict[str, Any], direction: str) -> list[Cell]:
    ms, floor, size = (row[f"{direction}_{part}"] for part in ("ms", "floor_ms", "bytes"))
    no_size = f"the record does not list its {ARRAYS[direction]}"
    no_floor = evidence.bandwidth.lacking if evidence.bandwidth.content is None else no_size
    no_copy = f"{direction} is no stage of this case: see the stages"
    times = ms / floor if floor else math.nan
    return [
        optional(ms, three_digits, no_copy),
        optional(floor, three_digits, no_floor),
        optional(times, ratio, no_copy if math.isnan(ms) else no_floor),
        optional(size / MEGA, three_digits, no_size),
    ]


def _above_the_floor(evidence: Evidence, rows: list[dict[str, Any]]) -> list[Block]:
    """A sentence for each of the few ways that are farthest above what the link needs."""
    stages = {key_of(row): row for row in rows_of(evidence.stages)}
    whole = {key_of(row): row["end_to_end_ms"] for row in rows_of(evidence.measured)}
    ways = []
    for row in rows:
        every = [_way({**stages[key_of(row)], **row}, direction) for direction in ARRAYS]
        ways += [way for way in every if way[0] >= SHARE_OF_END_TO_END * whole[key_of(row)]]
    ways.sort(key=lambda way: -way[0])
    items: list[Block] = [Text(sentence, "item", "warn") for _, sentence in ways[:EXAMPLES]]
    rest = len(ways) - EXAMPLES
    return [*items, Text(f"and {rest} more like these: csv/link_floor.csv", "item")] if rest > 0 else items


def _way(row: dict[str, Any], direction: str) -> tuple[float, str]:
    """How many ms the way of a case's inputs or outputs takes beyond the floor, in words too; NaN where not known.

    `inputs take 34.5 ms (stage_inputs 30.0, h2d 4.50), the link's floor for 4.82 MB is 0.160 ms`
    """
    beside, copy, floor = row[f"{BESIDE[direction]}_ms"], row[f"{direction}_ms"], row[f"{direction}_floor_ms"]
    size = row[f"{direction}_bytes"] / MEGA
    return beside + copy - floor, (
        f"{path_of(row)}: {ARRAYS[direction]} take {three_digits(beside + copy)} ms "
        f"({BESIDE[direction]} {three_digits(beside)}, {direction} {three_digits(copy)}), "
        f"the link's floor for {three_digits(size)} MB is {three_digits(floor)} ms"
    )
