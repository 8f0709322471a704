"""From how many inferences on a case is worth its start: a part of the section on first use, and of the answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, Final

from inferprof import registry
from inferprof.findings import END_TO_END
from inferprof.report import fidelity
from inferprof.report.common import name_of, table
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, number, words
from inferprof.report.numbers import NS_PER_MS, NS_PER_S, milliseconds, three_digits
from inferprof.tables.limits.break_even import Candidate, Stretch, stretches
from inferprof.tables.records import KEY, Key, first_rounds, key_of, rows_of

TITLE: Final = "From how many inferences on a slower start is worth it, by end_to_end"
COLUMNS: Final = (
    Column("model", "model"),
    Column("shape", "shape"),
    Column("from_inferences", "from", "number"),
    Column("case", "least time in all"),
    Column("start_s", "start s", "number"),
    Column("end_to_end_ms", "ms each", "number"),
)
NOTE: Final = (
    "Start: build of the engine, if there is one, load and first inference of the first round, without the start of "
    "the process; files may have been in the page cache. One caller; cases whose accuracy does not fail, and whose "
    "intervals lie apart."
)


def blocks(evidence: Evidence) -> list[Block]:
    """A table of the models and shapes where one case starts sooner and another infers faster; else nothing."""
    rows = [
        _row(place, stretch) for place, worth in evidence.once(_found).items() if len(worth) > 1 for stretch in worth
    ]
    return [table("break_even", TITLE, [*COLUMNS], rows, NOTE)] if rows else []


def sentences(evidence: Evidence, model: str, shapes: tuple[str, ...]) -> Iterator[str]:
    """Which cases are worth their start at these shapes, where there is more than one to choose from."""
    by_place = evidence.once(_found)
    for shape in dict.fromkeys(shapes):
        worth = by_place.get((model, shape), [])
        if len(worth) > 1:
            later = [
                f"{_name(stretch)} ({_start(stretch)}) from {stretch.first:,} inferences on" for stretch in worth[1:]
            ]
            yield f"Worth its start at {shape}: {_name(worth[0])} ({_start(worth[0])}) at first; {'; '.join(later)}."


def _found(evidence: Evidence) -> dict[tuple[str, str], list[Stretch]]:
    """(model, shape) → its stretches, in the order of the study."""
    starts = _starts(evidence)
    latency = evidence.latency[(evidence.latency["boundary"] == END_TO_END) & evidence.latency["median"].notna()]
    rows = [row for row in rows_of(latency) if key_of(row) in starts and fidelity.of_case(evidence, row).acceptable]
    place = evidence.order
    rows.sort(key=lambda row: place[row["model"], row["shape"]])
    grouped = groupby(rows, key=lambda row: (row["model"], row["shape"]))
    return {name: stretches(_candidate(row, starts) for row in group) for name, group in grouped}


def _candidate(row: Mapping[str, Any], starts: Mapping[Key, float]) -> Candidate:
    """Where too few samples are independent for an interval, the range of all of them is taken for it."""
    low, high = ("min", "max") if row["low"] is None else ("low", "high")
    return Candidate(key_of(row), starts[key_of(row)], row["median"], row[low], row[high])


def _starts(evidence: Evidence) -> dict[Key, float]:
    """Case → ns until its first inference is done, of the cases of which that is known."""
    builds = {engine.key: engine.build.content.seconds for engine in evidence.engines if engine.build.content}
    built = {backend.name for backend in registry.backends().values() if backend.artifact == "engine"}
    first = first_rounds(evidence.resources)
    timed = first[first["load_ns"].notna() & first["first_inference_ns"].notna()]
    return {
        key_of(row): seconds * NS_PER_S + row["load_ns"] + row["first_inference_ns"]
        for row in rows_of(timed)
        if (seconds := builds.get(key_of(row), None if row["backend"] in built else 0)) is not None
    }


def _name(stretch: Stretch) -> str:
    return name_of(dict(zip(KEY, stretch.case.key, strict=True)))


def _start(stretch: Stretch) -> str:
    return f"{three_digits(stretch.case.start_ns / NS_PER_S)} s"


def _row(place: tuple[str, str], stretch: Stretch) -> list[Cell]:
    case = stretch.case
    return [
        *(words(part) for part in place),
        number(stretch.first, f"{stretch.first:,}"),
        words(_name(stretch)),
        number(case.start_ns / NS_PER_S, three_digits(case.start_ns / NS_PER_S)),
        number(case.median_ns / NS_PER_MS, milliseconds(case.median_ns)),
    ]
