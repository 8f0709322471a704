"""Prefill and decode against the roofs, and what they add up to, by hand."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from tests.unit.made_records import made

from inferprof.documents.record import Operation
from inferprof.tables.limits import generation
from inferprof.tables.limits.generation import Requests, Step
from inferprof.tables.records import KEY, frame_of
from inferprof.tables.roofs import Roof, Roofs

WEIGHTS, PER_TOKEN = 1_000_000, 1_000
"""Bytes: of all weights, and of the cache for each token."""
FLOPS = 1_000_000
"""Of each token of each row."""
ROOFS = Roofs({"bf16": Roof(2e12, "measured"), "fp32": Roof(1e12, "measured")}, Roof(1e12, "measured"))
"""1 byte takes 1 ps, a FLOP half as long."""


def key_at(shape: str, variant: str = "eager", precision: str = "bf16") -> tuple[str, ...]:
    return ("box", "llm", precision, "torch_eager", variant, shape)


def step(batch: int, ns: float, tokens: int = 1, context: int = 0, **changes: Any) -> Step:
    operation = Operation(
        tokens=tokens,
        context=context,
        weights_read=WEIGHTS,
        kv_read=batch * context * PER_TOKEN,
        kv_written=batch * tokens * PER_TOKEN,
        flops=batch * tokens * FLOPS,
    )
    label = f"b{batch}" + (f"_p{tokens}" if not context else f"_c{context}")
    given = {"low_ns": None, "high_ns": None, "bandwidth": 1e12, "peak": 2e12, **changes}
    return Step(key_at(label), batch, operation, ns, **given)


def roof_of(decode: Step) -> tuple[str, int]:
    assert decode.roof is not None
    return decode.roof[0], round(decode.roof[1])


def test_a_decode_step_moves_weights_and_cache_once() -> None:
    decode = step(4, 8_000.0, context=99)
    assert decode.op == "decode"
    assert decode.memory_ns == pytest.approx(1_000 + 4 * 100)
    assert decode.compute_ns == pytest.approx(2_000)
    assert roof_of(decode) == ("compute", 2_000)
    assert decode.bound == "neither"


@pytest.mark.parametrize(
    ("batch", "ns", "graphed", "bound"),
    [
        (1, 3_000.0, 1_200.0, "launch"),
        (1, 1_200.0, 1_190.0, "memory"),
        (1, 1_200.0, None, "memory"),
        (8, 5_000.0, 4_900.0, "compute"),
        (8, 9_000.0, 8_900.0, "neither"),
    ],
)
def test_what_binds_is_the_host_where_a_graph_helps_and_else_the_roof_that_is_near(
    batch: int, ns: float, graphed: float | None, bound: str
) -> None:
    assert step(batch, ns, context=99, graphed_ns=graphed).bound == bound


def test_a_step_far_from_its_roof_may_wait_for_launches_as_long_as_no_graph_was_measured() -> None:
    assert step(1, 9_000.0, context=99, launches=True).bound == "not told"
    assert step(1, 9_000.0, context=99, launches=True, graphed_ns=8_900.0).bound == "neither"
    assert step(1, 1_200.0, context=99, launches=True).bound == "memory"


def test_without_roofs_nothing_is_told() -> None:
    unknown = step(1, 1_000.0, context=9, bandwidth=None)
    assert (unknown.memory_ns, unknown.roof, unknown.bound, unknown.gain("w8")) == (None, None, "not told", None)
    assert unknown.compute_from is None


def test_computing_takes_longer_from_the_batch_on_at_which_the_roofs_meet() -> None:
    # 500 ns of FLOPs and 100 ns of cache per row, 1,000 ns of weights: they meet at 2.5.
    assert step(1, 2_000.0, context=99).compute_from == 3
    assert step(7, 9_000.0, context=99).compute_from == 3
    assert roof_of(step(3, 9e3, context=99)) == ("compute", 1_500)
    assert roof_of(step(2, 9e3, context=99)) == ("memory", 1_200)


def test_with_a_long_context_decode_is_never_bound_by_computing() -> None:
    assert step(1, 2_000.0, context=999).compute_from is None  # 1,000 ns of cache per row


def test_narrower_numbers_gain_no_more_than_the_bytes_that_they_save() -> None:
    long = step(1, 4_000.0, context=2_999)  # 1,000 ns of weights, 3,000 of cache, 500 of FLOPs
    gains = {name: long.gain(name) for name in generation.NARROWED}
    assert gains == pytest.approx({"w8": 4_000 / 3_500, "w4": 4_000 / 3_250, "kv8": 1.6, "w4_kv8": 4_000 / 1_750})
    short = step(1, 2_000.0, context=99)  # 1,000 and 100: FLOPs take longer than a quarter of that
    assert short.gain("w4") == pytest.approx(1_100 / 500)
    assert step(1, 2_000.0, context=99, quantized=True).gain("w8") is None


def test_a_request_s_times_follow_from_its_prefill_and_its_steps() -> None:
    prefill, first, last = step(2, 90.0, tokens=4), step(2, 10.0, context=4), step(2, 14.0, context=8)
    (request,) = generation.requests([first, last, prefill, step(1, 5.0, context=4)])
    assert isinstance(request, Requests)
    # Steps at contexts 4, 5, 6, 7 take 10, 11, 12, 13 ns: four tokens behind that of the prefill.
    assert request.new_tokens == 5
    assert request.tpot_ns == pytest.approx((10 + 11 + 12 + 13) / 4)
    assert request.e2e_ns == pytest.approx(90 + 46)
    assert request.tokens_per_s == pytest.approx(2 * 5 / 136e-9)


@pytest.mark.parametrize(("contexts", "missing"), [([], "b2_c4"), ([4], "b2_c8"), ([8], "b2_c4")])
def test_a_prefill_without_its_steps_says_which_is_missing(contexts: list[int], missing: str) -> None:
    prefill = step(2, 90.0, tokens=4)
    (entry,) = generation.requests([prefill, *(step(2, 10.0, context=c) for c in contexts)])
    assert isinstance(entry, tuple)
    assert entry[0] == prefill
    assert entry[1].endswith(missing)


def test_decode_turns_over_the_batches_of_one_context() -> None:
    steps = [step(1, 3_000.0, context=99, graphed_ns=1_000.0), step(8, 5_000.0, context=99), step(1, 9.0, context=9)]
    ((series, context, by_batch),) = generation.turns(steps)
    assert (series, context) == (key_at("")[:-1], 99)
    assert by_batch == [(1, "launch"), (8, "compute")]


STEP = {"tokens": 1, "context": 9, "weights_read": 100, "kv_read": 9, "kv_written": 1, "flops": 5}


def record_rows(
    *entries: tuple[tuple[str, ...], float, dict[str, Any]], operation: Any = STEP
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(records, latency) of cases: key, median of call in ns, options."""
    records, latency = [], []
    for key, ns, options in entries:
        named = dict(zip(KEY, key, strict=True))
        records.append({**named, "record": made({"options": options, "operation": operation})})
        latency.append({**named, "boundary": "call", "median": ns, "low": ns - 1, "high": ns + 1})
        latency.append({**named, "boundary": "device", "median": ns / 2, "low": None, "high": None})
    return frame_of(records, [*KEY, "record"]), frame_of(latency, [*KEY, "boundary", "median", "low", "high"])


