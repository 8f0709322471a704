"""What a case can do and needs: throughput, the stages of end_to_end and the link, first use and memory."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import pandas as pd

from inferprof import registry
from inferprof.case import RUN_OPTIONS, STAGES
from inferprof.findings import END_TO_END
from inferprof.report import fidelity
from inferprof.report.common import (
    CASE_COLUMNS,
    EXAMPLES,
    NOT_RECORDED,
    by_case,
    case_cells,
    in_mib,
    in_ms,
    name_of,
    optional,
    path_of,
    table,
)
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Table, Text, missing, number, words
from inferprof.report.numbers import milliseconds, ratio, significant, three_digits
from inferprof.report.section import section
from inferprof.tables import tries
from inferprof.tables.join import MODES
from inferprof.tables.limits.break_even import Candidate, Stretch, stretches
from inferprof.tables.records import KEY, Key, but_for, first_rounds, key_of, options_of, rows_of
from inferprof.tables.summary import REBUILD
from inferprof.units import MEGA, NS_PER_MS, NS_PER_S

RESOURCES = {
    "load_ns": ("load_ms", "load ms"),
    "first_inference_ns": ("first_inference_ms", "first inference ms"),
    "host_rss_bytes": ("host_rss_mib", "host MiB"),
    "device_bytes": ("device_mib", "device MiB"),
}


@section("use", "Throughput, stages, first use and memory", place=70)
def build(evidence: Evidence) -> Sequence[Block]:
    """A table for each, or a sentence where nothing was measured."""
    return [
        _throughput(evidence),
        _stages(evidence),
        *link(evidence),
        _resources(evidence),
        *break_even(evidence),
    ]


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


# --- the link ------------------------------------------------------------------------------------------------------


SHARE_OF_END_TO_END = 0.1
"""What is above the floor is worth a sentence from this share of end_to_end on."""
ARRAYS = {"h2d": "inputs", "d2h": "outputs"}
BESIDE = {"h2d": "stage_inputs", "d2h": "extract"}
"""The stage on the host that belongs to the copy."""
LINK_COLUMNS = [
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


def link(evidence: Evidence) -> list[Block]:
    """The table, and the copies that take much longer than they need; nothing where nothing crosses a link."""
    rows = by_case(rows_of(evidence.floors), evidence.order)
    if not rows:
        return []
    note = (
        "Floor: what the link needs for as many bytes in one copy of page-locked memory, by the latency and "
        f"bandwidth of {evidence.bandwidth.file}."
    )
    body = [
        [*case_cells(row), *_link_cells(evidence, row, "h2d"), *_link_cells(evidence, row, "d2h")] for row in rows
    ]
    return [
        table("link_floor", "Copies over the link, median ms, against the link's floor", LINK_COLUMNS, body, note),
        *_above_the_floor(evidence, rows),
    ]


def _link_cells(evidence: Evidence, row: dict[str, Any], direction: str) -> list[Cell]:
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


# --- from how many inferences on a slower start is worth it --------------------------------------------------------


BREAK_EVEN_TITLE: Final = "From how many inferences on a slower start is worth it, by end_to_end"
BREAK_EVEN_COLUMNS: Final = (
    Column("model", "model"),
    Column("shape", "shape"),
    Column("from_inferences", "from", "number"),
    Column("from_low", "low", "number"),
    Column("from_high", "high", "number"),
    Column("case", "least time in all"),
    Column("start_s", "start s", "number"),
    Column("start_low_s", "from s", "number", hidden=True),
    Column("start_high_s", "to s", "number", hidden=True),
    Column("starts", "starts", "number"),
    Column("end_to_end_ms", "ms each", "number"),
)
BREAK_EVEN_NOTE: Final = (
    "Start: build of the engine, if there is one, load and first inference, without the start of the process; its "
    "median over the rounds. Files may have been in the page cache. Variants that share an engine share the longest "
    "time of its builds. One caller. Cases that are accurate and settled, and whose intervals lie apart."
)
ONE_START: Final = "one start of a case has no spread"


def break_even(evidence: Evidence) -> list[Block]:
    """A table of the models and shapes where one case starts sooner and another infers faster; else nothing."""
    rows = [
        _stretch(place, stretch)
        for place, worth in evidence.once(_worth).items()
        if len(worth) > 1
        for stretch in worth
    ]
    return [table("break_even", BREAK_EVEN_TITLE, [*BREAK_EVEN_COLUMNS], rows, BREAK_EVEN_NOTE)] if rows else []


def _worth(evidence: Evidence) -> dict[tuple[str, str], list[Stretch]]:
    """(model, shape) → its stretches, in the order of the study."""
    starts, unfit = _starts(evidence), _in_vain(evidence) | evidence.controls
    latency = evidence.latency[
        evidence.latency["boundary"].eq(END_TO_END)
        & evidence.latency["median"].notna()
        & evidence.latency["doubt"].isna()
    ]
    fit = [row for row in rows_of(latency) if key_of(row) in starts and key_of(row) not in unfit]
    rows = [row for row in fit if fidelity.of_case(evidence, row).acceptable]
    place = evidence.order
    rows.sort(key=lambda row: place[row["model"], row["shape"]])
    grouped = groupby(rows, key=lambda row: (row["model"], row["shape"]))
    return {name: stretches(_candidate(row, starts) for row in group) for name, group in grouped}


def _in_vain(evidence: Evidence) -> set[Key]:
    """The cases with a fix that are no faster than without it."""
    tried = (
        (after, tries.of_pair(evidence, before, after)) for before, after, _ in tries.pairs(options_of(evidence.ok))
    )
    return {after for after, result in tried if result.achieved_ns is not None and result.achieved_ns < 0}


def _candidate(row: Mapping[str, Any], starts: Mapping[Key, tuple[float, ...]]) -> Candidate:
    """Where too few samples are independent for an interval, the range of all of them is taken for it."""
    low, high = ("min", "max") if row["low"] is None else ("low", "high")
    return Candidate(key_of(row), starts[key_of(row)], row["median"], row[low], row[high])


def _starts(evidence: Evidence) -> dict[Key, tuple[float, ...]]:
    """Case → ns until its first inference is done, in each round of which that is known."""
    builds = _builds(evidence)
    built = {backend.name for backend in registry.backends().values() if backend.artifact == "engine"}
    frame = evidence.resources
    timed = frame[frame["load_ns"].notna() & frame["first_inference_ns"].notna()]
    starts: defaultdict[Key, list[float]] = defaultdict(list)
    for row in rows_of(timed):
        seconds = builds.get(key_of(row), None if row["backend"] in built else 0.0)
        if seconds is not None:
            starts[key_of(row)].append(seconds * NS_PER_S + row["load_ns"] + row["first_inference_ns"])
    return {key: tuple(own) for key, own in starts.items()}


def _builds(evidence: Evidence) -> dict[Key, float]:
    """Case → the longest build, s, of the variants whose engine is the same but for what only a run needs: a timing
    cache makes all but the first of them short."""

    def engine_of(key: Key, options: Mapping[str, Any]) -> tuple[Any, ...]:
        of_engine = {name: value for name, value in options.items() if name not in RUN_OPTIONS}
        return *(part for name, part in zip(KEY, key, strict=True) if name != "variant"), but_for(REBUILD, of_engine)

    longest: dict[tuple[Any, ...], float] = {}
    for engine in evidence.engines:
        build = engine.build.content
        if build is not None and build.seconds is not None:
            same = engine_of(engine.key, build.options)
            longest[same] = max(build.seconds, longest.get(same, 0.0))
    places = {key: engine_of(key, options) for key, options in options_of(evidence.ok).items()}
    return {key: longest[same] for key, same in places.items() if same in longest}


def _stretch(place: tuple[str, str], stretch: Stretch) -> list[Cell]:
    case = stretch.case
    starts = len(case.starts_ns)
    bounds = [missing(ONE_START) if end is None else number(end, f"{end:,}") for end in (stretch.low, stretch.high)]
    ends = (min(case.starts_ns), max(case.starts_ns))
    return [
        *(words(part) for part in place),
        number(stretch.first, f"{stretch.first:,}"),
        *bounds,
        words(name_of(dict(zip(KEY, case.key, strict=True)))),
        *(number(ns / NS_PER_S, three_digits(ns / NS_PER_S)) for ns in (case.start_ns, *ends)),
        number(starts, "one" if starts == 1 else str(starts)),
        number(case.median_ns / NS_PER_MS, milliseconds(case.median_ns)),
    ]
