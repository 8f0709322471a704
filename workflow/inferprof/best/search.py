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

import numpy as np

from inferprof import registry
from inferprof.best import duel, search_trail, space, trail
from inferprof.best.rounds import SPREAD, Rounds, Waits, first_round, given_up
from inferprof.best.space import Spot
from inferprof.case import REFERENCE, Shape
from inferprof.diagnosis import frames, run
from inferprof.documents.trail import Decision, Ended, Step, Trail
from inferprof.errors import UserError
from inferprof.findings import Finding
from inferprof.study import Study

BUILDS: Final = 3
"""Engines that the best case is confirmed on."""
REBUILD: Final = "rebuild"
CONFIRMING: Final = 10
"""Rounds of the last duel at most."""
SIGMAS: Final = 2.0
"""How far from its one round a case may be."""
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
    levels: dict[str, float] = field(default_factory=dict)
    """Times of cases over that of the baseline."""
    noises: dict[str, float] = field(default_factory=dict)
    """By how much those may be off that come of one round of two cases: one standard deviation, as a share."""
    spreads: list[float] = field(default_factory=list)
    """Of the medians of a case's processes in a duel: standard deviations of logarithms."""
    late: bool = False
    """Whether there was no time to measure all that it wanted."""
    advice: dict[str, list[tuple[str, Finding]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        asked = space.asked(self.study)
        self.shape = self.study.models[self.model].at(Shape.parse(asked["shape"])).label
        self.budget_s = S_PER_MIN * float(asked["budget_min"])
        self.tolerance = float(asked["tolerance"])
        self.rule = duel.Rule(wanted=self.tolerance, least=min(duel.USUAL.least, self.tolerance / 3))
        slug = self.study.machine.slug
        self.rounds = Rounds(self.results, slug, asked["boundary"], float(self.study.protocol["limit_s"]))
        self.baseline = space.baseline(self.study, self.model, self.shape)
        self.best = self.baseline
        self.seen.add(self.baseline.name)
        self.levels[self.baseline.name] = 1.0

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
            for spot in self.left.values():
                self._drop(
                    spot, "no time was left for a duel", decision="undecided", gain=1 - self._ratio(spot), rounds=1
                )
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
                if self._fight(self.best, challenger) == "kept":
                    self.best = challenger
                    break
            else:
                return self._why()

    def _screen(self) -> None:
        """A round of each change of the incumbent, the best prediction first."""
        findings = [finding for _, finding in self.findings(self.best)]
        spots = space.neighbours(self.study, self.best, findings)
        new = [spot for spot in spots if spot.name not in self.seen and not self._known_in_vain(spot)]
        gains = {spot.name: space.predicted(findings, self.best, spot) for spot in new}
        new.sort(key=lambda spot: -(gain.high_ns if (gain := gains[spot.name]) else 0.0))
        able = [spot for spot in new if self._can_run(spot)]
        self._wait_for([file for spot in able for file in self._accuracy_files(spot)])
        able = [spot for spot in able if self._is_accurate(spot)]
        number = first_round(self.best, self.best, "screen") + 1
        files = [file for spot in (self.best, *able) for file in self.rounds.missing(spot, number)]
        first_duel = [self.rounds.file(self.best, 0)] * 2 * self.rule.looks[0]
        self._wait_for([file for i, file in enumerate(files) if self._has_time_for([*files[: i + 1], *first_duel])])
        if able and self.rounds.failure(self.best, number):
            raise OverBudget
        for spot in able:
            self.seen.add(spot.name)
            if self.rounds.missing(spot, number):
                self.late = True
                self._drop(spot, "no time was left to measure it", decision="undecided")
            elif reason := self.rounds.failure(spot, number):
                self._drop(spot, f"failed: {reason}")
            else:
                self.left[spot.name] = spot
                own, other = (self.rounds.medians(side, number)[0] for side in (self.best, spot))
                self.levels[spot.name] = self.levels[self.best.name] * other / own
                noises = (self.rounds.noise(side, number) for side in (self.best, spot))
                self.noises[spot.name] = math.hypot(*noises)

    def _next(self) -> Spot | None:
        """The fastest of those left that promise enough; what promises too little is dropped."""
        for spot in list(self.left.values()):
            if self._promise(spot) < self.rule.least:
                del self.left[spot.name]
                self._lose(spot)
                self._drop(spot, "its one round promises too little", gain=1 - self._ratio(spot), rounds=1)
        able = [spot for spot in self.left.values() if self._promise(spot) >= self.tolerance]
        return min(able, key=self._ratio, default=None)

    def _fight(self, incumbent: Spot, challenger: Spot) -> Decision:
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
        elif step.gain is not None:
            self.levels[challenger.name] = self.levels[incumbent.name] * (1 - step.gain)
        return step.decision

    def _to_come(self, sides: Sequence[Spot], base: int, look: int) -> list[str]:
        """The records of a duel that are not there, the cases of a round side by side."""
        pairs = itertools.product(range(base + 1, base + look + 1), sides)
        return [file for number, side in pairs for file in self.rounds.missing(side, number)]

    def _has_time_for(self, files: list[str]) -> bool:
        """Whether these records fit, and those of the last duel behind them."""
        last = [self.rounds.file(spot, 0) for spot in (self.baseline, self.best)] * self.rule.looks[0]
        return self.rounds.spent_s + sum(map(self.rounds.will_take_s, [*files, *last])) <= self.budget_s

    def _looked(self, sides: tuple[Spot, Spot], base: int, look: int) -> Step:
        """What the first rounds of a duel say."""
        numbers = range(base + 1, base + look + 1)
        for side in sides:
            if reason := self.rounds.failure(side, *numbers):
                return self._step(sides, "dropped", f"a round of {side.name} failed: {reason}")
        own, other = (self.rounds.medians(side, *numbers) for side in sides)
        self.spreads.extend(float(np.std(np.log(medians), ddof=1)) for medians in (own, other))
        ended = duel.judge(own, other, self.rule)
        step = self._step(sides, trail.DECISIONS[ended.verdict], ended.reason)
        step.rounds, step.gain, step.low, step.high = ended.rounds, ended.gain, ended.low, ended.high
        step.incumbent_ns = statistics.median(own)
        return step

    def _confirm(self) -> None:
        """The best case against the baseline in new rounds; of one with an engine, on new builds of it."""
        backend = registry.backends()[self.best.case.backend]
        spots = [self.best]
        if REBUILD in registry.options_of(backend):
            built = [{**self.best.variant.options, REBUILD: number + 1} for number in range(BUILDS)]
            spots = [self.best.having(v) for options in built if (v := space.named(self.study, options))]
        base = first_round(self.baseline, self.best, "confirm")
        for look in (look for look in self.rule.looks if look <= CONFIRMING):
            self._wait_for(self._to_come((self.baseline, *spots), base, look))
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

    def _accuracy_file(self, spot: Spot) -> str | None:
        precision, spec = spot.case.precision, self.study.models[self.model]
        if precision == REFERENCE or not spec.exported:
            return None
        return f"{self.results}/onnx/{self.model}/{precision}.accuracy.json"

    def _accuracy_files(self, spot: Spot) -> list[str]:
        """What says whether the format is accurate enough, where that is not there yet."""
        file = self._accuracy_file(spot)
        return [file] if file and not Path(file).exists() and not given_up(file) else []

    def _is_accurate(self, spot: Spot) -> bool:
        if reason := trail.inaccurate(self.results, spot.case):
            self.seen.add(spot.name)
            self._drop(spot, reason)
        return reason is None

    def _ratio(self, spot: Spot) -> float:
        """Its time over that of the incumbent, by a round of each beside whatever was the incumbent then."""
        return self.levels[spot.name] / self.levels[self.best.name]

    def _promise(self, spot: Spot) -> float:
        """The share of the incumbent's time that may go with a case, by a round of each."""
        off = math.hypot(self.noises[spot.name], self._spread())
        return 1 - self._ratio(spot) * math.exp(-SIGMAS * off)

    def _spread(self) -> float:
        """By how much two processes of a case differ here, beyond SPREAD."""
        return math.sqrt(2 * max(0.0, statistics.median(self.spreads) ** 2 - SPREAD**2)) if self.spreads else 0.0

    def _lose(self, spot: Spot) -> None:
        self.in_vain |= space.changed(self.best, spot)

    def _known_in_vain(self, spot: Spot) -> bool:
        return bool(space.changed(self.best, spot) & self.in_vain)

    def findings(self, spot: Spot) -> list[tuple[str, Finding]]:
        """What the checks say of a case, with their names."""
        if spot.name not in self.advice:
            self._wait_for(self._watched(spot))
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

    def _why(self) -> tuple[Ended, str]:
        """Why the search ends where nothing is left that promises enough."""
        spread = math.hypot(SPREAD, self._spread())
        least = max(self.rule.least, SIGMAS * spread * math.sqrt(2 / self.rule.looks[-1]))
        most = max(map(self._promise, self.left.values()), default=0.0)
        for spot in list(self.left.values()):
            self._drop(spot, f"it promises at most {self._promise(spot):.1%}", rounds=1)
        if self.late:
            return self._out_of_time()
        if most > least:
            return (
                "tolerance",
                f"what is left promises at most {most:.1%}, less than the tolerance of {self.tolerance:.1%}",
            )
        return "nothing promises more", f"nothing promises more than {least:.1%}, which is the least that can be told"
