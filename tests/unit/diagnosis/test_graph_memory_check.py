"""The check of CUDA graphs' memory, on a record of an H100 with made-up graphs in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.unit.diagnosis.asking import approx, ask
from tests.unit.facts import facts, mentions
from tests.unit.graph_records import graphs_of

from inferprof.findings import Answer, Frames

Measured = Callable[..., Frames]
EAGER = "vit_base/fp16/torch_eager/default/b64"


def answer(measured: Measured, found: dict[str, Any]) -> Answer:
    def change(record: dict[str, Any]) -> None:
        record["memory"]["graphs"] = found

    return ask("graph_memory", measured(EAGER, change))


def test_a_case_without_such_graphs_is_not_assessed(measured: Measured) -> None:
    found = ask("graph_memory", measured(EAGER))
    assert mentions(found.reason, "needs", "several batch sizes", "`graphs:`")
    reason = answer(measured, {"not_measured": "no GPU"}).reason
    assert mentions(reason, "needs", "several batch sizes", "no GPU")


def test_private_pools_are_found_with_what_one_pool_would_hold(measured: Measured) -> None:
    rows = graphs_of()["rows"]
    pools, inputs, useless = answer(measured, graphs_of(least=100 << 20)).findings
    assert rows[-1]["graph_reserved"] == 210 << 20
    assert (pools.subject, pools.bottleneck, pools.share, pools.gain) == ("pools", "capacity", None, None)
    assert facts(pools.reason, "graphs", "pools") == [
        "3",
        "graphs",
        "210 MiB",
        "3",
        "pools",
        "100.0 %",
        "no",
        *facts(pools.reason, "graphs", "pools")[7:-1],
        "100 MiB",
    ]
    assert pools.evidence["excess_mib"] == approx(110, abs=0.1)
    assert mentions(pools.advice, "all graphs", "one pool")
    assert facts(inputs.reason, "graphs") == ["3", "graphs", "420 MiB", "largest", "320 MiB"]
    assert facts(useless.reason, "graphs") == [
        "graphs",
        "b16",
        "less",
        "10.0 %",
        "without",
        "one",
        "0 ms",
        "0 ms",
        "480 MiB",
        "b1",
        "3 ms",
        "30 MiB",
    ]


def test_a_pool_captured_smallest_first_is_found_where_it_grew(measured: Measured) -> None:
    (pools, *_) = answer(measured, graphs_of("shared", least=100 << 20)).findings
    assert facts(pools.advice, "descending") == ["largest", "graph_order: descending"]
    assert mentions(pools.reason, "3 graphs", "200 MiB", "one pool")


def test_a_pool_that_holds_what_it_needs_is_clear(measured: Measured) -> None:
    found = graphs_of("shared", "descending")
    for row in found["rows"]:
        row["static_inputs"] = 0
        row.pop("eager_ns", None)
    clear = answer(measured, found)
    assert clear.verdict == "clear"
    assert facts(clear.reason, "graphs") == [
        "3",
        "graphs",
        "160 MiB",
        "one",
        "99.9 %",
        "no",
        "one",
        "largest",
        "all",
        "160 MiB",
    ]


def test_inputs_that_are_parts_of_one_buffer_are_nothing_to_find(measured: Measured) -> None:
    found = graphs_of("shared", "descending", inputs="slices")
    assert "static inputs" not in [one.subject for one in answer(measured, found).findings]


def test_without_the_largest_graph_alone_pools_are_not_judged(measured: Measured) -> None:
    found = graphs_of(least=None)
    assert [one.subject for one in answer(measured, found).findings] == ["static inputs", "graphs that save little"]
