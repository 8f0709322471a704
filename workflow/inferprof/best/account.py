"""What a search holds while it is replayed, and what it tells of its steps."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from inferprof.best import duel, space
from inferprof.best.rounds import Rounds
from inferprof.best.space import Spot
from inferprof.best.standing import SIGMAS, Standing
from inferprof.documents.trail import Decision, Ended, Step
from inferprof.findings import Finding
from inferprof.study import Study

S_PER_MIN: Final = 60


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
