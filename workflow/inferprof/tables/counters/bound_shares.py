"""How much of a case's kernel time is of kernels that memory, arithmetic or latency bounds, and how much is tail."""

from __future__ import annotations

from typing import Any, Final

import pandas as pd

from inferprof.tables.counters.bounds import Bound, of_launch
from inferprof.tables.counters.ncu_timeline import against_timeline
from inferprof.tables.records import rows_of

_NEEDED: Final = ["sm_throughput", "memory_throughput"]


def shares(counters: pd.DataFrame, timeline: pd.DataFrame) -> dict[Bound, float]:
    """Bound → share of the timeline's kernel time, 0 to 1; empty where no counted launch is in the timeline.

    counters, timeline: tidy tables of one case by ncu, and by nsys or kineto. What the shares lack to 1 is time of
    kernels of which no counters were read. A launch stands for all of its kernel, grid and block; of several alike
    each counts the same.
    """
    joined = against_timeline(counters, timeline)
    complete = joined[joined.reindex(columns=["time_share", *_NEEDED]).notna().all(axis=1)].astype(object)
    total: dict[Bound, float] = {}
    for _, alike in complete.where(complete.notna(), None).groupby(["name", "grid", "block"], sort=False):
        launches: list[dict[str, Any]] = rows_of(alike)
        for launch in launches:
            for bound, share in of_launch(launch).items():
                total[bound] = total.get(bound, 0.0) + share * launch["time_share"] / len(launches)
    return total
