"""Of a study without a GPU: what its models would need at least on GPUs whose datasheets are on file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from inferprof.documents import Cost
from inferprof.machine import peaks
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Table, missing, number, words
from inferprof.report.numbers import mebibytes, three_digits
from inferprof.report.section import section
from inferprof.tables import roofs
from inferprof.tables.limits import gpu_floors
from inferprof.tables.limits.gpu_floors import Floor
from inferprof.units import MIB, NS_PER_MS, NS_PER_US

SHOWN: Final = {
    "RTX PRO 6000 Blackwell Workstation Edition": "RTX PRO 6000",
    "B200": "B200",
    "H200 SXM": "H200",
    "H100 SXM5": "H100",
    "L40S": "L40S",
    "GeForce RTX 5090": "RTX 5090",
    "GeForce RTX 4090": "RTX 4090",
    "A100 SXM4 80 GB": "A100",
    "T4": "T4",
}
"""GPU of peaks.csv → its title in the text; all of them are in the CSV."""
GRAPH: Final = (Column("model", "model"), Column("shape", "shape"), Column("precision", "format"))
NEEDED: Final = Column("needed_mib", "MiB", "number")
COLUMNS: Final = (
    *GRAPH,
    NEEDED,
    *(Column(f"{name.lower().replace(' ', '_')}_ms", name, "number") for name in SHOWN.values()),
)
ALL_COLUMNS: Final = (
    *GRAPH,
    NEEDED,
    Column("gpu", "GPU"),
    Column("floor_ms", "at least ms", "number"),
    Column("limit", "limit"),
    Column("source", "source"),
)
NOTE: Final = (
    "A lower bound by FLOPs, bytes and the datasheet's peaks, not a prediction: nothing can be faster. "
    f"{gpu_floors.L2_IS_FREE} "
    "Launches, copies and what libraries lose come on top, of small models many times as much. "
    "What a format's graph leaves in fp32 counts in fp32: int8 may need more than fp16, whose graph leaves nothing. "
    f"{gpu_floors.WITHOUT_TF32} MiB: weights and the largest operator's tensors, at least."
)
SMALL_NS: Final = 1e4
"""Ours: below it times are in µs."""


@section("gpu_floors", "What GPUs would need at least", place=25)
def build(evidence: Evidence) -> Sequence[Block]:
    """The GPUs that are asked for most, and a CSV of all; nothing where the study ran on a GPU."""
    if roofs.gpu_in_use(evidence.environment.content) or evidence.measured["device_ms"].notna().any():
        return ()
    place = evidence.order
    costs = [(graph, cost.content) for graph, cost in evidence.costs.items() if cost.content]
    costs.sort(key=lambda item: place.get((item[0][0], item[0][2]), len(place)))
    every = [(graph, cost, gpu_floors.floors(cost, peaks.every())) for graph, cost in costs]
    if not every:
        return ()
    ns_per_unit, unit = _unit([floor.ns for _, _, floors in every for floor in floors if floor.ns])
    shown = tuple((*_graph(graph, cost), *_shown(floors, ns_per_unit)) for graph, cost, floors in every)
    rows = tuple((*_graph(graph, cost), *_row(floor)) for graph, cost, floors in every for floor in floors)
    title = f"Least time on GPUs, {unit}: a lower bound"
    return (
        Table("least_times", title, COLUMNS, shown, NOTE, groups=2),
        Table("gpu_floors", "The same of every GPU on file", ALL_COLUMNS, rows, csv_only=True),
    )


def _graph(graph: tuple[str, str, str], cost: Cost) -> list[Cell]:
    model, precision, shape = graph
    needed = gpu_floors.needed_bytes(cost)
    return [
        *map(words, (model, shape, precision)),
        missing(gpu_floors.NO_SIZE) if needed is None else number(needed / MIB, mebibytes(needed)),
    ]


def _unit(times: Sequence[float]) -> tuple[float, str]:
    """ns per unit, and the unit of a table's times: one in which the smallest has few zeros in front."""
    return (NS_PER_MS, "ms") if min(times, default=math.inf) >= SMALL_NS else (NS_PER_US, "µs")


def _shown(floors: Sequence[Floor], ns_per_unit: float) -> list[Cell]:
    by_name = {floor.gpu.gpu: floor for floor in floors}
    return [_time(by_name[gpu], ns_per_unit) for gpu in SHOWN]


def _time(floor: Floor, ns_per_unit: float = NS_PER_MS) -> Cell:
    return (
        missing(floor.not_known)
        if floor.ns is None
        else number(floor.ns / NS_PER_MS, three_digits(floor.ns / ns_per_unit))
    )


def _row(floor: Floor) -> list[Cell]:
    limit = missing(floor.not_known) if floor.ns is None else words(floor.limit or "nothing")
    return [words(floor.gpu.gpu), _time(floor), limit, words(floor.gpu.url)]
