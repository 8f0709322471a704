"""What does not run where it should: nodes with another execution provider, what TensorRT's parser refuses, loops.

From ONNX Runtime's own profiles, from the partitions of the graphs, and from traces of TensorRT's engines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from inferprof import registry
from inferprof.documents import Partition
from inferprof.documents.graph import Part
from inferprof.report.common import few, name_of
from inferprof.report.evidence import Evidence
from inferprof.report.fields import CASE, Field, Unit, csv_of, in_unit, percent, plain, table_of, text, us
from inferprof.report.model import Block, Cell, Column, Table, Text, missing, number, words
from inferprof.report.numbers import count, microseconds
from inferprof.report.profiled import Profile, caution, first_of
from inferprof.report.section import section
from inferprof.tables.nodes.fallback import ON_PURPOSE, WHYS, alike, explained, ledger
from inferprof.tables.nodes.kernel_loops import loops
from inferprof.tables.nodes.providers import per_run
from inferprof.tables.records import key_of, rows_of
from inferprof.units import KIB

TOP = 3
FALLBACKS = (
    *CASE,
    text("why"),
    Field(Column("nodes", "nodes"), lambda row: _nodes(row["nodes"].split(", "), row["op_types"])),
    Field(Column("providers", "left to", hidden=True), lambda row: words(_each_once(row["providers"]))),
    Field(Column("op_types", "operators", hidden=True), lambda row: words(_each_once(row["op_types"]))),
    plain("executions", "nodes a run", count, hidden=True),
    us("nodes", "nodes, µs", hidden=True),
    plain("copies", None, count),
    in_unit("copies_kib", "KiB", Unit(KIB), "copies_bytes", "the profile does not tell sizes", hidden=True),
    us("copies", "copies, µs", hidden=True),
    plain("casts", None, count, hidden=True),
    us("casts", "casts, µs", hidden=True),
    us("gain_low", "gain, µs", of="gain_low"),
    us("gain_high", "to", of="gain_high"),
)
PARTITION_COLUMNS = (
    Column("model", "model"),
    Column("precision", "precision"),
    Column("nodes", "nodes", "number"),
    Column("open_taken", "taken, open sizes"),
    Column("fixed_taken", "taken, fixed sizes"),
    Column("left", "left"),
    Column("words", "the parser's words", hidden=True),
    Column("looped", "loops"),
    Column("by", "asked", hidden=True),
    Column("file", "file", "path", hidden=True),
)
LOOPS = (
    *CASE,
    text("operator", "loop of"),
    text("region", hidden=True),
    text("block", hidden=True),
    plain("steps", None, count),
    plain("launches", None, count),
    us("mean", "µs each", of="mean"),
    us("kernels", "µs", of="duration"),
    percent("share", "%"),
    us("region_host", "µs of the host", of="region_duration", hidden=True),
)
FALLBACK_NOTE = (
    "Per run, by the host's clock. A move of the nodes to the main provider gains their copies and casts, if they "
    "take as long there, and their own time too, if they take none; where the GPU was traced, never more than it "
    "stood idle meanwhile."
)
LOOP_NOTE = (
    "Per execution of the region of the engine. Nothing falls back in a loop: the GPU runs the kernels of its body "
    "once per step. %: of all kernel time."
)


@section("fallback", "What falls back", place=250)
def build(evidence: Evidence) -> Sequence[Block]:
    """Findings first, then the fallbacks, the partitions and the loops; empty where there is none of them."""
    seen = first_of(evidence, registry.sessions())
    fallbacks = [(profile, _explained(evidence, profile, ledger(per_run(profile.frame)))) for profile in seen]
    looping = [(profile, loops(profile.frame)) for profile in first_of(evidence, registry.tracers())]
    return [
        *_findings(evidence, fallbacks, looping),
        *_fallbacks(evidence, [profile for profile, table in fallbacks if len(table)], fallbacks),
        *_partitions(evidence),
        *_loops(evidence, looping),
    ]


Tables = list[tuple[Profile, pd.DataFrame]]


def _findings(evidence: Evidence, fallbacks: Tables, looping: Tables) -> list[Text]:
    """Of each case the most expensive fallbacks that are not on purpose, and the most expensive loop."""
    texts, gains = [], {}
    for profile, table in fallbacks:
        for row in rows_of(alike(table[table["why"] != ON_PURPOSE]).head(1)):
            texts.append(Text(f"{_title(profile)}: {_fallback_in_words(row)}", "item", "warn"))
            gains[key_of(profile.case)] = row["gain_high"]
    for profile, table in looping:
        for row in rows_of(table.head(1)):
            worse = row["duration"] > gains.get(key_of(profile.case), math.inf)
            rest = " It costs more than what falls back." if worse else ""
            text = f"{_title(profile)}: {_loop_in_words(row, _operator(evidence, profile))}{rest}"
            texts.append(Text(text, "item", "warn"))
    return texts


def _explained(evidence: Evidence, profile: Profile, table: pd.DataFrame) -> pd.DataFrame:
    """The ledger with the reasons of the parser that the case's provider has."""
    document = evidence.partitions.get((profile.case["model"], profile.case["precision"]))
    return explained(table, profile.case["backend"], document.content if document else None)


