"""From how many inferences on a slower start is worth it: an engine's build, a compilation, a search for kernels.

N inferences of a case take its start + N × its latency. Over N that is a straight line for each case, and the lowest
of them changes from a case that starts sooner to one that infers faster: those are the places to change over. Neither
a start nor a latency is known but to an interval, and chance changes nothing over.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

ONE_START: Final = 1.5
"""Ours: what is known of a start that was seen once, as a factor to either side. Starts of one case on an H200
differed by up to 1.4."""


@dataclass(frozen=True)
class Candidate:
    """A case: its starts, and its median latency with the ends of its interval, all in ns."""

    key: tuple[str, ...]
    starts_ns: tuple[float, ...]
    median_ns: float
    low_ns: float
    high_ns: float

    @property
    def start_ns(self) -> float:
        """The middle start."""
        ordered = sorted(self.starts_ns)
        return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2

    @property
    def start_range(self) -> tuple[float, float]:
        """The starts that were seen; of a single one ONE_START to either side."""
        if len(self.starts_ns) == 1:
            return self.start_ns / ONE_START, self.start_ns * ONE_START
        return min(self.starts_ns), max(self.starts_ns)


@dataclass(frozen=True)
class Stretch:
    """The case that is done first with `first` inferences and more, up to the next stretch. low, high: between which
    numbers of inferences it takes over; None where one of the two cases was started once."""

    first: int
    case: Candidate
    low: int | None = None
    high: int | None = None


def stretches(candidates: Iterable[Candidate]) -> list[Stretch]:
    """The cases that are done first for some number of inferences, by that number; empty without candidates.

    Who takes over has an interval wholly below that of whom it takes over from. Who is slower than another that does
    not start later for sure is done first for no number.
    """
    every = list(candidates)
    kept = [case for case in every if not any(_beats(other, case) for other in every)]
    ordered = sorted(kept, key=lambda candidate: (candidate.start_ns + candidate.median_ns, candidate.median_ns))
    if not ordered:
        return []
    winners = [Stretch(1, ordered[0], 1, 1)]
    while faster := [candidate for candidate in ordered if candidate.high_ns < winners[-1].case.low_ns]:
        winners.append(_next(winners[-1].case, faster))
    return winners


def _beats(other: Candidate, case: Candidate) -> bool:
    """Whether another case infers faster, and does not start later for sure."""
    return other.high_ns < case.low_ns and other.start_range[0] <= case.start_range[1]


def _next(now: Candidate, faster: Sequence[Candidate]) -> Stretch:
    """Who of the faster ones is the first to be done sooner, and from how many inferences on."""

    def meeting(candidate: Candidate) -> float:
        return (candidate.start_ns - now.start_ns) / (now.median_ns - candidate.median_ns)

    case = min(faster, key=lambda candidate: (meeting(candidate), candidate.median_ns))
    first = max(1, math.floor(meeting(case)) + 1)
    if 1 in (len(now.starts_ns), len(case.starts_ns)):
        return Stretch(first, case)
    (now_low, now_high), (low, high) = now.start_range, case.start_range
    soonest = (low - now_high) / (now.high_ns - case.low_ns)
    latest = (high - now_low) / (now.low_ns - case.high_ns)
    return Stretch(first, case, max(1, math.floor(soonest) + 1), max(1, math.floor(latest) + 1))
