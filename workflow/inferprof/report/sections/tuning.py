"""Choices of autotuned kernels: what was chosen and what that took, every configuration, and the choice elsewhere."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from inferprof.report.common import CASE_COLUMNS, by_case, case_cells, in_us, optional, scaled
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Table, missing, number, words
from inferprof.report.numbers import count, percent, ratio, three_digits
from inferprof.report.section import Section
from inferprof.tables import tuning
from inferprof.tables.records import KEY, rows_of
from inferprof.units import KIB

if TYPE_CHECKING:
    import pandas as pd

KERNEL: Final = (Column("kernel", "kernel"), Column("key", "key", hidden=True))
COST: Final = (
    Column("tried", "tried", "number"),
    Column("seconds", "s", "number"),
    Column("compile_s", "compiling s", "number"),
    Column("first_percent", "% of first", "number"),
    *(Column(name, name, "number") for name in ("second", "typical", "worst")),
)
CHOICE_COLUMNS: Final = (
    *CASE_COLUMNS,
    *KERNEL,
    Column("source", "choice"),
    Column("config", "configuration"),
    Column("us", "µs", "number"),
    Column("offered", "of", "number", hidden=True),
    Column("failed", "failed", "number", hidden=True),
    *(dataclasses.replace(column, hidden=True) for column in COST),
)
CHOICE_NOTE: Final = (
    "µs as the autotuner timed it, with an empty L2 cache. Choice: tried, the fastest of several; one left, the "
    "library offers no other; remembered, from another case's record; disk, from Triton's cache."
)
UNSEEN: Final = tuple(dataclasses.replace(column, hidden=True) for column in KERNEL)
COST_COLUMNS: Final = (*CASE_COLUMNS, *UNSEEN, *COST)
COST_NOTE: Final = (
    "The rows as above. s: compiling and timing, % of the first inference. Second, typical (the middle one), worst: "
    "times as long as the winner."
)
TRIAL_COLUMNS: Final = (
    *CASE_COLUMNS,
    *UNSEEN,
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


def build(evidence: Evidence) -> Sequence[Block]:
    """Empty where no kernel was chosen by trying. Of cases that failed too: what they chose they chose before."""
    choices = by_case(rows_of(tuning.choices(evidence.records)), evidence.order)
    if not choices:
        return ()
    trials = tuning.trials(evidence.records)
    chosen = tuple(map(_choice, choices))
    blocks: list[Block] = [
        Table("tuning", "What was chosen", _narrow(CHOICE_COLUMNS, choices), chosen, CHOICE_NOTE, groups=2),
        *_costs(choices),
        *_trials(evidence, trials),
    ]
    if other_shapes := by_case(rows_of(tuning.elsewhere(trials)), evidence.order):
        rows, columns = tuple(map(_elsewhere, other_shapes)), _narrow(ELSEWHERE_COLUMNS, other_shapes)
        title = "What the best choice at one shape costs at another"
        blocks.append(Table("tuning_elsewhere", title, columns, rows, groups=2))
    return blocks


def _narrow(columns: tuple[Column, ...], rows: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
    """Without the parts of the case that are the same in all rows: kernels and configurations have long names."""
    same = {name for name in ("precision", "backend") if len({row[name] for row in rows}) == 1}
    return tuple(dataclasses.replace(column, hidden=column.hidden or column.key in same) for column in columns)


def _costs(choices: Sequence[Mapping[str, Any]]) -> list[Block]:
    """What choosing took; of choices among several also what the others would cost."""
    rows = tuple((*_named(row), *_cost(row)) for row in choices)
    title = "What choosing took, and what other choices would cost"
    return [Table("tuning_cost", title, _narrow(COST_COLUMNS, choices), rows, COST_NOTE, groups=2)]


def _trials(evidence: Evidence, trials: pd.DataFrame) -> list[Block]:
    """Every configuration as a CSV; the fastest of each choice on the page."""
    place = evidence.order
    every = sorted(rows_of(trials), key=lambda row: (place[row["model"], row["shape"]], *_choice_of(row), _time(row)))
    ranks = [rank for _, choice in itertools.groupby(every, key=_choice_of) for rank, _ in enumerate(choice)]
    best = [row for row, rank in zip(every, ranks, strict=True) if row["source"] == "tried" and rank < FASTEST]
    columns, shown = _narrow(TRIAL_COLUMNS, every), tuple(map(_trial, best))
    title = f"The {FASTEST} fastest configurations of each choice among several"
    return [
        *([Table("tuning_fastest", title, columns, shown, TRIAL_NOTE, groups=7)] if shown else []),
        Table("tuning_trials", "Every configuration", columns, tuple(map(_trial, every)), csv_only=True),
    ]


def _choice_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in (*KEY, "round", "kernel", "key"))


def _time(row: Mapping[str, Any]) -> float:
    return float("inf") if row["median_ns"] is None else float(row["median_ns"])


def _named(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    return (*case_cells(row), words(row["kernel"]), words(_key(row["key"])))


def _key(key: str) -> str:
    """`M=512 N=4096 dtypes=float16`."""
    return " ".join(f"{name}={value}" for name, value in json.loads(key).items())


def _us(row: Mapping[str, Any]) -> Cell:
    return in_us(row["median_ns"], DID_NOT_RUN)


def _choice(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    return (
        *_named(row),
        words(row["source"]),
        words(row["config"]),
        _us(row),
        *(number(row[name], str(row[name])) for name in ("offered", "failed")),
        *_cost(row),
    )


def _cost(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    share = row["first_share"]
    return (
        number(row["tried"], str(row["tried"])),
        *(number(row[name], three_digits(row[name])) for name in ("seconds", "compile_s")),
        missing("the record has no first inference") if share is None else number(100 * share, percent(100 * share)),
        *(optional(row[name], ratio, ONE) for name in ("second", "typical", "worst")),
    )


def _trial(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    def whole(name: str) -> Cell:
        return optional(row[name], count, DID_NOT_RUN)

    def three(name: str, unit: float = 1.0) -> Cell:
        return scaled(row[name], unit, lambda value: three_digits(value / unit), DID_NOT_RUN)

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


SECTION = Section(
    name="tuning",
    title="Choices of autotuned kernels",
    place=90,
    build=build,
    needs=("records",),
)