def _title(profile: Profile) -> str:
    return f"{profile.case['model']} {name_of(profile.case)} {profile.case['shape']}"


def _fallback_in_words(row: dict[str, Any]) -> str:
    why = "; ".join(WHYS[reason] for reason in row["why"].split(", "))
    gain = f"{microseconds(row['gain_low'])} to {microseconds(row['gain_high'])} µs a run"
    place = row["providers"].replace("ExecutionProvider", "")
    return f"{few(row['nodes'].split(', '))} on {place}, {count(row['copies'])} copies ({why}); a move gains {gain}."


def _loop_in_words(row: dict[str, Any], operator: str) -> str:
    body = f"{count(row['steps'])} steps of {count(row['kernels'])} kernels (__myl_{row['block']}_…)"
    each, whole, host = (microseconds(row[name]) for name in ("mean", "duration", "region_duration"))
    return (
        f"{operator} runs as a loop of {body} of {each} µs: {whole} µs a run, {100 * row['share']:.0f}% of the "
        f"kernel time, and {host} µs of the host's."
    )


# --- in sessions -----------------------------------------------------------------------------------------------


def _fallbacks(evidence: Evidence, seen: list[Profile], fallbacks: Tables) -> list[Block]:
    shown = [{**profile.case, **row} for profile, table in fallbacks for row in _summed(table)]
    every = [{**profile.case, **row} for profile, table in fallbacks for row in rows_of(table)]
    if not every:
        return []
    title = f"Left by the provider that was asked for, the {TOP} most expensive of each case, alike ones together"
    note = f"{FALLBACK_NOTE} {caution(evidence, seen)}"
    return [
        table_of("fallbacks", title, FALLBACKS, shown, note, groups=5),
        csv_of("all_fallbacks", "Every fallback to another provider", FALLBACKS, every),
    ]


def _summed(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The most expensive fallbacks, as many as are alike in one row, and those on purpose as one row."""
    purpose = table["why"] == ON_PURPOSE
    return [*rows_of(alike(table[~purpose]).head(TOP)), *rows_of(alike(table[purpose], ["why"]))]


def _nodes(names: list[str], op_types: str) -> Cell:
    several = f"{len(names)} nodes" if ", " in op_types else f"{len(names)} {op_types}"
    label = names[0] if len(names) == 1 else several
    return Cell(label if len(label) <= 20 else f"…{label[-19:]}", ", ".join(names))


def _each_once(names: str) -> str:
    return ", ".join(dict.fromkeys(names.split(", ")))


# --- of the graph alone ----------------------------------------------------------------------------------------


def _partitions(evidence: Evidence) -> list[Block]:
    asked = {
        pair: (document.file, document.content) for pair, document in evidence.partitions.items() if document.content
    }
    if not asked:
        return []
    by = ", ".join(sorted({str(content.by) for _, content in asked.values()}))
    note = (
        f"By the parser of {by}, from the graph alone. It is asked twice: with the sizes that the graph leaves open, "
        "and with all of them fixed. Each tensor between what is taken and what is left is a copy."
    )
    rows = tuple(_partition(*pair, *document) for pair, document in asked.items())
    return [Table("partitions", "What TensorRT takes of each graph", PARTITION_COLUMNS, rows, note, groups=1)]


def _partition(model: str, precision: str, file: str, content: Partition) -> tuple[Cell, ...]:
    parts = [part for part in (content.dynamic, content.static) if part]
    nodes = next(part.nodes for part in reversed(parts) if part.nodes is not None)
    left = content.left
    described = [f"{entry.op_type}: {entry.why}" for entry in left.values()]
    return (
        words(model),
        words(precision),
        number(nodes, f"{nodes:,}"),
        *(_taken(part) for part in parts),
        words(few(described) or "nothing"),
        words("; ".join(f"{name}: {entry.words}" for name, entry in left.items())),
        words(few(content.in_loops) or "none"),
        words(content.by),
        words(file),
    )


def _taken(part: Part) -> Cell:
    if part.nodes is None:
        return missing(part.not_measured or "")
    engines = len(part.subgraphs or ())
    return words(f"{part.taken:,} in {engines} engine{'' if engines == 1 else 's'}")


# --- loops -----------------------------------------------------------------------------------------------------


def _loops(evidence: Evidence, looping: Tables) -> list[Block]:
    rows = [
        {**profile.case, "operator": _operator(evidence, profile), **row}
        for profile, table in looping
        for row in rows_of(table)
    ]
    seen = [profile for profile, table in looping if len(table)]
    if not rows:
        return []
    title = "Loops of small kernels inside of engines"
    return [table_of("kernel_loops", title, LOOPS, rows, f"{LOOP_NOTE} {caution(evidence, seen)}", groups=5)]


def _operator(evidence: Evidence, profile: Profile) -> str:
    """The node that is the loop, where the graph has one candidate only; else what can be said."""
    document = evidence.partitions.get((profile.case["model"], profile.case["precision"]))
    candidates = document.content.in_loops if document and document.content else []
    return candidates[0] if len(candidates) == 1 else f"one of {few(candidates)}" if candidates else "a region"
