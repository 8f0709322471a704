"""Curves of CUDA graphs' memory out of records."""

from __future__ import annotations

from tests.unit.graph_records import graphs_of, records_of

from inferprof.tables import graph_memory
from inferprof.tables.records import rows_of
from inferprof.units import MIB


def test_a_curve_has_what_each_graph_added_and_saved() -> None:
    rows = rows_of(graph_memory.curves(records_of(graphs_of(), None)))
    assert [row["graphs"] for row in rows] == [0, 1, 2, 3]
    assert [row["added"] for row in rows] == [None, 30 * MIB, 120 * MIB, 480 * MIB]
    assert [row["saved_ns"] for row in rows] == [None, 3e6, 1e6, 0.0]
    assert {row["file"] for row in rows} == {"0.json"}


def test_all_graphs_together_are_compared_with_one_pool() -> None:
    private, shared = rows_of(graph_memory.wholes(records_of(graphs_of(), graphs_of("shared", "descending"), None)))
    assert (private["graphs"], private["pools"], private["graph_reserved"]) == (3, 3, 210 * MIB)
    assert (shared["pools"], shared["graph_reserved"]) == (1, 160 * MIB)
    assert private["added"] == 630 * MIB
    assert private["capture_ns"] == 150_000_000
    assert private["one_pool"] == shared["one_pool"] == 160 * MIB + 5 * 4096  # outputs of the two smaller ones
    assert private["one_input"] == 320 * MIB


def test_graphs_of_torch_compile_begin_with_one_that_is_there() -> None:
    rows = graphs_of("cudagraph trees", "descending")["rows"][1:]
    (whole,) = rows_of(graph_memory.wholes(records_of(graphs_of("cudagraph trees", "descending", rows=rows))))
    assert (whole["graphs"], whole["added"]) == (3, None)


def test_graphs_that_were_not_measured_keep_the_reason() -> None:
    nothing, stopped = {"not_measured": "no GPU"}, graphs_of(rows=[], stopped="out of memory", least=None)
    assert [row["not_measured"] for row in rows_of(graph_memory.wholes(records_of(nothing, stopped)))] == [
        "no GPU",
        "out of memory",
    ]
    assert graph_memory.curves(records_of(nothing)).empty


def test_pools_of_the_allocator_are_rows() -> None:
    (row,) = rows_of(graph_memory.segments(records_of(graphs_of(), None)))
    assert (row["pool"], row["inactive"]) == ("1.0", 210 * MIB)
