"""Launches of a trace joined with the nodes of ONNX Runtime's profile of the same process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest
from tests.unit.facts import naming

from inferprof.devices.ranges import LOOKS, mark_clock
from inferprof.errors import UserError
from inferprof.readers.nsys_sqlite import read_timeline
from inferprof.readers.ort_json import read_profile
from inferprof.tables.nodes import attribution, ort_kernels
from inferprof.tables.nodes.ort_facts import SessionFacts
from inferprof.tables.nodes.ort_kernels import Clock
from inferprof.tables.nodes.providers import OrtProfile
from inferprof.tables.trace.timeline import KERNEL, MEMCPY, PATH_SEPARATOR, Timeline, assemble

PROCESS, MAIN, OTHER = 77, 77, 78
THREAD = PROCESS << 24 | MAIN
EPOCH = 1_795_827_994_389_722_342
"""A time of today on the host's clock: what a double cannot hold to the nanosecond."""
STARTED = EPOCH - 500_000_000
"""When the session's clock began."""


class Marks:
    """A trace's clock that shows EPOCH as 0, and the ranges that mark_clock opens on it."""

    def __init__(self, width: int = 200) -> None:
        self.time = 0
        self.width = width
        self.ranges: list[tuple[int, int, int, str]] = []

    @contextlib.contextmanager
    def named(self, label: str) -> Iterator[None]:
        start = self.time
        self.time += self.width // 2
        yield
        self.time += self.width - self.width // 2
        self.ranges.append((start, self.time, THREAD, label))

    def at(self, time: int, drift: int = 0) -> None:
        self.time = time
        mark_clock(self.named, lambda: EPOCH + self.time + drift)


def timeline(ranges: list[tuple[int, int, int, str]], launches: list[tuple[int, int, int]]) -> Timeline:
    """launches: (start of the call, thread, kind); each call takes 3 µs and its operation, 5 µs later, 10 µs."""
    ops = [(t + 5000, t + 15_000, kind, i % 2, 0, 7, 64, i) for i, (t, _, kind) in enumerate(launches)]
    calls = [(t, t + 3000, thread, 2, i) for i, (t, thread, _) in enumerate(launches)]
    return assemble(
        pd.DataFrame(ops, columns=["start", "end", "kind", "name", "device", "stream", "bytes", "correlation"]),
        pd.DataFrame(calls, columns=["start", "end", "thread", "name", "correlation"]),
        pd.DataFrame(ranges, columns=["start", "end", "thread", "label"]),
        ["gemm", "softmax", "cudaLaunchKernel"],
    )


def profile(*nodes: tuple[int, int, str, str]) -> OrtProfile:
    """nodes: start and end in ns on the trace's clock (multiples of 1 µs), name, type."""
    rows = [
        {
            "run": 0,
            "start": start + EPOCH - STARTED,
            "duration": end - start,
            "name": name,
            "op_type": op_type,
            "provider": "CUDAExecutionProvider",
            "process": PROCESS,
            "thread": MAIN,
            "bytes": 64.0,
            "types": "float",
        }
        for start, end, name, op_type in nodes
    ]
    return OrtProfile(pd.DataFrame(rows), pd.Series([1]), SessionFacts(STARTED))


@pytest.fixture
def marks() -> Marks:
    """Ten looks at the clock at 1 ms, and ten at 101 ms."""
    seen = Marks()
    seen.at(1_000_000)
    seen.at(101_000_000)
    return seen


def names_of(seen: Timeline, known: OrtProfile) -> list[str | None]:
    """The node of each operation, in order."""
    nodes = ort_kernels.placed(seen, known)
    return [nodes["name"][row] if row >= 0 else None for row in ort_kernels.owners(seen, nodes)]


# --- clocks ----------------------------------------------------------------------------------------------------


def test_a_moment_of_the_host_is_placed_to_half_the_width_of_the_shortest_look(marks: Marks) -> None:
    clock = Clock.of(timeline(marks.ranges, []))
    assert len(marks.ranges) == 4 * LOOKS
    assert clock.error == 100
    assert clock.on_capture(clock.host + 17).tolist() == (clock.capture + 17).tolist()
    assert (clock.capture - clock.host).tolist() == [-EPOCH, -EPOCH]


