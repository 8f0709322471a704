"""What a search holds while it is replayed, and what it tells of its steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from inferprof.best import duel, space
from inferprof.best.rounds import CONFIRM, Rounds, first_round
from inferprof.best.space import Spot
from inferprof.best.trail import same
from inferprof.documents.diagnosed import PLANNED
from inferprof.documents.trail import Decision, Ended, Idea, Step, Trail, last_duel
from inferprof.findings import Finding
from inferprof.study import Study

S_PER_MIN: Final = 60
SIGMAS: Final = 2.0
"""How far from its rounds a case may be."""
SPREAD: Final = 0.01
"""By how much processes of a case differ, as a standard deviation of logarithms, as long as few were repeated."""
REPEATED: Final = 6
"""Rounds of cases with several that tell it."""
QUIET: Final = 0.002
"""By how much they differ at least."""
OF_MAD: Final = 1.4826
"""The standard deviation of normal values over the median of their distances from the middle."""


@dataclass
class Standing:
    """The times of cases over that of the baseline, by rounds beside those of whatever was the incumbent then."""

    incumbent: str
    rounds: dict[str, int] = field(default_factory=dict)
    """By how many rounds a candidate is known."""
    _levels: dict[str, float] = field(default_factory=dict)
    _weights: dict[str, float] = field(default_factory=dict)
    """Candidate → by how much its ratio may be off, in spreads of one process."""
    _logs: dict[tuple[str, str], np.ndarray[Any, Any]] = field(default_factory=dict)
    """Case and what its rounds were for → the logarithms of these, beside this incumbent."""

    def __post_init__(self) -> None:
        self._levels[self.incumbent] = 1.0

    def heard(self, case: str, purpose: str, medians: Sequence[float]) -> None:
        """Remember by how much rounds of a case differ."""
        self._logs[case, purpose] = np.log(np.array(medians))

    def screen(self, candidate: str, own: Sequence[float], other: Sequence[float]) -> None:
        """Place a candidate by the incumbent's own rounds and by its."""
        self.heard(self.incumbent, "screen", own)
        self.heard(candidate, "screen", other)
        ratio = math.exp(float(np.median(np.log(other)) - np.median(np.log(own))))
        self._levels[candidate] = self._level * ratio
        self._weights[candidate] = math.sqrt(1 / len(own) + 1 / len(other))
        self.rounds[candidate] = len(other)

    def succeed(self, candidate: str, gain: float) -> None:
        """A candidate is the incumbent from now on. gain: the share of the incumbent's time that it saves."""
        self._levels[candidate] = self._level * (1 - gain)
        self.incumbent = candidate
        self._logs = {key: logs for key, logs in self._logs.items() if key[0] == candidate}

    def ratio(self, candidate: str) -> float:
        """A candidate's time over the incumbent's."""
        return self._levels[candidate] / self._level

    def over(self, candidate: str, other: str) -> float:
        """A candidate's time over another one's."""
        return self._levels[candidate] / self._levels[other]

    def knows(self, candidate: str) -> bool:
        """Whether rounds of it were seen."""
        return candidate in self._levels

    def promise(self, candidate: str) -> float:
        """The share of the incumbent's time that may go with a candidate."""
        return 1 - self.ratio(candidate) * math.exp(-self._off(candidate))

    def sure(self, candidate: str) -> float:
        """The share of the incumbent's time that goes with a candidate at the least."""
        return 1 - self.ratio(candidate) * math.exp(self._off(candidate))

    def spread(self) -> float:
        """By how much processes of a case differ here, as a standard deviation that a few slow ones do not move."""
        off = list(self._deviations())
        if not off:
            return SPREAD
        return max(QUIET if len(off) >= REPEATED else SPREAD, OF_MAD * float(np.median(np.abs(off))))

    def _deviations(self) -> Iterator[float]:
        for logs in self._logs.values():
            if (n := len(logs)) > 1:
                yield from (logs - logs.mean()) * math.sqrt(n / (n - 1))

    @property
    def _level(self) -> float:
        return self._levels[self.incumbent]

    def _off(self, candidate: str) -> float:
        """By how much the logarithm of a candidate's ratio may be off."""
        return SIGMAS * self.spread() * self._weights[candidate]


