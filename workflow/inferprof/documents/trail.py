"""The trail of a search for a model's best case: what was predicted, what came, what is next."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from inferprof.documents.base import Count, Document, NotNegative, Number, Outcome, Positive
from inferprof.documents.diagnosed import Change, Gain

Decision = Literal["kept", "dropped", "undecided", "measure more", "confirmed", "not confirmed"]
Ended = Literal["budget", "tolerance", "nothing promises more", "failed"]
"""Why a search ended: its time was up; what is left promises less than the tolerance, or less than can be told; or
its baseline failed."""


class Step(Document, omit_defaults=False):
    """A candidate beside the incumbent of then. gain, low, high: shares of the incumbent's time."""

    incumbent: str
    candidate: str
    decision: Decision
    reason: str
    rounds: Count = 0
    gain: Number | None = None
    low: Number | None = None
    high: Number | None = None
    predicted: Gain | None = None
    """ns, by the diagnosis of the incumbent."""
    incumbent_ns: Positive | None = None
    """What a call of it takes: the median of its rounds in this duel; without one, of its first round."""
    check: str | None = None
    """Whose prediction it is."""


class Idea(Document, omit_defaults=False):
    """A change that the diagnosis of the best case so far advises and that nobody measured."""

    check: str
    advice: str
    change: Change
    gain: Gain | None


class More(Document, omit_defaults=False):
    """Rounds that two cases need for a verdict."""

    cases: Annotated[list[str], Meta(min_length=1)]
    rounds: Annotated[int, Meta(ge=1)]


class Trail(Outcome):
    """results/{machine}/best/{model}.json."""

    NEEDS: ClassVar[tuple[str, ...]] = ("model", "shape", "best", "stopped")

    model: str | None = None
    shape: str | None = None
    best: str | None = None
    median_ns: Positive | None = None
    stopped: str | None = None
    """Why the search ends; or what it waits for."""
    steps: list[Step] = []
    more: list[More] = []
    next: list[Idea] = []
    """A study can try them: the most gain first."""
    yours: list[Idea] = []
    """No config can: the caller's, the model's, the machine's."""
    boundary: Literal["device", "call", "end_to_end"] = "end_to_end"
    per: Literal["call", "item"] = "call"
    """What the times are of: with `item`, of a call over its batch."""
    baseline: str | None = None
    low_ns: Positive | None = None
    high_ns: Positive | None = None
    """Between them lies the median of one more process of the best case, in 95 of 100."""
    ended: Ended | None = None
    """None: it waits for `asked`."""
    asked: list[str] = []
    """Files that it waits for."""
    spent_s: NotNegative | None = None
    """What the measurements took that it looked at."""
    options: dict[str, str | bool | Number | list[str] | dict[str, int]] = {}
    """Of the best case's variant."""


def last_duel(steps: Iterable[Step]) -> Step | None:
    """The best case against the baseline in new rounds; of several engines the first."""
    return next((step for step in steps if step.decision in ("confirmed", "not confirmed")), None)
