"""How the candidates of a search stand by the rounds so far: their times, and by how much these may be off."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

SIGMAS: Final = 2.0
"""How far from its rounds a case may be."""
REPEATED: Final = 6
"""Pairs of rounds that tell by how much such pairs differ."""
QUIET: Final = 0.002
"""By how much they differ at least."""
OF_MAD: Final = 1.4826
"""The standard deviation of normal values over the median of their distances from the middle."""


@dataclass
class Standing:
    """The times of cases over that of the baseline, by paired rounds beside whatever was the incumbent then."""

    incumbent: str
    rounds: dict[str, int] = field(default_factory=dict)
    """By how many rounds beside an incumbent a case is known."""
    _levels: dict[str, float] = field(default_factory=dict)
    _noises: dict[str, float] = field(default_factory=dict)
    _ratios: dict[tuple[str, str], np.ndarray[Any, Any]] = field(default_factory=dict)
    """Incumbent, candidate → the logarithms of what the candidate's rounds took over the incumbent's."""

    def compared(self, sides: tuple[str, str], own: Sequence[float], other: Sequence[float]) -> None:
        """Remember by how much the paired rounds of two cases differ."""
        self._ratios[sides] = np.log(np.array(other) / np.array(own))

    def screen(self, candidate: str, own: Sequence[float], other: Sequence[float], noise: float) -> None:
        """Place a candidate beside the incumbent by paired rounds, the incumbent's own first.

        noise: by how much the logarithm of one round's ratio may be off, as long as no pairs were repeated.
        """
        self.compared((self.incumbent, candidate), own, other)
        ratios = self._ratios[self.incumbent, candidate]
        self._levels[candidate] = self._levels.get(self.incumbent, 1.0) * float(np.exp(np.median(ratios)))
        self.rounds[candidate], self._noises[candidate] = len(ratios), noise

    def succeed(self, candidate: str, gain: float) -> None:
        """A candidate is the incumbent from now on. gain: the share of the incumbent's time that it saves."""
        self._levels[candidate] = self._levels.get(self.incumbent, 1.0) * (1 - gain)
        self.incumbent = candidate

    def ratio(self, candidate: str) -> float:
        """A candidate's time over the incumbent's."""
        return self._levels[candidate] / self._levels.get(self.incumbent, 1.0)

    def promise(self, candidate: str) -> float:
        """The share of the incumbent's time that may go with a candidate."""
        return 1 - self.ratio(candidate) * math.exp(-self._off(candidate))

    def in_doubt(self, candidate: str, tolerance: float) -> bool:
        """Whether a gain of the tolerance is neither ruled out nor as good as sure."""
        sure = 1 - self.ratio(candidate) * math.exp(self._off(candidate))
        return sure < tolerance <= self.promise(candidate)

    def spread(self) -> float | None:
        """By how much the ratios of paired rounds differ here, as a standard deviation that a few slow processes do
        not move; None where too few pairs were repeated."""
        repeated = [ratios for ratios in self._ratios.values() if len(ratios) > 1]
        off = [(each - each.mean()) * math.sqrt(len(each) / (len(each) - 1)) for each in repeated]
        if sum(map(len, off)) < REPEATED:
            return None
        return max(QUIET, OF_MAD * float(np.median(np.abs(np.concatenate(off)))))

    def _off(self, candidate: str) -> float:
        """By how much the logarithm of a candidate's ratio may be off."""
        return SIGMAS * (self.spread() or self._noises[candidate]) / math.sqrt(self.rounds[candidate])