@dataclass
class Account:
    """The state of a search for a model on a machine."""

    study: Study
    results: Path
    model: str
    steps: list[Step] = field(default_factory=list)
    left: dict[str, Spot] = field(default_factory=dict)
    """Measured for a round, and neither kept nor dropped yet."""
    beside: dict[str, tuple[Spot, float]] = field(default_factory=dict)
    """Candidate → the incumbent that its first rounds were beside, and the share of its time that they save."""
    seen: set[str] = field(default_factory=set)
    in_vain: set[frozenset[tuple[str, str, str]]] = field(default_factory=set)
    """space.changed of what did not help."""
    late: bool = False
    """Whether there was no time to measure all that it wanted."""
    advice: dict[str, list[tuple[str, Finding]]] = field(default_factory=dict)
    operators: dict[Path, frozenset[str] | None] = field(default_factory=dict)
    """What lists the nodes of a graph → its operators, read once; None where they are not known."""

    def __post_init__(self) -> None:
        asked = self.study.best
        self.shape = space.home(self.study, self.model)
        self.budget_s = S_PER_MIN * float(asked["budget_min"])
        self.tolerance = float(asked["tolerance"])
        self.rule = duel.Rule(wanted=self.tolerance, least=min(duel.USUAL.least, self.tolerance / 3))
        slug = self.study.machine.slug
        limit_s = float(self.study.protocol["limit_s"])
        self.rounds = Rounds(self.results, slug, asked["boundary"], limit_s, asked["per"] == "item")
        self.baseline = space.baseline(self.study, self.model, self.shape)
        self.best = self.baseline
        self.seen.add(self.baseline.name)
        self.standing = Standing(self.baseline.name)

    def step(self, sides: tuple[Spot, Spot], decision: Decision, reason: str) -> Step:
        """A step beside what was predicted of it."""
        step = Step(incumbent=sides[0].name, candidate=sides[1].name, decision=decision, reason=reason)
        if self.rounds.samples(sides[0], 0):
            step.incumbent_ns = self.rounds.latency_ns(sides[0], 0)
        for check, finding in self.advice.get(sides[0].name, ()):
            gain = space.predicted([finding], *sides)
            if gain and (step.predicted is None or gain.high_ns > step.predicted.high_ns):
                step.predicted, step.check = gain, check
        return step

    def drop(self, spot: Spot, reason: str, decision: Decision = "dropped") -> None:
        """Leave a candidate that no round tells of."""
        self.steps.append(self.step((self.best, spot), decision, reason))

    def drop_screened(self, spot: Spot, reason: str, decision: Decision = "dropped") -> None:
        """Leave one for what its first rounds say, beside what was the incumbent then."""
        incumbent, gain = self.beside[spot.name]
        step = self.step((incumbent, spot), decision, reason)
        step.gain, step.rounds = gain, self.standing.rounds[spot.name]
        self.steps.append(step)

    def why(self) -> tuple[Ended, str]:
        """Why the search ends where nothing is left that promises enough."""
        least = max(self.rule.least, SIGMAS * self.standing.spread() * math.sqrt(2 / self.rule.looks[-1]))
        most = max(map(self.standing.promise, self.left), default=0.0)
        for spot in list(self.left.values()):
            self.drop_screened(spot, f"it promises at most {self.standing.promise(spot.name):.1%}")
        if self.late:
            return self.out_of_time()
        if most > least:
            return (
                "tolerance",
                f"what is left promises at most {most:.1%}, less than the tolerance of {self.tolerance:.1%}",
            )
        return "nothing promises more", f"nothing promises more than {least:.1%}, which is the least that can be told"

    def out_of_time(self) -> tuple[Ended, str]:
        """Why the search ends where its budget is spent."""
        spent, budget = (seconds / S_PER_MIN for seconds in (self.rounds.spent_s, self.budget_s))
        return "budget", f"of {budget:.3g} minutes {spent:.1f} are spent: too few are left to tell more"

    def trail(self, ended: Ended | None, why: str, asked: list[str] | None = None) -> Trail:
        """The trail so far. ended: None where it waits for the files `asked`."""
        spent_s = self.rounds.spent_s
        rounds = self._last_rounds()
        low, high = _of_one_more(self.rounds.medians(self.best, *rounds))
        ideas = list(self._ideas()) if ended and ended != "failed" else []
        return Trail(
            model=self.model,
            shape=self.shape,
            boundary=self.rounds.boundary,
            per="item" if self.rounds.per_item else "call",
            baseline=self.baseline.name,
            best=self.best.name,
            options=dict(self.best.variant.options),
            median_ns=self.rounds.median(self.best, *rounds) if rounds else None,
            low_ns=low,
            high_ns=high,
            status="failed" if ended == "failed" else "ok",
            reason=why if ended == "failed" else None,
            ended=ended,
            stopped=why,
            steps=self.steps,
            asked=asked or [],
            spent_s=spent_s,
            next=[idea for idea in ideas if idea.change.by in PLANNED],
            yours=[idea for idea in ideas if idea.change.by not in PLANNED],
        )

    def _last_rounds(self) -> Sequence[int]:
        """Of the best case: those that confirmed it, else those of the search, else those of the study."""
        last = last_duel(self.steps)
        if last is not None and last.candidate == self.best.name and last.rounds:
            base = first_round(self.baseline, self.best, CONFIRM)
            return range(base + 1, base + last.rounds + 1)
        return self.rounds.of_search(self.best) or self.rounds.of_study(self.best)

    def _ideas(self) -> Iterator[Idea]:
        """What the diagnosis of the best case advises and the search did not do."""
        done = {step.candidate for step in self.steps}
        said: list[Idea] = []
        for check, finding in self.advice.get(self.best.name, ()):
            spots = space.neighbours(self.study, self.best, [finding])
            tried = any(s.name in done and space.predicted([finding], self.best, s) for s in spots)
            if finding.change and finding.acts and not tried:
                idea = Idea(check=check, advice=finding.advice, change=finding.change, gain=finding.gain)
                if not any(same(idea, before) for before in said):
                    said.append(idea)
                    yield idea


def _of_one_more(medians: list[float]) -> tuple[float | None, float | None]:
    """Where the median of one more process lies in 95 of 100: Student's prediction interval of the logarithms."""
    if len(medians) < 2:
        return None, None
    from scipy import stats

    logs = np.log(medians)
    half = float(stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) * math.sqrt(1 + 1 / len(logs)))
    return float(np.exp(logs.mean() - half)), float(np.exp(logs.mean() + half))
