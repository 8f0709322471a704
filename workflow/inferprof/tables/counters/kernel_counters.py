"""Counters of the kernels of a join: ncu's of the same case, for a kernel that both know by one name.

A join knows kernels by name, ncu by launch. Where a function was counted once, and the join has one kernel of that
function, they are the same; where there are several of either, nothing is said.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import pandas as pd

from inferprof.tables.counters.launches import by_launch
from inferprof.tables.counters.ncu_choice import function_name
from inferprof.tables.records import rows_of

COUNTERS: Final = {"pipe_tensor": "tensor %", "sm_throughput": "SM %", "dram_throughput": "DRAM %"}
"""Metrics in percent, and their titles."""


def of_kernels(join: pd.DataFrame, counters: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Kernel of the join → its COUNTERS, those that were counted. counters: rows of the tidy table by ncu."""
    if not (counters["level"] == "kernel").any():
        return {}
    names = {str(name): function_name(str(name)) for name in join["kernel"].unique()}
    of_join = Counter(names.values())
    launches: dict[str, list[dict[str, Any]]] = {}
    for launch in rows_of(by_launch(counters)):
        launches.setdefault(function_name(str(launch["name"])), []).append(launch)
    found = {}
    for name, function in names.items():
        counted = launches.get(function, [])
        if len(counted) == of_join[function] == 1:
            values = {metric: counted[0].get(metric) for metric in COUNTERS}
            found[name] = {
                metric: float(value) for metric, value in values.items() if value is not None and value == value
            }
    return found