def test_a_step_knows_the_same_with_a_graph_and_the_peak_of_its_format() -> None:
    frames = record_rows(
        (key_at("b1_c9"), 50.0, {}),
        (key_at("b1_c9", "graph"), 20.0, {"cuda_graph": True}),
        (key_at("b1_c9", "tuned"), 15.0, {"compile_mode": "max-autotune"}),
        (key_at("b1_c9", "other"), 9.0, {"cuda_graph": True, "threads": 1}),
        (key_at("b1_c9", precision="fp32"), 70.0, {}),
    )
    steps = {each.key[2:5:2]: each for each in generation.steps(*frames, ROOFS)}
    assert steps["bf16", "eager"].ns == 50.0
    assert steps["bf16", "eager"].graphed_ns == 15.0
    assert steps["bf16", "graph"].graphed_ns is None
    assert (steps["bf16", "eager"].peak, steps["fp32", "eager"].peak) == (2e12, 1e12)
    assert (steps["fp32", "eager"].low_ns, steps["fp32", "eager"].graphed_ns) == (69.0, None)
    assert {name for name, each in steps.items() if each.launches} == {("bf16", "eager"), ("fp32", "eager")}


def test_cases_without_a_cache_are_no_steps() -> None:
    frames = record_rows((key_at("b1"), 50.0, {}), operation=None)
    assert generation.steps(*frames, ROOFS) == []
