"""Where an iteration's time goes, by the profilers' tables. Shares and counts only: profiled runs are slower."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from inferprof.report.common import CASE_COLUMNS, case_cells, optional
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Table, Text, missing, number, words
from inferprof.report.numbers import count, three_digits
from inferprof.report.profiled import SLOW_DOWN_COLUMN, Profile, caution, chosen, costs, profiles, slow_down
from inferprof.report.section import section
from inferprof.tables.limits.copies import against_link
from inferprof.tables.overhead import ITERATION, NO_ITERATION
from inferprof.tables.records import key_of, rows_of
from inferprof.tables.trace.kernel_compare import of_iterations
from inferprof.units import MEGA

IDLE = {"idle_launch": "host", "idle_sync": "sync", "idle_copy": "copy"}
NO_BYTES = "the tool does not tell the bytes of every copy"
UNUSED = (
    "`captures: winners` has profilers watch the fastest case and the baseline, and another one speaks for those, or "
    "it can't watch them; `captures: all`, or `snakemake tables`, has it watch all that it can."
)
OTHER_IDLE = ("idle_queued", "idle_end", "idle_unknown")
OTHER_PROCESS = "idle_other_process"
"""Only in profiles of a GPU that another process used."""
TOOL_COLUMN = Column("tool", "tool")
DEVICE_COLUMN = Column("device", "GPU", "number")
TIMELINE_COLUMNS = (
    *CASE_COLUMNS,
    TOOL_COLUMN,
    DEVICE_COLUMN,
    SLOW_DOWN_COLUMN,
    Column("gpu_busy_percent", "busy", "number"),
    *(Column(f"{metric}_percent", title, "number") for metric, title in IDLE.items()),
    Column("idle_other_percent", "other", "number"),
    Column("launches", "launches", "number"),
    Column("syncs", "syncs", "number", hidden=True),
)
COPY_COLUMNS = (
    *CASE_COLUMNS,
    Column("tool", "tool", hidden=True),
    Column("direction", "copy"),
    Column("host_memory", "host memory"),
    Column("copies", "copies", "number"),
    Column("mb", "MB", "number"),
    Column("gb_per_s", "GB/s", "number"),
    Column("link_percent", "of link %", "number"),
    Column("link_gb_per_s", "link GB/s", "number", hidden=True),
)


@section("timeline", "Timeline", place=150)
def build(evidence: Evidence) -> Sequence[Block]:
    """GPU busy and idle by cause, copies against the link, and the profilers that watched nothing."""
    if not profiles(evidence):
        return (Text("No case was traced."), *_refused(evidence))
    blocks: list[Block] = [*_iterations(evidence), *_copies(evidence)]
    if not blocks:
        blocks.append(Text("The profiles hold no iteration and no copy."))
    return (*blocks, *_refused(evidence))


def _refused(evidence: Evidence) -> list[Text]:
    """Why a profiler of the study watched nothing."""
    reasons = {**(evidence.refused_profilers.content or {}), **dict.fromkeys(evidence.unused_profilers, UNUSED)}
    return [Text(f"{profiler} watched no case: {reason}", "item") for profiler, reason in reasons.items()]


# --- iterations ------------------------------------------------------------------------------------------------


def _iterations(evidence: Evidence) -> list[Block]:
    seen = profiles(evidence)
    device_rows = [
        (device, _iteration(evidence, profile, device)) for profile in seen for device in _devices(profile)
    ]
    rows = tuple(row for _, row in device_rows)
    tools = list(dict.fromkeys(profile.tool for profile in seen))
    hidden = {TOOL_COLUMN: len(tools) == 1, DEVICE_COLUMN: len({device for device, _ in device_rows}) == 1}
    columns = tuple(
        dataclasses.replace(column, hidden=hidden.get(column, column.hidden)) for column in TIMELINE_COLUMNS
    )
    title = f"An iteration under {', '.join(tools)}: % of its duration, and launches per iteration"
    note = (
        "Shares of the iteration: GPU busy, then idle waiting for the host to launch, a sync, a copy, or other. "
        "× bare: how many times as long as without the profiler the iteration took."
    )
    return [Table("timeline", title, columns, rows, note, groups=2)] if rows else []


def _ranges(profile: Profile) -> pd.DataFrame:
    """What the profile says of its iterations: of the host, and of each device."""
    frame = profile.frame
    return frame[(frame["level"] == "range") & (frame["name"] == ITERATION)]


def _devices(profile: Profile) -> list[int]:
    """The devices that worked while the profile was taken; none where it has no iterations."""
    rows = _ranges(profile)
    return sorted(int(device) for device in rows.loc[rows["metric"] == "gpu_busy", "device"].unique())


def _iteration(evidence: Evidence, profile: Profile, device: int) -> tuple[Cell, ...]:
    """The row of a device of a profile."""
    every = _ranges(profile)
    rows = every[every["device"].isna() | (every["device"] == device)]
    values = {str(metric): float(value) for metric, value in zip(rows["metric"], rows["value"], strict=True)}
    total = values["gpu_busy"] + values["gpu_idle"]

    def share(*metrics: str) -> Cell:
        if any(metric not in values for metric in metrics):
            return missing(f"the profile has no {', '.join(metrics)}")
        percent = 100 * sum(values[metric] for metric in metrics) / total
        return number(percent, f"{percent:.1f}")

    return (
        *case_cells(profile.case),
        words(profile.tool),
        number(device, str(device)),
        slow_down(evidence, profile),
        share("gpu_busy"),
        *(share(metric) for metric in IDLE),
        share(*OTHER_IDLE, *(metric for metric in (OTHER_PROCESS,) if metric in values)),
        *(optional(values.get(metric), count, "not in the profile") for metric in ("launches", "syncs")),
    )


# --- copies ----------------------------------------------------------------------------------------------------


def _copies(evidence: Evidence) -> list[Block]:
    """Copies of one iteration by direction and host memory, against the link's measured bandwidth."""
    seen = chosen(evidence, "memcpy")
    if not seen:
        return []
    inside = pd.concat([of_iterations(profile.frame, "memcpy") for profile in seen])
    table = against_link(inside, evidence.bandwidth.content).astype(object)
    place = {key_of(profile.case): index for index, profile in enumerate(seen)}
    copies = sorted(
        rows_of(table.where(table.notna(), None)), key=lambda row: (place[key_of(row)], -row["duration_ns"])
    )
    entries = costs(evidence)
    rows = tuple(_copy(evidence, row, entries[(*key_of(row), row["tool"])]["iterations"]) for row in copies)
    title = "Copies of an iteration by kind, against the measured bandwidth of the link or the device's memory"
    note = f"The link: what page-locked memory reached, for pageable copies too. {caution(evidence, seen)}"
    return [Table("copies", title, COPY_COLUMNS, rows, note, groups=5)] if rows else []


def _copy(evidence: Evidence, row: dict[str, Any], iterations: int | None) -> tuple[Cell, ...]:
    unknown = evidence.bandwidth.lacking
    if evidence.bandwidth.content is not None:
        unknown = f"no bandwidth was measured for {row['direction']}"
    no_rate = NO_BYTES if row["bytes"] is None else "the copies took no time that the tool saw"
    no_share = no_rate if row["gb_per_s"] is None else unknown

    def per_iteration(amount: float, write: Callable[[float], str]) -> Cell:
        return optional(iterations and amount / iterations, write, NO_ITERATION)

    return (
        *case_cells(row),
        words(row["tool"]),
        words(row["direction"]),
        words(row["host_memory"] or "not told"),
        per_iteration(row["copies"], count),
        missing(NO_BYTES) if row["bytes"] is None else per_iteration(row["bytes"] / MEGA, three_digits),
        optional(row["gb_per_s"], three_digits, no_rate),
        optional(row["link_share"] and 100 * row["link_share"], lambda value: f"{value:.0f}", no_share),
        optional(row["link_gb_per_s"], three_digits, unknown),
    )
