"""Loops inside TensorRT's engines that run a few small kernels over and over: CumSum, recurrent layers, Loop, Scan.

Nothing falls back there, so no partition shows it: the GPU is given kernels of a microsecond each, one at a time.
Myelin names a kernel by the basic block of its region (`__myl_bb4_7_Mov`), and a block that runs several times in one
execution of the region is the body of a loop. Checked against TensorRT 8.5; names without a block show no loop.
"""

from __future__ import annotations

from typing import Final

import pandas as pd

from inferprof.tables.nodes.trt_join import layer_of_path

BLOCK: Final = r"^__myl_(bb\d+)_"
_COLUMNS: Final = ("region", "block", "steps", "kernels", "launches", "duration", "mean", "share", "region_duration")


def loops(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per loop, most expensive first. frame: rows of one case, of a tool that sees kernels and NVTX ranges.

    region and block; steps of the loop, launches and their duration (ns) per execution of the region; kernels: those
    of a step; mean: ns per launch; share of all kernel time; region_duration: ns of the host per execution.
    """
    totals = frame[frame["metric"] == "duration_total"]
    every = totals[totals["level"] == "kernel"]
    around = every["range"].fillna("")
    kernels = every.assign(
        region=around.map({path: layer_of_path(path, frozenset()) for path in around.unique()}),
        block=every["name"].str.extract(BLOCK, expand=False),
    ).dropna(subset=["region", "block"])
    if kernels.empty:
        return pd.DataFrame(columns=list(_COLUMNS))
    ranges = (
        totals[totals["level"] == "range"]
        .groupby("name")[["instances", "value"]]
        .sum()
        .astype(float)
        .to_dict("index")
    )
    rows = []
    for (region, block), own in kernels.groupby(["region", "block"], sort=False):
        executions, host = ranges[region]["instances"], ranges[region]["value"]
        launches = own.groupby("name")["instances"].sum() / executions
        steps = launches.min()
        if steps < 2:
            continue
        time, count = own["value"].sum() / executions, launches.sum()
        share = own["value"].sum() / every["value"].sum()
        rows.append((region, block, steps, count / steps, count, time, time / count, share, host / executions))
    table = pd.DataFrame(rows, columns=list(_COLUMNS))
    return table.sort_values("duration", ascending=False, kind="stable", ignore_index=True)
