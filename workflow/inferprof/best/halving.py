"""Successive halving (Jamieson and Talwalkar 2016): many candidates measured briefly, the better half of them longer.

What is cheap decides between what differs a lot. What is left at the end goes into a duel with the incumbent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

T = TypeVar("T", bound=Hashable)
Sample = Callable[[T, float], Sequence[float]]
"""Measures a candidate for a share of what a full measurement takes; gives at least one time."""


@dataclass(frozen=True)
class Rung(Generic[T]):
    """Candidates that were measured for the same share of a full measurement, the fastest first."""

    share: float
    medians: tuple[tuple[T, float], ...]

    @property
    def better(self) -> tuple[T, ...]:
        """The half that goes on."""
        return tuple(candidate for candidate, _ in self.medians[: math.ceil(len(self.medians) / 2)])


def halve(candidates: Sequence[T], sample: Sample[T], budget: float) -> list[Rung[T]]:
    """The rungs, until one candidate is left: the first of the last rung.

    budget: of what measuring all candidates in full takes, the share for all rungs; each gets the same part of it.
    A candidate's times of all rungs count together.
    """
    left, rungs = tuple(candidates), []
    times: dict[T, list[float]] = {candidate: [] for candidate in candidates}
    count = max(1, math.ceil(math.log2(max(1, len(left)))))
    while len(left) > 1:
        share = budget * len(candidates) / count / len(left)
        for candidate in left:
            times[candidate].extend(sample(candidate, share))
        medians = [(candidate, float(np.median(times[candidate]))) for candidate in left]
        rungs.append(Rung(share, tuple(sorted(medians, key=lambda entry: entry[1]))))
        left = rungs[-1].better
    return rungs
