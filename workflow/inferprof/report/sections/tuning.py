"""Choices of autotuned kernels: what was chosen and what that took, every configuration, and the choice elsewhere."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd

from inferprof.report.common import by_case
from inferprof.report.evidence import Evidence
from inferprof.report.fields import CASE, Field, Fields, Unit, csv_of, hidden, in_unit, plain, table_of, text, us
from inferprof.report.model import Block, Cell, Column, missing, number, words
from inferprof.report.numbers import count, percent, ratio, three_digits
from inferprof.report.section import section
from inferprof.tables import tuning
from inferprof.tables.records import KEY, rows_of
from inferprof.units import KIB

DID_NOT_RUN: Final = "it did not compile or fit"
ONE: Final = "one configuration alone was timed"
NO_FIRST: Final = "the record has no first inference"
KERNEL: Final[Fields] = (
    text("kernel"),
    Field(Column("key", "key", hidden=True), lambda row: words(_key(row["key"]))),
)
UNSEEN: Final = hidden(KERNEL)
COST: Final = (
    plain("tried"),
    plain("seconds", "s", three_digits),
    plain("compile_s", "compiling s", three_digits),
    Field(Column("first_percent", "% of first", "number"), lambda row: _of_first(row["first_share"])),
    *(plain(name, None, ratio, ONE) for name in ("second", "typical", "worst")),
)
CHOICES: Final = (
    *CASE,
    *KERNEL,
    text("source", "choice"),
    text("config", "configuration"),
    us("", "µs", DID_NOT_RUN, of="median_ns"),
    plain("offered", "of", hidden=True),
    plain("failed", hidden=True),
    *hidden(COST),
)
CHOICE_NOTE: Final = (
    "µs as the autotuner timed it, with an empty L2 cache. Choice: tried, the fastest of several; one left, the "
    "library offers no other; remembered, from another case's record; disk, from Triton's cache."
)
COSTS: Final = (*CASE, *UNSEEN, *COST)
COST_NOTE: Final = (
    "The rows as above. s: compiling and timing, % of the first inference. Second, typical (the middle one), worst: "
    "times as long as the winner."
)
TRIALS: Final = (
    *CASE,
    *UNSEEN,
    text("config", "configuration"),
    us("", "µs", DID_NOT_RUN, of="median_ns"),
    plain("relative", "× best", "{:.2f}".format, DID_NOT_RUN),
    Field(Column("won", "won", hidden=True), lambda row: words("yes" if row["won"] else "no")),
    plain("programs", "blocks", count, DID_NOT_RUN),
    plain("waves", None, three_digits, DID_NOT_RUN),
    in_unit("occupancy_percent", "occupancy %", Unit(0.01), "occupancy", DID_NOT_RUN),
    plain("blocks_per_sm", "blocks/SM", count, DID_NOT_RUN, hidden=True),
    plain("warps", None, count, DID_NOT_RUN, hidden=True),
    plain("registers", None, count, DID_NOT_RUN),
    plain("spills", None, count, DID_NOT_RUN, hidden=True),
    in_unit("shared_kib", "shared KiB", Unit(KIB), "shared_bytes", DID_NOT_RUN),
    plain("seconds", None, three_digits, DID_NOT_RUN, hidden=True),
    plain("compile_s", None, three_digits, DID_NOT_RUN, hidden=True),
    plain("compiled", None, count, DID_NOT_RUN, hidden=True),
)
TRIAL_NOTE: Final = (
    "Waves: blocks / (SMs · blocks that one holds at once); occupancy: the share of its threads that they are. "
    "The fastest first; the others, spills and compile times are in csv/tuning_trials.csv."
)
FASTEST: Final = 5
ELSEWHERE: Final = (
    *CASE,
    text("kernel"),
    text("config", "best here"),
    text("at_variant", "variant there", hidden=True),
    text("at_shape", "at"),
    plain("relative", "× best there", "{:.2f}".format, "it was not tried there"),
)


@section("tuning", "Choices of autotuned kernels", place=90, needs=("records",))
def build(evidence: Evidence) -> Sequence[Block]:
    """Empty where no kernel was chosen by trying. Of cases that failed too: what they chose they chose before."""
    choices = by_case(rows_of(tuning.choices(evidence.records)), evidence.order)
    if not choices:
        return ()
    trials = tuning.trials(evidence.records)
    taken = "What choosing took, and what other choices would cost"
    blocks: list[Block] = [
        table_of("tuning", "What was chosen", _narrow(CHOICES, choices), choices, CHOICE_NOTE),
        table_of("tuning_cost", taken, _narrow(COSTS, choices), choices, COST_NOTE),
        *_trials(evidence, trials),
    ]
    if other_shapes := by_case(rows_of(tuning.elsewhere(trials)), evidence.order):
        title = "What the best choice at one shape costs at another"
        blocks.append(table_of("tuning_elsewhere", title, _narrow(ELSEWHERE, other_shapes), other_shapes))
    return blocks


def _narrow(fields: Fields, rows: Sequence[Mapping[str, Any]]) -> Fields:
    """Without the parts of the case that are the same in all rows: kernels and configurations have long names."""
    same = {name for name in ("precision", "backend") if len({row[name] for row in rows}) == 1}
    return hidden(fields, lambda column: column.hidden or column.key in same)


def _trials(evidence: Evidence, trials: pd.DataFrame) -> list[Block]:
    """Every configuration as a CSV; the fastest of each choice on the page."""
    place = evidence.order
    every = sorted(rows_of(trials), key=lambda row: (place[row["model"], row["shape"]], *_choice_of(row), _time(row)))
    ranks = [rank for _, choice in itertools.groupby(every, key=_choice_of) for rank, _ in enumerate(choice)]
    best = [row for row, rank in zip(every, ranks, strict=True) if row["source"] == "tried" and rank < FASTEST]
    fields = _narrow(TRIALS, every)
    title = f"The {FASTEST} fastest configurations of each choice among several"
    return [
        *([table_of("tuning_fastest", title, fields, best, TRIAL_NOTE, groups=7)] if best else []),
        csv_of("tuning_trials", "Every configuration", fields, every),
    ]


def _choice_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in (*KEY, "round", "kernel", "key"))


def _time(row: Mapping[str, Any]) -> float:
    return float("inf") if row["median_ns"] is None else float(row["median_ns"])


def _of_first(share: float | None) -> Cell:
    return missing(NO_FIRST) if share is None else number(100 * share, percent(100 * share))


def _key(key: str) -> str:
    """`M=512 N=4096 dtypes=float16`."""
    return " ".join(f"{name}={value}" for name, value in json.loads(key).items())
