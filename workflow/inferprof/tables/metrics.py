"""Every metric of the tidy table: its name, unit and meaning. A tool's raw names stay in that tool's reader."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """A named quantity. `unit` is ns, bytes, count, ratio, percent, GB/s, W, MHz, C or text."""

    name: str
    unit: str
    meaning: str


_ALL = (
    Metric("duration_total", "ns", "sum over all instances"),
    Metric("duration_median", "ns", "median instance"),
    Metric("duration_mean", "ns", "mean instance"),
    Metric("duration_min", "ns", "shortest instance"),
    Metric("duration_max", "ns", "longest instance"),
    Metric("duration_stddev", "ns", "sample standard deviation over instances"),
    Metric("start", "ns", "start on the tool's clock, single launches only"),
    Metric("bytes_total", "bytes", "bytes moved, all instances"),
    Metric("bandwidth", "GB/s", "bytes_total / duration_total, with GB = 10^9 bytes"),
    Metric("sync_kind", "text", "explicit: the call is a synchronise; implicit: it waits for the GPU all the same"),
    # Of ranges and of the whole run; means per instance, so that they add up. Formulas: tables.derived.
    Metric("gpu_busy", "ns", "union of kernels, copies, memsets and graphs"),
    Metric("kernel_busy", "ns", "union of kernels and graphs"),
    Metric("gpu_idle", "ns", "duration - gpu_busy"),
    Metric("idle_launch", "ns", "GPU idle: the host had not launched the next operation yet"),
    Metric("idle_sync", "ns", "GPU idle: the host sat in a synchronise call before it launched the next operation"),
    Metric("idle_copy", "ns", "GPU idle: the host was in a copy call"),
    Metric("idle_queued", "ns", "GPU idle although the next operation was launched: latency, or another stream"),
    Metric("idle_end", "ns", "GPU idle: no further operation begins in the range"),
    Metric("idle_unknown", "ns", "GPU idle: the capture does not tie the next operation to a launch"),
    Metric("streams_overlap", "ns", "two or more streams busy"),
    Metric("launches", "count", "API calls that launched an operation; a graph launch is one"),
    Metric("launch_overhead", "ns", "host time in launching calls"),
    Metric("launch_wait", "ns", "sum over launches from the call's return to the operation's start"),
    Metric("allocations", "count", "calls that allocate or free memory"),
    Metric("allocation_time", "ns", "host time in them"),
    Metric("syncs", "count", "synchronise calls"),
    Metric("sync_time", "ns", "host time in them"),
    Metric("implicit_syncs", "count", "calls that wait for the GPU without being a synchronise"),
    Metric("implicit_sync_time", "ns", "host time in them"),
    Metric("launch_bound", "ratio", "idle_launch / duration"),
    Metric("gpu_busy_share", "ratio", "gpu_busy / duration"),
    Metric("queue_depth", "ratio", "launches waiting on the device, mean over time: launch_wait / duration"),
    Metric("launch_overhead_mean", "ns", "host time of one launching call"),
    Metric("launch_wait_mean", "ns", "from a launching call's return to the operation's start"),
    Metric("streams_overlap_share", "ratio", "streams_overlap / gpu_busy"),
    Metric("grid", "text", "launch grid x,y,z"),
    Metric("block", "text", "thread block x,y,z"),
)
METRICS: dict[str, Metric] = {metric.name: metric for metric in _ALL}
"""By name. A reader that needs another adds it here."""
