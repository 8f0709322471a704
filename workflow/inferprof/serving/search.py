"""The highest rate that meets an objective: bracketed, then bisected, on runs of one schedule at different rates."""

from __future__ import annotations

import time
from typing import Final

from inferprof import progress
from inferprof.documents.serving import Highest, Probe
from inferprof.queueing.policy import Curve
from inferprof.serving.bench import Bench, latency_of, name_of

WIDTH: Final = 1.02
"""Of the bracket: its upper end over its lower one."""
STRIDES: Final = (1.03, 1.08, 1.2, 1.5, 2.0, 2.0, 2.0, 2.0)
"""Steps away from the predicted rate, until the objective is met on one side and missed on the other."""
RUNS: Final = 16
"""At most so many runs, in so many times the seconds of one."""


class _TooFew(Exception):
    """A run with too few requests for the objective's percentile: it tells of no rate."""


def highest_rate(bench: Bench, curve: Curve) -> Highest:
    """The bracket of the highest rate. It starts where the theory says that it is."""
    foreseen = bench.foreseen_rate(curve)
    capacity = bench.capacity(curve)
    probes: list[Probe] = []
    progress.step("highest rate")
    try:
        return _bracketed(bench, probes, foreseen, capacity)
    except _TooFew as error:
        reason = f"{_none(bench, probes)}; {error}" if probes else str(error)
        return Highest(not_measured=reason, predicted=foreseen, probes=probes)


def _bracketed(bench: Bench, probes: list[Probe], foreseen: float | None, capacity: float) -> Highest:
    runs = progress.counted(range(RUNS), "run")
    end = time.perf_counter() + RUNS * bench.asked.seconds

    def meets(rate: float) -> bool:
        next(runs, None)
        probes.append(_probe(bench, rate))
        return probes[-1].meets

    rate = foreseen or 0.1 * capacity
    met = meets(rate)
    below, above = (rate, None) if met else (None, rate)
    # Where the theory has no rate, one run that fails, too, is enough.
    for stride in STRIDES if foreseen or met else ():
        if (below and above) or time.perf_counter() > end:
            break
        rate = rate * stride if met else rate / stride
        if meets(rate):
            below = rate
        else:
            above = rate
    while below and above and above / below > WIDTH and len(probes) < RUNS and time.perf_counter() < end:
        middle = (below * above) ** 0.5
        below, above = (middle, above) if meets(middle) else (below, middle)
    if not below:
        return Highest(not_measured=_none(bench, probes), predicted=foreseen, probes=probes)
    narrow = above is not None and above / below <= WIDTH
    late = sum(probe.refused is not None for probe in probes if probe.latency)
    ended = "bracketed" if narrow else "its time was over"
    return Highest(
        rate=below,
        fails=above,
        low=_sure(bench, probes, within=True),
        high=_sure(bench, probes, within=False),
        predicted=foreseen,
        ended=f"{ended}; the client sent late in {late} of {len(probes)} runs" if late else ended,
        probes=probes,
    )


def _probe(bench: Bench, rate: float) -> Probe:
    """A run, and whether its percentile is within the objective. Raises _TooFew where it cannot tell that."""
    run, refused = bench.run(rate)
    if not run.kept_up:
        return Probe(rate=rate, meets=False, refused="the server did not keep up")
    percent = bench.asked.percentile
    latencies = bench.judged(run)
    latency = latency_of(latencies, [percent]).get(name_of(percent)) if latencies.size else None
    if latency is None:
        raise _TooFew(f"too few requests for p{percent:g} at {rate:.4g}/s: give it more `seconds`")
    # A client that is late makes a latency longer, never shorter: what meets its objective even so does meet it.
    meets = latency.value_ns <= bench.objective_ns
    return Probe(rate=rate, meets=meets, latency=latency, refused=refused)


def _sure(bench: Bench, probes: list[Probe], *, within: bool) -> float | None:
    """The rate next to the objective whose interval is wholly within it, or wholly beyond."""
    objective = bench.objective_ns
    if within:
        rates = [p.rate for p in probes if p.latency and p.latency.high_ns and p.latency.high_ns <= objective]
        return max(rates, default=None)
    # What a late client saw may be its own doing.
    lows = [p.rate for p in probes if not p.latency or (not p.refused and (p.latency.low_ns or 0) > objective)]
    return min(lows, default=None)


def _none(bench: Bench, probes: list[Probe]) -> str:
    """Why no rate is known to meet the objective."""
    least = min(probes, key=lambda probe: probe.rate)
    objective = bench.asked.objective
    if least.latency and least.refused:
        return f"whether {objective} is met at {least.rate:.4g}/s is not known: {least.refused}"
    return f"no rate down to {least.rate:.4g}/s meets {objective}: the delay or the service alone may be longer"
