"""Where the time of an iteration goes, on timelines whose answer is computed by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import pytest

from inferprof.tables.trace import derived
from inferprof.tables.trace.idle import IDLE_CAUSES
from inferprof.tables.trace.timeline import GRAPH, KERNEL, MEMCPY, Timeline, assemble

NAMES = [
    "launch",
    "cudaStreamSynchronize",
    "cudaMemcpyAsync",
    "cudaFree",
    "cudaMalloc",
    "HtoD pageable",
    "HtoD pinned",
]
LAUNCH, SYNC, COPY_CALL, FREE, MALLOC, PAGEABLE, PINNED = range(len(NAMES))
MAIN, OTHER = 1, 2

Call = tuple[int, int, int]
"""start, end, name."""
Op = tuple[int, int, int, int]
"""start, end, index of its call, kind."""


def timeline(
    calls: Sequence[Call],
    ops: Sequence[Op],
    ranges: Sequence[tuple[int, int, str]],
    *,
    streams: Sequence[int] | None = None,
    copy_name: int = PAGEABLE,
    thread: int = MAIN,
) -> Timeline:
    call_rows = [(*call, thread, i) for i, call in enumerate(calls)]
    op_rows = [
        (start, end, kind, copy_name if kind == MEMCPY else LAUNCH, 0, streams[i] if streams else 7, 0, call)
        for i, (start, end, call, kind) in enumerate(ops)
    ]
    return assemble(
        pd.DataFrame(op_rows, columns=["start", "end", "kind", "name", "device", "stream", "bytes", "correlation"]),
        pd.DataFrame(call_rows, columns=["start", "end", "name", "thread", "correlation"]),
        pd.DataFrame([(*r, MAIN) for r in ranges], columns=["start", "end", "label", "thread"]),
        NAMES,
    )


def amounts(made: Timeline, name: str = "iteration") -> dict[str, float]:
    """Metric → value of a range, as the tidy table has it."""
    rows = derived.rows(made)
    return dict(rows.loc[rows["name"] == name, ["metric", "value"]].itertuples(index=False, name=None))


def idle(made: Timeline, name: str = "iteration") -> dict[str, float]:
    """The causes that are not zero."""
    found = amounts(made, name)
    return {cause: found[f"idle_{cause}"] for cause in IDLE_CAUSES if found[f"idle_{cause}"]}


def test_waiting_for_the_hosts_launch() -> None:
    made = timeline(
        [(100, 120, LAUNCH), (300, 320, LAUNCH)],
        [(130, 230, 0, KERNEL), (330, 400, 1, KERNEL)],
        [(0, 400, "iteration")],
    )
    assert idle(made) == {"launch": 130 + 100}
    found = amounts(made)
    assert (found["gpu_busy"], found["gpu_idle"], found["launch_bound"]) == (170, 230, 230 / 400)


@pytest.mark.parametrize(
    ("begins", "launch", "queued"), [(500, 95, 0), (470, 65, 0), (460, 55, 0), (100_650, 65 + 100_000, 180)]
)
def test_a_wait_for_a_launch_is_split_where_the_call_begins_and_where_it_returns(
    begins: int, launch: int, queued: int
) -> None:
    """The host is elsewhere for 5 ns and for 40; its calls take 10 and 20; then the GPU starts."""
    calls = [(5, 15, LAUNCH), (450, 470, LAUNCH)]
    made = timeline(calls, [(15, 410, 0, KERNEL), (begins, begins + 50, 1, GRAPH)], [(0, begins + 50, "iteration")])
    found = amounts(made)
    calling, starting = found["launching_idle"], found["starting_idle"]
    assert (found["idle_launch"], found["idle_queued"]) == (launch + 10, queued)
    assert (calling, starting) == (10 + min(20, begins - 450), max(0, min(begins - 470, 100_000)))
    assert found["idle_launch"] - calling - starting == 5 + 40


def test_a_call_that_returns_when_its_kernel_is_done_is_launching_for_the_next_one_too() -> None:
    calls = [(0, 30, LAUNCH), (50, 60, LAUNCH)]
    found = amounts(timeline(calls, [(5, 10, 0, KERNEL), (60, 70, 1, KERNEL)], [(0, 70, "iteration")]))
    assert (found["idle_launch"], found["launching_idle"], found["starting_idle"]) == (55, 5 + 20 + 10, 0)


def test_waiting_in_a_synchronise_before_the_launch() -> None:
    calls = [(0, 10, LAUNCH), (20, 250, SYNC), (300, 320, LAUNCH)]
    made = timeline(calls, [(10, 200, 0, KERNEL), (330, 400, 2, KERNEL)], [(0, 400, "iteration")])
    assert idle(made) == {"launch": 10 + 80, "sync": 50}


def test_a_copy_call_and_the_copy_that_comes_next_are_idle_for_a_copy() -> None:
    calls = [(0, 10, LAUNCH), (100, 300, COPY_CALL)]
    made = timeline(calls, [(10, 60, 0, KERNEL), (250, 300, 1, MEMCPY)], [(0, 300, "iteration")])
    assert idle(made) == {"launch": 10 + 40, "copy": 150}


def test_work_that_was_queued_before_the_gpu_went_idle() -> None:
    calls = [(0, 10, LAUNCH), (10, 20, LAUNCH)]
    made = timeline(calls, [(10, 100, 0, KERNEL), (103, 200, 1, KERNEL)], [(0, 200, "iteration")])
    assert idle(made) == {"launch": 10, "queued": 3}


def test_nothing_more_to_do_until_the_end() -> None:
    made = timeline([(0, 10, LAUNCH), (20, 300, SYNC)], [(10, 100, 0, KERNEL)], [(0, 300, "iteration")])
    assert idle(made) == {"launch": 10, "end": 200}


def test_a_range_without_gpu_work_is_all_end() -> None:
    made = timeline([(0, 10, LAUNCH)], [(10, 100, 0, KERNEL)], [(200, 260, "iteration")])
    assert idle(made) == {"end": 60}


def test_a_gpu_that_computes_from_before_until_after_the_range_is_never_idle() -> None:
    made = timeline([(0, 10, LAUNCH)], [(10, 500, 0, KERNEL)], [(100, 200, "iteration")])
    assert idle(made) == {}
    assert amounts(made)["gpu_busy"] == 100


def test_an_operation_without_a_launch_is_of_unknown_cause() -> None:
    made = timeline([(0, 10, LAUNCH)], [(10, 50, 0, KERNEL), (80, 100, 99, KERNEL)], [(0, 100, "iteration")])
    assert idle(made) == {"launch": 10, "unknown": 30}


def test_other_threads_waits_do_not_explain_this_threads_launches() -> None:
    waiting = pd.DataFrame([(20, 290, SYNC, OTHER, 7)], columns=["start", "end", "name", "thread", "correlation"])
    one = timeline(
        [(0, 10, LAUNCH), (300, 320, LAUNCH)], [(10, 100, 0, KERNEL), (330, 400, 1, KERNEL)], [(0, 400, "iteration")]
    )
    calls = one.calls.drop(columns="path").assign(correlation=[0, 1])
    ops = one.ops.drop(columns="call").assign(correlation=[0, 1])
    ranges = pd.DataFrame([(0, 400, "iteration", MAIN)], columns=["start", "end", "label", "thread"])
    made = assemble(ops, pd.concat([calls, waiting]), ranges, NAMES)
    assert idle(made) == {"launch": 10 + 230}


def test_busy_and_the_causes_add_up_to_the_duration_over_iterations() -> None:
    calls, ops, ranges = [], [], []
    for i in range(5):
        at = 1000 * i
        calls += [
            (at + 5, at + 15, COPY_CALL),
            (at + 40, at + 50, LAUNCH),
            (at + 60, at + 70, LAUNCH),
            (at + 80, at + 900, SYNC),
        ]
        ops += [
            (at + 20, at + 35, 4 * i, MEMCPY),
            (at + 55, at + 300, 4 * i + 1, KERNEL),
            (at + 310, at + 700 + i, 4 * i + 2, KERNEL),
        ]
        ranges.append((at, at + 950, "iteration"))
    found = amounts(timeline(calls, ops, ranges))
    causes = sum(found[f"idle_{cause}"] for cause in IDLE_CAUSES)
    assert found["gpu_busy"] == 15 + 245 + 390 + 2
    assert found["kernel_busy"] == 245 + 390 + 2
    assert found["gpu_busy"] + causes == 950
    assert found["gpu_idle"] == causes


def test_launches_their_overhead_and_the_queue() -> None:
    calls = [(0, 10, LAUNCH), (10, 40, LAUNCH)]
    made = timeline(calls, [(10, 100, 0, KERNEL), (100, 200, 1, KERNEL)], [(0, 200, "iteration")])
    found = amounts(made)
    assert (found["launches"], found["launch_overhead"], found["launch_wait"]) == (2, 40, 60)
    assert (found["launch_overhead_mean"], found["launch_wait_mean"], found["queue_depth"]) == (20, 30, 60 / 200)


def test_a_graph_launch_is_one_launch_however_many_kernels_it_has() -> None:
    made = timeline(
        [(0, 50, LAUNCH)], [(20, 60, 0, KERNEL), (60, 90, 0, KERNEL), (95, 99, 0, KERNEL)], [(0, 100, "iteration")]
    )
    found = amounts(made)
    assert (found["launches"], found["launch_overhead_mean"]) == (1, 50)
    assert idle(made) == {"launch": 20, "queued": 5, "end": 1}


def test_graphs_traced_as_a_whole_count_as_computing() -> None:
    made = timeline([(0, 50, LAUNCH)], [(20, 90, 0, GRAPH)], [(0, 100, "iteration")])
    assert amounts(made)["kernel_busy"] == 70


def test_streams_that_overlap() -> None:
    calls = [(0, 1, LAUNCH), (1, 2, LAUNCH), (2, 3, LAUNCH)]
    ops = [(10, 60, 0, KERNEL), (40, 90, 1, KERNEL), (90, 100, 2, KERNEL)]
    found = amounts(timeline(calls, ops, [(0, 100, "iteration")], streams=[7, 13, 13]))
    assert (found["gpu_busy"], found["streams_overlap"], found["streams_overlap_share"]) == (90, 20, 20 / 90)


def test_allocation_and_syncs_inside_iterations_with_the_implicit_ones() -> None:
    calls = [
        (0, 5, MALLOC),  # before
        (110, 120, MALLOC),
        (130, 160, FREE),
        (170, 190, COPY_CALL),
        (200, 205, LAUNCH),
        (210, 290, SYNC),
    ]
    made = timeline(calls, [(180, 185, 3, MEMCPY), (206, 280, 4, KERNEL)], [(100, 300, "iteration")])
    found = amounts(made)
    assert (found["allocations"], found["allocation_time"]) == (2, 40)
    assert (found["syncs"], found["sync_time"]) == (1, 80)
    assert (found["implicit_syncs"], found["implicit_sync_time"]) == (2, 50)  # cudaFree and the pageable copy


def test_a_copy_from_pinned_memory_does_not_wait() -> None:
    made = timeline([(10, 20, COPY_CALL)], [(30, 40, 0, MEMCPY)], [(0, 50, "iteration")], copy_name=PINNED)
    assert amounts(made)["implicit_syncs"] == 0


def test_stages_are_accounted_for_and_layers_inside_them_are_not() -> None:
    ranges = [(0, 100, "iteration"), (0, 40, "stage:h2d"), (40, 100, "stage:execute"), (50, 60, "/p/Conv")]
    made = timeline([(45, 50, LAUNCH)], [(55, 90, 0, KERNEL)], ranges)
    rows = derived.rows(made)
    named = rows.loc[rows["level"] == "range", ["name", "range"]].drop_duplicates()
    assert sorted(named["name"]) == ["iteration", "stage:execute", "stage:h2d"]
    assert set(named.loc[named["name"] == "stage:h2d", "range"]) == {"iteration"}
    assert amounts(made, "stage:execute")["gpu_busy"] == 35


def test_without_ranges_the_whole_capture_is_the_window() -> None:
    made = timeline([(100, 120, LAUNCH)], [(130, 230, 0, KERNEL)], [])
    rows = derived.rows(made)
    assert set(rows["level"]) == {"run"}
    found = amounts(made, "capture")
    assert (found["duration_total"], found["gpu_busy"]) == (130, 100)


def test_calls_without_any_gpu_work_have_no_gpu_metrics() -> None:
    found = amounts(timeline([(10, 30, FREE)], [], [(0, 50, "iteration")]))
    assert found["implicit_sync_time"] == 20
    assert "gpu_busy" not in found


@pytest.mark.parametrize("count", [1, 3])
def test_values_are_means_per_instance(count: int) -> None:
    calls = [(100 * i, 100 * i + 10, LAUNCH) for i in range(count)]
    ops = [(100 * i + 10, 100 * i + 40, i, KERNEL) for i in range(count)]
    made = timeline(calls, ops, [(100 * i, 100 * i + 50, "iteration") for i in range(count)])
    rows = derived.rows(made)
    assert set(rows.loc[rows["name"] == "iteration", "instances"]) == {count}
    assert amounts(made)["gpu_busy"] == 30


def test_nested_ranges_and_the_thread_decide_the_range_of_a_launch() -> None:
    ranges = [(0, 100, "iteration"), (10, 50, "enqueue"), (20, 30, "/p/Conv")]
    made = timeline(
        [(5, 6, LAUNCH), (12, 13, LAUNCH), (25, 26, LAUNCH), (30, 31, LAUNCH), (99, 120, LAUNCH), (130, 131, LAUNCH)],
        [],
        ranges,
    )
    assert [made.paths[code] for code in made.calls["path"]] == [
        "iteration",
        "iteration > enqueue",
        "iteration > enqueue > /p/Conv",
        "iteration > enqueue",
        "iteration",
        "",
    ]
    elsewhere = timeline([(25, 26, LAUNCH)], [], ranges, thread=OTHER)
    assert elsewhere.calls["path"].tolist() == [0]


def test_a_range_that_outlives_the_one_around_it_is_closed_with_it() -> None:
    made = timeline([(45, 46, LAUNCH), (55, 56, LAUNCH)], [], [(0, 50, "outer"), (40, 60, "crossing")])
    assert [made.paths[code] for code in made.calls["path"]] == ["outer > crossing", ""]
