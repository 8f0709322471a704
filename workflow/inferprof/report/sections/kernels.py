"""What the GPU computed: each case's kernels by class and by name, as shares of its kernel time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from inferprof.report.common import CASE_COLUMNS, case_cells, few, path_of
from inferprof.report.evidence import Evidence
from inferprof.report.fields import CASE, csv_of, kernel, plain, table_of, text
from inferprof.report.model import Block, Cell, Column, Table, Text, number, words
from inferprof.report.numbers import count
from inferprof.report.profiled import SLOW_DOWN_COLUMN, Profile, caution, chosen, profiles, slow_down
from inferprof.report.section import Section
from inferprof.tables.records import key_of, rows_of
from inferprof.tables.trace.kernel_class import KernelClass

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


def build(evidence: Evidence) -> Sequence[Block]:
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


SECTION = Section(
    name="kernels",
    title="Kernels",
    place=160,
    build=build,
    needs=("profiles",),
)
