"""A made-up record of CUDA graphs, as backends.torch_graphs writes it. No number in it was measured."""

from __future__ import annotations

from typing import Any

import pandas as pd
from tests.unit.made_records import made

from inferprof.tables.records import CASE_KEY
from inferprof.units import MIB


def graphs_of(pool: str = "private", order: str = "ascending", **changes: Any) -> dict[str, Any]:
    """Graphs of batch 1, 4 and 16, whose intermediates take 10 MiB, 40 MiB and 160 MiB, and inputs 20, 80 and 320.

    In one pool they take 160 MiB where the largest comes first, else 200. A graph saves 3 ms, 1 ms, and nothing.
    """
    batches = [1, 4, 16] if order == "ascending" else [16, 4, 1]
    in_one = {"ascending": [10, 50, 200], "descending": [160, 160, 160]}[order]
    rows: list[dict[str, Any]] = [row(0, None, 0, 0, [])]
    for count in range(1, 4):
        done = batches[:count]
        held = 10 * sum(done) if pool == "private" else in_one[count - 1]
        rows.append(row(count, batches[count - 1], count if pool == "private" else 1, held, done))
    last = rows[-1]["graph_reserved"]
    segments = [{"pool": "1.0", "of_graphs": True, "segments": 2, "largest_segment": last, "reserved": last}]
    segments[0] |= {"allocated": 0, "inactive": last}
    found = {
        "pool": pool,
        "order": order,
        "inputs": "own",
        "least": 160 * MIB,
        "rows": rows,
        "segments": segments,
        "stopped": None,
    }
    return found | changes


def row(graphs: int, batch: int | None, pools: int, held_mib: int, done: list[int]) -> dict[str, Any]:
    inputs = 20 * sum(done)
    sizes = {
        "allocated": (300 + inputs) * MIB,
        "reserved": (320 + held_mib + inputs) * MIB,
        "graph_allocated": sum(done) * 4096,
        "graph_reserved": held_mib * MIB,
        "device_used": (1000 + held_mib + inputs) * MIB,
        "static_inputs": inputs * MIB,
        "static_outputs": sum(done) * 4096,
    }
    if batch is None:
        return {"graphs": 0, "pools": 0, **sizes}
    saved = {1: 3e6, 4: 1e6, 16: 0.0}[batch]
    times = {"capture_ns": 50_000_000, "eager_ns": 8e6, "replay_ns": 8e6 - saved, "difference": 0.0, "intact": True}
    return {"graphs": graphs, "batch": batch, "pools": pools, **sizes, **times}


def records_of(*graphs: dict[str, Any] | None) -> pd.DataFrame:
    """Records, as far as tables.graph_memory reads them."""
    rows = [
        {"machine": "h100", **dict.fromkeys(CASE_KEY, "x"), "round": 0, "file": f"{place}.json"}
        | {"record": made({"memory": {} if found is None else {"graphs": found}})}
        for place, found in enumerate(graphs)
    ]
    return pd.DataFrame(rows)
