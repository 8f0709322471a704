"""Where an iteration's time goes, by the profilers' tables. Shares and counts only: profiled runs are slower."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Section, Table, Text, missing, number, words
from inferprof.report.numbers import count
from inferprof.report.sections.common import CASE_COLUMNS, case_cells, optional
from inferprof.tables.kernel_compare import per_iteration
from inferprof.tables.records import CASE_KEY, rows_of

if TYPE_CHECKING:
    import pandas as pd

ITERATION = "iteration"
"""The range that the workload opens around each inference of a profiled run."""
TOP_KERNELS = 5
NAME_LENGTH = 60
"""Kernel names are cut to this on the page; the CSV has them in full."""
IDLE = {"idle_launch": "host", "idle_sync": "sync", "idle_copy": "copy"}
OTHER_IDLE = ("idle_queued", "idle_end", "idle_unknown")
COUNTS = {"launches": "launches", "syncs": "syncs"}
TIMELINE_COLUMNS = (
    *CASE_COLUMNS,
    Column("tool", "tool"),
    Column("gpu_busy_percent", "busy", "number"),
    *(Column(f"{metric}_percent", title, "number") for metric, title in IDLE.items()),
    Column("idle_other_percent", "other", "number"),
    *(Column(metric, title, "number") for metric, title in COUNTS.items()),
)
KERNEL_COLUMNS = (
    *CASE_COLUMNS,
    Column("tool", "tool", hidden=True),
    Column("share_percent", "%", "number"),
    Column("launches", "launches", "number"),
    Column("kernel", "kernel"),
)


def section(evidence: Evidence) -> Section:
    """GPU busy and idle by cause per case, and each case's longest kernels."""
    frame = evidence.profiles
    if frame.empty:
        return Section("Timeline", (Text("No case was profiled."), *_refused(evidence)))
    groups = list(frame.groupby([*CASE_KEY, "tool"], sort=False))
    iterations = [row for key, group in groups if (row := _iteration(_case(key), group))]
    kernels = [row for key, group in groups for row in _kernels(_case(key), group)]
    note = "Shares of the iteration: GPU busy, then idle waiting for the host to launch, a sync, a copy, or other."
    blocks: list[Block] = []
    if iterations:
        title = "An iteration under the profiler, % of its duration, and calls per iteration"
        blocks.append(Table("timeline", title, TIMELINE_COLUMNS, tuple(iterations), note, groups=2))
    if kernels:
        title = (
            f"The {TOP_KERNELS} kernels with the largest share of each case's kernel time, and launches per iteration"
        )
        blocks.append(Table("kernels", title, KERNEL_COLUMNS, tuple(kernels), groups=5))
    if not blocks:
        blocks.append(Text("The profiles hold no iteration and no kernel."))
    return Section("Timeline", (*blocks, *_refused(evidence)))


def _refused(evidence: Evidence) -> list[Text]:
    """Why a profiler of the study watched nothing."""
    refused = evidence.refused_profilers.content or {}
    return [Text(f"{profiler} watched no case: {reason}", "item") for profiler, reason in refused.items()]


def _case(key: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip([*CASE_KEY, "tool"], key, strict=True))


def _iteration(case: dict[str, Any], frame: pd.DataFrame) -> tuple[Cell, ...] | None:
    """The row of a case; None where the profile has no iterations."""
    rows = frame[(frame["level"] == "range") & (frame["name"] == ITERATION)]
    found = {str(metric): float(value) for metric, value in zip(rows["metric"], rows["value"], strict=True)}
    if "gpu_busy" not in found:
        return None
    total = found["gpu_busy"] + found["gpu_idle"]

    def share(*metrics: str) -> Cell:
        if any(metric not in found for metric in metrics):
            return missing(f"the profile has no {', '.join(metrics)}")
        percent = 100 * sum(found[metric] for metric in metrics) / total
        return number(percent, f"{percent:.1f}")

    counts = [optional(found.get(metric), count, "not in the profile") for metric in COUNTS]
    idle = [share(metric) for metric in IDLE]
    return (*case_cells(case), words(case["tool"]), share("gpu_busy"), *idle, share(*OTHER_IDLE), *counts)


def _kernels(case: dict[str, Any], frame: pd.DataFrame) -> list[tuple[Cell, ...]]:
    """The rows of a case's longest kernels."""
    by_name = per_iteration(frame)
    total = float(by_name["duration"].sum())
    longest = by_name.sort_values("duration", ascending=False, kind="stable").head(TOP_KERNELS)
    return [_kernel(case, row, 100 * float(row["duration"]) / total) for row in rows_of(longest)]


def _kernel(case: dict[str, Any], row: dict[str, Any], percent: float) -> tuple[Cell, ...]:
    name = str(row["name"])
    brief = name.removeprefix("void ")
    shown = brief if len(brief) <= NAME_LENGTH else f"{brief[: NAME_LENGTH - 1]}…"
    return (
        *case_cells(case),
        words(case["tool"]),
        number(percent, f"{percent:.1f}"),
        number(row["launches"], count(row["launches"])),
        Cell(shown, name),
    )
