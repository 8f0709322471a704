"""A server under a policy: its curve, its schedules, its runs, and what is told of latencies."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np

from inferprof import stats
from inferprof.documents.serving import Predicted, Quantile, ServingPolicy, Tokens
from inferprof.queueing import advice, seen, theory
from inferprof.queueing.policy import (
    Curve,
    Policy,
    Samples,
    Times,
    apart,
    pieces,
    policy_of,
    schedule,
    trace_of,
    traced,
)
from inferprof.queueing.seen import Batches
from inferprof.queueing.simulate import Served, simulate
from inferprof.serving import foreseen, load
from inferprof.serving.foreseen import Rehearsal
from inferprof.serving.server import Sampled
from inferprof.units import NS_PER_MS, NS_PER_S

SHOWN: Final = (50.0, 90.0, 95.0, 99.0)
WARM: Final = 0.1
"""Of the requests: the first ones, which find an emptier queue than later ones, count for nothing."""
MARGIN: Final = 1.2  # of the requests that tell a percentile, since a schedule may bring fewer
LAG: Final = 0.01
"""Of the objective: a client that sends later than that at the 99th percentile is no open loop."""
LONGEST: Final = 4.0
"""So many times the seconds asked for a run may take until it can tell the percentile."""
CURVE_S: Final = 0.1
"""Seconds for each batch size of the curve, before each run."""
FORESEEN: Final = 4000
"""Requests of a simulation of what lasts for ever."""
OTHER: Final = 1000
"""Between the seeds of schedules that follow each other: those between are the interval's."""
PACED: Final = 0.5
"""Of the seconds of a run: how long it is rehearsed."""
PART_S: Final = 2.0
"""Seconds of a part of a run, each of which follows a part of the rehearsal. Parts of 2 s that begin with an empty
queue have the latencies of one long run: by 300 simulations at 0.9 of the capacity within 0.2 %."""


@dataclass(frozen=True)
class Trial:
    """A rate that was rehearsed and run, in parts that take turns."""

    run: load.Run
    rehearsal: load.Run | None
    """None of what needs no rehearsal."""
    refused: str | None
    """Why the numbers may not be used, if so."""
    span_ns: tuple[int, int]
    """When it was, by time.perf_counter_ns."""

    @property
    def answered(self) -> int:
        """Requests, those of the rehearsal too."""
        return sum(each.served.arrived.size for each in (self.run, self.rehearsal) if each)


