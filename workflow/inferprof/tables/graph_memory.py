"""What CUDA graphs of several batch sizes hold and save, out of records with `graphs`: backends.torch_graphs.

All frames carry the columns of records.RECORD_KEY; sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from msgspec import structs

from inferprof.documents.record import GraphRow, Graphs, Record
from inferprof.tables.records import Row, exploded

HELD: Final = (
    *("allocated", "reserved", "pools", "graph_allocated", "graph_reserved", "device_used"),
    *("static_inputs", "static_outputs"),
)
OF_GRAPH: Final = ("capture_ns", "eager_ns", "replay_ns", "difference", "intact")
CURVE: Final = ("graphs", "batch", *HELD, *OF_GRAPH, "added", "saved_ns")
WHOLE: Final = (
    *("pool", "order", "inputs", "graphs", "stopped", *HELD, "added", "capture_ns", "least", "one_pool"),
    *("one_input", "not_measured"),
)
NO_GRAPHS: Final = Graphs(not_measured="the variant asks for no graphs")
SEGMENTS: Final = ("pool", "of_graphs", "segments", "largest_segment", "reserved", "allocated", "inactive")


@exploded(*CURVE)
def curves(record: Record) -> Iterator[Row]:
    """One row per record and number of captured graphs, with CURVE; from the first graph on also of that graph.

    added: what came into use on the device with the graph, of whoever. saved_ns = eager_ns - replay_ns.
    """
    before: GraphRow | None = None
    for row in _graphs(record).rows or ():
        saved = None if row.eager_ns is None or row.replay_ns is None else row.eager_ns - row.replay_ns
        added = _more(before.device_used if before else None, row.device_used)
        yield {**structs.asdict(row), "added": added, "saved_ns": saved}
        before = row


@exploded(*WHOLE)
def wholes(record: Record) -> Iterator[Row]:
    """One row per record whose variant asks for graphs, with WHOLE: all of them together.

    added: since there was no graph. least: a pool with nothing but the largest graph. one_pool = least + the outputs
    of all other graphs: what one pool holds at least. one_input: the static inputs of the largest graph.
    """
    graphs = _graphs(record)
    rows = graphs.rows
    if not rows:
        if graphs is not NO_GRAPHS:
            yield {"not_measured": graphs.not_measured or graphs.stopped}
        return
    first, last = rows[0], rows[-1]
    begins_empty = first.graphs == 0
    yield {
        **{name: getattr(graphs, name) for name in ("pool", "order", "inputs", "stopped", "least")},
        **{name: getattr(last, name) for name in ("graphs", *HELD)},
        "added": _more(first.device_used, last.device_used) if begins_empty else None,
        "capture_ns": sum(row.capture_ns or 0 for row in rows),
        "one_pool": None if graphs.least is None else graphs.least + sum(_steps(rows, "static_outputs")[:-1]),
        "one_input": max(_steps(rows, "static_inputs"), default=0),
    }


@exploded(*SEGMENTS)
def segments(record: Record) -> Iterator[Row]:
    """One row per record and pool of torch's allocator, with SEGMENTS (torch_graphs.by_pool), of all graphs."""
    yield from map(structs.asdict, _graphs(record).segments)


def _graphs(record: Record) -> Graphs:
    return (record.memory and record.memory.graphs) or NO_GRAPHS


def _steps(rows: Sequence[GraphRow], name: str) -> list[int]:
    """By how much a size grew with each graph, the smallest step first."""
    sizes = [getattr(row, name) for row in rows]
    return sorted(after - before for before, after in pairwise(sizes))


def _more(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before
