"""The search for a model's best case: from the records that there are to the next ones that it needs.

It is replayed from its beginning each time, and holds no state: the same records lead to the same next ones. Each
change of the incumbent is measured for a round, in turns with it. What may be worth it then has a duel with the
incumbent, the fastest first, in rounds of their own, which took turns. Who wins is the incumbent, whose changes come
next. The last duel, in new rounds and with new engines, is that of the best case with the baseline.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from inferprof import documents
from inferprof.best import duel, space, trail
from inferprof.best.account import Account
from inferprof.best.rounds import CONFIRM, Waits, cost_file, first_round, of_format, watched
from inferprof.best.space import Spot
from inferprof.case import OF_DUELS
from inferprof.diagnosis import frames, run
from inferprof.documents import Cost
from inferprof.documents.trail import Ended, Step, Trail
from inferprof.files import unless_damaged
from inferprof.findings import Finding

OWN: Final = 3
"""Rounds of the incumbent beside one of each candidate: all these are compared with it."""
LEARNED: Final = 2
"""Records for one boundary that tell what those to come will take: less than whole ones."""
CONFIRMING: Final = 40
"""Rounds of the last duel at most."""
FAR: Final = 2.0
"""So many times as slow, a runtime is not looked at for options of its own."""
LARGE: Final = 0.2
"""So large a share of the time, if it is sure to go, is taken at once: other options are measured on top of it."""
SCREENS: Final = (2, 4)
"""Rounds that candidates have before duels, as long as the last ones leave them in doubt."""


class OverBudget(Exception):
    """There is no time left for what would come next."""


class Search(Account):
    """A search for a model on a machine, being replayed."""

    def advance(self) -> Trail:
        """The trail so far: ended, or with what it waits for."""
        space.check(self.study, self.model)
        try:
            ended, why = self._replayed()
        except Waits as waits:
            return self.trail(None, str(waits), waits.files)
        return self.trail(ended, why)

    # --- the walk --------------------------------------------------------------------------------------------------

    def _replayed(self) -> tuple[Ended, str]:
        of = self.study, self.results
        able = [s for s in space.neighbours(self.study, self.baseline, []) if not space.refusal(self.study, s)]
        formats = [file for spot in able for file in of_format(*of, spot)]
        self._wait_for([*self.rounds.missing(self.baseline, 0), *watched(*of, self.baseline), *formats])
        if reason := self.rounds.failure(self.baseline, 0):
            return "failed", f"the baseline failed: {reason}"
        try:
            ended = self._climbed()
        except OverBudget:
            ended = self.out_of_time()
            for spot in self._promising():
                self.drop_screened(spot, "no time was left for a duel", decision="undecided")
        if self.best.name != self.baseline.name:
            self._confirm()
        return ended

    def _climbed(self) -> tuple[Ended, str]:
        """Generation after generation, until nothing is left: formats and runtimes first, which decide what options
        can gain, then options, then options of other runtimes."""
        while True:
            changes = self._changes()
            self._screen([spot for spot in changes if spot.case.variant == self.best.case.variant])
            if self._moved(self.standing.sure):
                continue
            options = [spot for spot in changes if spot.case.variant != self.best.case.variant]
            self._screen([spot for spot in options if self._is_believed_in(spot)])
            if self._moved(lambda name: self.standing.sure(name) if self.standing.sure(name) >= LARGE else 0.0):
                continue
            self._screen_options(self.best, options)
            if not (self._moved(self.standing.promise) or self._moved_elsewhere()):
                return self.why()

    def _moved(self, gain: Callable[[str], float]) -> bool:
        """Whether a challenger won: the fastest whose gain is enough comes first. gain: at most, or at the least."""
        while challenger := self._next(gain):
            step = self._fight(self.best, challenger)
            if step.decision == "kept" and step.gain is not None:
                if challenger.case.precision != self.best.case.precision:
                    self.in_vain.add(space.changed(challenger, self.best))
                self.best = challenger
                self.standing.succeed(challenger.name, step.gain)
                return True
        return False

    def _moved_elsewhere(self) -> bool:
        """Whether another runtime won with options of its own, though it does not with those of the best case."""
        for name in self.study.config["backends"]:
            begin = space.on_runtime(self.study, self.best, name) if name != self.best.case.backend else None
            if begin and self.standing.knows(begin.name) and self.standing.ratio(begin.name) < FAR:
                own = [spot for spot in space.with_options(self.study, begin) if spot.name not in self.seen]
                self._screen_options(begin, [spot for spot in own if self._can_run(spot)])
                if self._moved(self.standing.promise):
                    return True
        return False

    def _screen_options(self, begin: Spot, spots: Sequence[Spot]) -> None:
        """Options of a case one by one, then at once all that gained."""
        self._screen([spot for spot in spots if spot.name not in self.seen])
        least, standing = 1 - self.tolerance, self.standing
        gained = [s for s in spots if standing.knows(s.name) and standing.over(s.name, begin.name) < least]
        if begin == self.best:
            gained = [spot for spot in gained if standing.sure(spot.name) > 0]
        gained.sort(key=lambda spot: standing.ratio(spot.name))
        every = space.together(self.study, begin, gained)
        if every and every.name not in self.seen and self._can_run(every):
            self._screen([every])

    def _screen(self, new: Sequence[Spot]) -> None:
        """A round of each candidate beside several of the incumbent, the best prediction first. Where none is sure to
        win, more of those that are in doubt: many candidates share what a duel would measure for each."""
        base = first_round(self.best, self.best, "screen")
        self._measure_once(new, base)
        self._measure_slowed_again(new, base)
        for until in SCREENS:
            left = [spot for spot in new if spot.name in self.left]
            doubtful = [spot for spot in left if self.standing.promise(spot.name) >= self.tolerance]
            sure = any(self.standing.sure(spot.name) >= self.tolerance for spot in doubtful)
            files = self.rounds.to_come((self.best, *doubtful), base, until)
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
        self._wait_for([file for spot in able for file in of_format(self.study, self.results, spot)])
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
        first_duel = [self.rounds.file(self.best, base)] * 2 * self.rule.looks[0]
        scarce = not self.rounds.knows_duels and not self._has_time_for([*files, *first_duel])
        if scarce and self.rounds.fits(files[:LEARNED], self.budget_s):
            self._wait_for(files[:LEARNED])
        self._wait_for([file for i, file in enumerate(files) if self._has_time_for([*files[: i + 1], *first_duel])])
        if new and self.rounds.failure(self.best, base + 1):
            raise OverBudget
        for spot in new:
            self.seen.add(spot.name)
            if self.rounds.missing(spot, base + 1):
                self.late = True
                self.drop(spot, "no time was left to measure it", decision="undecided")
            else:
                self.left[spot.name] = spot
                self._compare(spot, base, 1)

    def _measure_slowed_again(self, new: Sequence[Spot], base: int) -> None:
        """A second round on a GPU of what the host slowed down in its first."""
        left = [spot for spot in new if spot.name in self.left and self.study.machine.gpu]
        slowed = [spot for spot in left if not self.rounds.undisturbed(spot, base + 1)]
        files = [file for spot in slowed for file in self.rounds.missing(spot, base + 2)]
        if not files or self._has_time_for(files):
            self._wait_for(files)
            for spot in slowed:
                self._compare(spot, base, 2)

    def _compare(self, spot: Spot, base: int, until: int) -> None:
        """What the first rounds of a candidate beside the incumbent's say: of these the undisturbed, if any."""
        numbers = range(base + 1, base + until + 1)
        if reason := self.rounds.failure(spot, *numbers):
            del self.left[spot.name]
            self.drop(spot, f"failed: {reason}")
            return
        own = [n for n in range(base + 1, base + max(OWN, until) + 1) if self.rounds.failure(self.best, n) is None]
        sides = ((self.best, own), (spot, numbers))
        self.standing.screen(
            spot.name, *(self.rounds.medians(s, *(self.rounds.undisturbed(s, *n) or n)) for s, n in sides)
        )
        self.beside[spot.name] = self.best, 1 - self.standing.ratio(spot.name)

    def _next(self, gain: Callable[[str], float]) -> Spot | None:
        """The fastest of those left that gain enough."""
        able = [spot for spot in self._promising() if gain(spot.name) >= self.tolerance]
        return min(able, key=lambda spot: self.standing.ratio(spot.name), default=None)

    def _promising(self) -> list[Spot]:
        """Those left; what promises too little is dropped."""
        for spot in list(self.left.values()):
            if self.standing.promise(spot.name) < self.rule.least:
                del self.left[spot.name]
                self._lose(spot)
                self.drop_screened(spot, f"beside {self.best.name} it promises too little")
        return list(self.left.values())

    def _fight(self, incumbent: Spot, challenger: Spot) -> Step:
        """A duel, in rounds of its own."""
        base = first_round(incumbent, challenger)
        first = self.rounds.to_come((incumbent, challenger), base, self.rule.looks[0])
        if first and not self._has_time_for(first):
            raise OverBudget  # it stays among those that no duel was left for
        del self.left[challenger.name]
        step = self.step((incumbent, challenger), "undecided", "no time was left for its rounds")
        for look in self.rule.looks:
            files = self.rounds.to_come((incumbent, challenger), base, look)
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

    def _has_time_for(self, files: list[str]) -> bool:
        """Whether these records fit, and those of the last duel behind them."""
        last = [
            self.rounds.file(spot, OF_DUELS) for spot in (self.baseline, *space.built_anew(self.study, self.best))
        ]
        return self.rounds.fits([*files, *last * self.rule.looks[0]], self.budget_s)

    def _looked(self, sides: tuple[Spot, Spot], base: int, look: int) -> Step:
        """What the first rounds of a duel say."""
        numbers = range(base + 1, base + look + 1)
        for side in sides:
            if reason := self.rounds.failure(side, *numbers):
                return self.step(sides, "dropped", f"a round of {side.name} failed: {reason}")
        own, other = (self.rounds.medians(side, *numbers) for side in sides)
        self.standing.heard(sides[0].name, "duel", own)
        self.standing.heard(sides[1].name, "duel", other)
        ended = duel.judge(own, other, self.rule)
        step = self.step(sides, trail.DECISIONS[ended.verdict], ended.reason)
        step.rounds, step.gain, step.low, step.high = ended.rounds, ended.gain, ended.low, ended.high
        step.incumbent_ns = self.rounds.latency_ns(sides[0], *numbers)
        return step

    def _confirm(self) -> None:
        """The best case against the baseline in new rounds; of one with an engine, on new builds of it."""
        spots = space.built_anew(self.study, self.best)
        base = first_round(self.baseline, self.best, CONFIRM)
        for look in (look for look in self.rule.looks if look <= CONFIRMING):
            files = self.rounds.to_come((self.baseline, *spots), base, look)
            if look > self.rule.looks[1] and files and not self.rounds.fits(files, self.budget_s):
                break
            self._wait_for(files)
            steps = [self._looked((self.baseline, spot), base, look) for spot in spots]
            if all(step.decision != "measure more" for step in steps):
                break
        for step in steps:
            step.decision = "confirmed" if step.decision == "kept" else "not confirmed"
        self.steps.extend(steps)
        if any(step.decision == "not confirmed" for step in steps):
            self.best = self.baseline

    # --- what is known of a case -----------------------------------------------------------------------------------

    def _can_run(self, spot: Spot) -> bool:
        refusal = space.refusal(self.study, spot)
        reason = f"refused: {refusal}" if refusal else space.without_effect(self.best, spot, self._operators())
        if reason:
            self.seen.add(spot.name)
            self.drop(spot, reason)
        return reason is None

    def _operators(self) -> frozenset[str] | None:
        """Of the incumbent's graph; None where they are not known."""
        file = cost_file(self.results, self.best.case)
        if file not in self.operators:
            cost: Cost | None = unless_damaged(documents.read, file, "cost", self.results) if file.exists() else None
            nodes = cost.nodes if cost else None
            self.operators[file] = frozenset(node.op for node in nodes) if nodes is not None else None
        return self.operators[file]

    def _is_believed_in(self, spot: Spot) -> bool:
        """Whether a change is named by the config, or a check promises something of it."""
        findings = [finding for _, finding in self.findings(self.best)]
        return spot.case.variant in self.study.variants or bool(space.predicted(findings, self.best, spot))

    def _is_accurate(self, spot: Spot) -> bool:
        if reason := trail.inaccurate(self.results, spot.case):
            self.seen.add(spot.name)
            self.drop(spot, reason)
        return reason is None

    def _lose(self, spot: Spot) -> None:
        self.in_vain.add(space.changed(self.best, spot))

    def _known_in_vain(self, spot: Spot) -> bool:
        return any(change <= space.changed(self.best, spot) for change in self.in_vain)

    def findings(self, spot: Spot) -> list[tuple[str, Finding]]:
        """What the checks say of a case, with their names."""
        if spot.name not in self.advice:
            file = self.rounds.missing(spot, 0)  # of a winner all boundaries and stages are wanted now
            if file and not self._has_time_for(file):
                raise OverBudget
            self._wait_for(file + watched(self.study, self.results, spot))
            self.rounds.record(spot, 0)
            thresholds = self.study.config["thresholds"]
            answers = run.answers(frames.load(self.results, self.study.machine.slug, spot.case, thresholds))
            self.advice[spot.name] = [(answer.check, f) for answer in answers for f in answer.findings]
        return self.advice[spot.name]

    def _wait_for(self, files: list[str]) -> None:
        if files:
            raise Waits(list(dict.fromkeys(files)))
