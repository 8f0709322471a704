"""How much slower a case is while a profiler watches: the caution beside each statement that rests on a trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pandas as pd

from inferprof.plugins import Boundary
from inferprof.tables import providers
from inferprof.tables.records import CASE_KEY, KEY

ITERATION = "iteration"
"""The range around one pass from host arrays to host arrays, as end_to_end has it."""
NO_ITERATION = "the profile has no iterations"
NO_END_OF_WORK = "a run in its profile ends with the launches, not with the GPU's work"
COLUMNS = (*KEY, "tool", "bare_ns", "profiled_ns", "iterations", "slow_down", "not_measured")


@dataclass(frozen=True)
class Span:
    """What of a profile is as long as a boundary: a range, and why a profile may have none."""

    range: str
    boundary: Boundary
    lacking: str


ITERATIONS: Final = Span(ITERATION, "end_to_end", NO_ITERATION)
SPANS: Final = {"ort_profile": Span(providers.CALL, "call", NO_END_OF_WORK)}
"""Of the tools that do not record the workload's ranges."""


def no_bare(boundary: Boundary) -> str:
    """Why there is nothing to compare with."""
    return f"{boundary} was not measured without a profiler"


def ledger(latency: pd.DataFrame, profiles: pd.DataFrame) -> pd.DataFrame:
    """One row per case and tool: medians in ns, bare and under the profiler, and slow_down = profiled / bare.

    latency: summary.latency, one row per case and boundary with `median` in ns. profiles: tidy tables of any tools.
    Where one of the two is missing, `not_measured` says which and slow_down is missing. Ranges on the host are
    compared, so that the profiler's cost per call is in it.
    """
    parts = [_of_tool(latency, rows, SPANS.get(str(tool), ITERATIONS)) for tool, rows in profiles.groupby("tool")]
    table = pd.concat(parts) if parts else pd.DataFrame(columns=list(COLUMNS))
    return table[list(COLUMNS)].sort_values([*KEY, "tool"], ignore_index=True)


def _of_tool(latency: pd.DataFrame, profiles: pd.DataFrame, span: Span) -> pd.DataFrame:
    """The ledger of one tool's profiles."""
    bare = latency.loc[latency["boundary"] == span.boundary, [*KEY, "median"]].rename(columns={"median": "bare_ns"})
    watched = profiles[[*KEY, "tool"]].drop_duplicates()
    rows = profiles["level"].eq("range") & profiles["name"].eq(span.range) & profiles["metric"].eq("duration_median")
    ranges = profiles.loc[rows, [*KEY, "value", "instances"]].rename(
        columns={"value": "profiled_ns", "instances": "iterations"}
    )
    table = watched.merge(bare, on=KEY, how="left").merge(ranges, on=KEY, how="left")
    table["bare_ns"] = table["bare_ns"].astype("Float64")
    table["slow_down"] = table["profiled_ns"] / table["bare_ns"]
    table["not_measured"] = pd.Series(None, index=table.index, dtype="str")
    table.loc[table["profiled_ns"].isna(), "not_measured"] = span.lacking
    table.loc[table["bare_ns"].isna(), "not_measured"] = no_bare(span.boundary)
    return table


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
