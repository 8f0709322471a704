"""How much slower a case is while a profiler watches: the caution beside each statement that rests on a trace."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np
import pandas as pd

from inferprof.documents import Watched
from inferprof.tables.records import KEY

ITERATION = "iteration"
"""The range around one pass from host arrays to host arrays, as end_to_end has it."""
NO_ITERATION = "neither the profile nor the record of its run has the time of an iteration"
NO_BARE = "end_to_end was not measured without a profiler"
COLUMNS = (*KEY, "tool", "bare_ns", "profiled_ns", "iterations", "slow_down", "not_measured")
_RUN_COLUMNS = (*KEY, "tool", "run_ns", "run_iterations", "not_measured")


def profiled_runs(records: Iterable[tuple[str, str, Watched]]) -> pd.DataFrame:
    """One row per (machine, tool, record) of a profiled run: the median and number of its iterations.

    They are of the clock and the boundary of end_to_end; `not_measured` says why a record has none. Records of before
    they were kept have no row.
    """
    rows = []
    for machine, tool, record in records:
        if (iterations := record.iterations) and record.case:
            samples = iterations.samples_ns or []
            median = float(np.median(samples)) if samples else None
            case = {"machine": machine, **msgspec.structs.asdict(record.case), "tool": tool}
            figures = {"run_ns": median, "run_iterations": len(samples) or None}
            rows.append({**case, **figures, "not_measured": iterations.not_measured})
    frame = pd.DataFrame(rows, columns=list(_RUN_COLUMNS))
    return frame.astype({"run_ns": "Float64", "run_iterations": "Int64", "not_measured": "str"})


def ledger(latency: pd.DataFrame, profiles: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """One row per case and tool: medians in ns, bare and under the profiler, and slow_down = profiled / bare.

    latency: summary.latency, one row per case and boundary with `median` in ns. profiles: tidy tables of any tools.
    runs: profiled_runs; where there is none, the tool's own range ITERATION stands in. Where one of the two is
    missing, `not_measured` says which and slow_down is missing. The host's clock is compared, from host arrays to
    host arrays with the wait for the GPU, so that the profiler's cost per call is in it.
    """
    keys = [*KEY, "tool"]
    bare = latency.loc[latency["boundary"] == "end_to_end", [*KEY, "median"]].rename(columns={"median": "bare_ns"})
    table = profiles[keys].drop_duplicates().merge(bare, on=KEY, how="left")
    table = table.merge(_ranges(profiles), on=keys, how="left").merge(runs, on=keys, how="left")
    table["bare_ns"] = table["bare_ns"].astype("Float64")
    in_range = table["range_ns"].astype("Float64").where(table["not_measured"].isna())
    table["profiled_ns"] = table["run_ns"].fillna(in_range)
    table["iterations"] = table["range_iterations"].astype("Int64").fillna(table["run_iterations"])
    table["slow_down"] = table["profiled_ns"] / table["bare_ns"]
    lacking = table["profiled_ns"].isna() & table["not_measured"].isna()
    table.loc[lacking, "not_measured"] = NO_ITERATION
    table.loc[table["bare_ns"].isna(), "not_measured"] = NO_BARE
    return table[list(COLUMNS)].sort_values(keys, ignore_index=True)


def _ranges(profiles: pd.DataFrame) -> pd.DataFrame:
    """The iterations as the tools themselves saw them: the workload's range."""
    rows = profiles["level"].eq("range") & profiles["name"].eq(ITERATION) & profiles["metric"].eq("duration_median")
    columns = {"value": "range_ns", "instances": "range_iterations"}
    return profiles.loc[rows, [*KEY, "tool", *columns]].rename(columns=columns)
