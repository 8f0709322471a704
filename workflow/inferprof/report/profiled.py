"""The profiles that the sections on time speak of, and the caution beside them: what watching a case costs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from inferprof import registry
from inferprof.grouping import grouped
from inferprof.plugins import Join
from inferprof.report.evidence import Evidence
from inferprof.report.model import Cell, Column, missing, number
from inferprof.report.numbers import ratio
from inferprof.tables.records import KEY, key_of, rows_of
from inferprof.tables.schema import Level
from inferprof.tables.trace.kernel_compare import holds, per_iteration

SLOW_DOWN_COLUMN = Column("slow_down", "× bare", "number")


@dataclass(frozen=True, eq=False)
class Profile:
    """One case as one tool saw it. `frame` has its rows of the tidy table."""

    case: dict[str, Any]
    tool: str
    frame: pd.DataFrame

    @functools.cached_property
    def kernels(self) -> pd.DataFrame:
        """kernel_compare.per_iteration of it."""
        return per_iteration(self.frame)

    @functools.cached_property
    def classes(self) -> dict[str, float]:
        """Kernel class → share of the kernel time of an iteration, longest first; `other` is what no rule knows."""
        total = self.kernels.groupby("kernel_class", sort=False)["duration"].sum()
        shares = (total / total.sum()).sort_values(ascending=False, kind="stable")
        return {str(name): float(share) for name, share in shares.items()}


def profiles(evidence: Evidence, tools: Sequence[str] | None = None) -> list[Profile]:
    """Every profile of these tools, else of the tracers, by model and shape."""
    wanted = registry.tracers() if tools is None else tools
    return [profile for profile in evidence.once(_all) if profile.tool in wanted]


def _all(evidence: Evidence) -> list[Profile]:
    """Every profile, by model and shape: all sections ask for them."""
    groups = evidence.profiles.groupby([*KEY, "tool"], sort=False)
    unordered = [Profile(dict(zip(KEY, key[:-1], strict=True)), str(key[-1]), frame) for key, frame in groups]
    order = evidence.order
    return sorted(unordered, key=lambda profile: order[profile.case["model"], profile.case["shape"]])


def chosen(evidence: Evidence, level: Level) -> list[Profile]:
    """One profile per case: of the first tracer that saw operations of this level in iterations."""
    return evidence.once(_chosen, level)


def _chosen(evidence: Evidence, level: Level) -> list[Profile]:
    return _first(profiles(evidence), registry.tracers(), lambda profile: holds(profile.frame, level))


def first_of(
    evidence: Evidence, tools: Sequence[str], fits: Callable[[Profile], bool] = lambda profile: True
) -> list[Profile]:
    """One profile per case: of the first of `tools` that watched it, and whose profile fits."""
    return _first(profiles(evidence, tools), tools, fits)


def _first(candidates: list[Profile], tools: Sequence[str], fits: Callable[[Profile], bool]) -> list[Profile]:
    by_key: dict[tuple[str, ...], Profile] = {}
    for profile in filter(fits, candidates):
        rival = by_key.get(key_of(profile.case))
        if rival is None or tools.index(profile.tool) < tools.index(rival.tool):
            by_key[key_of(profile.case)] = profile
    return list(by_key.values())


def join_of(profile: Profile) -> Join:
    """How the tool of a profile ties kernels to what owns them. Raises ValueError where it does not."""
    join = registry.profilers()[profile.tool].join
    if join is None:
        raise ValueError(f"{profile.tool} ties no kernels to anything")
    return join


def costs(evidence: Evidence) -> dict[tuple[Any, ...], dict[str, Any]]:
    """KEY and tool → the row of the ledger, with None where a value is missing."""
    return evidence.once(_costs)


def _costs(evidence: Evidence) -> dict[tuple[Any, ...], dict[str, Any]]:
    ledger = evidence.overheads.astype(object)
    rows = rows_of(ledger.where(ledger.notna(), None))
    return {(*key_of(row), row["tool"]): row for row in rows}


def slow_down(evidence: Evidence, profile: Profile) -> Cell:
    """How many times as long the case took while it was watched."""
    row = costs(evidence)[(*key_of(profile.case), profile.tool)]
    if row["slow_down"] is None:
        return missing(row["not_measured"])
    return number(row["slow_down"], ratio(row["slow_down"]))


def caution(evidence: Evidence, seen: list[Profile]) -> str:
    """`Watched by nsys these cases took 1.02× to 1.57× as long as bare.`; or why that was not measured."""
    entries = costs(evidence)
    by_tool = grouped((profile.tool, entries[(*key_of(profile.case), profile.tool)]) for profile in seen)
    return " ".join(_cost(tool, rows) for tool, rows in by_tool.items())


def _cost(tool: str, rows: list[dict[str, Any]]) -> str:
    slow_downs = sorted(row["slow_down"] for row in rows if row["slow_down"] is not None)
    if not slow_downs:
        return f"What {tool} costs was not measured: {rows[0]['not_measured']}."
    least, most = ratio(slow_downs[0]), ratio(slow_downs[-1])
    span = least if least == most else f"{least} to {most}"
    lacking = [row["not_measured"] for row in rows if row["slow_down"] is None]
    rest = f" ({len(lacking)} of {len(rows)} not measured: {lacking[0]})" if lacking else ""
    return f"Watched by {tool} these cases took {span} as long as bare{rest}."