def test_clocks_that_drift_are_tied_at_both_ends() -> None:
    seen = Marks()
    seen.at(1_000_000)
    seen.at(101_000_000, drift=50_000)  # 500 ppm, the most that a clock is slewed
    clock = Clock.of(timeline(seen.ranges, []))
    middle = (clock.host[0] + clock.host[1]) // 2
    assert clock.on_capture(pd.Series([middle]).to_numpy()).tolist() == [(clock.capture[0] + clock.capture[1]) // 2]


def test_a_trace_without_marks_is_refused() -> None:
    seen = timeline([(0, 5, THREAD, "iteration")], [(1, THREAD, KERNEL)])
    with pytest.raises(UserError, match=naming("no mark", "clock")):
        ort_kernels.placed(seen, profile((0, 1000, "a", "Add")))


# --- launches --------------------------------------------------------------------------------------------------


def test_a_launch_belongs_to_the_node_that_holds_its_call(marks: Marks) -> None:
    known = profile((10_000_000, 10_020_000, "a", "MatMul"), (10_020_000, 10_040_000, "b", "Softmax"))
    seen = timeline(marks.ranges, [(10_005_000, THREAD, KERNEL), (10_025_000, THREAD, KERNEL)])
    assert names_of(seen, known) == ["a", "b"]


def test_a_launch_of_another_thread_or_outside_of_all_nodes_belongs_to_nobody(marks: Marks) -> None:
    known = profile((10_000_000, 10_020_000, "a", "MatMul"))
    elsewhere = PROCESS << 24 | OTHER
    seen = timeline(marks.ranges, [(10_005_000, elsewhere, KERNEL), (10_500_000, THREAD, KERNEL)])
    assert names_of(seen, known) == [None, None]


def test_of_a_loop_and_a_node_in_its_body_the_inner_one_counts(marks: Marks) -> None:
    known = profile((10_000_000, 10_090_000, "loop", "Loop"), (10_010_000, 10_030_000, "body", "Mul"))
    seen = timeline(marks.ranges, [(10_015_000, THREAD, KERNEL), (10_050_000, THREAD, KERNEL)])
    assert names_of(seen, known) == ["body", "loop"]


@pytest.mark.parametrize("call", [10_019_950, 10_020_000, 10_021_050])
def test_a_launch_at_the_edge_of_two_nodes_is_given_to_neither(call: int, marks: Marks) -> None:
    known = profile((10_000_000, 10_020_000, "a", "MatMul"), (10_020_000, 10_040_000, "b", "Softmax"))
    assert names_of(timeline(marks.ranges, [(call, THREAD, KERNEL)]), known) == [None]


@pytest.mark.parametrize(
    ("call", "node"), [(10_000_300, "a"), (10_020_050, "a"), (9_999_000, None), (10_023_000, None)]
)
def test_a_launch_at_the_edge_of_a_node_with_a_gap_beside_it_is_the_nodes(
    call: int, node: str | None, marks: Marks
) -> None:
    known = profile((10_000_000, 10_020_000, "a", "MatMul"))
    assert names_of(timeline(marks.ranges, [(call, THREAD, KERNEL)]), known) == [node]


def test_one_node_that_runs_twice_owns_the_launches_of_both(marks: Marks) -> None:
    known = profile((10_000_000, 10_020_000, "a", "MatMul"), (20_000_000, 20_020_000, "a", "MatMul"))
    seen = timeline(marks.ranges, [(t, THREAD, KERNEL) for t in (10_005_000, 10_010_000, 20_005_000, 20_010_000)])
    frame = ort_kernels.tidy(seen, known, "ort_nodes")
    join = ort_kernels.attributed(frame)
    assert join[["kernel", "duration_ns", "instances", "owner", "confidence"]].to_numpy().tolist() == [
        ["gemm", 20_000, 2, "a", 1.0],
        ["softmax", 20_000, 2, "a", 1.0],
    ]
    op = frame[(frame["level"] == "op") & (frame["metric"] == "duration_total")]
    assert op[["name", "owner", "instances", "value"]].to_numpy().tolist() == [
        ["a", "CUDAExecutionProvider > MatMul", 2, 40_000]
    ]


def test_what_nobody_owns_is_counted_and_not_spread(marks: Marks) -> None:
    known = profile((10_000_000, 10_020_000, "a > b", "MatMul"))
    seen = timeline(marks.ranges, [(10_005_000, THREAD, KERNEL), (30_000_000, THREAD, KERNEL)])
    join = ort_kernels.attributed(ort_kernels.tidy(seen, known, "ort_nodes"))
    (row,) = attribution.shares(join).to_dict("records")
    assert (row["total_ns"], row["attributed_ns"], row["unattributed_ns"]) == (20_000, 10_000, 10_000)
    assert attribution.by_owner(join, "op")["owner"].fillna("").tolist() == ["a > b", ""]


def test_copies_have_their_node_and_their_bytes(marks: Marks) -> None:
    known = profile((10_000_000, 10_020_000, "to host", "MemcpyToHost"))
    frame = ort_kernels.tidy(timeline(marks.ranges, [(10_005_000, THREAD, MEMCPY)]), known, "ort_nodes")
    (row,) = frame[(frame["level"] == "memcpy") & (frame["metric"] == "bytes_total")].to_dict("records")
    path = PATH_SEPARATOR.join(("CUDAExecutionProvider", "MemcpyToHost", "to host"))
    assert (row["owner"], row["value"]) == (path, 64)


# --- files that do not belong together -------------------------------------------------------------------------


def test_two_processes_are_refused_by_their_ids(captured: Callable[[str], Path], repository: Path) -> None:
    export = captured("h100_ort_tensorrt_ep")
    profiled = repository / "tests/data/ort_profile/h100_ort_tensorrt_ep.json.gz"
    with pytest.raises(UserError, match=naming("process", "1202", "1288")):
        ort_kernels.placed(read_timeline(export), read_profile(profiled))


def test_a_profile_that_does_not_say_when_it_began_is_refused(marks: Marks) -> None:
    known = profile((10_000_000, 10_020_000, "a", "MatMul"))
    with pytest.raises(UserError, match=naming("not say when", "clock")):
        ort_kernels.placed(
            timeline(marks.ranges, [(10_005_000, THREAD, KERNEL)]), OrtProfile(known.nodes, known.runs)
        )


def test_a_profile_of_another_run_of_a_process_with_the_same_number_is_refused(marks: Marks) -> None:
    known = profile(*((t * 1_000_000, t * 1_000_000 + 5000, f"n{t}", "Add") for t in range(900, 905)))
    with pytest.raises(UserError, match=naming("none", "5", "n900", "n901", "n902")):
        ort_kernels.placed(timeline(marks.ranges, [(10_005_000, THREAD, KERNEL)]), known)
