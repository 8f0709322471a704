"""A server under a policy: its curve, its schedules, its runs, and what is told of latencies."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from inferprof import stats
from inferprof.documents.serving import Quantile, ServingPolicy
from inferprof.errors import UserError
from inferprof.queueing.policy import NS_PER_S, Curve, Policy, Times, schedule, traced
from inferprof.queueing.served import NS_PER_MS, policy_of
from inferprof.serving import load
from inferprof.serving.server import Server

SHOWN: Final = (50.0, 90.0, 95.0, 99.0)
WARM: Final = 0.1
"""Of the requests: the first ones, which find an emptier queue than later ones, count for nothing."""
LAG: Final = 0.01
"""Of the objective: a client that sends later than that at the 99th percentile is no open loop."""
LONGEST: Final = 4.0
"""So many times the seconds asked for a run may take until it can tell the percentile."""
CURVE_S: Final = 0.25
"""Seconds for each batch size of the curve, before each run."""


@dataclass
class Bench:
    """A server under a policy, with the samples of its curve so far."""

    server: Server
    asked: ServingPolicy
    samples: dict[int, list[float]]
    seed: int
    span: tuple[int, int] = (0, 0)
    """When the latest run was, ns of time.perf_counter_ns."""

    @property
    def policy(self) -> Policy:
        """As queueing has it."""
        return policy_of(self.asked)

    @property
    def objective_ns(self) -> float:
        """The latency objective."""
        return self.asked.slo_ms * NS_PER_MS

    def measure_curve(self) -> Curve:
        """The curve as it is now; its samples are kept for the record, too."""
        fresh = self.server.curve(CURVE_S)
        for size, samples in fresh.items():
            self.samples.setdefault(size, []).extend(samples)
        return Curve.of(fresh)

    def due(self, rate: float) -> Times:
        """The schedule at a rate: as long as asked, or until the objective's percentile can be told, if
        that is not far beyond it."""
        least = stats.samples_needed(self.asked.percentile / 100)
        seconds = max(self.asked.seconds, min(1.2 * least / (1 - WARM) / rate, LONGEST * self.asked.seconds))
        count = int(rate * seconds) + 1
        trace = trace_of(self.asked)
        due = schedule(self.asked.arrivals, rate, count, self.seed) if trace is None else traced(trace, rate, count)
        return due[due <= LONGEST * self.asked.seconds * NS_PER_S]

    def run(self, rate: float) -> tuple[load.Run, str | None]:
        """A run at a rate, and why its numbers may not be used, if so."""
        due = self.due(rate)
        if not due.size:
            return load.nothing(), f"no request is due in {LONGEST * self.asked.seconds:g} s: give it more `seconds`"
        begin = time.perf_counter_ns()
        measured = load.run(self.server.serve, self.policy, due)
        self.span = begin, time.perf_counter_ns()
        lag = float(np.quantile(measured.lag, 0.99)) if measured.lag.size else 0.0
        if lag > LAG * self.objective_ns:
            return measured, (
                f"the client sent late: {lag / NS_PER_MS:.3g} ms at p99, over {LAG:.0%} of the objective of "
                f"{self.asked.slo_ms:g} ms; leave it a core (`threads:` of the variant), and run nothing else here"
            )
        return measured, None


def trace_of(asked: ServingPolicy) -> Times | None:
    """The moments of the trace that a policy is sent; None where it is sent none."""
    kind, _, file = asked.arrivals.partition(":")
    return read_trace(Path(file)) if kind == "trace" else None


def read_trace(path: Path) -> Times:
    """The moments of a trace, s. Raises UserError where it is none."""
    try:
        moments = np.loadtxt(path, dtype=float, ndmin=1)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: no trace: a moment in seconds on each line ({error})") from None
    if moments.size < 2 or not np.isfinite(moments).all() or (np.diff(moments) < 0).any() or not np.ptp(moments):
        raise UserError(f"{path}: no trace: at least two moments in seconds, in ascending order")
    return moments


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
