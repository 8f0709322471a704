"""Open-loop load on a server: a client that sends when a request is due, a queue, and a worker that forms batches."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from inferprof.queueing.policy import NS_PER_S, Policy, Times
from inferprof.queueing.simulate import Served

SWITCH_S: Final = 1e-4
"""How long Python lets the worker keep the interpreter while the client wants to send."""
OVERTIME: Final = 2.0
"""A run that takes so many times as long as its schedule ends unserved: the server does not keep up."""
Serve = Callable[[Sequence[int]], object]


@dataclass(frozen=True)
class Run:
    """What was served of a schedule. Moments are ns from the start; `due` is the schedule's."""

    served: Served
    sent: Times
    asked: int
    """How many requests the schedule has."""

    @property
    def lag(self) -> Times:
        """How late each request was sent."""
        return self.sent - self.served.arrived

    @property
    def kept_up(self) -> bool:
        """Whether all requests were served in time."""
        return self.served.arrived.size == self.asked


def nothing() -> Run:
    """The run of a schedule without a request."""
    none = np.zeros(0)
    return Run(Served(none, none, none, none.astype(np.int64)), none, 0)


class Queue:
    """Requests that wait, in the order in which they came, and the moments at which they were due."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, float]] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def put(self, number: int, due: float) -> None:
        """Add a request."""
        with self._changed:
            self._waiting.append((number, due))
            self._changed.notify()

    def close(self) -> None:
        """Nothing more comes."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def batch(self, policy: Policy, clock: Callable[[], float]) -> list[int]:
        """Wait for the next batch by the policy; empty once the queue is closed and nothing waits."""
        with self._changed:
            while True:
                if not self._waiting:
                    if self._closed:
                        return []
                    self._changed.wait()
                    continue
                now = clock()
                starts = policy.starts(self._waiting[0][1], len(self._waiting), now)
                if starts <= now:
                    size = min(len(self._waiting), policy.max_batch)
                    return [self._waiting.popleft()[0] for _ in range(size)]
                self._changed.wait((starts - now) / NS_PER_S)


def run(serve: Serve, policy: Policy, due: Times) -> Run:
    """Serve a schedule; ends at OVERTIME at the latest."""
    count = due.size
    sent, started, done = (np.zeros(count) for _ in range(3))
    batches = np.zeros(count, dtype=np.int64)
    queue, over = Queue(), threading.Event()
    start = time.perf_counter_ns()

    def clock() -> float:
        return float(time.perf_counter_ns() - start)

    def send() -> None:
        for number, moment in enumerate(due):
            if (wait := moment - clock()) > 0 and over.wait(wait / NS_PER_S):
                break
            sent[number] = clock()
            queue.put(number, float(moment))
        queue.close()

    client = threading.Thread(target=send, name="client", daemon=True)
    end = OVERTIME * float(due[-1]) + NS_PER_S
    last = 0
    with _switching():
        client.start()
        try:
            while clock() < end and (numbers := queue.batch(policy, clock)):
                begun = clock()
                serve(numbers)
                first, last = numbers[0], numbers[-1] + 1
                started[first:last], done[first:last], batches[first:last] = begun, clock(), len(numbers)
        finally:
            over.set()
            client.join()
    return Run(Served(due[:last], started[:last], done[:last], batches[:last]), sent[:last], count)


@contextlib.contextmanager
def _switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
