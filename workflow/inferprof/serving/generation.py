"""A generative model under load: what is predicted of a policy by simulation, and what is told of its tokens.

The simulation (`queueing.tokens`) needs the times of steps, which are measured in the same process.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from inferprof.documents.serving import Predicted, Tokens
from inferprof.grouping import grouped
from inferprof.queueing import tokens as steps
from inferprof.queueing.advice import Advice, Lasting
from inferprof.queueing.policy import Curve, Times
from inferprof.queueing.seen import ENOUGH
from inferprof.queueing.tokens import Answered
from inferprof.serving import bench, load
from inferprof.serving.bench import FORESEEN, latency_of, percents_of, settled
from inferprof.serving.foreseen import Rehearsal
from inferprof.serving.server import Sampled
from inferprof.units import NS_PER_S

WARM_NEW: Final = 6
"""New tokens of each request where steps are timed."""
GAP: Final = 0.3
"""Of the median time between tokens: tokens that are further apart are of two steps."""
GRID: Final = 2
"""Steps are told apart by their tokens in so many sizes from one number to the double of it."""
CROWD: Final = 2
"""Times the largest batch: requests that come at once where steps are timed."""
SATURATED: Final = 20
"""Times the largest batch: requests that are there at once."""


@dataclass
class Bench(bench.Bench):
    """A generative model under a policy. Its curve is that of steps over their tokens; `server` is a Generator."""

    def measure_curve(self) -> Curve:
        """The times of steps: of those that read the prompts of a burst, and of those that decode behind them; of
        continuous batching, whose steps do both at once, also those of a load where more are there than it takes."""
        fresh: Sampled = {}
        for prompts in self.server.model.probes(self.asked.max_batch):
            intervals = np.array([np.diff(came) for came in self.server.burst(prompts, WARM_NEW)])
            fresh.setdefault(self.server.tokens_of(prompts), []).append(float(intervals[:, 0].max()))
            fresh.setdefault(len(prompts), []).extend(map(float, np.median(intervals[:, 1:], axis=0)))
        curve = Curve.of(fresh)
        if self.asked.policy == "continuous":
            curve = self._under_load(curve, self.sent(np.arange(1, CROWD * self.asked.max_batch + 1, dtype=float)))
        bench.add(self.samples, curve.times)
        return curve

    @property
    def rehearses(self) -> bool:
        """Of continuous batching; else a batch is by itself."""
        return self.asked.policy == "continuous"

    @property
    def parts(self) -> int:
        """One: the prompts of a run are drawn for all of it."""
        return 1

    def rehearsed(self, curve: Curve, trial: bench.Trial) -> Rehearsal:
        """The steps of the load for a while just before a run."""
        return Rehearsal(self._under_load(curve, trial.rehearsal) if trial.rehearsal else curve)

    def _under_load(self, curve: Curve, run: load.Run) -> Curve:
        """A curve with the times of the steps of a run. Those that it lacks are longer by the ratio of the rest."""
        seen = grouped(
            (round(2 ** (round(GRID * math.log2(tokens)) / GRID)), taken)
            for tokens, taken in steps_of(run, self.server.model.of(run.served.arrived.size).prompts)
        )
        enough = {tokens: np.array(taken) for tokens, taken in seen.items() if len(taken) >= ENOUGH}
        if not enough:
            return curve
        ratio = steps.slower(curve, enough)
        return Curve({**{tokens: ratio * times for tokens, times in curve.times.items()}, **Curve.of(enough).times})

    def capacity(self, curve: Curve) -> float:
        """Requests per second where so many are there at once that all steps are full."""
        answered = self._simulated(curve, np.zeros(SATURATED * self.asked.max_batch))
        return answered.first.size / float(answered.served.done.max()) * NS_PER_S

    def by_theory(self, curve: Curve, rate: float) -> Predicted:
        """By simulation of a long load."""
        return self._as_predicted(self._simulated(curve, self.schedule(rate, FORESEEN, self.seed + 1)))

    def predicted(self, rehearsal: Rehearsal, rate: float) -> Predicted:
        """The same of a rehearsal."""
        return self.by_theory(rehearsal.curve, rate)

    def advised(self, curve: Curve, rate: float) -> Advice | None:
        """No delay is advised."""
        return None

    def lasting(self, curve: Curve) -> Lasting:
        """What the objective is for over the rate, by simulation."""

        def at(rate: float) -> float:
            return self.percentile(curve, self.schedule(rate, FORESEEN, self.seed + 1))

        return Lasting.of(at, self.capacity(curve))

    def percentile(self, curve: Curve, due: Times) -> float:
        """What the objective is for, on a schedule, ns."""
        answered = self._simulated(curve, due)
        judged = settled(self._score(answered.ttft, answered.tpot))
        return float(np.quantile(judged, self.asked.percentile / 100))

    def level(self, curve: Curve, run: load.Run) -> None:
        """Not known: a batch has many steps."""
        return

    def sent(self, due: Times) -> load.Run:
        """What comes of a schedule."""
        run: load.Run = self.server.sent(due, self.core)
        return run

    def judged(self, run: load.Run) -> Times:
        """Of each request how far it is from its objectives, as a time to its first token: beyond slo_ms where it
        misses one of them."""
        return settled(self._score(*_ttft_tpot(run)))

    def _score(self, ttft: Times, tpot: Times) -> Times:
        tpot_ms = self.asked.tpot_ms
        return np.maximum(ttft, tpot * self.asked.slo_ms / tpot_ms) if tpot_ms else ttft

    def replayed(self, curve: Curve, due: Times) -> Predicted:
        """What this very schedule comes to by simulation."""
        return self._as_predicted(self._simulated(curve, due))

    def explained(
        self, rehearsal: Rehearsal, run: load.Run, rate: float, predicted: Predicted | None
    ) -> dict[str, Any]:
        """Not known: a batch has many steps."""
        return {}

    def formed(self, run: load.Run) -> dict[int, int]:
        """New tokens of a step → steps."""
        sizes, counts = np.unique(_steps(run), return_counts=True)
        return {int(size): int(count) for size, count in zip(sizes, counts, strict=True)}

    def tokens(self, run: load.Run) -> Tokens | None:
        """What requests saw of their tokens."""
        ttft, tpot = _ttft_tpot(run)
        percents = percents_of(self.asked)
        seconds = float(run.served.done.max()) / NS_PER_S
        good = self._score(ttft, tpot) <= self.objective_ns
        made = _steps(run)
        return Tokens(
            ttft=latency_of(settled(ttft), percents),
            tpot=latency_of(settled(tpot), percents),
            itl=latency_of(np.concatenate([np.diff(came) for came in settled_runs(run)]), percents),
            per_s=int(made.sum()) / seconds,
            good_per_s=int(good.sum()) / seconds,
            good_share=float(good.mean()),
            steps=made.size,
            per_step=float(made.mean()),
        )

    # --- simulation ------------------------------------------------------------------------------------------------

    def _simulated(self, curve: Curve, due: Times) -> Answered:
        lengths = self.server.model.of(due.size)
        if self.asked.policy == "continuous":
            return steps.continuous(curve, self.asked.max_batch, self.asked.budget or 0, due, lengths)
        return steps.static(curve, self.policy, due, lengths)

    def _as_predicted(self, answered: Answered) -> Predicted:
        percents = percents_of(self.asked)
        latency, ttft, tpot = (
            {name: each.value_ns for name, each in latency_of(settled(times), percents).items()}
            for times in (answered.served.latency, answered.ttft, answered.tpot)
        )
        made = int(answered.answers.sum()) / answered.steps
        used = answered.served.utilization
        return Predicted(latency=latency, ttft=ttft, tpot=tpot, utilization=used, mean_batch=made)


def _ttft_tpot(run: load.Run) -> tuple[Times, Times]:
    first = np.array([came[0] for came in run.tokens])
    last = np.array([came[-1] for came in run.tokens])
    count = np.array([came.size for came in run.tokens])
    return first - run.served.arrived, (last - first) / (count - 1)


def steps_of(run: load.Run, prompts: steps.Counts) -> Iterator[tuple[int, float]]:
    """The tokens of each step, those of prompts too, and how long it took, ns: of the steps that followed at once,
    since a request has a token in both."""
    if not run.tokens:
        return
    came = np.concatenate(run.tokens)
    owner = np.repeat(np.arange(len(run.tokens)), [own.size for own in run.tokens])
    first = np.concatenate([np.arange(own.size) == 0 for own in run.tokens])
    order = np.argsort(came)
    gaps = np.concatenate([np.diff(own) for own in run.tokens])
    step = np.cumsum(np.diff(came[order], prepend=came[order][0]) > GAP * np.median(gaps))
    before, ended = set[int](), 0.0
    for place in range(int(step[-1]) + 1):
        own = order[step == place]
        owners, end = set(owner[own].tolist()), float(came[own].max())
        if owners & before:
            yield int((~first[own]).sum() + prompts[owner[own[first[own]]]].sum()), end - ended
        before, ended = owners, end


def settled_runs(run: load.Run) -> Sequence[Times]:
    """The tokens of the requests but the first ones."""
    return run.tokens[int(bench.WARM * len(run.tokens)) :]


def _steps(run: load.Run) -> np.ndarray[Any, np.dtype[np.int64]]:
    """How many tokens each step made: those that came close to each other."""
    came = np.sort(np.concatenate(run.tokens))
    gaps = np.concatenate([np.diff(each) for each in run.tokens])
    apart = np.flatnonzero(np.diff(came) > GAP * np.median(gaps)) + 1
    return np.diff(np.concatenate([[0], apart, [came.size]]))