@dataclass
class Bench:
    """A server under a policy, with the samples of its curve so far."""

    server: Any
    """A server.Server; of a generative model one of generators."""
    asked: ServingPolicy
    samples: Sampled
    seed: int
    after_idle: Sampled = field(default_factory=dict)
    core: int | None = None
    """The client's CPU; any unless given."""
    changes: list[float] = field(default_factory=list)
    """By how much the machine's speed moved so far, logarithms: within a rehearsal, and from one to its run."""

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

    def rehearsed(self, curve: Curve, trial: Trial) -> Rehearsal:
        """The curve in the rhythm of a rate: its load by another schedule, between the parts of the run.

        Caches and clocks cool down in a pause and behind batches of other sizes, and the client and the queue take
        time of the host: under load a batch costs more than one that is repeated. What is rare there costs more by
        the same ratio as the rest.
        """
        assert trial.rehearsal is not None
        batches = Batches.of(trial.rehearsal.served, self.policy).after(WARM)
        rehearsal = Rehearsal(batches.curve(curve, batches.taken), batches, curve, self.parts)
        busy, idle = batches.sampled(curve, batches.taken)
        add(self.samples, busy)
        add(self.after_idle, idle)
        self.changes.append(rehearsal.change)
        return rehearsal

    def pooled(self) -> Curve:
        """All samples so far."""
        return Curve.of(self.samples, self.after_idle)

    def capacity(self, curve: Curve) -> float:
        """Requests per second that full batches carry."""
        return curve.capacity(self.asked.max_batch)

    def by_theory(self, curve: Curve, rate: float) -> Predicted | None:
        """By the embedded chain; None where it does not know the arrivals, and for a rate beyond its capacity."""
        if self.asked.arrivals != "poisson":
            return None
        try:
            return foreseen.by_theory(curve, self.policy, rate, percents_of(self.asked))
        except theory.Unstable:  # slower in its rhythm than when it is repeated
            return None

    def predicted(self, rehearsal: Rehearsal, rate: float) -> Predicted | None:
        """The same of a rehearsal, with the interval of a run as long as its own."""
        lasting = self.by_theory(rehearsal.curve, rate)
        if lasting is None:
            return None
        count = self.due(rate).size
        schedules = [
            apart(self.schedule(rate, count, self.seed + 2 + number), self.parts)
            for number in range(foreseen.REPLICAS)
        ]
        between = foreseen.intervals(rehearsal, self.policy, schedules, self.figures, self.changes)
        return msgspec.structs.replace(lasting, intervals=between)

    def advised(self, curve: Curve, rate: float) -> advice.Advice | None:
        """The delay to set at a rate; None where theory does not know that."""
        if self.asked.arrivals != "poisson":
            return None
        try:
            return advice.best_delay(curve, self.asked.max_batch, rate, self.asked.percentile)
        except theory.Unstable:
            return None

    def lasting(self, curve: Curve) -> advice.Lasting:
        """What the objective is for over the rate, under loads that last for ever."""

        def at(rate: float) -> float:
            if self.asked.arrivals == "poisson":
                return theory.predict(curve, self.policy, rate).percentile(self.asked.percentile)
            return self.percentile(curve, self.schedule(rate, FORESEEN, self.seed + 1))

        return advice.Lasting.of(at, self.capacity(curve))

    def percentile(self, curve: Curve, due: Times) -> float:
        """What the objective is for, on a schedule: the mean of several runs by simulation, ns."""
        runs = (simulate(curve, self.policy, due, number) for number in range(foreseen.REPLAYS))
        return float(np.mean([np.quantile(settled(run.latency), self.asked.percentile / 100) for run in runs]))

    # --- a run -----------------------------------------------------------------------------------------------------

    def due(self, rate: float, other: int = 0) -> Times:
        """The schedule at a rate: as long as asked, or until the objective's percentile can be told, if
        that is not far beyond it."""
        least = stats.samples_needed(self.asked.percentile / 100)
        seconds = max(self.asked.seconds, min(MARGIN * least / (1 - WARM) / rate, LONGEST * self.asked.seconds))
        due = self.schedule(rate, int(rate * seconds) + 1, self.seed + OTHER * other)
        return due[due <= LONGEST * self.asked.seconds * NS_PER_S]

    def schedule(self, rate: float, count: int, seed: int) -> Times:
        """So many requests at a rate."""
        trace = trace_of(self.asked)
        return schedule(self.asked.arrivals, rate, count, seed) if trace is None else traced(trace, rate, count)

    @property
    def parts(self) -> int:
        """In how many parts a rate is rehearsed and run."""
        return max(1, int(self.asked.seconds // PART_S))

    @property
    def rehearses(self) -> bool:
        """Whether a service under load takes another time than one that is repeated."""
        return True

    def trial(self, rate: float) -> Trial:
        """Rehearse and run a rate. The parts take turns: a machine whose speed changes changes it for both."""
        due = self.due(rate)
        other = self.schedule(rate, int(rate * PACED * self.asked.seconds) + 1, self.seed + 1)
        rehearsals, runs = list[load.Run](), list[load.Run]()
        begin = time.perf_counter_ns()
        for rehearsed, own in zip(pieces(other, self.parts), pieces(due, self.parts), strict=True):
            if self.rehearses and rehearsed.size:
                rehearsals.append(self.sent(rehearsed))
            if own.size:
                runs.append(self.sent(own))
                if not runs[-1].kept_up:
                    break
        span = begin, time.perf_counter_ns()
        run = load.joined(runs, due.size)
        rehearsal = load.joined(rehearsals, other.size) if rehearsals else None
        return Trial(run, rehearsal, self.refusal(run), span)

    def run(self, rate: float, other: int = 0) -> tuple[load.Run, str | None]:
        """A run at a rate, and why its numbers may not be used, if so; other: with the arrivals of that number."""
        due = self.due(rate, other)
        run = self.sent(due) if due.size else load.joined([], 0)
        return run, self.refusal(run)

    def refusal(self, run: load.Run) -> str | None:
        """Why the numbers of a run may not be used; None where they may."""
        if not run.asked:
            return f"no request is due in {LONGEST * self.asked.seconds:g} s: give it more `seconds` (--seconds)"
        lag = float(np.quantile(run.lag, 0.99)) if run.lag.size else 0.0
        if lag <= LAG * self.objective_ns:
            return None
        core = "" if self.asked.client_core else "keep it a CPU (`client_core: true`, --client-core), and "
        return (
            f"the client sent late: {lag / NS_PER_MS:.3g} ms at p99, over {LAG:.0%} of the objective of "
            f"{self.asked.slo_ms:g} ms; {core}run nothing else here"
        )

    def sent(self, due: Times) -> load.Run:
        """What comes of a schedule."""
        return load.run(self.server.serve, self.policy, due, self.core)

    # --- behind it -------------------------------------------------------------------------------------------------

    def judged(self, run: load.Run) -> Times:
        """Of each request what the objective is for, ns."""
        return settled(run.served.latency)

    def level(self, curve: Curve, run: load.Run) -> float | None:
        """The logarithm of what batches of a run took over what they take by a curve."""
        own = Batches.of(run.served, self.policy).after(WARM)
        return math.log(_slower(own, curve)) if own.size.size else None

    def told(self, run: load.Run) -> dict[str, Quantile]:
        """Mean and percentiles of the latency of a run in parts, with their intervals."""
        return latency_of(settled(run.served.latency, self.parts), percents_of(self.asked))

    def figures(self, served: Served) -> foreseen.Figures:
        """The same of a simulated one, without intervals."""
        return foreseen.figures(settled(served.latency, self.parts), percents_of(self.asked))

    def replayed(self, curve: Curve, due: Times) -> Predicted:
        """What this very schedule comes to by simulation."""
        return foreseen.replayed(curve, self.policy, due, self.figures, self.seed)

    def explained(
        self, rehearsal: Rehearsal, run: load.Run, rate: float, predicted: Predicted | None
    ) -> dict[str, Any]:
        """Of a run, beside its rehearsal: what its batches took, and what lies between prediction and measurement."""
        own = Batches.of(run.served, self.policy).after(WARM)
        if not own.size.size:
            return {}
        factors, drift = own.factors(rehearsal.curve, own.taken), _slower(own, rehearsal.curve)
        self.changes.append(math.log(drift))
        latency = self.told(run)
        correlation, independent = seen.correlation(factors) or (None, None)
        why = foreseen.explained(
            rehearsal, own, lambda curve: self.replayed(curve, run.served.arrived), latency, predicted
        )
        return {
            "drift": drift,
            "late_ns": max(0.0, float(own.late.mean())),
            "correlation": correlation,
            "independent": independent,
            "seen": why.seen,
            "gaps": why.gaps,
        }

    def formed(self, run: load.Run) -> dict[int, int]:
        """Size of a batch → how many were formed."""
        return run.served.formed

    def tokens(self, run: load.Run) -> Tokens | None:
        """What requests saw of their tokens; a model without any has none."""
        return None


def _slower(batches: Batches, curve: Curve) -> float:
    return float(batches.taken.sum() / (batches.taken / batches.factors(curve, batches.taken)).sum())


def now() -> int:
    """ns of the clock that all moments are of."""
    return time.perf_counter_ns()


def add(samples: Sampled, fresh: Samples) -> None:
    """Put samples to those that there are."""
    for size, taken in fresh.items():
        samples.setdefault(size, []).extend(map(float, taken))


def settled(latency: Times, parts: int = 1) -> Times:
    """Without the first ones of each part."""
    return np.concatenate([part[int(WARM * part.size) :] for part in np.array_split(latency, parts)])


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
