"""How the candidates of a search stand by the rounds so far: their times, and by how much these may be off."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

SIGMAS: Final = 2.0
"""How far from its rounds a case may be."""
SPREAD: Final = 0.01
"""By how much processes of a case differ, as a standard deviation of logarithms, as long as few were repeated."""
REPEATED: Final = 6
"""Rounds of cases with several that tell it."""
QUIET: Final = 0.002
"""By how much they differ at least."""
OF_MAD: Final = 1.4826
"""The standard deviation of normal values over the median of their distances from the middle."""


@dataclass
class Standing:
    """The times of cases over that of the baseline, by rounds beside those of whatever was the incumbent then."""

    incumbent: str
    rounds: dict[str, int] = field(default_factory=dict)
    """By how many rounds a candidate is known."""
    _levels: dict[str, float] = field(default_factory=dict)
    _weights: dict[str, float] = field(default_factory=dict)
    """Candidate → by how much its ratio may be off, in spreads of one process."""
    _logs: dict[tuple[str, str], np.ndarray[Any, Any]] = field(default_factory=dict)
    """Case and what its rounds were for → the logarithms of these, beside this incumbent."""

    def __post_init__(self) -> None:
        self._levels[self.incumbent] = 1.0

    def heard(self, case: str, purpose: str, medians: Sequence[float]) -> None:
        """Remember by how much rounds of a case differ."""
        self._logs[case, purpose] = np.log(np.array(medians))

    def screen(self, candidate: str, own: Sequence[float], other: Sequence[float]) -> None:
        """Place a candidate by the incumbent's own rounds and by its."""
        self.heard(self.incumbent, "screen", own)
        self.heard(candidate, "screen", other)
        ratio = math.exp(float(np.median(np.log(other)) - np.median(np.log(own))))
        self._levels[candidate] = self._level * ratio
        self._weights[candidate] = math.sqrt(1 / len(own) + 1 / len(other))
        self.rounds[candidate] = len(other)

    def succeed(self, candidate: str, gain: float) -> None:
        """A candidate is the incumbent from now on. gain: the share of the incumbent's time that it saves."""
        self._levels[candidate] = self._level * (1 - gain)
        self.incumbent = candidate
        self._logs = {key: logs for key, logs in self._logs.items() if key[0] == candidate}

    def ratio(self, candidate: str) -> float:
        """A candidate's time over the incumbent's."""
        return self._levels[candidate] / self._level

    def over(self, candidate: str, other: str) -> float:
        """A candidate's time over another one's."""
        return self._levels[candidate] / self._levels[other]

    def knows(self, candidate: str) -> bool:
        """Whether rounds of it were seen."""
        return candidate in self._levels

    def promise(self, candidate: str) -> float:
        """The share of the incumbent's time that may go with a candidate."""
        return 1 - self.ratio(candidate) * math.exp(-self._off(candidate))

    def sure(self, candidate: str) -> float:
        """The share of the incumbent's time that goes with a candidate at the least."""
        return 1 - self.ratio(candidate) * math.exp(self._off(candidate))

    def spread(self) -> float:
        """By how much processes of a case differ here, as a standard deviation that a few slow ones do not move."""
        off = list(self._deviations())
        if not off:
            return SPREAD
        return max(QUIET if len(off) >= REPEATED else SPREAD, OF_MAD * float(np.median(np.abs(off))))

    def _deviations(self) -> Iterator[float]:
        for logs in self._logs.values():
            if (n := len(logs)) > 1:
                yield from (logs - logs.mean()) * math.sqrt(n / (n - 1))

    @property
    def _level(self) -> float:
        return self._levels[self.incumbent]

    def _off(self, candidate: str) -> float:
        """By how much the logarithm of a candidate's ratio may be off."""
        return SIGMAS * self.spread() * self._weights[candidate]
