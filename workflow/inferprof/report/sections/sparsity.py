"""2:4 sparse weights: how many layers could use them, how many do, for how much of the time, and what it gains."""

from __future__ import annotations

import dataclasses
from typing import Any

from inferprof.report.evidence import Engine, Evidence
from inferprof.report.model import Cell, Column, Section, Table, missing, number, words
from inferprof.report.numbers import half_width, ratio
from inferprof.report.sections.common import CASE_COLUMNS, FEW, case_cells, key_of, name_of, optional
from inferprof.report.sections.profiled import profiles
from inferprof.tables import summary
from inferprof.tables.nodes import kernel_formats, layer_times, precision_truth
from inferprof.tables.records import KEY, rows_of

TITLE = "Sparse weights"
OPTION = "sparsity"
TRACER = "trt_nodes"
NOT_TRACED = "trt_nodes did not watch this case"
NOT_SAID = "the builder did not say it"
NO_DENSE = "no variant with the same options but sparsity was measured"
COLUMNS = (
    *CASE_COLUMNS,
    Column("eligible", "layers eligible", "number"),
    Column("picked", "picked", "number"),
    Column("time_percent", "% of kernel time", "number"),
    Column("gain", "speed-up", "number"),
    Column("interval", "±", "number"),
    Column("verdict", "verdict"),
    Column("dense", "against", hidden=True),
)
NOTE = (
    "Eligible: weights in 2:4 form; picked: the builder found the sparse kernel faster, both in its own words. "
    "Speed-up: over the variant with the same options but sparsity."
)


def section(evidence: Evidence) -> Section:
    """A row per engine that was built with the option; empty where none was."""
    engines = [engine for engine in evidence.engines if engine.build.get(OPTION)]
    if not engines:
        return Section(TITLE, ())
    rows = tuple(_row(evidence, engine) for engine in engines)
    return Section(TITLE, (Table(OPTION, "", COLUMNS, rows, NOTE, groups=2),))


def _row(evidence: Evidence, engine: Engine) -> tuple[Cell, ...]:
    case = {"machine": engine.machine, **dataclasses.asdict(engine.case)}
    said = engine.build.get(OPTION)
    return (
        *case_cells(case),
        *(optional(said[key], str, NOT_SAID) for key in ("eligible", "picked")),
        _share_of_time(evidence, case),
        *_gain(evidence, engine, case),
    )


def _share_of_time(evidence: Evidence, case: dict[str, Any]) -> Cell:
    frame = next((one.frame for one in profiles(evidence, (TRACER,)) if key_of(one.case) == key_of(case)), None)
    if frame is None:
        return missing(NOT_TRACED)
    found = precision_truth.sparsity(kernel_formats.of_case(frame), layer_times.described(frame))
    return number(100 * found.share, f"{100 * found.share:.1f}")


def _gain(evidence: Evidence, engine: Engine, case: dict[str, Any]) -> tuple[Cell, ...]:
    dense = next((other for other in evidence.engines if _is_dense_twin(other, engine)), None)
    if dense is None:
        return (*[missing(NO_DENSE)] * 2, words(""), words(""))
    twin = {"machine": dense.machine, **dataclasses.asdict(dense.case)}
    both = evidence.boundaries[evidence.boundaries[KEY].apply(tuple, axis=1).isin([key_of(case), key_of(twin)])]
    found = rows_of(summary.speed_ups(both, name_of(twin)))
    if not found or found[0]["speed_up"] is None:
        return (*[missing(found[0]["not_measured"] if found else NO_DENSE)] * 2, words(""), words(dense.case.variant))
    row = found[0]
    bounded = row["low"] is not None
    return (
        number(row["speed_up"], ratio(row["speed_up"])),
        words(half_width(row["speed_up"], row["low"], row["high"])) if bounded else missing(FEW),
        words(row["verdict"]),
        words(dense.case.variant),
    )


def _is_dense_twin(other: Engine, sparse: Engine) -> bool:
    """The same engine but for the option."""
    wanted = {name: value for name, value in sparse.build.get("options", {}).items() if name != OPTION}
    same_case = dataclasses.replace(other.case, variant=sparse.case.variant) == sparse.case
    return other.machine == sparse.machine and same_case and other.build.get("options") == wanted
