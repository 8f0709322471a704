"""The diagnosis of a case: the verdict, the answers behind it, and what their shares are of.

A check makes these very values; they are written as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from msgspec import UNSET, Meta, UnsetType

from inferprof.documents.base import Document, NotNegative, Number, OfCase, Outcome

Level = Literal["host", "transfer", "device", "engine", "kernel", "environment"]
Said = Literal["found", "clear", "not assessed"]
Confidence = Literal["high", "medium", "low"]
"""high: measured on the bare run; medium: by a profile, whose own cost is in it; low: a rule of thumb is in it."""
Bottleneck = Literal[
    "launch", "idle", "copy", "memory", "compute", "latency", "tail", "kernels", "measurement", "capacity", "tuning"
]
"""What a finding eats: the parts of limits.waterfall. Findings of one bottleneck overlap, and the five from `memory`
to `kernels` all share the kernels' time. The others cost no time of this case that is known: `measurement` trust in
the numbers, `capacity` device memory, `tuning` time of the first inference or of other shapes."""
Resource = Literal["launch", "idle", "copy", "kernels", "execution"]
"""execution: kernels and what the GPU waits between them, where no timeline tells the two apart."""
TryOutcome = Literal["better", "no difference", "backfired", "undecided", "failed", "refused"]
"""What became of a fix that was tried. undecided: one of the two measurements is in doubt, or has no interval."""
ChangedBy = Literal[
    "variant", "shape", "precision", "backend", "caller", "model", "kernel", "machine", "protocol", "profilers"
]
"""Where a change is made: what a config names, the program that calls, the graph, a kernel's source, the machine;
`protocol`: how it is measured; `profilers`: nothing changes, a capture tells more."""
PLANNED: frozenset[ChangedBy] = frozenset({"variant", "shape", "precision", "backend"})
"""Changes that a study can try by itself; the others are the user's to do."""
LOST: frozenset[TryOutcome] = frozenset({"no difference", "backfired", "failed", "refused"})
"""Outcomes of what is not advised again."""
Evidence = Mapping[str, Number]


class Gain(Document, omit_defaults=False):
    """Bounds of the time that could go from the total if the advice is followed, ns. low 0: perhaps nothing."""

    low_ns: Number
    high_ns: Number


class Tried(Document, omit_defaults=False):
    """What a fix came to: the case with it beside the one that lacks nothing else, by end_to_end, ns.

    low_ns and high_ns are the 95 % interval of achieved_ns; all three are None where nothing was measured, which
    `reason` tells.
    """

    variant: str
    outcome: TryOutcome
    reason: str = ""
    achieved_ns: Number | None = None
    low_ns: Number | None = None
    high_ns: Number | None = None
    in_doubt: bool = False
    """Whether one of the two measurements is: tables.gate."""

    @property
    def lost(self) -> bool:
        """Whether nobody should try it again."""
        return self.outcome in LOST


class Change(Document, omit_defaults=False):
    """What to change, as data. `to`: of a variant option → value, of a shape symbol → size, else the key of a config
    (`precision`, `backend`) → its value; empty where only words can say it."""

    by: ChangedBy
    to: Mapping[str, Any] = {}


class Finding(Document, omit_defaults=False):
    """One thing that costs a case time, or trust.

    subject: what it is about (a kernel, a call, a kind of copy), or "" for the whole case. share: of Frames.total,
    0 to 1; None where that is not known. reason, advice: short sentences, the first with the numbers. evidence:
    numbers by name, units in the names. source: the file or the tool that they are from. gain: None where no bound
    can be given. acts: whether the advice changes the case, and does not only find out more. change: the advice
    as data, by default of Check.by; tried: what that came to, where the study has a variant of it.
    """

    subject: str
    bottleneck: Bottleneck
    share: Number | None
    reason: str
    evidence: Evidence
    source: str
    gain: Gain | None
    advice: str
    confidence: Confidence
    acts: bool = True
    change: Change | None = None
    tried: Tried | None = None

    @property
    def options(self) -> Mapping[str, Any]:
        """Of a variant that tries the advice; none where no option does."""
        return self.change.to if self.change and self.change.by == "variant" else {}


class Ranked(Document, omit_defaults=False):
    """A finding with the check that made it."""

    check: str
    level: Level
    finding: Finding


class Group(Document, omit_defaults=False):
    """The findings about one resource, the first to work on first. share: of the total; gain: of all together."""

    resource: Resource
    share: Number | None
    gain: Gain | None
    findings: Annotated[tuple[Ranked, ...], Meta(min_length=1)]


class Verdict(Document, omit_defaults=False):
    """`sentence`: what bounds the case, its share, what to do, the gain. `cautions` cost trust in it, or device
    memory, and no time."""

    sentence: str
    groups: tuple[Group, ...]
    gain: Gain | None
    cautions: tuple[Ranked, ...]
    shares: Mapping[Resource, Number] = {}
    """What the case's time goes to, as shares of the total: what is noticed, the largest first."""


class Answer(Document, omit_defaults=False):
    """What a check says of a case. `reason`: why it is clear, or `needs …` where it was not assessed; else empty."""

    check: str
    level: Level
    verdict: Said
    reason: str = ""
    evidence: Evidence = {}
    findings: tuple[Finding, ...] = ()
    gain: Gain | None = None
    """Of a clear answer: Clear.gain."""


class Total(Document, omit_defaults=False):
    """What shares are of, ns: the bare end_to_end median; where there is none, what `of` says, under a profiler."""

    ns: NotNegative
    of: str


class Diagnosis(Outcome):
    """results/{machine}/diagnosis/{case}.json: why the case is as fast as it is."""

    NEEDS: ClassVar[tuple[str, ...]] = ("verdict", "answers")
    SAID: ClassVar[tuple[str, ...]] = ("total",)

    machine: str | None = None
    case: OfCase | None = None
    thresholds: dict[str, Number] = {}
    total: Total | UnsetType | None = UNSET
    verdict: Verdict | None = None
    answers: list[Answer] | None = None
