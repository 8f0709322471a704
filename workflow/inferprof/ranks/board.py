"""The memory that all ranks of a case share: what rank 0 asks for, and how far each of the others is.

Rank 0 measures, the others follow: each inference of it is one of theirs. They are asked through memory, not through
the collectives that are measured.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

RUN, CAPTURE, COLLECT, END_COLLECT, CLOSE = range(5)
"""Orders: one inference; turn it into a CUDA graph; a profiler's window begins and ends; no more."""
SPIN_S: Final = 1.0
"""So long a rank asks again without a pause; then every PAUSE_S, so that the cores of a slow host are free."""
PAUSE_S: Final = 1e-4


class Board:
    """Made before the ranks are forked. Each word has one writer."""

    def __init__(self, size: int) -> None:
        words = np.frombuffer(mmap.mmap(-1, 8 * (4 + 2 * size)), np.int64)
        self._head, (self._runs, self._acted) = words[:4], words[4:].reshape(2, size)

    def ask_run(self) -> None:
        """Rank 0: one more inference."""
        self._head[0] += 1

    def begun(self, rank: int) -> None:
        """This rank queued an inference."""
        self._runs[rank] += 1

    def order(self, kind: int) -> int:
        """Rank 0: ask for something else, once the others have begun all inferences; its number, for `wait_acted`."""
        self.until(lambda: bool((self._runs[1:] >= self._head[0]).all()))
        self._head[2] = kind
        self._head[1] += 1
        return int(self._head[1])

    def wait_acted(self, number: int) -> None:
        """Rank 0: until the others have done what was ordered."""
        self.until(lambda: bool((self._acted[1:] >= number).all()))

    def acted(self, rank: int) -> None:
        """This rank did what was ordered last."""
        self._acted[rank] += 1

    def next(self, rank: int) -> int:
        """Another rank: wait for what rank 0 asks for next."""
        self.until(lambda: bool(self._head[0] > self._runs[rank] or self._head[1] > self._acted[rank]))
        return RUN if self._head[0] > self._runs[rank] else int(self._head[2])

    def until(self, reached: Callable[[], bool]) -> None:
        """Wait for other ranks; whoever waits for all of them ends this one where they do not come."""
        spin_until = time.monotonic() + SPIN_S
        while not reached():
            if time.monotonic() < spin_until:
                os.sched_yield()
            else:
                time.sleep(PAUSE_S)

    # --- between hosts, each of which has a board of its own: ranks.hosts ---

    def asked(self) -> list[int]:
        """What rank 0 has asked for: the words for the boards of other hosts."""
        return [int(word) for word in self._head]

    def ask_alike(self, words: Sequence[int]) -> None:
        """Ask on this host for what rank 0 has asked for; the kind of an order before its number."""
        self._head[2:] = words[2:]
        self._head[:2] = words[:2]

    def done(self, ranks: range) -> list[int]:
        """How far these ranks are: the words for the first host."""
        part = slice(ranks.start, ranks.stop)
        return [int(word) for word in (*self._runs[part], *self._acted[part])]

    def hear(self, ranks: range, words: Sequence[int]) -> None:
        """Take over how far the ranks of another host are."""
        self._runs[ranks.start : ranks.stop] = words[: len(ranks)]
        self._acted[ranks.start : ranks.stop] = words[len(ranks) :]

    @property
    def runs(self) -> tuple[int, ...]:
        """How many inferences each rank has begun."""
        return tuple(map(int, self._runs))

    @property
    def state(self) -> tuple[int, ...]:
        """All words: where they stay the same, nobody gets on."""
        return (*map(int, self._head), *self.runs, *map(int, self._acted))

    def leave(self) -> None:
        """Rank 0: its session is closed, and no collective will come."""
        self._head[3] = 1

    @property
    def left(self) -> bool:
        """Whether rank 0 has closed its session."""
        return bool(self._head[3])
