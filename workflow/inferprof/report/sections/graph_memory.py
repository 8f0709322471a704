"""Memory of CUDA graphs of several batch sizes: all together, each with the time that it saves, and their pools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from inferprof.report.common import CASE_COLUMNS, by_case, case_cells, in_mib, in_ms, name_of, optional, path_of
from inferprof.report.diagnosed import diagnosed
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Table, Text, number, words
from inferprof.report.numbers import three_digits
from inferprof.report.section import Section
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
WHOLE_COLUMNS: Final = (
    *CASE_COLUMNS,
    Column("pool", "pool"),
    Column("order", "order"),
    Column("graphs", "graphs", "number"),
    Column("pools", "pools", "number"),
    *(Column(f"{key}_mib", title, "number", hidden="puts" in key) for key, title in SIZES.items()),
    Column("capture_ms", "capture ms", "number"),
)
WHOLE_NOTE: Final = (
    "Pools: what the graphs' pools hold; alive: of that under a living tensor. One pool: what the largest graph "
    "needs by itself, and all outputs. Device: what came into use with the graphs and their static inputs."
)
WORTH_COLUMNS: Final = (
    *CASE_COLUMNS,
    Column("batch", "batch", "number"),
    Column("eager_ms", "without ms", "number"),
    Column("replay_ms", "graph ms", "number"),
    Column("saved_ms", "saved ms", "number"),
    Column("added_mib", "device MiB", "number"),
    Column("us_per_mib", "µs per MiB", "number"),
    Column("capture_ms", "capture ms", "number", hidden=True),
    Column("difference", "difference", "number", hidden=True),
    Column("intact", "output survives others", hidden=True),
)
WORTH_NOTE: Final = (
    "Medians on the device's clock, on the same inputs. Device: what came into use with this graph "
    "after those before it. µs per MiB: latency bought with it."
)
CURVE_SIZES: Final = tuple(name for name in graph_memory.HELD if name != "pools")
CURVE_COLUMNS: Final = (
    *CASE_COLUMNS,
    *(Column(key, key, "number") for key in ("graphs", "batch", "pools")),
    *(Column(f"{key}_mib", key.replace("_", " "), "number") for key in CURVE_SIZES),
)
SEGMENT_COLUMNS: Final = (
    *CASE_COLUMNS,
    Column("pool", "pool"),
    Column("of_graphs", "of graphs"),
    Column("segments", "segments", "number"),
    *(
        Column(f"{key}_mib", key.replace("_", " "), "number")
        for key in ("largest_segment", "reserved", "allocated", "inactive")
    ),
)


def build(evidence: Evidence) -> Sequence[Block]:
    """Empty where no variant has `graphs`."""
    records = evidence.records[evidence.records["status"] == "ok"].drop_duplicates(KEY)
    wholes = by_case(rows_of(graph_memory.wholes(records)), evidence.order)
    measured = [row for row in wholes if not row["not_measured"]]
    blocks: list[Block] = []
    if measured:
        title = "All graphs of a case together"
        rows = tuple(_whole(row) for row in measured)
        blocks.append(Table("graph_memory", title, WHOLE_COLUMNS, rows, WHOLE_NOTE, groups=2))
    curves = by_case(rows_of(graph_memory.curves(records)), evidence.order)
    if worth := tuple(_worth(row) for row in curves if row["batch"] is not None):
        title = "What each graph saves and adds, in the order of the captures"
        blocks.append(Table("graph_worth", title, WORTH_COLUMNS, worth, WORTH_NOTE, groups=5, limit=ROWS))
    if curves:
        rows = tuple(_curve(row) for row in curves)
        blocks.append(Table("graph_curve", "Memory against the number of graphs", CURVE_COLUMNS, rows, csv_only=True))
        rows = tuple(_segment(row) for row in by_case(rows_of(graph_memory.segments(records)), evidence.order))
        blocks.append(Table("graph_pools", "The allocator's pools", SEGMENT_COLUMNS, rows, csv_only=True))
    return (*_found(evidence), *blocks, *_lacking(wholes))


def _found(evidence: Evidence) -> Iterator[Text]:
    """What the check of this memory says of each case."""
    for case, document in diagnosed(evidence):
        for answer in document.answers or ():
            for finding in answer.findings if answer.check == CHECK else ():
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


def _whole(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    return (
        *case_cells(row),
        words(row["pool"]),
        words(row["order"]),
        *(number(row[key], str(row[key])) for key in ("graphs", "pools")),
        *(_mib(row[key], NO_SIZE.get(key, "")) for key in SIZES),
        _ms(row["capture_ns"]),
    )


def _worth(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    saved, added = row["saved_ns"], row["added"]
    bought = saved / NS_PER_US / (added / MIB) if saved is not None and added else None
    return (
        *case_cells(row),
        number(row["batch"], str(row["batch"])),
        *(_ms(row[key]) for key in ("eager_ns", "replay_ns", "saved_ns")),
        _mib(added, NO_SIZE["added"]),
        optional(bought, three_digits, "the graph saves a time that is not known, or adds nothing"),
        _ms(row["capture_ns"]),
        optional(row["difference"], lambda value: f"{value:.2g}", NO_EAGER),
        words({True: "yes", False: "no"}.get(row["intact"], "not known")),
    )


def _curve(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    whole = (
        optional(row[key], lambda value: str(int(value)), "there is no graph yet")
        for key in ("graphs", "batch", "pools")
    )
    return (
        *case_cells(row),
        *whole,
        *(_mib(row[key], "the device's memory could not be read") for key in CURVE_SIZES),
    )


def _segment(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    sizes = ("largest_segment", "reserved", "allocated", "inactive")
    return (
        *case_cells(row),
        words(row["pool"]),
        words("yes" if row["of_graphs"] else "no"),
        number(row["segments"], str(row["segments"])),
        *(_mib(row[key], "") for key in sizes),
    )


def _mib(size: float | None, reason: str) -> Cell:
    return in_mib(size, reason)


def _ms(ns: float | None) -> Cell:
    return in_ms(ns, NO_EAGER)


SECTION = Section(
    name="graph_memory",
    title="Memory of CUDA graphs",
    place=80,
    build=build,
    needs=("records",),
)
