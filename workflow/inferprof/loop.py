"""The loop around one sample: warm-up until latency settles, then samples until the interval is narrow enough."""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

from inferprof import progress, stats

Clock = Callable[[], int]
"""Monotonic nanoseconds."""
Sample = Callable[[], float]
"""Runs one inference and returns its nanoseconds."""
SETTLE_WINDOWS = 3
SETTLE_WINDOW_NS = 50_000_000
"""A window lasts at least this long, so that a warm-up spans several updates of the GPU's clock (tens of ms)."""
SETTLE_WINDOW_SAMPLES = 3
CHECK_GROWTH = 1.2
"""The interval is looked at whenever the samples have grown by this factor: rarely enough not to disturb them."""


@dataclass(frozen=True)
class Protocol:
    """How a case is measured. Budgets are per boundary, and warm-up and loop each have one."""

    warmup_min: int = 5
    """Inferences before warm-up may end."""
    settle: float = 0.02
    """Warm-up ends when the medians of three windows in a row lie within this relative range."""
    interval: float = 0.01
    """The loop ends when the 95 % interval of the median has at most this relative half width."""
    min_s: float = 0.2
    """The loop lasts at least this long or its budget: a few ms would be one moment of the machine."""
    budget_s: float = 2.0
    min_samples: int = 20
    """Samples before the interval may end the loop; the budget ends it earlier."""
    max_samples: int = 20_000
    throughput_min_s: float = 1.2
    """A throughput lasts half a budget and at least this long: energy is told for windows of 1 s or more."""
    graph: bool = False
    """Turn `enqueue` into one CUDA graph launch once the case is warm."""
    range: Callable[[str], AbstractContextManager[Any]] = contextlib.nullcontext
    """Opens a named range (NVTX) for a profiler, outside of what is timed: one per boundary, one `inference` per
    sample in it, and one per stage in `stages`."""

    @property
    def loop_s(self) -> float:
        """What warm-up and loop of one boundary take at most."""
        return 2 * self.budget_s

    @property
    def throughput_s(self) -> float:
        """The window of a throughput."""
        return max(self.budget_s / 2, self.throughput_min_s)

    def record(self) -> dict[str, Any]:
        """The protocol as it stands in the record."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "range"}


@dataclass(frozen=True)
class Series:
    """The samples of one loop, all of them, in order."""

    samples_ns: tuple[int, ...]
    span_ns: tuple[int, int]
    """The clock before the first and after the last sample."""
    warmup: int
    """Inferences before the first sample."""
    settled: bool
    stopped_by: Literal["interval", "budget", "count"]
    interval: float | None
    """Relative half width of the median's 95 % interval; None with too few independent samples."""

    @property
    def median(self) -> float:
        """The median in ns."""
        return statistics.median(self.samples_ns)


def run(name: str, sample: Sample, protocol: Protocol, clock: Clock) -> Series:
    """Warm up, then sample until the interval is narrow enough or a limit is reached."""

    def ranged() -> float:
        with protocol.range("inference"):
            return sample()

    progress.step(name)
    with protocol.range(name):
        warmup, settled = warm_up(ranged, protocol, clock)
        begin = clock()
        samples, stopped_by = _collect(ranged, protocol, clock)
        span = begin, clock()
    return Series(tuple(samples), span, warmup, settled, stopped_by, _half_width(samples))


def warm_up(sample: Sample, protocol: Protocol, clock: Clock) -> tuple[int, bool]:
    """Run until the medians of consecutive windows agree or the budget is spent: inferences, and whether settled."""
    begin = clock()
    count = 0
    medians: list[float] = []
    while True:
        window: list[float] = []
        window_begin = clock()
        while len(window) < SETTLE_WINDOW_SAMPLES or clock() - window_begin < SETTLE_WINDOW_NS:
            window.append(sample())
            if clock() - begin > protocol.budget_s * 1e9 and count + len(window) >= protocol.warmup_min:
                return count + len(window), False
        count += len(window)
        medians = [*medians, statistics.median(window)][-SETTLE_WINDOWS:]
        agree = len(medians) == SETTLE_WINDOWS and max(medians) <= min(medians) * (1 + protocol.settle)
        if agree and count >= protocol.warmup_min:
            return count, True


def _collect(
    sample: Sample, protocol: Protocol, clock: Clock
) -> tuple[list[int], Literal["interval", "budget", "count"]]:
    """All samples, and what ended the loop. There is at least one sample, however slow the case is."""
    begin = clock()
    samples: list[int] = []
    next_check = protocol.min_samples
    while True:
        samples.append(round(sample()))
        elapsed = clock() - begin
        if len(samples) >= protocol.max_samples:
            return samples, "count"
        if len(samples) >= next_check:
            next_check = int(len(samples) * CHECK_GROWTH) + 1
            width = _half_width(samples)
            if width is not None and width <= protocol.interval and elapsed >= protocol.min_s * 1e9:
                return samples, "interval"
        if elapsed >= protocol.budget_s * 1e9:
            return samples, "budget"


def _half_width(samples: Sequence[float]) -> float | None:
    """Half the width of the median's 95 % interval, relative to the median; None where there is no interval."""
    interval = stats.median_interval(samples)
    return None if interval is None else (interval[1] - interval[0]) / 2 / statistics.median(samples)
