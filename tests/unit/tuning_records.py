"""A made-up part `tuning` of a record, as backends.triton_tuning writes it. No number in it was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from tests.unit.made_records import made

from inferprof.tables import records

TILES = {"small": (64, 64, 4), "wide": (64, 256, 8), "large": (128, 128, 4)}
"""Name → BLOCK_SIZE_M, BLOCK_SIZE_N and warps."""


def config(name: str) -> dict[str, Any]:
    m, n, warps = TILES[name]
    own = {"BLOCK_SIZE_M": m, "BLOCK_SIZE_N": n, "BLOCK_SIZE_K": 64, "NUM_STAGES": 3, "EVEN_K": True}
    return {**own, "num_warps": warps, "num_stages": 3, "num_ctas": 1}


def choice(m: int, times_us: Mapping[str, float | None], source: str = "tried", **changes: Any) -> dict[str, Any]:
    """The choice of a kernel at m tokens; each trial took 2 s, 1.5 s of it one compilation."""
    trials = [trial(name, time) for name, time in times_us.items()]
    ran = [one["median_ns"] or float("inf") for one in trials]
    found = {
        "kernel": "gemm_kernel",
        "key": {"M": m, "N": 4096, "K": 4096, "dtypes": ["torch.float16"]},
        "offered": 5,
        "source": source,
        "winner": ran.index(min(ran)),
        "seconds": 2.0 * len(trials),
        "trials": trials,
    }
    return found | changes


def trial(name: str, time_us: float | None) -> dict[str, Any]:
    cost = {"seconds": 2.0, "compile_s": 1.5, "compiled": 1}
    facts: dict[str, Any] = {"programs": 64, "waves": 0.25, "blocks_per_sm": 2, "occupancy": 0.125, "warps": 4}
    facts |= {"registers": 168, "spills": 0, "shared_bytes": 65536}
    if time_us is None:
        facts = dict.fromkeys(facts)
    return {"config": config(name), "median_ns": None if time_us is None else 1e3 * time_us, **cost, **facts}


def records_of(*cases: tuple[str, str, list[dict[str, Any]]], first_s: float = 8.0) -> pd.DataFrame:
    """records.read of (variant, shape, tuning)."""
    rows = [
        {
            **dict(zip(records.KEY, ("h100", "stack", "fp16", "torch_eager", variant, shape), strict=True)),
            **{"round": 0, "file": f"{variant}/{shape}/r0.json", "status": "ok", "reason": None},
            "record": made(
                {
                    "tuning": tuning,
                    "first": {"first_inference_ns": first_s * 1e9},
                    "boundaries": {"device": {"samples_ns": [1e6] * 9, "stopped_by": "count", "settled": True}},
                }
            ),
        }
        for variant, shape, tuning in cases
    ]
    return records.frame_of(rows, [*records.RECORD_KEY, "status", "reason", "record"])
