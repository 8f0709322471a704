"""Open-loop load on a server: a client that sends when a request is due, a queue, and a worker that forms batches."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from inferprof.errors import UserError
from inferprof.queueing.policy import Policy, Times
from inferprof.queueing.simulate import Served
from inferprof.units import NS_PER_S

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
    begin: int = 0
    """When it started, ns of time.perf_counter_ns."""
    tokens: Sequence[Times] = ()
    """When the tokens of each request came, of a generative model."""

    @property
    def lag(self) -> Times:
        """How late each request was sent."""
        return self.sent - self.served.arrived

    @property
    def kept_up(self) -> bool:
        """Whether all requests were served in time."""
        return self.served.arrived.size == self.asked


def joined(runs: Sequence[Run], asked: int) -> Run:
    """The runs of the parts of a schedule with so many requests as one, in which each part begins when the one before
    is over. Of no runs: one without a request."""
    ends = np.cumsum([0.0, *(run.served.done.max(initial=0.0) for run in runs)])

    def all_of(moments: Iterable[Times]) -> Times:
        return np.concatenate([np.zeros(0), *(own + end for own, end in zip(moments, ends, strict=False))])

    served = Served(
        arrived=all_of(run.served.arrived for run in runs),
        started=all_of(run.served.started for run in runs),
        done=all_of(run.served.done for run in runs),
        batch=np.concatenate([np.zeros(0, dtype=np.int64), *(run.served.batch for run in runs)]),
    )
    tokens = [came + end for run, end in zip(runs, ends, strict=False) for came in run.tokens]
    return Run(served, all_of(run.sent for run in runs), asked, runs[0].begin if runs else 0, tokens)


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


class Client(threading.Thread):
    """Sends each request of a schedule when it is due, whatever the server does. Moments are ns from its start."""

    def __init__(
        self, due: Times, send: Callable[[int, float], object], close: Callable[[], None], core: int | None = None
    ) -> None:
        """send: is called with the number of a request and the moment at which it was due; close: behind them all;
        core: the CPU that it runs on, any unless given."""
        super().__init__(name="client", daemon=True)
        self._core = core
        self._due, self._send, self._close = due, send, close
        self._over = threading.Event()
        self.sent = np.zeros(due.size)
        self.begin = time.perf_counter_ns()

    def clock(self) -> float:
        """Now."""
        return float(time.perf_counter_ns() - self.begin)

    @property
    def end(self) -> float:
        """When the run is over, all served or not."""
        return OVERTIME * float(self._due[-1]) + NS_PER_S

    def run(self) -> None:
        """Send."""
        pin(self._core)
        for number, moment in enumerate(self._due):
            if (wait := moment - self.clock()) > 0 and self._over.wait(wait / NS_PER_S):
                break
            self.sent[number] = self.clock()
            self._send(number, float(moment))
        self._close()

    def __enter__(self) -> Client:
        self._before = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_S)
        self.begin = time.perf_counter_ns()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()
        sys.setswitchinterval(self._before)


def pin(core: int | None) -> None:
    """Keep the calling thread on a CPU."""
    if core is not None:
        os.sched_setaffinity(0, {core})


@contextlib.contextmanager
def apart(wanted: bool) -> Iterator[int | None]:
    """The last CPU of the process, kept free for the client: this thread and those that it starts meanwhile, a
    session's too, have the others. None where it is not wanted. Raises UserError where there is but one."""
    cores = sorted(os.sched_getaffinity(0))
    if not wanted:
        yield None
        return
    if len(cores) < 2:
        raise UserError("client_core keeps a CPU for the client, and there is but one: leave it out")
    os.sched_setaffinity(0, cores[:-1])
    try:
        yield cores[-1]
    finally:
        os.sched_setaffinity(0, cores)


def run(serve: Serve, policy: Policy, due: Times, core: int | None = None) -> Run:
    """Serve a schedule; ends at OVERTIME at the latest. core: the client's CPU."""
    count = due.size
    started, done = np.zeros(count), np.zeros(count)
    batches = np.zeros(count, dtype=np.int64)
    queue, last = Queue(), 0
    with Client(due, queue.put, queue.close, core) as client:
        while client.clock() < client.end and (numbers := queue.batch(policy, client.clock)):
            begun = client.clock()
            serve(numbers)
            first, last = numbers[0], numbers[-1] + 1
            started[first:last], done[first:last], batches[first:last] = begun, client.clock(), len(numbers)
    return Run(
        Served(due[:last], started[:last], done[:last], batches[:last]), client.sent[:last], count, client.begin
    )
