"""The check of CUDA graphs' memory, on a record of an H100 with made-up graphs in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.unit.diagnosis.asking import approx, ask
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
    assert found.reason == "needs graphs of several batch sizes: a variant with `graphs:`"
    reason = answer(measured, {"not_measured": "no GPU"}).reason
    assert reason == "needs graphs of several batch sizes (no GPU)"


def test_private_pools_are_found_with_what_one_pool_would_hold(measured: Measured) -> None:
    rows = graphs_of()["rows"]
    pools, inputs, useless = answer(measured, graphs_of(least=100 << 20)).findings
    assert rows[-1]["graph_reserved"] == 210 << 20
    assert (pools.subject, pools.bottleneck, pools.share, pools.gain) == ("pools", "capacity", None, None)
    assert pools.reason == (
        "3 graphs hold 210 MiB in 3 pools, 100.0 % of it under no living tensor: "
        "each pool keeps the intermediates of its own graph; "
        "one pool with the largest graph and all outputs needs 100 MiB"
    )
    assert pools.evidence["excess_mib"] == approx(110, abs=0.1)
    assert pools.advice.startswith("capture all graphs into one pool")
    assert inputs.reason == "the static inputs of 3 graphs hold 420 MiB, those of the largest 320 MiB"
    assert useless.reason == (
        "the graphs of b16 save less than 10.0 % of the time without one, 0 ms to 0 ms, "
        "and brought 480 MiB into use; that of b1 saves 3 ms with 30 MiB"
    )


def test_a_pool_captured_smallest_first_is_found_where_it_grew(measured: Measured) -> None:
    (pools, *_) = answer(measured, graphs_of("shared", least=100 << 20)).findings
    assert pools.advice == "capture the largest graph first: `graph_order: descending`"
    assert "3 graphs hold 200 MiB in one pool" in pools.reason


def test_a_pool_that_holds_what_it_needs_is_clear(measured: Measured) -> None:
    found = graphs_of("shared", "descending")
    for row in found["rows"]:
        row["static_inputs"] = 0
        row.pop("eager_ns", None)
    clear = answer(measured, found)
    assert clear.verdict == "clear"
    assert clear.reason == (
        "3 graphs hold 160 MiB in one pool, 99.9 % of it under no living tensor; one pool with the largest graph and "
        "all outputs needs 160 MiB"
    )


def test_inputs_that_are_parts_of_one_buffer_are_nothing_to_find(measured: Measured) -> None:
    found = graphs_of("shared", "descending", inputs="slices")
    assert "static inputs" not in [one.subject for one in answer(measured, found).findings]


def test_without_the_largest_graph_alone_pools_are_not_judged(measured: Measured) -> None:
    found = graphs_of(least=None)
    assert [one.subject for one in answer(measured, found).findings] == ["static inputs", "graphs that save little"]
