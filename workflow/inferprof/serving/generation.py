"""A generative model under load: what is predicted of a policy by simulation, and what is told of its tokens.

The simulation (`queueing.tokens`) needs the times of steps, which are measured in the same process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from inferprof.documents.serving import Predicted, Tokens
from inferprof.queueing import tokens
from inferprof.queueing.advice import Advice, Lasting
from inferprof.queueing.policy import NS_PER_S, Curve, Times
from inferprof.queueing.tokens import Answered
from inferprof.serving import bench, load
from inferprof.serving.bench import FORESEEN, latency_of, percents_of, settled
from inferprof.serving.foreseen import Rehearsal
from inferprof.serving.server import Sampled

WARM_NEW: Final = 6
"""New tokens of each request where steps are timed."""
GAP: Final = 0.3
"""Of the median time between tokens: tokens that are further apart are of two steps."""
SATURATED: Final = 20
"""Times the largest batch: requests that are there at once."""


@dataclass
class Bench(bench.Bench):
    """A generative model under a policy. Its curve is that of steps over their tokens; `server` is a Generator."""

    def measure_curve(self) -> Curve:
        """The times of steps: of those that read the prompts of a burst, and of those that decode behind them."""
        fresh: Sampled = {}
        for prompts in self.server.model.probes(self.asked.max_batch):
            intervals = np.array([np.diff(came) for came in self.server.burst(prompts, WARM_NEW)])
            fresh.setdefault(self.server.tokens_of(prompts), []).append(float(intervals[:, 0].max()))
            fresh.setdefault(len(prompts), []).extend(map(float, np.median(intervals[:, 1:], axis=0)))
        bench.add(self.samples, fresh)
        return Curve.of(fresh)

    def rehearse(self, curve: Curve, rate: float) -> Rehearsal:
        """The same: steps follow each other."""
        return Rehearsal(curve)

    def capacity(self, curve: Curve) -> float:
        """Requests per second where so many are there at once that all steps are full."""
        answered = self._simulated(curve, np.zeros(SATURATED * self.asked.max_batch))
        return answered.first.size / float(answered.served.done.max()) * NS_PER_S

    def by_theory(self, curve: Curve, rate: float) -> None:
        """No theory knows of prompts and answers."""
        return

    def predicted(self, rehearsal: Rehearsal, rate: float) -> Predicted:
        """By simulation of a long load."""
        return self._as_predicted(self._simulated(rehearsal.curve, self.schedule(rate, FORESEEN, self.seed + 1)))

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
        run: load.Run = self.server.sent(due)
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
        steps = _steps(run)
        return Tokens(
            ttft=latency_of(settled(ttft), percents),
            tpot=latency_of(settled(tpot), percents),
            itl=latency_of(np.concatenate([np.diff(came) for came in settled_runs(run)]), percents),
            per_s=int(steps.sum()) / seconds,
            good_per_s=int(good.sum()) / seconds,
            good_share=float(good.mean()),
            steps=steps.size,
            per_step=float(steps.mean()),
        )

    # --- simulation ------------------------------------------------------------------------------------------------

    def _simulated(self, curve: Curve, due: Times) -> Answered:
        lengths = self.server.model.of(due.size)
        if self.asked.policy == "continuous":
            return tokens.continuous(curve, self.asked.max_batch, self.asked.budget or 0, due, lengths)
        return tokens.static(curve, self.policy, due, lengths)

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


def settled_runs(run: load.Run) -> Sequence[Times]:
    """The tokens of the requests but the first ones."""
    return run.tokens[int(bench.WARM * len(run.tokens)) :]


def _steps(run: load.Run) -> np.ndarray[Any, np.dtype[np.int64]]:
    """How many tokens each step made: those that came close to each other."""
    came = np.sort(np.concatenate(run.tokens))
    gaps = np.concatenate([np.diff(each) for each in run.tokens])
    apart = np.flatnonzero(np.diff(came) > GAP * np.median(gaps)) + 1
    return np.diff(np.concatenate([[0], apart, [came.size]]))
