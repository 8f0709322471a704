"""How much slower a case is while a profiler watches: the caution beside each statement that rests on a trace."""

from __future__ import annotations

import pandas as pd

from inferprof.tables.records import CASE_KEY, KEY

ITERATION = "iteration"
"""The range around one pass from host arrays to host arrays, as end_to_end has it."""
NO_ITERATION = "the profile has no iterations"
NO_BARE = "end_to_end was not measured without a profiler"
COLUMNS = (*KEY, "tool", "bare_ns", "profiled_ns", "iterations", "slow_down", "not_measured")


def ledger(latency: pd.DataFrame, profiles: pd.DataFrame) -> pd.DataFrame:
    """One row per case and tool: medians in ns, bare and under the profiler, and slow_down = profiled / bare.

    latency: summary.latency, one row per case and boundary with `median` in ns. profiles: tidy tables of any tools.
    Where one of the two is missing, `not_measured` says which and slow_down is missing. Ranges on the host are
    compared, so that the profiler's cost per call is in it.
    """
    bare = latency.loc[latency["boundary"] == "end_to_end", [*KEY, "median"]].rename(columns={"median": "bare_ns"})
    watched = profiles[[*KEY, "tool"]].drop_duplicates()
    rows = profiles["level"].eq("range") & profiles["name"].eq(ITERATION) & profiles["metric"].eq("duration_median")
    iterations = profiles.loc[rows, [*KEY, "tool", "value", "instances"]].rename(
        columns={"value": "profiled_ns", "instances": "iterations"}
    )
    table = watched.merge(bare, on=KEY, how="left").merge(iterations, on=[*KEY, "tool"], how="left")
    table["bare_ns"] = table["bare_ns"].astype("Float64")
    table["slow_down"] = table["profiled_ns"] / table["bare_ns"]
    table["not_measured"] = pd.Series(None, index=table.index, dtype="str")
    table.loc[table["profiled_ns"].isna(), "not_measured"] = NO_ITERATION
    table.loc[table["bare_ns"].isna(), "not_measured"] = NO_BARE
    return table[list(COLUMNS)].sort_values([*KEY, "tool"], ignore_index=True)


def slow_down(table: pd.DataFrame, case: dict[str, str], tool: str) -> str:
    """The ledger's entry as words: `1.57 times slower under nsys (8.39 ms, bare 5.33 ms)`, or why there is none."""
    rows = table[(table[CASE_KEY] == pd.Series(case)[CASE_KEY]).all(axis=1) & (table["tool"] == tool)]
    if rows.empty:
        return f"slow-down under {tool} not measured: it did not watch this case"
    row = rows.iloc[0]
    if pd.isna(row["slow_down"]):
        return f"slow-down under {tool} not measured: {row['not_measured']}"
    profiled, bare = (float(row[column]) / 1e6 for column in ("profiled_ns", "bare_ns"))
    return f"{float(row['slow_down']):.2f} times slower under {tool} ({profiled:.3g} ms, bare {bare:.3g} ms)"
