"""The trail to a model's best case, from the records and diagnoses of a results folder.

Each candidate is told from the incumbent by a duel of their paired rounds, the fastest of the first rounds first: one
that is better is the incumbent from then on. The first duel that lacks rounds ends the walk until they are there.
What the incumbent's diagnosis advises and nobody measured comes next.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from inferprof import documents
from inferprof.best import duel, halving
from inferprof.best.rounds import accuracy_file
from inferprof.case import Case, Shape
from inferprof.diagnosis import run
from inferprof.diagnosis.frames import of_model
from inferprof.documents.diagnosed import PLANNED, Gain
from inferprof.documents.trail import Idea, More, Step, Trail, last_duel
from inferprof.errors import UserError
from inferprof.files import unless_damaged
from inferprof.findings import END_TO_END, Finding, Frames
from inferprof.words import counted

DECISIONS: Final[Mapping[duel.Verdict, Literal["kept", "dropped", "undecided", "measure more"]]] = {
    "better": "kept",
    "no better": "dropped",
    "undecided": "undecided",
    "measure more": "measure more",
}


@dataclass(frozen=True)
class Candidate:
    """A measured case."""

    name: str
    frames: Frames
    rounds: Mapping[int, Sequence[float]]
    """The samples of each round, ns."""

    @property
    def samples(self) -> Sequence[float]:
        """Those of its first round."""
        return self.rounds[min(self.rounds)]

    @functools.cached_property
    def medians(self) -> Mapping[int, float]:
        """The median of each round, ns."""
        return {number: statistics.median(samples) for number, samples in self.rounds.items()}

    @functools.cached_property
    def median(self) -> float:
        """The median of all samples, ns, as reports have it."""
        return statistics.median(sample for samples in self.rounds.values() for sample in samples)


def of_results(results: Path, machine: str, model: str, shape: Shape, baseline: str) -> Trail:
    """The trail of a model at a shape. Raises UserError where the baseline was not measured there."""
    cases = {each.name: each for each in candidates(of_model(results, machine, model), shape)}
    if baseline not in cases:
        names = ", ".join(cases) or "none"
        raise UserError(f"{baseline} was not measured by {END_TO_END} of {model} at {shape.label}; measured: {names}")
    refused = {name: reason for name, each in cases.items() if (reason := inaccurate(results, each.frames.case))}
    steps = [Step(baseline, name, "dropped", reason) for name, reason in refused.items() if name != baseline]
    able = {name: each for name, each in cases.items() if name not in refused or name == baseline}
    best = baseline
    for name in (name for name in ranked(list(able.values())) if name != baseline):
        step = fought(able[best], able[name])
        steps.append(step)
        best = name if step.decision == "kept" else best
        if step.decision == "measure more":
            break
    more = [More([s.incumbent, s.candidate], rounds_until(s.rounds)) for s in steps if s.decision == "measure more"]
    every = sorted(untried(able[best], cases), key=lambda idea: -(idea.gain.high_ns if idea.gain else 0.0))
    ideas = [idea for i, idea in enumerate(every) if not any(same(idea, before) for before in every[:i])]
    coming = [idea for idea in ideas if idea.change.by in PLANNED and idea.change.to and worth(idea.gain, able[best])]
    return Trail(
        model=model,
        shape=shape.label,
        best=best,
        median_ns=able[best].median,
        stopped=stopped(more, coming),
        steps=steps,
        more=more,
        next=coming,
        yours=[idea for idea in ideas if idea.change.by not in PLANNED],
    )


def candidates(of_cases: Iterator[Frames], shape: Shape) -> Iterator[Candidate]:
    """The cases at a shape that were measured from arrays on the host to arrays on the host."""
    for frames in of_cases:
        case = frames.case
        times: dict[int, Sequence[float]] = {}
        for record in frames.records["record"]:
            boundary = record.boundaries and record.boundaries.end_to_end
            if boundary and boundary.samples_ns:
                times[record.round] = boundary.samples_ns
        if case.shape == shape.label and times:
            yield Candidate(f"{case.precision}/{case.backend}/{case.variant}", frames, times)


def inaccurate(results: Path, case: Case) -> str | None:
    """Why a number format is out: its accuracy failed."""
    path = accuracy_file(results, case)
    if not path.exists():
        return None
    accuracy: documents.Accuracy | None = unless_damaged(documents.read, path, "accuracy")
    if accuracy is None:
        return "its accuracy can't be read"
    return f"accuracy: {accuracy.reason}" if accuracy.outcome == "fail" else None


def ranked(cases: Sequence[Candidate]) -> list[str]:
    """The fastest by their first rounds first: those that successive halving keeps longest."""
    left = {each.name: list(each.samples) for each in cases}

    def sample(name: str, share: float) -> list[float]:
        count = max(1, round(share * len(left[name])))
        taken, left[name] = left[name][:count], left[name][count:]
        return taken

    rungs = halving.halve([each.name for each in cases], sample, budget=1.0)
    order = [name for rung in reversed(rungs) for name, _ in rung.medians]
    return list(dict.fromkeys(order)) or [each.name for each in cases]


def fought(incumbent: Candidate, candidate: Candidate) -> Step:
    """A duel by the rounds that both have, beside what the incumbent's diagnosis predicted."""
    both = sorted(incumbent.medians.keys() & candidate.medians.keys())
    ended = duel.judge([incumbent.medians[n] for n in both], [candidate.medians[n] for n in both])
    judged = ended.rounds > 0
    return Step(
        incumbent.name,
        candidate.name,
        DECISIONS[ended.verdict],
        ended.reason,
        ended.rounds,
        ended.gain if judged else None,
        ended.low if judged else None,
        ended.high if judged else None,
        next((f.gain for _, f in findings(incumbent) if f.gain and changes(f, incumbent, candidate)), None),
    )


