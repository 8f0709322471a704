"""Requests with prompts and answers, step by step: what static batches and continuous batching make of a schedule.

A step takes as long as its tokens ask for: those of prompts, and one of each request that decodes. That is measured
(`Curve`: tokens of a step → times), and linear in between. A static batch pads its prompts to the longest, and ends
with the longest answer. Continuous batching fills each step first with the requests that decode, then with prompts in
the order of arrival, up to a budget of tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from inferprof.queueing.policy import Curve, Policy, Samples, Times
from inferprof.queueing.simulate import Served

UNLIMITED: Final = 1 << 30
Counts = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True)
class Lengths:
    """Tokens of the prompt and of the answer of each request."""

    prompts: Counts
    answers: Counts

    @classmethod
    def drawn(cls, prompts: Sequence[int], answers: Sequence[int], count: int, seed: int) -> Lengths:
        """Uniform between the least and the most. The same seed gives the same ones at every rate."""
        pairs = np.random.default_rng(seed).random((count, 2))
        least, most = np.array([prompts, answers]).T
        drawn = (least + pairs * (most - least + 1)).astype(np.int64)
        return cls(drawn[:, 0], drawn[:, 1])


@dataclass(frozen=True)
class Answered:
    """What a schedule came to, and when the first and the last token of each request came, ns."""

    served: Served
    first: Times
    answers: Counts
    steps: int

    @property
    def ttft(self) -> Times:
        """From arrival to the first token."""
        return self.first - self.served.arrived

    @property
    def tpot(self) -> Times:
        """Of each further token."""
        tpot: Times = (self.served.done - self.first) / (self.answers - 1)
        return tpot


class _Steps:
    """The mean time of a step over its tokens: linear between what was measured, and beyond."""

    def __init__(self, curve: Curve) -> None:
        self.tokens = np.array(sorted(curve.times), dtype=float)
        self.times = np.array([curve.times[int(tokens)].mean() for tokens in self.tokens])
        more = self.tokens.size > 1
        self.slope = max(0.0, np.diff(self.times)[-1] / np.diff(self.tokens)[-1]) if more else 0.0

    def time(self, tokens: int) -> float:
        """ns."""
        beyond = max(0.0, tokens - self.tokens[-1])
        return float(np.interp(tokens, self.tokens, self.times) + self.slope * beyond)


def slower(curve: Curve, seen: Samples) -> float:
    """How many times as long steps took that were seen, by their tokens, as a curve has it."""
    steps = _Steps(curve)
    expected = sum(len(taken) * steps.time(tokens) for tokens, taken in seen.items())
    return float(sum(np.sum(taken) for taken in seen.values())) / expected


def static(curve: Curve, policy: Policy, arrivals: Times, lengths: Lengths) -> Answered:
    """Batches by a policy, each until its last token; requests are done with their batch."""
    steps = _Steps(curve)
    count, moments = arrivals.size, arrivals.tolist()
    started, first, done = np.zeros(count), np.zeros(count), np.zeros(count)
    batches = np.zeros(count, dtype=np.int64)
    free, i, made = 0.0, 0, 0
    while i < count:
        begins, size = policy.next_batch(moments, i, free)
        part = slice(i, i + size)
        longest = int(lengths.answers[part].max())
        started[part], batches[part] = begins, size
        first[part] = begins + steps.time(size * int(lengths.prompts[part].max()))
        free = float(first[i]) + (longest - 1) * steps.time(size)
        done[part] = free
        made += longest
        i += size
    return Answered(Served(arrivals, started, done, batches), first, lengths.answers, made)


def continuous(curve: Curve, most: int, budget: int, arrivals: Times, lengths: Lengths) -> Answered:
    """Steps of up to `most` requests and `budget` tokens (0: any number)."""
    steps, budget = _Steps(curve), budget or UNLIMITED
    count = arrivals.size
    started, first, done = np.full(count, np.inf), np.zeros(count), np.zeros(count)
    batches = np.zeros(count, dtype=np.int64)
    left, made = lengths.answers.copy(), lengths.prompts.copy()
    decoding: list[int] = []
    reading: list[int] = []
    now, coming, taken = 0.0, 0, 0
    while coming < count or reading or decoding:
        if not reading and not decoding:
            now = max(now, float(arrivals[coming]))
        while coming < count and arrivals[coming] <= now:
            reading.append(coming)
            coming += 1
        room = budget - len(decoding)
        read: list[int] = []
        tokens = len(decoding)
        for number in reading:
            if room <= 0 or len(decoding) + len(read) >= most:
                break
            started[number] = min(started[number], now)
            chunk = min(room, int(made[number]))
            made[number] -= chunk
            room, tokens = room - chunk, tokens + chunk
            read.append(number)
        now += steps.time(tokens)
        taken += 1
        ready = [number for number in read if not made[number]]
        reading = [number for number in reading if made[number]]
        for number in ready:
            first[number] = now
        for number in (*decoding, *ready):
            left[number] -= 1
            done[number] = now
            batches[number] = max(batches[number], len(decoding) + len(ready))
        decoding = [number for number in (*decoding, *ready) if left[number]]
    return Answered(Served(arrivals, started, done, batches), first, lengths.answers, taken)
