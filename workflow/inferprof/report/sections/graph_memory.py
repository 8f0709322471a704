"""Memory of CUDA graphs of several batch sizes: all together, each with the time that it saves, and their pools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from inferprof.report.common import by_case, name_of, optional, path_of
from inferprof.report.diagnosed import findings
from inferprof.report.evidence import Evidence
from inferprof.report.fields import CASE, Field, csv_of, mib, ms, plain, table_of, text
from inferprof.report.model import Block, Column, Text, words
from inferprof.report.numbers import three_digits
from inferprof.report.section import section
from inferprof.tables import graph_memory
from inferprof.tables.records import KEY, rows_of
from inferprof.units import MIB, NS_PER_US

CHECK: Final = "graph_memory"
ROWS: Final = 33
"""Graphs on the page: those of a few cases."""
NO_EAGER: Final = "torch.compile's graphs are not timed against a run without them"
SIZES: Final = {
    "graph_reserved": "pools MiB",
    "graph_allocated": "alive MiB",
    "one_pool": "one pool MiB",
    "static_inputs": "inputs MiB",
    "static_outputs": "outputs MiB",
    "added": "device MiB",
}
NO_SIZE: Final = {
    "one_pool": "a pool with nothing but the largest graph was not measured",
    "added": "the first row has a graph already, or the device's memory could not be read",
}
NOT_BOUGHT: Final = "the graph saves a time that is not known, or adds nothing"
SURVIVES: Final = {True: "yes", False: "no", None: "not known"}
WHOLE: Final = (
    *CASE,
    text("pool"),
    text("order"),
    plain("graphs"),
    plain("pools"),
    *(mib(key, title, NO_SIZE.get(key, ""), hidden=key.startswith("static_")) for key, title in SIZES.items()),
    ms("capture", "capture ms", NO_EAGER),
)
WHOLE_NOTE: Final = (
    "Pools: what the graphs' pools hold; alive: of that under a living tensor. One pool: what the largest graph "
    "needs by itself, and all outputs. Device: what came into use with the graphs and their static inputs."
)
WORTH: Final = (
    *CASE,
    plain("batch"),
    ms("eager", "without ms", NO_EAGER),
    ms("replay", "graph ms", NO_EAGER),
    ms("saved", "saved ms", NO_EAGER),
    mib("added", "device MiB", NO_SIZE["added"]),
    Field(Column("us_per_mib", "µs per MiB", "number"), lambda row: optional(_bought(row), three_digits, NOT_BOUGHT)),
    ms("capture", "capture ms", NO_EAGER, hidden=True),
    plain("difference", None, "{:.2g}".format, NO_EAGER, hidden=True),
    Field(Column("intact", "output survives others", hidden=True), lambda row: words(SURVIVES[row["intact"]])),
)
WORTH_NOTE: Final = (
    "Medians on the device's clock, on the same inputs. Device: what came into use with this graph "
    "after those before it. µs per MiB: latency bought with it."
)
CURVE: Final = (
    *CASE,
    *(
        plain(key, None, lambda value: str(int(value)), "there is no graph yet")
        for key in ("graphs", "batch", "pools")
    ),
    *(
        mib(key, key.replace("_", " "), "the device's memory could not be read")
        for key in graph_memory.HELD
        if key != "pools"
    ),
)
SEGMENTS: Final = (
    *CASE,
    text("pool"),
    Field(Column("of_graphs", "of graphs"), lambda row: words("yes" if row["of_graphs"] else "no")),
    plain("segments"),
    *(mib(key, key.replace("_", " ")) for key in ("largest_segment", "reserved", "allocated", "inactive")),
)


@section("graph_memory", "Memory of CUDA graphs", place=80, needs=("records",))
def build(evidence: Evidence) -> Sequence[Block]:
    """Empty where no variant has `graphs`."""
    records = evidence.records[evidence.records["status"] == "ok"].drop_duplicates(KEY)
    wholes = by_case(rows_of(graph_memory.wholes(records)), evidence.order)
    measured = [row for row in wholes if not row["not_measured"]]
    blocks: list[Block] = []
    if measured:
        title = "All graphs of a case together"
        blocks.append(table_of("graph_memory", title, WHOLE, measured, WHOLE_NOTE))
    curves = by_case(rows_of(graph_memory.curves(records)), evidence.order)
    if worth := [row for row in curves if row["batch"] is not None]:
        title = "What each graph saves and adds, in the order of the captures"
        blocks.append(replace(table_of("graph_worth", title, WORTH, worth, WORTH_NOTE, groups=5), limit=ROWS))
    if curves:
        pools = by_case(rows_of(graph_memory.segments(records)), evidence.order)
        title = "Memory against the number of graphs"
        blocks.append(csv_of("graph_curve", title, CURVE, curves))
        blocks.append(csv_of("graph_pools", "The allocator's pools", SEGMENTS, pools))
    return (*_found(evidence), *blocks, *_lacking(wholes))


def _found(evidence: Evidence) -> Iterator[Text]:
    """What the check of this memory says of each case."""
    for case, finding in findings(evidence, CHECK):
        where = f"{name_of(case)} {case['shape']}, {finding.subject}"
        yield Text(f"{where}: {finding.reason}; {finding.advice}.", "item")


def _lacking(wholes: list[dict[str, Any]]) -> list[Text]:
    """Graphs that were not measured, and those of which not all were."""
    lines = [
        f"{path_of(row)}: {'not measured' if row['not_measured'] else 'no more graphs'}: {reason}."
        for row in wholes
        if (reason := row["not_measured"] or row["stopped"])
    ]
    return [Text(line, "item", "warn") for line in lines]


def _bought(row: Mapping[str, Any]) -> float | None:
    """µs per MiB."""
    saved, added = row["saved_ns"], row["added"]
    return saved / NS_PER_US / (added / MIB) if saved is not None and added else None
