"""What CUDA graphs of several batch sizes hold and save, out of records with `graphs`: backends.torch_graphs.

All frames carry the columns of records.RECORD_KEY; sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from inferprof.tables.records import Row, explode

if TYPE_CHECKING:
    import pandas as pd

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
SEGMENTS: Final = ("pool", "of_graphs", "segments", "largest_segment", "reserved", "allocated", "inactive")


def curves(records: pd.DataFrame) -> pd.DataFrame:
    """One row per record and number of captured graphs, with CURVE; from the first graph on also of that graph.

    added: what came into use on the device with the graph, of whoever. saved_ns = eager_ns - replay_ns.
    """
    return explode(records, _curve, list(CURVE))


def wholes(records: pd.DataFrame) -> pd.DataFrame:
    """One row per record whose variant asks for graphs, with WHOLE: all of them together.

    added: since there was no graph. least: a pool with nothing but the largest graph. one_pool = least + the outputs
    of all other graphs: what one pool holds at least. one_input: the static inputs of the largest graph.
    """
    return explode(records, _whole, list(WHOLE))


def segments(records: pd.DataFrame) -> pd.DataFrame:
    """One row per record and pool of torch's allocator, with SEGMENTS (torch_graphs.by_pool), of all graphs."""
    return explode(records, lambda content: iter(_graphs(content).get("segments", ())), list(SEGMENTS))


def _graphs(content: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = content.get("memory", {}).get("graphs", {})
    return found


def _curve(content: Mapping[str, Any]) -> Iterator[Row]:
    before: Mapping[str, Any] = {}
    for row in _graphs(content).get("rows", ()):
        eager, replay = row.get("eager_ns"), row.get("replay_ns")
        saved = None if eager is None or replay is None else eager - replay
        yield {**row, "added": _more(before.get("device_used"), row["device_used"]), "saved_ns": saved}
        before = row


def _whole(content: Mapping[str, Any]) -> Iterator[Row]:
    graphs = _graphs(content)
    rows = graphs.get("rows", ())
    if not rows:
        if graphs:
            yield {"not_measured": graphs.get("not_measured") or graphs["stopped"]}
        return
    first, last = rows[0], rows[-1]
    begins_empty = first["graphs"] == 0
    yield {
        **{name: graphs[name] for name in ("pool", "order", "inputs", "stopped", "least")},
        **{name: last[name] for name in ("graphs", *HELD)},
        "added": _more(first["device_used"], last["device_used"]) if begins_empty else None,
        "capture_ns": sum(row.get("capture_ns", 0) for row in rows),
        "one_pool": None if graphs["least"] is None else graphs["least"] + sum(_steps(rows, "static_outputs")[:-1]),
        "one_input": max(_steps(rows, "static_inputs"), default=0),
    }


def _steps(rows: list[Mapping[str, Any]], name: str) -> list[int]:
    """By how much a size grew with each graph, the smallest step first."""
    sizes = [row[name] for row in rows]
    return sorted(after - before for before, after in pairwise(sizes))


def _more(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before
