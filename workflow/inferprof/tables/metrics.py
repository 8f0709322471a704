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
    Metric("grid", "text", "launch grid x,y,z"),
    Metric("block", "text", "thread block x,y,z"),
)
METRICS: dict[str, Metric] = {metric.name: metric for metric in _ALL}
"""By name. A reader that needs another adds it here."""
