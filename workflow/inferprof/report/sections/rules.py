"""NVIDIA's rules beside our own verdicts on the same launches: where one sees what the other does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from inferprof import registry
from inferprof.report.common import both_ends
from inferprof.report.evidence import Evidence
from inferprof.report.fields import CASE, Field, csv_of, plain, table_of, text
from inferprof.report.model import Block, Cell, Column, Text, missing, number, words
from inferprof.report.profiled import profiles
from inferprof.report.section import Section
from inferprof.tables.counters import ncu_rules
from inferprof.tables.counters.ncu_choice import function_name
from inferprof.tables.records import rows_of
from inferprof.words import counted

APART: Final = ("theirs alone", "ours alone")
LIMIT: Final = 20
SILENT: Final = "no rule of NVIDIA's spoke of it"
FIELDS: Final = (
    *CASE,
    text("tool", hidden=True),
    plain("launch", hidden=True),
    Field(Column("kernel", "kernel"), lambda row: Cell(both_ends(function_name(row["name"])).text, row["name"])),
    text("agreement", "seen by"),
    text("rule", None, SILENT),
    Field(Column("rule_percent", "gain %", "number"), lambda row: _gain(row)),
    Field(Column("faults", "our checks", hidden=True), lambda row: words(row["faults"] or "none")),
    Field(
        Column("ours", "what ours say", hidden=True),
        lambda row: words(row["ours"] or "no check of ours looks at it"),
    ),
    text("message", "what it says", SILENT, hidden=True),
)
NOTE: Final = (
    f"Gain: of the kernel's time, as NVIDIA's rule estimates it; from {ncu_rules.RULE_PERCENT:.0f} % on. Theirs "
    "alone: each of our checks that looks at the same is clear. Ours alone: no rule that looks at the same spoke. "
    "Ours rest on NVIDIA's thresholds where a rule has one."
)


def build(evidence: Evidence) -> Sequence[Block]:
    """The disagreements, and every rule that expects a gain in a CSV; empty where ncu has told of no rules."""
    results = [
        {**profile.case, "tool": profile.tool, **row}
        for profile in profiles(evidence, registry.counters())
        for row in rows_of(ncu_rules.agreement(profile.frame))
    ]
    if not results:
        return ()
    counts = Counter(row["agreement"] for row in results)
    tally = ", ".join(f"{count} {agreement}" for agreement, count in counts.most_common())
    apart = [row for row in results if row["agreement"] in APART]
    shown = table_of("ncu_rules", "Where they disagree", FIELDS, apart, NOTE, groups=5)
    tables = [replace(shown, limit=LIMIT)] if apart else []
    every = csv_of("all_ncu_rules", "Every rule that expects a gain", FIELDS, results)
    return (Text(f"{counted(len(results), 'result')}: {tally}."), *tables, every)


def _gain(row: Mapping[str, Any]) -> Cell:
    return number(row["rule_percent"], f"{row['rule_percent']:.0f}") if row["rule"] else missing(SILENT)


SECTION = Section(
    name="rules",
    title="NVIDIA's rules and ours",
    place=180,
    build=build,
    needs=("profiles",),
)
