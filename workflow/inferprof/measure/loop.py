"""The loop around one sample: warm-up until latency settles, then samples until the interval is narrow enough."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from inferprof import stats
from inferprof.plugins import Boundary

Clock = Callable[[], int]
"""Monotonic nanoseconds."""
Sample = Callable[[], float]
"""Runs one inference and returns its nanoseconds."""
Name = TypeVar("Name", bound=str)
SETTLE_WINDOWS = 3
SETTLE_WINDOW_NS = 50_000_000
"""A window lasts at least this long, so that a warm-up spans several updates of the GPU's clock (tens of ms)."""
SETTLE_WINDOW_SAMPLES = 3
"""A window has at least as many, of a case so slow that windows of them overrun the budget one."""
MEDIAN_STEP = 0.954
"""The median step from one sample to the next, in standard deviations of normal noise."""
RANGE_OF_THREE = 3.31
"""What three normal variables span in 95 of 100 cases, in standard deviations."""
FIRST_INTERVAL = stats.ONE_ROUND_THRESHOLD / 2
"""Half width that is enough of a first round: two cases that are known so well differ by what one round may call."""


@dataclass(frozen=True)
class Protocol:
    """How a case is measured. Budgets are per boundary, and warm-up and loop each have one."""

    warmup_min: int = 1
    """Inferences before warm-up may end. With the loop, whose last sample may begin within the budget, no boundary
    takes over three budgets, unless the fewest samples of an interval do."""
    settle: float = 0.02
    """Warm-up ends when the medians of three windows in a row lie within this relative range, or within what noise
    explains and in no order."""
    interval: float = 0.01
    """The loops end when the 95 % interval of each median has at most this relative half width."""
    min_s: float = 0.2
    """A loop lasts at least this long or its budget: a few ms would be one moment of the machine."""
    budget_s: float = 2.0
    turns: int = 8
    """Boundaries are sampled in turns of this share of `enough_s`; the intervals are looked at after each."""
    min_samples: int = 20
    """Samples before the interval may end the loop; the budget ends it earlier."""
    max_samples: int = 20_000
    first_pass: bool = False
    """The first of several rounds, which says who has the others. A loop ends after half its budget where that gave
    `min_samples`, or with FIRST_INTERVAL; there is no pipeline, and back to back is too short for energy."""
    only: Boundary | None = None
    """The one boundary that is measured, without stages and throughput: of a round that a comparison is made of."""
    quiet_core: bool = False
    """A GPU is measured from the core that nothing else slows down: of rounds that only choose among cases."""
    throughput_min_s: float = 1.2
    """Back to back lasts half a budget and at least this long: energy is told for windows of 1 s or more."""
    graph: bool = False
    """Turn `enqueue` into one CUDA graph launch once the case is warm."""
    range: Callable[[str], AbstractContextManager[Any]] = contextlib.nullcontext
    """Opens a named range (NVTX) for a profiler, outside of what is timed: one per boundary, one `inference` per
    sample in it, and one per stage in `stages`."""

    @property
    def whole(self) -> bool:
        """Whether all is measured that a record may hold."""
        return not self.first_pass and self.only is None

    @property
    def loop_s(self) -> float:
        """What warm-up and loop of one boundary take at most."""
        return 2 * self.budget_s

    @property
    def enough_s(self) -> float:
        """After how long `min_samples` are enough."""
        return self.budget_s / 2 if self.first_pass else self.budget_s

    @property
    def turn_ns(self) -> float:
        """The length of a boundary's turn."""
        return self.enough_s * 1e9 / self.turns

    @property
    def stages_turn_ns(self) -> float:
        """That of the stages: shares of a case, which decide about no other."""
        return self.turn_ns / 2 if self.first_pass else self.turn_ns

    @property
    def narrow(self) -> float:
        """The relative half width of the interval that ends a loop."""
        return max(self.interval, FIRST_INTERVAL) if self.first_pass else self.interval

    @property
    def throughput_s(self) -> float:
        """The window of back to back."""
        return self.pipeline_s if self.first_pass else max(self.budget_s / 2, self.throughput_min_s)

    @property
    def pipeline_s(self) -> float:
        """The window of a pipeline, which no energy is told for."""
        return max(self.budget_s / 2, min(self.min_s, self.throughput_min_s))

    def record(self) -> dict[str, Any]:
        """The protocol as it stands in the record."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "range"}


@dataclass(frozen=True)
class Series:
    """The samples of one loop, all of them, in order."""

    samples_ns: tuple[int, ...]
    span_ns: tuple[int, int]
    """The clock before the first and after the last sample; the turns of other boundaries lie between."""
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
    """One loop by itself: `in_turns` of a single boundary."""
    return in_turns({name: sample}, protocol, clock)[name]


def in_turns(
    samplers: Mapping[Name, Sample],
    protocol: Protocol,
    clock: Clock,
    before_turn: Callable[[], None] = lambda: None,
    alongside: Callable[[], None] = lambda: None,
) -> dict[Name, Series]:
    """Warm each boundary up, then let them take turns until all intervals are narrow enough or a limit is reached.

    A machine changes from second to second: a neighbour on the other half of a core makes every launch slower for a
    while. In turns that falls on all boundaries alike, so that their medians can be compared with each other.
    `before_turn` is in no boundary's time; `alongside` has a turn as long as one of the boundaries has.
    """
    loops = {name: _Loop(name, sample, protocol, clock) for name, sample in samplers.items()}
    for loop in loops.values():
        loop.warm_up()
    while any(loop.stopped_by is None for loop in loops.values()):
        for loop in loops.values():
            loop.turn(before_turn)
        alongside()
    return {name: loop.series() for name, loop in loops.items()}


class _Loop:
    """The samples of one boundary, collected in turns."""

    def __init__(self, name: str, sample: Sample, protocol: Protocol, clock: Clock) -> None:
        self.name = name
        self.stopped_by: Literal["interval", "budget", "count"] | None = None
        self._sample, self._protocol, self._clock = sample, protocol, clock
        self._samples: list[int] = []
        self._sampled_ns = 0
        self._spans: list[tuple[int, int]] = []
        self._warmup, self._settled = 0, False

    def warm_up(self) -> None:
        """Until latency has settled."""
        with self._protocol.range(self.name):
            self._warmup, self._settled = warm_up(self._ranged, self._protocol, self._clock)

    def turn(self, before: Callable[[], None]) -> None:
        """A share of the budget, of at least one sample, however slow the case is. Nothing once a limit is reached.

        A loop whose interval is narrow enough goes on as long as another one does.
        """
        if self.stopped_by in ("budget", "count"):
            return
        before()
        begin = self._clock()
        share_ns = self._protocol.turn_ns
        with self._protocol.range(self.name):
            while True:
                self._samples.append(round(self._ranged()))
                end = self._clock()
                if len(self._samples) >= stats.FEWEST:
                    self.stopped_by = self._limit(self._sampled_ns + end - begin)
                if self.stopped_by or end - begin >= share_ns:
                    break
        self._sampled_ns += end - begin
        self._spans.append((begin, end))
        if self.stopped_by is None and self._narrow_enough():
            self.stopped_by = "interval"

    def series(self) -> Series:
        """All that was sampled."""
        assert self.stopped_by is not None
        span = self._spans[0][0], self._spans[-1][1]
        return Series(
            tuple(self._samples), span, self._warmup, self._settled, self.stopped_by, _half_width(self._samples)
        )

    def _ranged(self) -> float:
        with self._protocol.range("inference"):
            return self._sample()

    def _limit(self, sampled_ns: int) -> Literal["budget", "count"] | None:
        if len(self._samples) >= self._protocol.max_samples:
            return "count"
        enough = len(self._samples) >= self._protocol.min_samples
        limit_s = self._protocol.enough_s if enough else self._protocol.budget_s
        return "budget" if sampled_ns >= limit_s * 1e9 else None

    def _narrow_enough(self) -> bool:
        if len(self._samples) < self._protocol.min_samples or self._sampled_ns < self._protocol.min_s * 1e9:
            return False
        width = _half_width(self._samples)
        return width is not None and width <= self._protocol.narrow


def warm_up(sample: Sample, protocol: Protocol, clock: Clock) -> tuple[int, bool]:
    """Run until the medians of windows in a row agree, or one more would overrun the budget: inferences, settled."""
    begin = last = clock()
    samples: list[float] = []
    medians: list[float] = []
    budget_ns, least = protocol.budget_s * 1e9, SETTLE_WINDOW_SAMPLES
    while True:
        window: list[float] = []
        window_begin = last
        while len(window) < least or last - window_begin < SETTLE_WINDOW_NS:
            window.append(sample())
            before, last = last, clock()
            if SETTLE_WINDOWS * SETTLE_WINDOW_SAMPLES * (last - before) > budget_ns:
                least = 1
            if len(samples) + len(window) >= protocol.warmup_min and 2 * last - before - begin > budget_ns:
                return len(samples) + len(window), False
        samples += window
        medians = [*medians, statistics.median(window)][-SETTLE_WINDOWS:]
        if len(samples) >= protocol.warmup_min and _agree(medians, samples, len(window), protocol.settle):
            return len(samples), True


def _agree(medians: list[float], samples: Sequence[float], per_window: int, settle: float) -> bool:
    """Whether windows differ by `settle` at most, or by what noise explains and neither fall nor rise throughout.

    Noise is told by the steps between neighbouring samples, which a trend hardly changes.
    """
    if len(medians) < SETTLE_WINDOWS:
        return False
    spread = max(medians) - min(medians)
    if spread <= settle * min(medians):
        return True
    latest = samples[-SETTLE_WINDOWS * max(per_window, SETTLE_WINDOW_SAMPLES) :]
    deviation = statistics.median(abs(after - before) for before, after in itertools.pairwise(latest)) / MEDIAN_STEP
    of_median = deviation * math.sqrt(math.pi / 2 / per_window)
    ordered = sorted(medians)
    return spread <= RANGE_OF_THREE * of_median and medians not in (ordered, ordered[::-1])


def _half_width(samples: Sequence[float]) -> float | None:
    """Half the width of the median's 95 % interval, relative to the median; None where there is no interval."""
    interval = stats.median_interval(samples)
    return None if interval is None else (interval[1] - interval[0]) / 2 / statistics.median(samples)
