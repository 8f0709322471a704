"""One iteration of a capture, event by event."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from inferprof.profilers import nsys
from inferprof.tables.schema import EVENT, conform
from inferprof.tables.trace import one_iteration
from inferprof.tables.trace.timeline import KERNEL, MEMCPY, NO_CALL, Timeline, assemble

HOST = 1


def timeline(ranges: list[tuple[int, int, str]], uncalled: int | None = None) -> Timeline:
    """A launch at 110 whose kernel runs at 250, behind its iteration, and a copy at 210 in the next one."""
    ops = [(250, 270, KERNEL, 0, 1), (215, 230, MEMCPY, 2, 2)]
    if uncalled is not None:
        ops.append((uncalled, uncalled + 5, KERNEL, 0, NO_CALL))
    return assemble(
        pd.DataFrame(
            [(start, end, kind, name, 0, 7, 0, call) for start, end, kind, name, call in ops],
            columns=["start", "end", "kind", "name", "device", "stream", "bytes", "correlation"],
        ),
        pd.DataFrame(
            [(110, 115, 1, HOST, 1), (210, 212, 1, HOST, 2)],
            columns=["start", "end", "name", "thread", "correlation"],
        ),
        pd.DataFrame([(*one, HOST) for one in ranges], columns=["start", "end", "label", "thread"]),
        ["gemm", "launch", "HtoD pageable"],
    )


def events(made: Timeline) -> list[tuple[Any, ...]]:
    found = one_iteration.of_case(conform(one_iteration.rows(made), "nsys"))
    return list(found[["name", "kind", "start", "end"]].itertuples(index=False, name=None))


def test_what_was_launched_in_the_iteration_is_its_own_wherever_it_runs():
    made = timeline([(100, 200, "iteration"), (105, 150, "stage:execute"), (106, 120, "/encoder/MatMul")])
    assert events(made) == [
        ("stage:execute", "range", 5.0, 50.0),
        ("/encoder/MatMul", "range", 6.0, 20.0),
        ("launch", "api", 10.0, 15.0),
        ("gemm", "kernel", 150.0, 170.0),
    ]


def test_an_operation_has_the_node_that_a_join_names_else_the_innermost_range_that_is_not_the_workloads():
    made = timeline([(100, 200, "iteration"), (105, 150, "stage:execute"), (106, 120, "/encoder/MatMul")])
    named = one_iteration.of_case(conform(one_iteration.rows(made, pd.Series([None, "CUDA > MatMul > a"])), "x"))
    plain = one_iteration.of_case(conform(one_iteration.rows(made), "nsys"))
    nodes = [dict(zip(table["kind"], table["node"], strict=True)) for table in (plain, named)]
    assert [{kind: node for kind, node in own.items() if isinstance(node, str)} for own in nodes] == [
        {"api": "/encoder/MatMul", "kernel": "/encoder/MatMul"},
        {"api": "/encoder/MatMul", "kernel": "CUDA > MatMul > a"},
    ]
    inside = timeline([(100, 200, "iteration"), (105, 150, "stage:execute")])
    assert one_iteration.of_case(conform(one_iteration.rows(inside), "nsys"))["node"].isna().all()


def test_where_there_are_too_many_events_ranges_of_others_are_left_out_first(monkeypatch):
    made = timeline([(100, 200, "iteration"), (105, 150, "stage:execute"), (106, 120, "/encoder/MatMul")])
    monkeypatch.setattr(one_iteration, "MOST_EVENTS", 3)
    assert [name for name, *_ in events(made)] == ["stage:execute", "launch", "gemm"]


def test_what_no_call_is_known_of_belongs_to_the_iteration_in_which_it_starts():
    made = timeline([(100, 200, "iteration")], uncalled=160)
    assert ("gemm", "kernel", 60.0, 65.0) in events(made)


def test_the_iteration_of_median_length_is_shown_of_two_the_shorter():
    longest, middle, shortest = (300, 400, "iteration"), (100, 160, "iteration"), (500, 520, "iteration")
    assert [name for name, *_ in events(timeline([longest, middle, shortest]))] == ["launch", "gemm"]
    assert [name for name, *_ in events(timeline([longest, middle]))] == ["launch", "gemm"]
    assert one_iteration.rows(timeline([middle, shortest])).empty


def test_a_capture_without_iterations_has_no_events_and_one_with_too_many_has_none_either(monkeypatch):
    assert one_iteration.rows(timeline([(100, 200, "warmup")])).empty
    monkeypatch.setattr(one_iteration, "MOST_EVENTS", 1)
    assert one_iteration.rows(timeline([(100, 200, "iteration")])).empty


def test_the_table_of_a_capture_has_its_median_iteration(captured: Callable[[str], Path]):
    frame = nsys.read(captured("h100_ort_cuda_graph_vit_tiny"))
    found = one_iteration.of_case(frame)
    assert found["kind"].value_counts().to_dict() == {"kernel": 284, "range": 6, "api": 4, "memcpy": 2}
    assert found["end"].max() == 2_020_706
    assert found["stream"].dropna().unique().tolist() == [13]
    assert EVENT not in set(one_iteration.without(frame)["level"])
