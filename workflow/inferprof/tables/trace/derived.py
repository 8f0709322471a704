"""Where the time of an iteration goes: GPU busy, idle by cause, launches, copies, waits, allocation.

All of it is counted inside a window [start, end) of the host's clock, which is a range (`iteration`, `stage:h2d`, …)
or the whole capture. A window that ends in a synchronise holds all of its GPU work; work that runs on behind its
window is counted in the window in which it runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import numpy as np
import pandas as pd

from inferprof.tables.trace.aggregate import split_path, tidy_rows
from inferprof.tables.trace.api_kind import ApiKind, api_kind
from inferprof.tables.trace.idle import Gpu
from inferprof.tables.trace.intervals import Times
from inferprof.tables.trace.kernel_compare import ITERATION
from inferprof.tables.trace.timeline import PATH_SEPARATOR, Timeline, only, process_of

WHOLE: Final = -1
"""Path code of the whole capture, which is no range, and the process of its window, which is of all."""
WHOLE_CAPTURE: Final = "capture"
WORKLOAD_RANGES: Final = re.compile(
    r"load|warmup|iteration|inference|device|call|end_to_end|stages|back_to_back|pipelined|"
    r"stage:.*|stage_inputs|h2d|bind|execute|d2h|extract"
)
"""The ranges that the workload itself opens. Others (layers, framework operations) lie inside them."""


def windows(timeline: Timeline) -> pd.DataFrame:
    """start, end, path code and process of the ranges to account for: the outermost ones, the workload's own inside
    them, and iterations wherever they lie."""

    def accounted(path: str) -> bool:
        _, *inner = path.split(PATH_SEPARATOR)
        return all(WORKLOAD_RANGES.fullmatch(name) for name in inner) or inner[-1] == ITERATION

    chosen = np.array([accounted(path) for path in timeline.paths])[timeline.ranges["path"].to_numpy()]
    columns = {key: timeline.ranges[key].to_numpy()[chosen] for key in ("start", "end", "path")}
    return pd.DataFrame({**columns, "process": process_of(timeline.ranges["thread"].to_numpy()[chosen])})


def per_window(timeline: Timeline, window: pd.DataFrame) -> pd.DataFrame:
    """One row per window and device with the columns of `window` and these amounts, in ns unless said.

    duration            end - start
    gpu_busy            length of the union of all operations (kernels, copies, memsets, graphs) in the window
    kernel_busy         the same of kernels and graphs: time in which something is computed
    gpu_idle            duration - gpu_busy = sum of idle_launch, idle_sync, … (idle.IDLE_CAUSES), and of
    idle_other_process  another process computed or copied meanwhile; missing where none did on the device
    launching_idle, starting_idle   parts of idle_launch: idle.LAUNCH_PARTS; what is left the host works elsewhere
    streams_overlap     time in which two or more streams are busy
    launches            count of the API calls begun in the window that launched an operation; a graph launch is one
    launch_overhead     host time in those calls
    launch_wait         sum over launches of max(0, start of the operation - end of the call)
    allocations, allocation_time, syncs, sync_time, implicit_syncs, implicit_sync_time
                        count of, and host time in, the calls begun in the window (for any device)

    Without GPU operations there are no columns about the GPU and no `device`. Where the tool tells processes, each
    window is of its own: others' work is none of it. `window`: start, end, process and more.
    """
    numbered = window.drop(columns="process").assign(place=np.arange(len(window)))
    alone = _processes_alone(timeline, window["process"])
    parts = [
        _of_all(timeline if own == WHOLE else _of_process(timeline, own), numbered[alone == own])
        for own in np.unique(alone).tolist() or [WHOLE]
    ]
    order = [column for column in ("device", "place") if column in parts[0]]
    return pd.concat(parts).sort_values(order, kind="stable", ignore_index=True).drop(columns="place")


def _processes_alone(timeline: Timeline, process: pd.Series[int]) -> Times:
    """The processes of windows, WHOLE where the timeline has no other or nothing of it, or the tool does not tell."""
    if "process" not in timeline.ops or len(computing := timeline.ops["process"].unique()) < 2:
        return np.full(len(process), WHOLE)
    return np.where(process.isin(computing), process, WHOLE)


def _of_process(timeline: Timeline, process: int) -> Timeline:
    mine = (timeline.ops["process"] == process).to_numpy()
    others = pd.concat([timeline.others, timeline.ops.loc[~mine, timeline.others.columns]], ignore_index=True)
    return only(timeline, mine, process_of(timeline.calls["thread"].to_numpy()) == process, others)


def _of_all(timeline: Timeline, window: pd.DataFrame) -> pd.DataFrame:
    start, end = window["start"].to_numpy(), window["end"].to_numpy()
    kind = api_kind(timeline)
    host = window.assign(duration=end - start, **_host_amounts(timeline, kind, window))
    frames = [
        host.assign(
            device=device, **Gpu.of(timeline, kind, own).amounts(start, end), **_launch_amounts(timeline, own, window)
        )
        for device, own in _by_device(timeline.ops)
    ]
    return pd.concat(frames, ignore_index=True) if frames else host


def rows(timeline: Timeline) -> pd.DataFrame:
    """Levels range (outermost ranges and stages) and run (the whole capture): the amounts as mean per instance.

    Means, because they add up: gpu_busy + all idle_* = duration_mean. From them, per range and device:

    launch_bound        idle_launch / duration: the share of time in which the GPU waits for the host's launches
    gpu_busy_share      gpu_busy / duration
    queue_depth         launch_wait / duration: launches waiting on the device, on average over time (Little's law)
    launch_overhead_mean, launch_wait_mean   ns per launch
    streams_overlap_share   streams_overlap / gpu_busy
    """
    window = pd.concat([windows(timeline), whole_capture(timeline)], ignore_index=True)
    instances = per_window(timeline, window)
    keys = [key for key in ("path", "device") if key in instances]
    groups = instances.drop(columns=["start", "end"]).groupby(keys, sort=True)
    mean = groups.mean()
    # The duration of a range is in its own rows (aggregate.ranges); that of the whole capture has no other place.
    wide = _with_ratios(mean).assign(instances=groups.size())
    wide["duration_total"] = wide.pop("duration").where(wide.index.get_level_values("path") == WHOLE)
    tidy = tidy_rows(wide.reset_index())
    paths = {WHOLE: WHOLE_CAPTURE, **dict(enumerate(timeline.paths))}
    level = tidy["path"].map(lambda path: "run" if path == WHOLE else "range")
    return split_path(tidy, tidy.pop("path").map(paths)).assign(level=level)


def _with_ratios(mean: pd.DataFrame) -> pd.DataFrame:
    if "gpu_busy" not in mean:
        return mean
    launches = mean["launches"].where(mean["launches"] > 0)
    return mean.assign(
        launch_bound=mean["idle_launch"] / mean["duration"],
        gpu_busy_share=mean["gpu_busy"] / mean["duration"],
        queue_depth=mean["launch_wait"] / mean["duration"],
        launch_overhead_mean=mean["launch_overhead"] / launches,
        launch_wait_mean=mean["launch_wait"] / launches,
        streams_overlap_share=mean["streams_overlap"] / mean["gpu_busy"].where(mean["gpu_busy"] > 0),
    )


def whole_capture(timeline: Timeline) -> pd.DataFrame:
    """The window from the first to the last event of any kind, path WHOLE; no row where nothing was captured."""
    frames = [frame for frame in (timeline.ops, timeline.calls, timeline.ranges) if len(frame)]
    if not frames:
        return pd.DataFrame({"start": [], "end": [], "path": [], "process": []}, dtype="int64")
    start = min(frame["start"].min() for frame in frames)
    end = max(frame["end"].max() for frame in frames)
    return pd.DataFrame({"start": [start], "end": [end], "path": [WHOLE], "process": [WHOLE]})


def _host_amounts(timeline: Timeline, kind: ApiKind, window: pd.DataFrame) -> dict[str, Times]:
    start = timeline.calls["start"].to_numpy()
    length = timeline.calls["end"].to_numpy() - start
    amounts = {}
    for count, time, flag in (
        ("allocations", "allocation_time", kind.allocation),
        ("syncs", "sync_time", kind.explicit_sync),
        ("implicit_syncs", "implicit_sync_time", kind.implicit_sync),
    ):
        amounts[count] = _sum_begun_in(window, start[flag], np.ones(int(flag.sum()), np.int64))
        amounts[time] = _sum_begun_in(window, start[flag], length[flag])
    return amounts


def _by_device(ops: pd.DataFrame) -> Iterator[tuple[int, pd.DataFrame]]:
    """The operations that took time, by device; without a copy in the usual case of one device."""
    took = (ops["end"] > ops["start"]).to_numpy()
    device = ops["device"].to_numpy()
    for own in np.unique(device[took]).tolist():
        chosen = took & (device == own)
        yield own, ops if chosen.all() else ops[chosen]


def _launch_amounts(timeline: Timeline, ops: pd.DataFrame, window: pd.DataFrame) -> dict[str, Times]:
    calls = timeline.calls
    begun = np.full(len(calls), np.iinfo(np.int64).max)
    call = ops["call"].to_numpy()
    backwards = np.flatnonzero(call >= 0)[::-1]
    begun[call[backwards]] = ops["start"].to_numpy()[backwards]  # the last write wins: a call's first operation
    launching = np.flatnonzero(begun < np.iinfo(np.int64).max)
    start, end = (calls[column].to_numpy()[launching] for column in ("start", "end"))
    return {
        "launches": _sum_begun_in(window, start, np.ones_like(start)),
        "launch_overhead": _sum_begun_in(window, start, end - start),
        "launch_wait": _sum_begun_in(window, start, np.maximum(begun[launching] - end, 0)),
    }


def _sum_begun_in(window: pd.DataFrame, start: Times, amount: Times) -> Times:
    """Sum of `amount` over the events that begin in each window; `start` ascends."""
    before = np.concatenate(([0], np.cumsum(amount)))
    first = np.searchsorted(start, window["start"].to_numpy(), side="left")
    last = np.searchsorted(start, window["end"].to_numpy(), side="left")
    return before[last] - before[first]
