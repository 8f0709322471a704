"""Counted launches beside the timeline's of the same kernel, grid and block: their durations, and their share.

Nsight Compute takes one launch and runs it alone, with empty caches; the timeline has all launches as they came. On
an H100 small kernels took 1.1 to 2.1 times as long by ncu as by nsys, since their inputs no longer lay in the L2.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import pandas as pd

from inferprof.grouping import grouped
from inferprof.tables.counters.bounds import Bound, of_launch
from inferprof.tables.counters.ncu_choice import function_name
from inferprof.tables.records import frame_of, rows_of
from inferprof.tables.schema import by_launch, wide

OF_TIMELINE: Final = (
    "timeline_mean",
    "timeline_min",
    "timeline_max",
    "timeline_launches",
    "time_share",
    "no_timeline",
)
_NEEDED: Final = ["sm_throughput", "memory_throughput"]
NO_TIMELINE: Final = "there is no timeline of the case by nsys or kineto"
NOT_IN_TIMELINE: Final = "the timeline has no such kernel with this grid and block"
AMBIGUOUS: Final = "several kernels of the timeline have its name, grid and block"


def against_timeline(counters: pd.DataFrame, timeline: pd.DataFrame) -> pd.DataFrame:
    """launches.by_launch of one case's counters, with the columns OF_TIMELINE; those that take longest first.

    counters, timeline: tidy tables of the same case by ncu and by nsys or Kineto. timeline_* in ns; `time_share`: of
    the kernel time of the whole timeline (0 to 1), for all launches with that grid and block. `no_timeline` says why
    they are missing. Launches are tied by mangled name, where both tools tell it, else by the function's name.
    """
    configs = _configs(timeline)
    launches = rows_of(by_launch(counters).astype(object))
    rows = [{**launch, **_of_timeline(launch, configs)} for launch in launches]
    rows.sort(key=lambda row: (-(row["time_share"] or 0.0), -(row.get("duration_total") or 0.0)))
    return frame_of(rows, list(dict.fromkeys(["launch", "name", *(column for row in rows for column in row)])))


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


def _configs(timeline: pd.DataFrame) -> list[dict[str, Any]]:
    """One dict per launch configuration: its metrics by name, `name`, `instances`."""
    rows = timeline[timeline["level"] == "launch_config"]
    return rows_of(wide(rows, ["launch", "name", "instances"]).astype(object))


def _of_timeline(launch: dict[str, Any], configs: list[dict[str, Any]]) -> dict[str, Any]:
    nothing = dict.fromkeys(OF_TIMELINE)
    if not configs:
        return {**nothing, "no_timeline": NO_TIMELINE}
    alike = [config for config in configs if _same(launch, config)]
    if not alike:
        return {**nothing, "no_timeline": NOT_IN_TIMELINE}
    if len({config["name"] for config in alike}) > 1:
        return {**nothing, "no_timeline": AMBIGUOUS}
    total = sum(config["duration_total"] for config in alike)
    count = sum(config["instances"] for config in alike)
    return {
        "timeline_mean": total / count,
        "timeline_min": min(config["duration_min"] for config in alike),
        "timeline_max": max(config["duration_max"] for config in alike),
        "timeline_launches": count,
        "time_share": total / sum(config["duration_total"] for config in configs),
        "no_timeline": None,
    }


def _same(launch: dict[str, Any], config: dict[str, Any]) -> bool:
    if (launch.get("grid"), launch.get("block")) != (config["grid"], config["block"]):
        return False
    symbols = (launch.get("symbol"), config.get("symbol"))
    if all(isinstance(symbol, str) for symbol in symbols):
        return symbols[0] == symbols[1]
    return function_name(launch["name"]) == function_name(config["name"])


COUNTERS: Final = {"pipe_tensor": "tensor %", "sm_throughput": "SM %", "dram_throughput": "DRAM %"}
"""Metrics in percent, and their titles."""


def of_kernels(join: pd.DataFrame, counters: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Kernel of the join → its COUNTERS, those that were counted. counters: rows of the tidy table by ncu.

    A join knows kernels by name, ncu by launch. Where a function was counted once, and the join has one kernel of
    that function, they are the same; where there are several of either, nothing is said.
    """
    if not (counters["level"] == "kernel").any():
        return {}
    names = {str(name): function_name(str(name)) for name in join["kernel"].unique()}
    of_join = Counter(names.values())
    launches = grouped((function_name(str(launch["name"])), launch) for launch in rows_of(by_launch(counters)))
    by_kernel = {}
    for name, function in names.items():
        counted = launches.get(function, [])
        if len(counted) == of_join[function] == 1:
            values = {metric: counted[0].get(metric) for metric in COUNTERS}
            by_kernel[name] = {metric: float(value) for metric, value in values.items() if not pd.isna(value)}
    return by_kernel
