"""The search for a model's best case: from the records that there are to the next ones that it needs.

It is replayed from its beginning each time, and holds no state: the same records lead to the same next ones. Each
change of the incumbent is measured for a round, in turns with it. What may be worth it then has a duel with the
incumbent, the fastest first, in rounds of their own, which took turns. Who wins is the incumbent, whose changes come
next. The last duel, in new rounds and with new engines, is that of the best case with the baseline.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from inferprof.best import duel, search_trail, space, trail
from inferprof.best.rounds import Rounds, Waits, first_round, given_up
from inferprof.best.space import Spot
from inferprof.best.standing import SIGMAS, Standing
from inferprof.case import OF_DUELS, REFERENCE, Shape
from inferprof.diagnosis import frames, run
from inferprof.documents.trail import Decision, Ended, Step, Trail
from inferprof.errors import UserError
from inferprof.findings import Finding
from inferprof.study import Study

OWN: Final = 3
"""Rounds of the incumbent beside one of each candidate: all these are compared with it."""
LEARNED: Final = 2
"""Records for one boundary that tell what those to come will take: less than whole ones."""
CONFIRMING: Final = 10
"""Rounds of the last duel at most."""
SCREENS: Final = (2, 4)
"""Rounds that candidates have before duels, as long as the last ones leave them in doubt."""
S_PER_MIN: Final = 60


class OverBudget(Exception):
    """There is no time left for what would come next."""


@dataclass
class Search:
    """A search for a model on a machine, being replayed."""

    study: Study
    results: Path
    model: str
    steps: list[Step] = field(default_factory=list)
    left: dict[str, Spot] = field(default_factory=dict)
    """Measured for a round, and neither kept nor dropped yet."""
    seen: set[str] = field(default_factory=set)
    in_vain: set[tuple[str, str, str]] = field(default_factory=set)
    """space.changed of what did not help."""
    late: bool = False
    """Whether there was no time to measure all that it wanted."""
    advice: dict[str, list[tuple[str, Finding]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        asked = self.study.best
        self.shape = self.study.models[self.model].at(Shape.parse(asked["shape"])).label
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

    def advance(self) -> Trail:
        """The trail so far: ended, or with what it waits for."""
        try:
            ended, why = self._replayed()
        except Waits as waits:
            return search_trail.trail(self, None, str(waits), waits.files)
        return search_trail.trail(self, ended, why)

    # --- the walk --------------------------------------------------------------------------------------------------

    def _replayed(self) -> tuple[Ended, str]:
        if reason := space.refusal(self.study, self.baseline):
            raise UserError(f"best: baseline {self.baseline.name} of {self.model} cannot run here: {reason}")
        self._wait_for(self.rounds.missing(self.baseline, 0) + self._watched(self.baseline))
        if reason := self.rounds.failure(self.baseline, 0):
            return "failed", f"the baseline failed: {reason}"
        try:
            ended = self._climbed()
        except OverBudget:
            ended = self._out_of_time()
            for spot in self._promising():
                self._drop_screened(spot, "no time was left for a duel", decision="undecided")
        if self.best.name != self.baseline.name:
            self._confirm()
        return ended

    def _out_of_time(self) -> tuple[Ended, str]:
        spent, budget = (seconds / S_PER_MIN for seconds in (self.rounds.spent_s, self.budget_s))
        return "budget", f"of {budget:.3g} minutes {spent:.1f} are spent: too few are left to tell more"

    def _climbed(self) -> tuple[Ended, str]:
        """Generation after generation, until nothing is left."""
        while True:
            self._screen()
            while challenger := self._next():
                step = self._fight(self.best, challenger)
                if step.decision == "kept" and step.gain is not None:
                    self.best = challenger
                    self.standing.succeed(challenger.name, step.gain)
                    break
            else:
                return self._why()

    def _screen(self) -> None:
        """A round of each change of the incumbent beside several of its own, the best prediction first. Where none is
        sure to win, more of those that are in doubt: many candidates share what a duel would measure for each."""
        new = self._changes()
        base = first_round(self.best, self.best, "screen")
        self._measure_once(new, base)
        for until in SCREENS:
            left = [spot for spot in new if spot.name in self.left]
            doubtful = [spot for spot in left if self.standing.promise(spot.name) >= self.tolerance]
            sure = any(self.standing.sure(spot.name) >= self.tolerance for spot in doubtful)
            files = self._to_come((self.best, *doubtful), base, until)
            if sure or len(doubtful) < 2 or (files and not self._has_time_for(files)):
                break
            self._wait_for(files)
            for spot in doubtful:
                self._compare(spot, base, until)
        for spot in new:
            if spot.name in self.left and self.standing.promise(spot.name) < self.tolerance:
                self._lose(spot)

    def _changes(self) -> list[Spot]:
        """What may be changed of the incumbent and was not tried yet, in the order of what is predicted."""
        findings = [finding for _, finding in self.findings(self.best)]
        spots = space.neighbours(self.study, self.best, findings)
        new = [spot for spot in spots if spot.name not in self.seen and not self._known_in_vain(spot)]
        gains = {spot.name: space.predicted(findings, self.best, spot) for spot in new}
        new.sort(key=lambda spot: -(gain.high_ns if (gain := gains[spot.name]) else 0.0))
        able = [spot for spot in new if self._can_run(spot)]
        self._wait_for([file for spot in able for file in self._accuracy_files(spot)])
        return [spot for spot in able if self._is_accurate(spot)]

    def _measure_once(self, new: Sequence[Spot], base: int) -> None:
        """A round of each candidate, as far as time allows, and OWN of the incumbent."""
        sides = [
            *((self.best, base + 1 + number) for number in range(OWN if new else 0)),
            *((s, base + 1) for s in new),
        ]
        for side in sides:
            self.rounds.record(*side)  # what is there counts as spent, and tells what the others will take
        files = [file for side in sides for file in self.rounds.missing(*side)]
        if not self.rounds.knows_duels and self._fits(files[:LEARNED]):
            self._wait_for(files[:LEARNED])
        first_duel = [self.rounds.file(self.best, base)] * 2 * self.rule.looks[0]
        self._wait_for([file for i, file in enumerate(files) if self._has_time_for([*files[: i + 1], *first_duel])])
        if new and self.rounds.failure(self.best, base + 1):
            raise OverBudget
        for spot in new:
            self.seen.add(spot.name)
            if self.rounds.missing(spot, base + 1):
                self.late = True
                self._drop(spot, "no time was left to measure it", decision="undecided")
            else:
                self.left[spot.name] = spot
                self._compare(spot, base, 1)

    def _compare(self, spot: Spot, base: int, until: int) -> None:
        """What the first rounds of a candidate beside the incumbent's say."""
        numbers = range(base + 1, base + until + 1)
        if reason := self.rounds.failure(spot, *numbers):
            del self.left[spot.name]
            self._drop(spot, f"failed: {reason}")
            return
        own = [n for n in range(base + 1, base + max(OWN, until) + 1) if self.rounds.failure(self.best, n) is None]
        self.standing.screen(spot.name, self.rounds.medians(self.best, *own), self.rounds.medians(spot, *numbers))

    def _next(self) -> Spot | None:
        """The fastest of those left that promise enough."""
        able = [spot for spot in self._promising() if self.standing.promise(spot.name) >= self.tolerance]
        return min(able, key=lambda spot: self.standing.ratio(spot.name), default=None)

    def _promising(self) -> list[Spot]:
        """Those left; what promises too little is dropped."""
        for spot in list(self.left.values()):
            if self.standing.promise(spot.name) < self.rule.least:
                del self.left[spot.name]
                self._lose(spot)
                self._drop_screened(spot, "it promises too little")
        return list(self.left.values())

    def _fight(self, incumbent: Spot, challenger: Spot) -> Step:
        """A duel, in rounds of its own."""
        del self.left[challenger.name]
        base = first_round(incumbent, challenger)
        step = self._step((incumbent, challenger), "undecided", "no time was left for its rounds")
        for look in self.rule.looks:
            files = self._to_come((incumbent, challenger), base, look)
            if files and not self._has_time_for(files):
                step.decision = "undecided"
                self.steps.append(step)
                raise OverBudget
            self._wait_for(files)
            step = self._looked((incumbent, challenger), base, look)
            if step.decision != "measure more":
                break
        self.steps.append(step)
        if step.decision != "kept":
            self._lose(challenger)
        return step

    def _to_come(self, sides: Sequence[Spot], base: int, look: int) -> list[str]:
        """The records of a duel that are not there, the cases of a round side by side."""
        pairs = itertools.product(range(base + 1, base + look + 1), sides)
        return [file for number, side in pairs for file in self.rounds.missing(side, number)]

    def _has_time_for(self, files: list[str]) -> bool:
        """Whether these records fit, and those of the last duel behind them."""
        last = [
            self.rounds.file(spot, OF_DUELS) for spot in (self.baseline, *space.built_anew(self.study, self.best))
        ]
        return self._fits([*files, *last * self.rule.looks[0]])

    def _fits(self, files: list[str]) -> bool:
        return self.rounds.spent_s + sum(map(self.rounds.will_take_s, files)) <= self.budget_s

    def _looked(self, sides: tuple[Spot, Spot], base: int, look: int) -> Step:
        """What the first rounds of a duel say."""
        numbers = range(base + 1, base + look + 1)
        for side in sides:
            if reason := self.rounds.failure(side, *numbers):
                return self._step(sides, "dropped", f"a round of {side.name} failed: {reason}")
        own, other = (self.rounds.medians(side, *numbers) for side in sides)
        self.standing.heard(sides[0].name, own)
        self.standing.heard(sides[1].name, other)
        ended = duel.judge(own, other, self.rule)
        step = self._step(sides, trail.DECISIONS[ended.verdict], ended.reason)
        step.rounds, step.gain, step.low, step.high = ended.rounds, ended.gain, ended.low, ended.high
        step.incumbent_ns = statistics.median(own)
        return step

    def _confirm(self) -> None:
        """The best case against the baseline in new rounds; of one with an engine, on new builds of it."""
        spots = space.built_anew(self.study, self.best)
        base = first_round(self.baseline, self.best, "confirm")
        for look in (look for look in self.rule.looks if look <= CONFIRMING):
            files = self._to_come((self.baseline, *spots), base, look)
            if look > self.rule.looks[0] and files and not self._fits(files):
                break
            self._wait_for(files)
            steps = [self._looked((self.baseline, spot), base, look) for spot in spots]
            if all(step.decision != "measure more" for step in steps):
                break
        for step in steps:
            step.decision = "confirmed" if step.decision == "kept" else "not confirmed"
        self.steps.extend(steps)

    # --- what is known of a case -----------------------------------------------------------------------------------

    def _can_run(self, spot: Spot) -> bool:
        if reason := space.refusal(self.study, spot):
            self.seen.add(spot.name)
            self._drop(spot, f"refused: {reason}")
        return reason is None

    def _accuracy_files(self, spot: Spot) -> list[str]:
        """What says whether the format is accurate enough, where that is not there yet."""
        file = trail.accuracy_file(self.results, spot.case)
        if spot.case.precision == REFERENCE or not self.study.models[self.model].exported:
            return []
        return [] if file.exists() or given_up(str(file)) else [str(file)]

    def _is_accurate(self, spot: Spot) -> bool:
        if reason := trail.inaccurate(self.results, spot.case):
            self.seen.add(spot.name)
            self._drop(spot, reason)
        return reason is None

    def _lose(self, spot: Spot) -> None:
        self.in_vain |= space.changed(self.best, spot)

    def _known_in_vain(self, spot: Spot) -> bool:
        return bool(space.changed(self.best, spot) & self.in_vain)

    def findings(self, spot: Spot) -> list[tuple[str, Finding]]:
        """What the checks say of a case, with their names."""
        if spot.name not in self.advice:
            file = self.rounds.missing(spot, 0)  # of a winner all boundaries and stages are wanted now
            if file and not self._has_time_for(file):
                raise OverBudget
            self._wait_for(file + self._watched(spot))
            self.rounds.record(spot, 0)
            thresholds = self.study.config["thresholds"]
            answers = run.answers(frames.load(self.results, self.study.machine.slug, spot.case, thresholds))
            self.advice[spot.name] = [(answer.check, f) for answer in answers for f in answer.findings]
        return self.advice[spot.name]

    def _watched(self, spot: Spot) -> list[str]:
        """The tables of the profilers that watch a case, which are not there."""
        folder = f"{self.results}/{self.study.machine.slug}/table"
        files = [f"{folder}/{name}/{spot.case}.parquet" for name in self.study.watching(spot.case)]
        return [file for file in files if not Path(file).exists() and not given_up(file)]

    def _wait_for(self, files: list[str]) -> None:
        if files:
            raise Waits(list(dict.fromkeys(files)))

    # --- what is told ----------------------------------------------------------------------------------------------

    def _step(self, sides: tuple[Spot, Spot], decision: Decision, reason: str) -> Step:
        step = Step(incumbent=sides[0].name, candidate=sides[1].name, decision=decision, reason=reason)
        for check, finding in self.advice.get(sides[0].name, ()):
            gain = space.predicted([finding], *sides)
            if gain and (step.predicted is None or gain.high_ns > step.predicted.high_ns):
                step.predicted, step.check = gain, check
        return step

    def _drop(
        self, spot: Spot, reason: str, *, decision: Decision = "dropped", gain: float | None = None, rounds: int = 0
    ) -> None:
        step = self._step((self.best, spot), decision, reason)
        step.gain, step.rounds = gain, rounds
        self.steps.append(step)

    def _drop_screened(self, spot: Spot, reason: str, decision: Decision = "dropped") -> None:
        rounds = self.standing.rounds[spot.name]
        self._drop(spot, reason, decision=decision, gain=1 - self.standing.ratio(spot.name), rounds=rounds)

    def _why(self) -> tuple[Ended, str]:
        """Why the search ends where nothing is left that promises enough."""
        least = max(self.rule.least, SIGMAS * self.standing.spread() * math.sqrt(2 / self.rule.looks[-1]))
        most = max(map(self.standing.promise, self.left), default=0.0)
        for spot in list(self.left.values()):
            self._drop_screened(spot, f"it promises at most {self.standing.promise(spot.name):.1%}")
        if self.late:
            return self._out_of_time()
        if most > least:
            return (
                "tolerance",
                f"what is left promises at most {most:.1%}, less than the tolerance of {self.tolerance:.1%}",
            )
        return "nothing promises more", f"nothing promises more than {least:.1%}, which is the least that can be told"
