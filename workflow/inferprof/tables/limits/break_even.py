"""From how many inferences on a slower start is worth it: an engine's build, a compilation, a search for kernels.

N inferences of a case take its start + N × its latency. Over N that is a straight line for each case, and the lowest
of them changes from a case that starts sooner to one that infers faster: those are the places to change over.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Candidate:
    """A case: its start, and the ends of the interval of its median latency, all in ns."""

    key: tuple[str, ...]
    start_ns: float
    median_ns: float
    low_ns: float
    high_ns: float


@dataclass(frozen=True)
class Stretch:
    """The case that is done first with `first` inferences and more, up to the next stretch."""

    first: int
    case: Candidate


def stretches(candidates: Iterable[Candidate]) -> list[Stretch]:
    """The cases that are done first for some number of inferences, by that number; empty without candidates.

    Who takes over has an interval wholly below that of whom it takes over from: chance changes nothing over.
    """
    ordered = sorted(
        candidates, key=lambda candidate: (candidate.start_ns + candidate.median_ns, candidate.median_ns)
    )
    if not ordered:
        return []
    winners = [Stretch(1, ordered[0])]
    while faster := [candidate for candidate in ordered if candidate.high_ns < winners[-1].case.low_ns]:
        winners.append(_next(winners[-1].case, faster))
    return winners


def _next(now: Candidate, faster: Sequence[Candidate]) -> Stretch:
    """Who of the faster ones is the first to be done sooner, and from how many inferences on."""

    def meeting(candidate: Candidate) -> float:
        return (candidate.start_ns - now.start_ns) / (now.median_ns - candidate.median_ns)

    case = min(faster, key=lambda candidate: (meeting(candidate), candidate.median_ns))
    return Stretch(max(1, math.floor(meeting(case)) + 1), case)