def findings(case: Candidate) -> Iterator[tuple[str, Finding]]:
    """What the checks find of a case, with the check's name."""
    for answer in case.frames.once(run.answers):
        yield from ((answer.check, finding) for finding in answer.findings)


def changes(finding: Finding, before: Candidate, after: Candidate) -> bool:
    """Whether one case is the other with a finding's change."""
    change, own, other = finding.change, before.frames.case, after.frames.case
    if change is None or not change.to:
        return False
    if change.by == "variant":
        options = after.frames.record.options | {"placement": after.frames.record.placement}
        return (
            own.precision == other.precision and own.backend == other.backend and change.to.items() <= options.items()
        )
    place = {"precision": other.precision, "backend": other.backend}
    return change.by in place and change.to == {change.by: place[change.by]}


def untried(case: Candidate, cases: Mapping[str, Candidate]) -> Iterator[Idea]:
    """What the diagnosis of a case advises and no measured case has."""
    for check, finding in findings(case):
        change = finding.change
        if change and finding.acts and not any(changes(finding, case, other) for other in cases.values()):
            yield Idea(check, finding.advice, change, finding.gain)


def same(idea: Idea, other: Idea) -> bool:
    """Whether two checks advise one change."""
    return idea.change == other.change and bool(idea.change.to)


def worth(gain: Gain | None, best: Candidate) -> bool:
    """Whether a gain may be as large as the smallest that is looked for."""
    return gain is not None and gain.high_ns >= duel.USUAL.least * best.median


def rounds_until(rounds: int) -> int:
    """How many rounds the next look needs."""
    return next(look for look in duel.USUAL.looks if look > rounds)


def stopped(more: Sequence[More], coming: Sequence[Idea]) -> str:
    """Why the search ends, or what it waits for."""
    if more:
        return f"waits for rounds of {len({name for pair in more for name in pair.cases})} cases"
    if coming:
        return f"waits for {len(coming)} changes to be measured"
    return f"nothing promises {duel.USUAL.least:.0%} or more"


def _saves(gain: float | None) -> str:
    """`, saves 12.0% of the time`, or how much longer it takes."""
    if gain is None:
        return ""
    return f", saves {gain:.1%} of the time" if gain >= 0 else f", takes {1 - gain:.3g} times as long"


def lines(trail: Trail) -> Iterator[str]:
    """The trail in a few lines."""
    yield f"{trail.model} {trail.shape}: {trail.best}{_took(trail)}{_standing(trail)}; {trail.stopped}"
    for step in trail.steps:
        yield f"  {step.decision}: {step.candidate} against {step.incumbent}{_saves(step.gain)}: {step.reason}"
    for pair in trail.more:
        yield f"  measure: {' and '.join(pair.cases)}: {counted(pair.rounds, 'round')}"
    for idea in trail.next:
        yield f"  try: {idea.advice}"
    for idea in trail.yours:
        yield f"  yours ({idea.change.by}): {idea.advice}"


def _took(trail: Trail) -> str:
    """The median, and where that of one more process lies in 95 of 100."""
    if not trail.median_ns:
        return ""
    both = trail.low_ns and trail.high_ns and f" ({trail.low_ns / 1e6:.3g} to {trail.high_ns / 1e6:.3g})"
    return f", {trail.median_ns / 1e6:.3g} ms{both or ''}"


def _standing(trail: Trail) -> str:
    """What the last duel said of the best case."""
    last = last_duel(trail.steps)
    if trail.ended in (None, "failed") or not trail.baseline:
        return ""
    if trail.best != trail.baseline and last and last.gain is not None:
        return f", confirmed: {last.gain:.1%} less than {trail.baseline}"
    return ", the baseline: nothing was confirmed to be faster"
