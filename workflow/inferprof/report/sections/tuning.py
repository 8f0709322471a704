"""Choices of autotuned kernels: what was chosen and what that took, every configuration, and the choice elsewhere."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Section, Table, missing, number, words
from inferprof.report.numbers import MIB, count, percent, ratio, significant
from inferprof.report.sections.common import CASE_COLUMNS, by_case, case_cells, optional, scaled
from inferprof.tables import tuning
from inferprof.tables.records import KEY, rows_of

if TYPE_CHECKING:
    import pandas as pd

TITLE: Final = "Choices of autotuned kernels"
US: Final = 1e3
KIB: Final = MIB / 1024
KERNEL: Final = (Column("kernel", "kernel"), Column("key", "key", hidden=True))
CHOICE_COLUMNS: Final = (
    *CASE_COLUMNS,
    *KERNEL,
    Column("source", "choice"),
    Column("config", "configuration"),
    Column("us", "µs", "number"),
    Column("tried", "tried", "number"),
    Column("offered", "of", "number", hidden=True),
    Column("failed", "failed", "number", hidden=True),
    Column("seconds", "s", "number"),
    Column("compile_s", "compiling s", "number"),
    Column("first_percent", "% of first", "number"),
    *(Column(name, name, "number") for name in ("second", "typical", "worst")),
)
CHOICE_NOTE: Final = (
    "As the autotuner timed it, with an empty L2 cache. Choice: tried, the fastest of several; one left, the library "
    "offers no other; remembered, from another case's record. s: compiling and timing, % of the first inference. "
    "Second, typical (median), worst: times as long as the winner."
)
TRIAL_COLUMNS: Final = (
    *CASE_COLUMNS,
    *KERNEL,
    Column("config", "configuration"),
    Column("us", "µs", "number"),
    Column("relative", "× best", "number"),
    Column("won", "won", hidden=True),
    Column("programs", "blocks", "number"),
    Column("waves", "waves", "number"),
    Column("occupancy_percent", "occupancy %", "number"),
    Column("blocks_per_sm", "blocks/SM", "number", hidden=True),
    Column("warps", "warps", "number", hidden=True),
    Column("registers", "registers", "number"),
    Column("spills", "spills", "number", hidden=True),
    Column("shared_kib", "shared KiB", "number"),
    *(Column(name, name, "number", hidden=True) for name in ("seconds", "compile_s", "compiled")),
)
TRIAL_NOTE: Final = (
    "Waves: blocks / (SMs · blocks that one holds at once); occupancy: the share of its threads that they are. "
    "The fastest first; the others, spills and compile times are in csv/tuning_trials.csv."
)
FASTEST: Final = 5
ELSEWHERE_COLUMNS: Final = (
    *CASE_COLUMNS,
    Column("kernel", "kernel"),
    Column("config", "best here"),
    Column("at_variant", "variant there", hidden=True),
    Column("at_shape", "at", "text"),
    Column("relative", "× best there", "number"),
)
DID_NOT_RUN: Final = "it did not compile or fit"
ONE: Final = "one configuration alone was timed"


def section(evidence: Evidence) -> Section:
    """Empty where no kernel was chosen by trying."""
    records = evidence.records[evidence.records["status"] == "ok"]
    choices = _sorted(evidence, tuning.choices(records))
    if not choices:
        return Section(TITLE, ())
    trials = tuning.trials(records)
    blocks: list[Block] = [Table("tuning", "", CHOICE_COLUMNS, tuple(map(_choice, choices)), CHOICE_NOTE, groups=2)]
    blocks += _trials(evidence, trials)
    if found := _sorted(evidence, tuning.elsewhere(trials)):
        title = "What the best choice at one shape costs at another"
        blocks.append(Table("tuning_elsewhere", title, ELSEWHERE_COLUMNS, tuple(map(_elsewhere, found)), groups=2))
    return Section(TITLE, tuple(blocks))


def _trials(evidence: Evidence, trials: pd.DataFrame) -> list[Block]:
    """Every configuration as a CSV; the fastest of each choice on the page."""
    every = sorted(
        rows_of(trials), key=lambda row: (evidence.order[row["model"], row["shape"]], *_choice_of(row), _time(row))
    )
    ranks = [rank for _, choice in itertools.groupby(every, key=_choice_of) for rank, _ in enumerate(choice)]
    best = [row for row, rank in zip(every, ranks, strict=True) if row["source"] == "tried" and rank < FASTEST]
    shown = tuple(map(_trial, best))
    title = f"The {FASTEST} fastest configurations of each choice among several"
    fastest = [Table("tuning_fastest", title, TRIAL_COLUMNS, shown, TRIAL_NOTE, groups=6)] if shown else []
    return [
        *fastest,
        Table("tuning_trials", "Every configuration", TRIAL_COLUMNS, tuple(map(_trial, every)), csv_only=True),
    ]


def _choice_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in (*KEY, "round", "kernel", "key"))


def _time(row: Mapping[str, Any]) -> float:
    return float("inf") if row["median_ns"] is None else float(row["median_ns"])


def _sorted(evidence: Evidence, frame: pd.DataFrame) -> list[dict[str, Any]]:
    return by_case(rows_of(frame), evidence.order, lambda row: 0)


def _named(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    return (*case_cells(row), words(row["kernel"]), words(_key(row["key"])))


def _key(key: str) -> str:
    """`M=512 N=4096 dtypes=float16`."""
    return " ".join(f"{name}={value}" for name, value in json.loads(key).items())


def _us(row: Mapping[str, Any]) -> Cell:
    return scaled(row["median_ns"], US, lambda ns: significant(ns / US, 3), DID_NOT_RUN)


def _choice(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    share = row["first_share"]
    return (
        *_named(row),
        words(row["source"]),
        words(row["config"]),
        _us(row),
        *(number(row[name], str(row[name])) for name in ("tried", "offered", "failed")),
        *(number(row[name], significant(row[name], 3)) for name in ("seconds", "compile_s")),
        missing("the record has no first inference") if share is None else number(100 * share, percent(100 * share)),
        *(optional(row[name], ratio, ONE) for name in ("second", "typical", "worst")),
    )


def _trial(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    def whole(name: str) -> Cell:
        return optional(row[name], count, DID_NOT_RUN)

    def three(name: str, unit: float = 1.0) -> Cell:
        return scaled(row[name], unit, lambda value: significant(value / unit, 3), DID_NOT_RUN)

    return (
        *_named(row),
        words(row["config"]),
        _us(row),
        optional(row["relative"], lambda value: f"{value:.2f}", DID_NOT_RUN),
        words("yes" if row["won"] else "no"),
        whole("programs"),
        three("waves"),
        three("occupancy", unit=0.01),
        *(whole(name) for name in ("blocks_per_sm", "warps", "registers", "spills")),
        three("shared_bytes", unit=KIB),
        *(three(name) for name in ("seconds", "compile_s")),
        whole("compiled"),
    )


def _elsewhere(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    return (
        *case_cells(row),
        *(words(row[name]) for name in ("kernel", "config", "at_variant", "at_shape")),
        optional(row["relative"], lambda value: f"{value:.2f}", "it was not tried there"),
    )
