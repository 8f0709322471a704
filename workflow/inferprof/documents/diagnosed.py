"""The diagnosis of a case: the verdict, the answers behind it, and what their shares are of."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from msgspec import UNSET, Meta, UnsetType

from inferprof.documents.base import Document, NotNegative, Number, OfCase, Outcome

Evidence = dict[str, Number]


class Gain(Document):
    """How much time following the advice saves."""

    low_ns: Number
    high_ns: Number


class Tried(Document):
    """What became of a fix that the study tried."""

    variant: str
    outcome: str
    reason: str = ""
    achieved_ns: Number | None = None
    low_ns: Number | None = None
    high_ns: Number | None = None
    in_doubt: bool = False


class Finding(Document):
    """What a check found."""

    subject: str
    bottleneck: str
    share: Number | None
    reason: str
    evidence: Evidence
    source: str
    gain: Gain | None
    advice: str
    confidence: str
    acts: bool = True
    options: dict[str, Any] = {}
    tried: Tried | None = None


class Ranked(Document):
    """A finding and the check that made it."""

    check: str
    finding: Finding


class Group(Document):
    """The findings about one resource."""

    resource: str
    share: Number | None
    findings: Annotated[list[Ranked], Meta(min_length=1)]


class Verdict(Document):
    """What the answers come to."""

    sentence: str
    groups: list[Group]
    cautions: list[Ranked]
    gain: Gain | None
    shares: dict[str, Number] = {}


class CheckAnswer(Document):
    """What one check says."""

    check: str
    level: str
    verdict: Literal["found", "clear", "not assessed"]
    reason: str
    findings: list[Finding]
    evidence: Evidence = {}
    gain: Gain | None = None


class Total(Document):
    """What shares are of."""

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
    answers: list[CheckAnswer] | None = None
