"""The highest rate that meets an objective: bracketed, then told by runs to both sides of it that take turns.

Each run has arrivals of its own. What a simulation of the very same schedule comes to, with services as slow as those
of the run were, is taken out of what was measured: left is by how much measured percentiles differ from foreseen ones
(a control variate). The highest rate is that of the theory whose percentile, longer by that ratio, meets the
objective. Its interval holds the spread of that ratio, for this search and another one beside it, and what the speed
of the machine did meanwhile, once more: a search that is made again lands in it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from inferprof import progress, stats, words
from inferprof.documents.serving import Highest, Probe
from inferprof.queueing.advice import Lasting
from inferprof.queueing.policy import Curve
from inferprof.serving.bench import LONGEST, MARGIN, WARM, Bench, latency_of, name_of

WIDTH: Final = 1.02
"""To how much the highest rate is told, where the runs suffice; and between the two rates that take turns."""
STRIDES: Final = (1.03, 1.08, 1.2, 1.5, 2.0, 2.0, 2.0, 2.0)
"""Steps away from the predicted rate, until the objective is met on one side and missed on the other."""
RUNS: Final = 16
"""At most so many runs, in so many times the seconds of one."""
NEAR: Final = 1.1
"""Runs at rates within that of the estimate count."""
FEWEST: Final = 5
"""Runs that an interval is made of."""
LATE: Final = "the client sent late"
QUARTERS: Final = 4
REACH: Final = 2.5
SWING: Final = 0.75
"""By simulation of speeds that forget themselves within 0.3 to 30 runs (an AR(1) process, 1,500 pairs of searches of
16 runs for each): the next search's mean speed is so near in 95 % and more."""
WIDEST: Final = 2.0
"""An interval of more than that, high over low, tells no highest rate."""


class _TooFew(Exception):
    """A run with too few requests for the objective's percentile: it tells of no rate."""


@dataclass
class _Search:
    """The runs so far."""

    bench: Bench
    curve: Curve
    lasting: Lasting
    probes: list[Probe] = field(default_factory=list)

    @property
    def foreseen(self) -> float | None:
        """By theory."""
        return self.lasting.highest(self.bench.objective_ns)

    def meets(self, rate: float) -> bool:
        """Run at a rate."""
        self.probes.append(_probe(self.bench, self.curve, rate, len(self.probes)))
        return self.probes[-1].meets

    def near(self, rate: float) -> list[Probe]:
        """The runs near a rate that tell of their percentile."""
        return [probe for probe in self.probes if probe.ratio and 1 / NEAR <= probe.rate / rate <= NEAR]

    def estimate(self, rate: float) -> _Estimate | None:
        """By the runs near a rate; None where these are too few, and where theory knows no rate."""
        from scipy import stats as student

        own = self.near(rate)
        if len(own) < FEWEST:
            return None
        ratios = np.log([probe.ratio for probe in own if probe.ratio])
        ratio, half = float(ratios.mean()), float(student.t.ppf(0.975, ratios.size - 1) * student.sem(ratios))
        levels = [probe.level for probe in self.probes if probe.level is not None] or [0.0]
        middle, reach = _speed(levels)
        rate = self._rate(middle, ratio)
        # This search's own luck and that of another one, on the one hand, and the machine's speed on the other.
        ends = [
            [self._rate(middle, ratio + side * math.sqrt(2) * half), self._rate(middle + side * reach, ratio)]
            for side in (1, -1)
        ]
        if not rate or not all(map(all, ends)):
            return None
        low, high = (math.hypot(*(math.log(rate / end) for end in side)) for side in ends)
        spread = self._rate(middle, ratio - half) / self._rate(middle, ratio + half)
        change = math.expm1(max(levels) - min(levels)) if len(levels) > 1 else None
        return _Estimate(rate, spread, rate * math.exp(-low), rate * math.exp(high), change)

    def _rate(self, level: float, ratio: float) -> float:
        """By theory, on a machine so slow and with percentiles so much longer (logarithms); 0 where there is none."""
        return self.lasting.highest(self.bench.objective_ns * math.exp(-ratio), math.exp(level)) or 0.0


def _speed(levels: Sequence[float]) -> tuple[float, float]:
    """The mean of logarithms of service times, and how far off that of another search may be: SWING times the range
    of all runs, or REACH times that of the means of quarters of the search, if that is more."""
    parts = [part.mean() for part in np.array_split(np.array(levels), QUARTERS) if part.size]
    return float(np.mean(levels)), max(REACH * float(np.ptp(parts)), SWING * float(np.ptp(levels)))


@dataclass(frozen=True)
class _Estimate:
    """Requests per second."""

    rate: float
    spread: float
    """High over low of its interval at one speed of the machine."""
    low: float
    high: float
    change: float | None

    @property
    def told(self) -> bool:
        """To WIDTH."""
        return self.spread <= WIDTH


def highest_rate(bench: Bench, curve: Curve) -> Highest:
    """The highest rate, with its interval. The search starts where the theory says that it is."""
    search = _Search(bench, curve, bench.lasting(curve))
    progress.step("highest rate")
    try:
        return _searched(search, bench.capacity(curve))
    except _TooFew as error:
        reason = f"{_none(bench, search.probes)}; {error}" if search.probes else str(error)
        return _not_told(search, reason)


