"""How fast the host itself is while a case is measured: a fixed piece of work, timed again and again beside it.

On a rented machine a core loses a third of its speed whenever its other hyper-thread, perhaps somebody else's, is
busy; nothing in the guest counts that. The yardstick shows it by the time that its thread was on a core; by the rest
of its time, that other processes had the core. It is read before each turn of the loops, when all that was queued on
the GPU is done: never inside of a sample, and never beside one.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inferprof.measure.loop import Clock

ITERATIONS = 12_000
"""About 1 ms of CPython, so that the 32 readings of a case on a GPU cost it some 40 ms."""
MOST_CORES = 64
"""That are tried: some 100 ms."""
STAT = Path("/proc/stat")
TASKS = Path("/proc/self/task")
BUSY, STOLEN = (0, 1, 2, 5, 6), 7
"""Fields of the line `cpu` of /proc/stat (proc_stat(5)): user, nice, system, irq, softirq; and steal."""


def work() -> int:
    """What is timed: integers by the interpreter, on one thread, without memory that it could wait for."""
    x = 1
    for _ in range(ITERATIONS):
        x = (x * 1_103_515_245 + 12_345) & 0x7FFF_FFFF
    return x


def read_stat() -> str:
    """What the kernel counted so far; empty where there is no Linux to ask."""
    return STAT.read_text(encoding="ascii") if STAT.exists() else ""


def read_threads() -> dict[str, tuple[int, int]]:
    """Thread of this process → ns that it was on a core, and waited for one; none where Linux does not tell."""
    threads = {}
    for path in TASKS.glob("*/schedstat"):
        with contextlib.suppress(OSError):  # a thread that ended meanwhile
            on_core, waited, _ = map(int, path.read_text(encoding="ascii").split())
            threads[path.parent.name] = on_core, waited
    return threads


@dataclass(frozen=True)
class HostSpeed:
    """What was seen of the host beside the loops of a case."""

    yardstick_ns: tuple[int, ...]
    """What the work took, once before each turn, in order."""
    yardstick_cpu_ns: tuple[int, ...]
    """Of that, what the thread was on a core."""
    steal: Mapping[str, Any]
    """`percent` = 100 × steal / (busy + steal) of all CPUs: what the hypervisor took of the time in which they had
    work; or `not_measured`, why that is not known."""
    threads: Mapping[str, Any]
    """Of each thread of the process that worked, in `seconds`: how long it was `on_core`, and `waited` for one; or
    `not_measured`."""

    def record(self) -> dict[str, Any]:
        """The entry of the record. A yardstick can be compared with those of the same Python alone."""
        return {
            "yardstick_ns": list(self.yardstick_ns),
            "yardstick_cpu_ns": list(self.yardstick_cpu_ns),
            "steal": dict(self.steal),
            "threads": dict(self.threads),
        }


class Yardstick:
    """Collects readings until `speed`. The work was done once before, so that the interpreter has specialised it."""

    def __init__(
        self,
        clock: Clock,
        cpu_clock: Clock = time.thread_time_ns,
        work: Callable[[], object] = work,
        stat: Callable[[], str] = read_stat,
        threads: Callable[[], dict[str, tuple[int, int]]] = read_threads,
    ) -> None:
        self._clock, self._cpu_clock, self._work, self._stat = clock, cpu_clock, work, stat
        self._took: list[int] = []
        self._on_cpu: list[int] = []
        work()
        self._begin = stat()
        self._threads, self._began = threads, clock()
        self._threads_before = threads()

    def read(self) -> None:
        """Time the work once."""
        start, cpu_start = self._clock(), self._cpu_clock()
        self._work()
        self._on_cpu.append(self._cpu_clock() - cpu_start)
        self._took.append(self._clock() - start)

    def speed(self) -> HostSpeed:
        """All readings, and what was stolen meanwhile."""
        seconds = (self._clock() - self._began) / 1e9
        threads = _worked(self._threads_before, self._threads(), seconds)
        return HostSpeed(tuple(self._took), tuple(self._on_cpu), _stolen(self._begin, self._stat()), threads)


@contextlib.contextmanager
def on_quietest_core(clock: Clock = time.perf_counter_ns) -> Iterator[None]:
    """Keep this thread on the core where the work takes least now. Threads that are there stay where they may be."""
    cores = os.sched_getaffinity(0)

    def took(core: int) -> int:
        os.sched_setaffinity(0, {core})
        start = clock()
        work()
        return clock() - start

    try:
        with contextlib.suppress(PermissionError):  # of a container that may not choose
            os.sched_setaffinity(0, {min(sorted(cores)[:MOST_CORES], key=took)})
        yield
    finally:
        with contextlib.suppress(PermissionError):
            os.sched_setaffinity(0, cores)


def _stolen(begin: str, end: str) -> dict[str, Any]:
    """HostSpeed.steal between two contents of /proc/stat."""
    if not begin or not end:
        return {"not_measured": f"no {STAT}: Linux alone tells what a hypervisor takes"}
    before, after = ([int(field) for field in text.splitlines()[0].split()[1:]] for text in (begin, end))
    spent = [now - then for then, now in zip(before, after, strict=True)]
    stolen = spent[STOLEN] if len(spent) > STOLEN else 0
    busy = sum(spent[index] for index in BUSY)
    if busy + stolen <= 0:
        return {"not_measured": f"{STAT} counted no time of any CPU meanwhile"}
    return {"percent": 100 * stolen / (busy + stolen)}


def _worked(
    before: Mapping[str, tuple[int, int]], after: Mapping[str, tuple[int, int]], seconds: float
) -> dict[str, Any]:
    """HostSpeed.threads between two readings."""
    spent = [
        tuple((now - then) / 1e9 for now, then in zip(after[name], before.get(name, (0, 0)), strict=True))
        for name in after
    ]
    working = sorted((times for times in spent if times[0] > 0), reverse=True)
    if not working or seconds <= 0:
        return {"not_measured": f"no {TASKS}/*/schedstat: Linux alone tells what threads wait for"}
    return {
        "seconds": seconds,
        "on_core": [on_core for on_core, _ in working],
        "waited": [waited for _, waited in working],
    }
