"""What the sensors of a GPU showed during a run."""

from __future__ import annotations

from typing import ClassVar

from inferprof.documents.base import Count, Document, Measured, NotNegative, Number, Positive, Share


class Gauge(Document):
    """What a sensor of the GPU showed."""

    median: Number
    min: Number | None = None
    max: Number | None = None


class Gauges(Document):
    """The sensors of the GPU over a while."""

    not_measured: str | None = None
    samples: Count | None = None
    throttled: bool | None = None
    throttle_reasons: list[str] = []
    throttled_share: Share | None = None
    other_processes: Count | None = None
    median_cycles: NotNegative | None = None
    sm_mhz: Gauge | None = None
    memory_mhz: Gauge | None = None
    power_w: Gauge | None = None
    temperature_c: Gauge | None = None


class Energy(Measured):
    """The energy of an inference, back to back."""

    NEEDS: ClassVar[tuple[str, ...]] = ("j_per_inference", "mean_w")

    j_per_inference: NotNegative | None = None
    mean_w: NotNegative | None = None
    window_s: NotNegative | None = None


class Telemetry(Document):
    """What the sensors of the GPU showed meanwhile."""

    not_measured: str | None = None
    interval_s: Positive | None = None
    summary: Gauges | None = None
    boundaries: dict[str, Gauges] = {}
    energy: Energy | None = None
    samples: dict[str, list[Number | None]] = {}

    def __post_init__(self) -> None:
        if not self.samples:
            return
        if len({*map(len, self.samples.values())}) > 1 or None in self.samples.get("t_ns", [None]):
            raise ValueError("`samples` are lists of one length, with a moment in `t_ns` for each")