def _not_told(search: _Search, reason: str, change: float | None = None) -> Highest:
    return Highest(not_measured=reason, predicted=search.foreseen, probes=search.probes, change=change)


def _searched(search: _Search, capacity: float) -> Highest:
    runs = progress.counted(range(RUNS), "run")
    end = time.perf_counter() + RUNS * search.bench.asked.seconds

    def meets(rate: float) -> bool:
        next(runs, None)
        return search.meets(rate)

    def goes_on() -> bool:
        return len(search.probes) < RUNS and time.perf_counter() < end

    rate = search.foreseen or 0.1 * capacity
    met = meets(rate)
    below, above = (rate, None) if met else (None, rate)
    # Where the theory has no rate, one run that fails, too, is enough.
    for stride in STRIDES if search.foreseen or met else ():
        if (below and above) or not goes_on():
            break
        rate = rate * stride if met else rate / stride
        below, above = (rate, above) if meets(rate) else (below, rate)
    if not below:
        return _not_told(search, _none(search.bench, search.probes))
    if not above:
        objective = search.bench.asked.objective
        return _not_told(search, f"every rate up to {below:.4g}/s meets {objective}, and the time was over")
    while above / below > NEAR and goes_on():
        middle = (below * above) ** 0.5
        below, above = (middle, above) if meets(middle) else (below, middle)
    rate = (below * above) ** 0.5
    estimate = None
    for side in (1.0, -1.0) * RUNS:  # above and below take turns, so that a speed that changes is no side's
        if not goes_on() or ((estimate := search.estimate(rate)) and estimate.told):
            break
        rate = estimate.rate if estimate else rate
        meets(rate * WIDTH ** (side / 2))
    return _told(search, search.estimate(rate))


def _told(search: _Search, estimate: _Estimate | None) -> Highest:
    if estimate is None:
        few = f"fewer than {FEWEST} runs near the highest rate in the time{_seen(search.probes)}"
        return _not_told(search, f"{few}: give it more `seconds` (--seconds)")
    if estimate.high / estimate.low > WIDEST:
        moved = (
            f"the machine's speed changed by {estimate.change:.0%}"
            if estimate.change is not None
            else "its runs differ"
        )
        reason = (
            f"{estimate.low:.4g} to {estimate.high:.4g}/s is no answer: {moved} in the search{_seen(search.probes)}"
        )
        return _not_told(search, reason, estimate.change)
    late = sum(probe.refused is not None for probe in search.probes if probe.latency)
    ended = "bracketed" if estimate.told else "its time was over"
    return Highest(
        rate=estimate.rate,
        low=estimate.low,
        high=estimate.high,
        change=estimate.change,
        predicted=search.foreseen,
        ended=f"{ended}; {LATE} in {late} of {len(search.probes)} runs" if late else ended,
        probes=search.probes,
    )


def too_few(percent: float, rate: float, requests: int) -> str:
    """That so many requests at a rate (1/s) tell no percentile, and how long a run has to be asked for that does."""
    least = math.ceil(stats.samples_needed(percent / 100) / (1 - WARM))
    seconds = words.figure(MARGIN * least / rate / LONGEST, 2)  # a run is as much longer as that takes
    return f"{requests} requests are too few, it takes {least}: give it `seconds` of {seconds} or more (--seconds)"


def _probe(bench: Bench, curve: Curve, rate: float, number: int) -> Probe:
    """A run, and whether its percentile is within the objective. Raises _TooFew where it cannot tell that."""
    run, refused = bench.run(rate, number)
    level = bench.level(curve, run)
    if not run.kept_up:
        return Probe(rate=rate, meets=False, refused="the server did not keep up", level=level)
    percent = bench.asked.percentile
    latencies = bench.judged(run)
    latency = latency_of(latencies, [percent]).get(name_of(percent)) if latencies.size else None
    if latency is None:
        raise _TooFew(f"{name_of(percent)} at {rate:.4g}/s: {too_few(percent, rate, run.served.arrived.size)}")
    # A client that is late makes a latency longer, never shorter: what meets its objective even so does meet it.
    meets = latency.value_ns <= bench.objective_ns
    replayed = bench.percentile(curve.slower(math.exp(level or 0.0)), run.served.arrived)
    ratio = latency.value_ns / replayed
    return Probe(rate=rate, meets=meets, latency=latency, refused=refused, level=level, ratio=ratio)


def _seen(probes: Sequence[Probe]) -> str:
    """` (single runs met it up to 175/s and missed it from 212/s on)`: what a search without an answer saw."""
    met, missed = (sorted(probe.rate for probe in probes if probe.meets is meets) for meets in (True, False))
    said = [
        *([f"met it up to {met[-1]:.4g}/s"] if met else []),
        *([f"missed it from {missed[0]:.4g}/s on"] if missed else []),
    ]
    return f" (single runs {' and '.join(said)})" if said else ""


def _none(bench: Bench, probes: list[Probe]) -> str:
    """Why no rate is known to meet the objective."""
    least = min(probes, key=lambda probe: probe.rate)
    objective = bench.asked.objective
    if least.latency and least.refused:
        return f"whether {objective} is met at {least.rate:.4g}/s is not known: {least.refused}"
    return f"no rate down to {least.rate:.4g}/s meets {objective}: the delay or the service alone may be longer"
