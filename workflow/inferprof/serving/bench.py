"""A server under a policy: its curve, its schedules, its runs, and what is told of latencies."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from inferprof import stats
from inferprof.documents.serving import Predicted, Quantile, ServingPolicy, Tokens
from inferprof.queueing import advice, theory
from inferprof.queueing.policy import NS_PER_S, Curve, Policy, Samples, Times, schedule, traced
from inferprof.queueing.served import NS_PER_MS, policy_of, trace_of
from inferprof.queueing.simulate import Served, simulate
from inferprof.serving import load
from inferprof.serving.server import Sampled

SHOWN: Final = (50.0, 90.0, 95.0, 99.0)
WARM: Final = 0.1
"""Of the requests: the first ones, which find an emptier queue than later ones, count for nothing."""
LAG: Final = 0.01
"""Of the objective: a client that sends later than that at the 99th percentile is no open loop."""
LONGEST: Final = 4.0
"""So many times the seconds asked for a run may take until it can tell the percentile."""
CURVE_S: Final = 0.1
"""Seconds for each batch size of the curve, before each run."""
PACED: Final = 0.5
"""Of the seconds of a run: how long the curve is measured in its rhythm."""
ENOUGH: Final = 5
"""Batches of a size in that time whose mean is taken for it."""


@dataclass
class Bench:
    """A server under a policy, with the samples of its curve so far."""

    server: Any
    """A server.Server; of a generative model one of generators."""
    asked: ServingPolicy
    samples: Sampled
    seed: int
    span: tuple[int, int] = (0, 0)
    """When the latest run was, ns of time.perf_counter_ns."""
    after_idle: Sampled = field(default_factory=dict)

    @property
    def policy(self) -> Policy:
        """As queueing has it."""
        return policy_of(self.asked)

    @property
    def objective_ns(self) -> float:
        """The latency objective."""
        return self.asked.slo_ms * NS_PER_MS

    # --- before a run ----------------------------------------------------------------------------------------------

    def measure_curve(self) -> Curve:
        """The curve as it is now, of batches that follow each other; its samples are kept for the record, too."""
        fresh = self.server.curve(CURVE_S)
        add(self.samples, fresh)
        return Curve.of(fresh)

    def paced(self, curve: Curve, rate: float) -> Curve:
        """The curve in the rhythm of a rate: the batches that are foreseen there, with the pauses between them.

        Caches and clocks cool down in a pause, and behind batches of other sizes, so that a service under load takes
        longer than one that is repeated. What is rare there takes longer by the same ratio as the rest.
        """
        seconds = PACED * self.asked.seconds
        foreseen = simulate(curve, self.policy, self.schedule(rate, int(2 * rate * seconds) + 2, self.seed + 1))
        busy, idle = self.server.paced(batches_of(foreseen), seconds)
        times = _completed(busy, curve)
        after_idle = _completed(idle, Curve.of(times))
        add(self.samples, busy)
        add(self.after_idle, after_idle)
        return Curve.of(times, after_idle)

    def pooled(self) -> Curve:
        """All samples so far."""
        return Curve.of(self.samples, self.after_idle)

    def capacity(self, curve: Curve) -> float:
        """Requests per second that full batches carry."""
        return curve.capacity(self.asked.max_batch)

    def predicted(self, curve: Curve, rate: float) -> Predicted | None:
        """By theory; None where it does not know the arrivals. Raises theory.Unstable."""
        foreseen = theory.predict(curve, self.policy, rate)
        if self.asked.arrivals != "poisson":
            return None
        percents = percents_of(self.asked)
        latency = {"mean": foreseen.mean_ns, **{name_of(each): foreseen.percentile(each) for each in percents}}
        return Predicted(latency=latency, utilization=foreseen.utilization, mean_batch=foreseen.mean_batch)

    def advised(self, curve: Curve, rate: float) -> advice.Advice | None:
        """The delay to set at a rate."""
        if self.asked.arrivals != "poisson":
            return None
        return advice.best_delay(curve, self.asked.max_batch, rate, self.asked.percentile)

    def foreseen_rate(self, curve: Curve) -> float | None:
        """The highest rate that meets the objective, by theory."""
        return advice.highest_rate(curve, self.policy, self.objective_ns, self.asked.percentile)

    # --- a run -----------------------------------------------------------------------------------------------------

    def due(self, rate: float) -> Times:
        """The schedule at a rate: as long as asked, or until the objective's percentile can be told, if
        that is not far beyond it."""
        least = stats.samples_needed(self.asked.percentile / 100)
        seconds = max(self.asked.seconds, min(1.2 * least / (1 - WARM) / rate, LONGEST * self.asked.seconds))
        due = self.schedule(rate, int(rate * seconds) + 1, self.seed)
        return due[due <= LONGEST * self.asked.seconds * NS_PER_S]

    def schedule(self, rate: float, count: int, seed: int) -> Times:
        """So many requests at a rate."""
        trace = trace_of(self.asked)
        return schedule(self.asked.arrivals, rate, count, seed) if trace is None else traced(trace, rate, count)

    def run(self, rate: float) -> tuple[load.Run, str | None]:
        """A run at a rate, and why its numbers may not be used, if so."""
        due = self.due(rate)
        if not due.size:
            return load.nothing(), f"no request is due in {LONGEST * self.asked.seconds:g} s: give it more `seconds`"
        begin = time.perf_counter_ns()
        measured = self.sent(due)
        self.span = begin, time.perf_counter_ns()
        lag = float(np.quantile(measured.lag, 0.99)) if measured.lag.size else 0.0
        if lag > LAG * self.objective_ns:
            return measured, (
                f"the client sent late: {lag / NS_PER_MS:.3g} ms at p99, over {LAG:.0%} of the objective of "
                f"{self.asked.slo_ms:g} ms; leave it a core (`threads:` of the variant), and run nothing else here"
            )
        return measured, None

    def sent(self, due: Times) -> load.Run:
        """What comes of a schedule."""
        return load.run(self.server.serve, self.policy, due)

    # --- behind it -------------------------------------------------------------------------------------------------

    def judged(self, run: load.Run) -> Times:
        """Of each request what the objective is for, ns."""
        return settled(run.served.latency)

    def replayed(self, curve: Curve, due: Times) -> Predicted:
        """What this very schedule comes to by simulation."""
        replay = simulate(curve, self.policy, due, self.seed)
        latency = latency_of(settled(replay.latency), percents_of(self.asked))
        return Predicted(
            latency={name: each.value_ns for name, each in latency.items()},
            utilization=replay.utilization,
            mean_batch=replay.arrived.size / sum(replay.formed.values()),
        )

    def drift(self, curve: Curve, run: load.Run) -> float | None:
        """Service times of a run over those of the curve for the same batches."""
        return _service(run.served) / sum(curve.mean(size, idle=gap > 0) for size, gap in batches_of(run.served))

    def formed(self, run: load.Run) -> dict[int, int]:
        """Size of a batch → how many were formed."""
        return run.served.formed

    def tokens(self, run: load.Run) -> Tokens | None:
        """What requests saw of their tokens; a model without any has none."""
        return None


def batches_of(served: Served) -> list[tuple[int, float]]:
    """The batches of a run: their sizes, and how long the server had waited for each, ns."""
    if not served.started.size:
        return []
    firsts = np.flatnonzero(np.concatenate([[True], np.diff(served.started) > 0]))
    gaps = served.started[firsts] - np.concatenate([[0.0], served.done[firsts][:-1]])
    return list(zip(served.batch[firsts].tolist(), gaps.tolist(), strict=True))


def _service(served: Served) -> float:
    firsts = np.concatenate([[True], np.diff(served.started) > 0])
    return float((served.done - served.started)[firsts].sum())


def now() -> int:
    """ns of the clock that all moments are of."""
    return time.perf_counter_ns()


def add(samples: Sampled, fresh: Samples) -> None:
    """Put samples to those that there are."""
    for size, taken in fresh.items():
        samples.setdefault(size, []).extend(map(float, taken))


def _completed(seen: Sampled, curve: Curve) -> dict[int, Times]:
    """Samples of every size of a curve: where there are too few, its own, longer by the ratio that the others are."""
    enough = {size: np.array(taken) for size, taken in seen.items() if len(taken) >= ENOUGH}
    expected = sum(curve.mean(size) * taken.size for size, taken in enough.items())
    ratio = sum(float(taken.sum()) for taken in enough.values()) / expected if enough else 1.0
    return {size: enough.get(size, ratio * times) for size, times in curve.times.items()}


def settled(latency: Times) -> Times:
    """Without the first ones."""
    return latency[int(WARM * latency.size) :]


def latency_of(latency: Times, percents: Sequence[float]) -> dict[str, Quantile]:
    """Mean and percentiles of latencies in the order of arrival; a percentile with too few requests is left out.

    The mean's interval is Student's over the means of consecutive blocks, since neighbours share a queue.
    """
    from scipy import stats as student

    blocks = [block.mean() for block in np.array_split(latency, min(stats.BLOCKS, latency.size))]
    half = student.t.ppf(0.975, len(blocks) - 1) * student.sem(blocks) if len(blocks) == stats.BLOCKS else None
    mean = float(latency.mean())
    values = {"mean": Quantile(value_ns=mean, **({} if half is None else _around(mean, half)))}
    for percent in percents:
        if latency.size >= stats.samples_needed(percent / 100):
            low, high = stats.quantile_interval(latency, percent / 100) or (None, None)
            values[name_of(percent)] = Quantile(
                value_ns=float(np.quantile(latency, percent / 100)), low_ns=low, high_ns=high
            )
    return values


def _around(value: float, half: float) -> dict[str, float]:
    return {"low_ns": max(0.0, value - float(half)), "high_ns": value + float(half)}


def name_of(percent: float) -> str:
    """`p99`, `p99.9`."""
    return f"p{percent:g}"


def percents_of(asked: ServingPolicy) -> list[float]:
    """The percentiles that are told."""
    return sorted({*SHOWN, asked.percentile})
