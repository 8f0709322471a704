"""Which kernels of a timeline Nsight Compute looks into: those that take most of an iteration's kernel time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pandas as pd

from inferprof.errors import CaseFailed
from inferprof.tables.records import rows_of
from inferprof.tables.trace.kernel_class import own_name
from inferprof.tables.trace.kernel_compare import per_iteration

SHARE: Final = 0.8
"""Of an iteration's kernel time: what the chosen kernels have together, if the limit allows."""
LIMIT: Final = 12
"""Launches at most: each is run some 40 times, and adds up to 4 MB to the report."""


@dataclass(frozen=True)
class Kernel:
    """A chosen kernel by its name in the timeline. `configs`: how many grids and blocks it is launched with."""

    name: str
    symbols: tuple[str, ...]
    """Mangled names: several where files have a kernel of one name each. Empty where the timeline has none."""
    configs: int


def function_name(name: str) -> str:
    """`void ns::kernel<float>(float *)` → `kernel`: what all tools call it, however they spell the rest."""
    return own_name(name).rpartition("::")[2]


@dataclass(frozen=True)
class Choice:
    """The kernels, those that take longest first, and their share of an iteration's kernel time (0 to 1)."""

    kernels: tuple[Kernel, ...]
    share: float


def choose(frame: pd.DataFrame, share: float = SHARE, limit: int = LIMIT) -> Choice:
    """Kernels of one case's timeline until they have `share` of the kernel time or `limit` launches.

    A kernel counts once per launch configuration. One that would exceed the limit is passed over for those behind it.
    Raises CaseFailed where the timeline holds no single kernels.
    """
    times = per_iteration(frame).sort_values("duration", ascending=False, kind="stable")
    total = float(times["duration"].sum())
    if not total:
        raise CaseFailed("the timeline holds no kernels of iterations one by one: trace CUDA graphs by node")
    kernels = _kernels(frame)
    chosen: list[Kernel] = []
    covered = 0.0
    for row in rows_of(times):
        kernel = kernels.get(row["name"], Kernel(row["name"], (), 1))
        if covered >= share * total:
            break
        if not chosen or sum(taken.configs for taken in chosen) + kernel.configs <= limit:
            chosen.append(kernel)
            covered += row["duration"]
    return Choice(tuple(chosen), covered / total)


def _kernels(frame: pd.DataFrame) -> dict[str, Kernel]:
    """Name → kernel, of the timelines that have launch configurations."""
    configs = frame[frame["level"] == "launch_config"]
    symbols = configs[configs["metric"] == "symbol"].groupby("name")["text"].unique()
    counts = configs.groupby("name")["launch"].nunique()
    return {
        str(name): Kernel(str(name), tuple(sorted(symbols.get(name, ()))), int(count))
        for name, count in counts.items()
    }
