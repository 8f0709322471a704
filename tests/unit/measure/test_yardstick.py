"""The speed of the host itself, on simulated clocks and on this machine."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable

import pytest

from inferprof import stats
from inferprof.measure import loop, yardstick
from inferprof.measure.loop import Protocol
from inferprof.measure.yardstick import HostSpeed, Yardstick

MS = 1_000_000
BEFORE = "cpu  1000 0 500 9000 10 0 20 40 300 0\ncpu0 1000 0 500 9000 10 0 20 40 300 0\nctxt 1\n"
AFTER = "cpu  1060 2 510 9900 90 1 22 65 900 0\ncpu0 1060 2 510 9900 90 1 22 65 900 0\nctxt 2\n"
"""75 busy, 25 stolen; the guests' time is in that of the users already, and idle time is nobody's."""


class Host:
    """A simulated clock of a host that takes `pace(s)` times as long for everything, and what it spent on a core."""

    def __init__(self, pace: Callable[[float], float]) -> None:
        self.ns = self.on_cpu = 0
        self.pace = pace

    def __call__(self) -> int:
        return self.ns

    def spend(self, ns: float) -> int:
        """The time that this much work took."""
        took = round(ns * self.pace(self.ns / 1e9))
        self.ns += took
        self.on_cpu += took
        return took

    def wait(self, ns: int) -> None:
        """Somebody else has the core."""
        self.ns += ns


def beside(pace: Callable[[float], float]) -> HostSpeed:
    """Two boundaries that take turns, one of which waits for the host and never settles."""
    host = Host(pace)
    durations = iter(range(10 * MS, 1_000 * MS, 1_000))
    samplers: dict[str, loop.Sample] = {
        "steady": lambda: float(host.spend(5 * MS)),
        "restless": lambda: float(host.spend(next(durations))),
    }
    watched = Yardstick(host, lambda: host.on_cpu, work=lambda: host.spend(MS), stat=lambda: "")
    loop.in_turns(samplers, Protocol(interval=1e-9, budget_s=1.0), host, watched.read)
    return watched.speed()


def test_a_host_that_slows_down_for_part_of_the_run_is_found():
    speed = beside(lambda s: 1.5 if 1.0 <= s % 2.5 < 2.0 else 1.0)
    assert set(speed.yardstick_cpu_ns) == {MS, 1_500_000}
    assert speed.yardstick_ns == speed.yardstick_cpu_ns
    assert stats.spread(speed.yardstick_cpu_ns) == 1.5


def test_a_steady_host_has_no_spread_and_one_reading_per_turn():
    speed = beside(lambda s: 1.0)
    assert speed.yardstick_ns == (MS,) * 2 * Protocol().turns
    assert stats.spread(speed.yardstick_cpu_ns) == 1.0


def test_a_core_that_others_have_meanwhile_is_not_a_slow_one():
    host = Host(lambda s: 1.0)

    def work() -> None:
        host.spend(MS)
        host.wait(9 * MS)

    watched = Yardstick(host, lambda: host.on_cpu, work=work, stat=lambda: "")
    watched.read()
    assert (watched.speed().yardstick_ns, watched.speed().yardstick_cpu_ns) == ((10 * MS,), (MS,))


def test_a_boundary_that_has_ended_is_not_read_for():
    host = Host(lambda s: 1.0)
    order: list[str] = []

    def sampler(name: str, ns: int) -> loop.Sample:
        def sample() -> float:
            order.append(name)
            return float(host.spend(ns))

        return sample

    samplers = {"long": sampler("long", 3_000 * MS), "short": sampler("short", 200 * MS)}
    loop.in_turns(samplers, Protocol(budget_s=1.0, interval=0.0), host, lambda: order.append("yardstick"))
    taken = order[order.index("yardstick") :]
    assert taken[:4] == ["yardstick", "long", "yardstick", "short"]
    assert taken.count("long") == 6
    assert taken.count("yardstick") == taken.count("long") + taken.count("short")


def test_what_the_hypervisor_took_is_a_share_of_the_time_that_there_was_work():
    stat = iter((BEFORE, AFTER))
    assert Yardstick(Host(lambda s: 1.0), stat=lambda: next(stat)).speed().steal == {"percent": 25.0}


@pytest.mark.parametrize(
    ("begin", "end", "reason"),
    [
        ("", "", "no /proc/stat: Linux alone tells what a hypervisor takes"),
        (BEFORE, BEFORE, "/proc/stat counted no time of any CPU meanwhile"),
    ],
)
def test_what_is_not_told_of_it_has_a_reason(begin, end, reason):
    stat = iter((begin, end))
    record = Yardstick(Host(lambda s: 1.0), stat=lambda: next(stat), threads=dict).speed().record()
    assert list(record.pop("threads")) == ["not_measured"]
    assert record == {"yardstick_ns": [], "yardstick_cpu_ns": [], "steal": {"not_measured": reason}}


def test_threads_that_worked_are_told_by_their_time_on_a_core_and_waiting_for_one():
    read = iter(({"1": (10**9, 0), "2": (0, 0)}, {"1": (3 * 10**9, 5 * 10**8), "2": (0, 0), "3": (10**9, 0)}))
    host = Host(lambda s: 1.0)
    watched = Yardstick(host, work=lambda: None, stat=lambda: "", threads=lambda: next(read))
    host.wait(2 * 10**9)
    assert watched.speed().threads == {"seconds": 2.0, "on_core": [2.0, 1.0], "waited": [0.5, 0.0]}


def test_threads_of_this_process_are_read_where_linux_tells_them():
    threads = yardstick.read_threads()
    assert not threads or any(on_core > 0 for on_core, _ in threads.values())


def test_a_kernel_that_counts_no_steal_took_none():
    old = iter(("cpu  100 0 50 900 1 0 0\n", "cpu  160 0 60 990 1 0 2\n"))
    assert Yardstick(Host(lambda s: 1.0), stat=lambda: next(old)).speed().steal == {"percent": 0.0}


def test_the_work_is_always_the_same_and_takes_about_a_millisecond():
    assert {yardstick.work() for _ in range(3)} == {yardstick.work()}
    watched = Yardstick(time.perf_counter_ns)
    for _ in range(20):
        watched.read()
    assert 0.1 * MS < min(watched.speed().yardstick_cpu_ns) < 10 * MS


def test_a_thread_stays_on_the_core_where_the_work_takes_least_and_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    ns, places = {0: 30, 1: 10, 2: 20}, [{0, 1, 2}]
    clock = itertools.accumulate(itertools.chain([0], iter(lambda: ns[min(places[-1])] // 2, None)))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: places[0])
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: places.append(cores))
    with yardstick.on_quietest_core(lambda: next(clock)):
        assert places[-1] == {1}
    assert places[-1] == {0, 1, 2}


def test_where_no_core_may_be_chosen_the_thread_runs_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int, cores: set[int]) -> None:
        raise PermissionError(cores)

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    with yardstick.on_quietest_core():
        pass
