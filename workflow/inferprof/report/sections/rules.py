"""NVIDIA's rules beside our own verdicts on the same launches: where one sees what the other does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from inferprof import registry
from inferprof.report.common import CASE_COLUMNS, both_ends, case_cells
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Table, Text, missing, number, words
from inferprof.report.profiled import Profile, profiles
from inferprof.report.section import Section
from inferprof.tables.counters import ncu_rules
from inferprof.tables.counters.ncu_choice import function_name
from inferprof.tables.records import rows_of
from inferprof.words import counted

APART: Final = ("theirs alone", "ours alone")
LIMIT: Final = 20
COLUMNS: Final = (
    *CASE_COLUMNS,
    Column("tool", "tool", hidden=True),
    Column("launch", "launch", "number", hidden=True),
    Column("kernel", "kernel"),
    Column("agreement", "seen by"),
    Column("rule", "rule"),
    Column("rule_percent", "gain %", "number"),
    Column("faults", "our checks", hidden=True),
    Column("ours", "what ours say", hidden=True),
    Column("message", "what it says", hidden=True),
)
NOTE: Final = (
    f"Gain: of the kernel's time, as NVIDIA's rule estimates it; from {ncu_rules.RULE_PERCENT:.0f} % on. Theirs "
    "alone: each of our checks that looks at the same is clear. Ours alone: no rule that looks at the same spoke. "
    "Ours rest on NVIDIA's thresholds where a rule has one."
)


def build(evidence: Evidence) -> Sequence[Block]:
    """The disagreements, and every rule that expects a gain in a CSV; empty where ncu has told of no rules."""
    results = [
        (profile, row)
        for profile in profiles(evidence, registry.counters())
        for row in rows_of(ncu_rules.agreement(profile.frame))
    ]
    if not results:
        return ()
    counts = Counter(row["agreement"] for _, row in results)
    tally = ", ".join(f"{count} {agreement}" for agreement, count in counts.most_common())
    every = tuple(_row(profile, row) for profile, row in results)
    apart = tuple(_row(profile, row) for profile, row in results if row["agreement"] in APART)
    title = "Where they disagree"
    tables = [Table("ncu_rules", title, COLUMNS, apart, NOTE, groups=5, limit=LIMIT)] if apart else []
    rest = Table("all_ncu_rules", "Every rule that expects a gain", COLUMNS, every, csv_only=True)
    return (Text(f"{counted(len(results), 'result')}: {tally}."), *tables, rest)


def _row(profile: Profile, row: Mapping[str, Any]) -> tuple[Cell, ...]:
    silent = "no rule of NVIDIA's spoke of it"
    return (
        *case_cells(profile.case),
        words(profile.tool),
        number(row["launch"], str(row["launch"])),
        Cell(both_ends(function_name(row["name"])).text, row["name"]),
        words(row["agreement"]),
        words(row["rule"]) if row["rule"] else missing(silent),
        number(row["rule_percent"], f"{row['rule_percent']:.0f}") if row["rule"] else missing(silent),
        words(row["faults"] or "none"),
        words(row["ours"] or "no check of ours looks at it"),
        words(row["message"]) if row["message"] else missing(silent),
    )


SECTION = Section(
    name="rules",
    title="NVIDIA's rules and ours",
    place=180,
    build=build,
    needs=("profiles",),
)
