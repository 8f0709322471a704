"""From how many inferences on a case is worth its start: a part of the section on first use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import groupby
from typing import Any, Final

from inferprof import registry
from inferprof.case import RUN_OPTIONS
from inferprof.findings import END_TO_END
from inferprof.report import fidelity
from inferprof.report.common import name_of, table
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, missing, number, words
from inferprof.report.numbers import milliseconds, three_digits
from inferprof.tables import tries
from inferprof.tables.limits.break_even import Candidate, Stretch, stretches
from inferprof.tables.records import KEY, Key, but_for, key_of, options_of, rows_of
from inferprof.tables.summary import REBUILD
from inferprof.units import NS_PER_MS, NS_PER_S

TITLE: Final = "From how many inferences on a slower start is worth it, by end_to_end"
COLUMNS: Final = (
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
NOTE: Final = (
    "Start: build of the engine, if there is one, load and first inference, without the start of the process; its "
    "median over the rounds. Files may have been in the page cache. Variants that share an engine share the longest "
    "time of its builds. One caller. Cases that are accurate and settled, and whose intervals lie apart."
)
ONE: Final = "one start of a case has no spread"


def blocks(evidence: Evidence) -> list[Block]:
    """A table of the models and shapes where one case starts sooner and another infers faster; else nothing."""
    rows = [
        _row(place, stretch) for place, worth in evidence.once(_worth).items() if len(worth) > 1 for stretch in worth
    ]
    return [table("break_even", TITLE, [*COLUMNS], rows, NOTE)] if rows else []


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


def _row(place: tuple[str, str], stretch: Stretch) -> list[Cell]:
    case = stretch.case
    starts = len(case.starts_ns)
    bounds = [missing(ONE) if end is None else number(end, f"{end:,}") for end in (stretch.low, stretch.high)]
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
