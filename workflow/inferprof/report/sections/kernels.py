"""What the GPU computed: each case's kernels by class and by name, and the kernels of two cases side by side."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

import pandas as pd

from inferprof.case import QUANTIZE, REFERENCE
from inferprof.report.common import CASE_COLUMNS, case_cells, few, path_of
from inferprof.report.evidence import Evidence
from inferprof.report.fields import CASE, csv_of, kernel, ms, plain, table_of, text
from inferprof.report.model import Block, Cell, Column, Table, Text, number, words
from inferprof.report.numbers import count, ratio
from inferprof.report.profiled import SLOW_DOWN_COLUMN, Profile, caution, chosen, profiles, slow_down
from inferprof.report.section import section
from inferprof.tables.records import Key, key_of, options_of, paired_without, rows_of
from inferprof.tables.trace.kernel_class import KernelClass
from inferprof.tables.trace.kernel_compare import by_class, side_by_side

TOP_CLASSES = 3
TOP_KERNELS = 3
UNCLASSIFIED = "other"
CLASSES: tuple[str, ...] = tuple(name for name in get_args(KernelClass) if name != UNCLASSIFIED)
CLASS_COLUMNS = (
    *CASE_COLUMNS,
    Column("tool", "tool", hidden=True),
    SLOW_DOWN_COLUMN,
    Column("largest", "largest classes"),
    Column("unclassified_percent", "unclassified %", "number"),
    *(Column(f"{name}_percent", name, "number", hidden=True) for name in CLASSES),
)
KERNELS = (
    *CASE,
    text("tool", hidden=True),
    plain("share_percent", "%", "{:.1f}".format),
    plain("launches", None, count),
    text("class", of="kernel_class", hidden=True),
    kernel("name"),
)


@section("kernels", "Kernels", place=160, needs=("profiles",))
def kernels(evidence: Evidence) -> Sequence[Block]:
    """Classes, then the longest kernels; empty where no kernel was traced."""
    seen = chosen(evidence, "kernel")
    if not seen:
        return ()
    note = (
        f"By the kernels' names, of those launched inside iterations. Unclassified: no rule knows the name. "
        f"{caution(evidence, seen)}"
    )
    classes = tuple(_classes(evidence, profile) for profile in seen)
    rows = [row for profile in seen for row in _kernels(profile)]
    longest = [row for row in rows if row["rank"] < TOP_KERNELS]
    title = f"The {TOP_KERNELS} kernels with the largest share of each case's kernel time, and launches per iteration"
    traced = {key_of(profile.case) for profile in seen}
    others = [path_of(profile.case) for profile in profiles(evidence) if key_of(profile.case) not in traced]
    lacking = [Text(f"No single kernel in the profile of {few(others)}.", "item")] if others else []
    blocks: tuple[Block, ...] = (
        Table("kernel_classes", "Kernel time by class, %", CLASS_COLUMNS, classes, note, groups=2),
        table_of("kernels", title, KERNELS, longest, caution(evidence, seen), groups=5),
        csv_of("all_kernels", "Every kernel", KERNELS, rows),
        *lacking,
    )
    return blocks


def _classes(evidence: Evidence, profile: Profile) -> tuple[Cell, ...]:
    shares = {name: 100 * share for name, share in profile.classes.items()}
    named = [f"{name} {share:.0f}%" for name, share in shares.items() if name != UNCLASSIFIED]
    return (
        *case_cells(profile.case),
        words(profile.tool),
        slow_down(evidence, profile),
        words(", ".join(named[:TOP_CLASSES])),
        _percent(shares.get(UNCLASSIFIED, 0.0)),
        *(_percent(shares.get(name, 0.0)) for name in CLASSES),
    )


def _kernels(profile: Profile) -> list[dict[str, Any]]:
    """The kernels of a case, the longest first."""
    by_name = profile.kernels
    total = float(by_name["duration"].sum())
    longest = rows_of(by_name.sort_values("duration", ascending=False, kind="stable"))
    named = {**profile.case, "tool": profile.tool}
    return [
        {**named, **row, "rank": rank, "share_percent": 100 * float(row["duration"]) / total}
        for rank, row in enumerate(longest)
    ]


def _percent(value: float) -> Cell:
    return number(value, f"{value:.1f}")


Pair = tuple[Profile, Profile]

ON_THE_PAGE = 8
REFERENCE_BACKEND = "ort_cuda"
PAIR = tuple(text(key) for key in ("model", "shape", "variant", "from", "to"))
AMOUNTS = (
    plain("launches_from", "launches from", count, of="launches_a"),
    plain("launches_to", "launches to", count, of="launches_b"),
    ms("from", "ms from", of="duration_a"),
    ms("to", "ms to", of="duration_b"),
    ms("change", "change ms", of="change"),
)
PAIRS = (
    *PAIR,
    plain("kernel_time", "kernel time", ratio),
    text("largest", "largest change by class"),
    plain("new"),
    plain("gone"),
)
BY_CLASS = (*PAIR, text("class", of="kernel_class"), *AMOUNTS)
BY_NAME = (*PAIR, text("kernel", of="name"), text("class", of="kernel_class"), text("status"), *AMOUNTS)


@section("kernel_pairs", "Kernels of two cases", place=190, needs=("profiles",))
def kernel_pairs(evidence: Evidence) -> Sequence[Block]:
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
    rows = [_summary(*entry) for entry in compared]
    classes = [{**_named(pair), **row} for pair, table, _ in compared for row in rows_of(table)]
    names = [{**_named(pair), **row} for pair, _, table in compared for row in rows_of(table)]
    blocks: tuple[Block, ...] = (
        replace(table_of("kernel_pairs", "", PAIRS, rows, note, groups=0), limit=ON_THE_PAGE),
        csv_of("kernel_pairs_by_class", "By class", BY_CLASS, classes),
        csv_of("kernel_pairs_by_name", "By kernel, new and gone ones too", BY_NAME, names),
    )
    return blocks


def _compared(pairs: list[Pair]) -> list[tuple[Pair, pd.DataFrame, pd.DataFrame]]:
    """Each pair with its kernels side by side, by class and by name."""
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


def _named(pair: Pair) -> dict[str, Any]:
    parts = ("precision", "backend", "variant")[: 3 if "variant" in _differ_in(*pair) else 2]
    before, after = ("/".join(profile.case[part] for part in parts) for profile in pair)
    return {**pair[0].case, "from": before, "to": after}


def _summary(pair: Pair, classes: pd.DataFrame, names: pd.DataFrame) -> dict[str, Any]:
    largest = classes.iloc[0]
    percent = 100 * float(largest["change"]) / float(classes["duration_a"].sum())
    status = names["status"].value_counts()
    return {
        **_named(pair),
        "kernel_time": _ratio(classes),
        "largest": f"{largest['kernel_class']} {percent:+.0f}%",
        **{word: int(status.get(word, 0)) for word in ("new", "gone")},
    }
