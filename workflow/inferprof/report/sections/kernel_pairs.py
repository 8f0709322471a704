"""The kernels of two cases side by side: a number format against fp32, another runtime against ONNX Runtime,
quantized weights against plain ones."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from inferprof.case import QUANTIZE, REFERENCE
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Table, number, words
from inferprof.report.numbers import count, ratio, significant
from inferprof.report.profiled import Profile, caution, chosen
from inferprof.report.section import Section
from inferprof.tables.records import Key, key_of, options_of, paired_without, rows_of
from inferprof.tables.trace.kernel_compare import by_class, side_by_side
from inferprof.units import NS_PER_MS

if TYPE_CHECKING:
    import pandas as pd

Pair = tuple[Profile, Profile]

ON_THE_PAGE = 8
REFERENCE_BACKEND = "ort_cuda"
PAIR_COLUMNS = (
    Column("model", "model"),
    Column("shape", "shape"),
    Column("variant", "variant"),
    Column("from", "from"),
    Column("to", "to"),
)
AMOUNT_COLUMNS = (
    Column("launches_from", "launches from", "number"),
    Column("launches_to", "launches to", "number"),
    Column("from_ms", "ms from", "number"),
    Column("to_ms", "ms to", "number"),
    Column("change_ms", "change ms", "number"),
)
SUMMARY_COLUMNS = (
    *PAIR_COLUMNS,
    Column("kernel_time", "kernel time", "number"),
    Column("largest", "largest change by class"),
    Column("new", "new", "number"),
    Column("gone", "gone", "number"),
)
CLASS_COLUMNS = (*PAIR_COLUMNS, Column("class", "class"), *AMOUNT_COLUMNS)
NAME_COLUMNS = (
    *PAIR_COLUMNS,
    Column("kernel", "kernel"),
    Column("class", "class"),
    Column("status", "status"),
    *AMOUNT_COLUMNS,
)


def build(evidence: Evidence) -> Sequence[Block]:
    """A row per pair, those that changed most first; by class and by name in the CSVs."""
    paired = pairs(chosen(evidence, "kernel"), paired_without(QUANTIZE, options_of(evidence.records)))
    if not paired:
        return ()
    compared = _compared(paired)
    compared.sort(key=lambda entry: -abs(math.log(_ratio(entry[1]))))
    seen = list({id(profile): profile for pair in paired for profile in pair}.values())
    note = (
        "Kernel time: that of an iteration, to / from. Changes are % of the whole kernel time of from. New and gone: "
        f"kernels by name. {caution(evidence, seen)}"
    )
    rows = tuple(_summary(*entry) for entry in compared)
    classes = tuple(row for pair, table, _ in compared for row in _class_rows(pair, table))
    names = tuple(row for pair, _, table in compared for row in _name_rows(pair, table))
    blocks: tuple[Block, ...] = (
        Table("kernel_pairs", "", SUMMARY_COLUMNS, rows, note, limit=ON_THE_PAGE),
        Table("kernel_pairs_by_class", "By class", CLASS_COLUMNS, classes, csv_only=True),
        Table("kernel_pairs_by_name", "By kernel, new and gone ones too", NAME_COLUMNS, names, csv_only=True),
    )
    return blocks


def _compared(pairs: list[Pair]) -> list[tuple[Pair, pd.DataFrame, pd.DataFrame]]:
    """Each pair with its kernels side by side, by class and by name."""
    import pandas as pd

    before, after = (
        pd.concat([profile.kernels.assign(pair=place) for place, profile in enumerate(side)])
        for side in zip(*pairs, strict=True)
    )
    names = side_by_side(before, after, within=["pair"])
    by_pair = dict(iter(names.groupby("pair")))
    classes = dict(iter(by_class(names, within=["pair"]).groupby("pair")))
    return [(pair, classes[place], by_pair[place]) for place, pair in enumerate(pairs)]


def pairs(profiles: list[Profile], plain: Mapping[Key, Sequence[Key]]) -> list[Pair]:
    """(from, to) of the same model and shape by the same tool that differ in precision, backend or variant alone.

    From is fp32, ONNX Runtime's CUDA provider, or one of the cases that `plain` has for the other one, whose weights
    are quantized: what that is held against.
    """
    return [
        (a, b)
        for a, b in itertools.permutations(profiles, 2)
        if a.tool == b.tool
        and _differ_in(a, b) in ({"precision"}, {"backend"}, {"variant"})
        and (a.case["variant"] == b.case["variant"] or key_of(a.case) in plain.get(key_of(b.case), ()))
        and (a.case["precision"] == REFERENCE or a.case["precision"] == b.case["precision"])
        and (a.case["backend"] == REFERENCE_BACKEND or a.case["backend"] == b.case["backend"])
    ]


def _differ_in(a: Profile, b: Profile) -> set[str]:
    return {key for key, value in a.case.items() if b.case[key] != value}


def _ratio(table: pd.DataFrame) -> float:
    return float(table["duration_b"].sum() / table["duration_a"].sum())


def _pair_cells(pair: Pair) -> tuple[Cell, ...]:
    case = pair[0].case
    parts = ("precision", "backend", "variant")[: 3 if "variant" in _differ_in(*pair) else 2]
    sides = (words("/".join(profile.case[part] for part in parts)) for profile in pair)
    return (*(words(case[key]) for key in ("model", "shape", "variant")), *sides)


def _summary(pair: Pair, classes: pd.DataFrame, names: pd.DataFrame) -> tuple[Cell, ...]:
    largest = classes.iloc[0]
    percent = 100 * float(largest["change"]) / float(classes["duration_a"].sum())
    times = _ratio(classes)
    status = names["status"].value_counts()
    counts = (int(status.get(word, 0)) for word in ("new", "gone"))
    return (
        *_pair_cells(pair),
        number(times, ratio(times)),
        words(f"{largest['kernel_class']} {percent:+.0f}%"),
        *(number(each, str(each)) for each in counts),
    )


def _class_rows(pair: Pair, table: pd.DataFrame) -> list[tuple[Cell, ...]]:
    cells = _pair_cells(pair)
    return [(*cells, words(row["kernel_class"]), *_amounts(row)) for row in rows_of(table)]


def _name_rows(pair: Pair, table: pd.DataFrame) -> list[tuple[Cell, ...]]:
    cells = _pair_cells(pair)
    return [
        (*cells, *(words(row[key]) for key in ("name", "kernel_class", "status")), *_amounts(row))
        for row in rows_of(table)
    ]


def _amounts(row: dict[str, Any]) -> tuple[Cell, ...]:
    launches = (number(row[key], count(row[key])) for key in ("launches_a", "launches_b"))
    times = (row[key] / NS_PER_MS for key in ("duration_a", "duration_b", "change"))
    return (*launches, *(number(ms, significant(ms)) for ms in times))


SECTION = Section(
    name="kernel_pairs",
    title="Kernels of two cases",
    place=190,
    build=build,
    needs=("profiles",),
)
