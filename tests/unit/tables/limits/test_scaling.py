"""The model of several GPUs, on sweeps whose parameters are known, and on what two H200s took."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from inferprof import documents
from inferprof.tables.limits import scaling
from inferprof.tables.limits.scaling import Sweep

SHAPES = ("b1_s16", "b1_s64", "b1_s512", "b4_s2048")
A, B = 80_000.0, 25.0


def alone(tokens: int) -> float:
    """ns on one GPU."""
    return 500_000 + 3_000 * tokens


def divided(ranks: int) -> Callable[[int], float]:
    """ns on several, of messages that cost A and B per token on two GPUs, in a tree."""
    return lambda m: alone(m) / ranks + A * math.log2(ranks) + B * m * 2 * (ranks - 1) / ranks


def key(variant: str, shape: str) -> tuple[str, ...]:
    return ("box", "llama", "bf16", "torch_eager", variant, shape)


def study(variants: Mapping[str, tuple[dict[str, Any], Callable[[int], float]]]) -> list[Sweep]:
    options, medians = {}, {}
    for name, (own, took) in variants.items():
        for shape in SHAPES:
            options[key(name, shape)] = own
            medians[key(name, shape)] = took(scaling.tokens(shape))
    return scaling.sweeps(options, medians)


ONE = ({"cuda_graph": True}, alone)
TWO = ({"cuda_graph": True, "parallel": {"tensor": 2}}, divided(2))
FOUR = ({"cuda_graph": True, "parallel": {"tensor": 4}}, divided(4))


def test_a_sweep_is_of_one_variant_beside_the_one_that_differs_in_nothing_else() -> None:
    (sweep,) = study({"eager": ({}, alone), "graph": ONE, "tp2": TWO})
    assert (sweep.kind, sweep.ranks, sweep.alone) == ("tensor", 2, "graph")
    assert [point.tokens for point in sweep.points] == [16, 64, 512, 8192]
    assert study({"eager": ({}, alone), "tp2": TWO}) == []


def test_the_parameters_of_a_sweep_that_follows_the_model_are_found_and_nothing_is_left() -> None:
    (sweep,) = study({"graph": ONE, "tp2": TWO})
    fit = sweep.fit()
    assert fit is not None
    assert [fit.a_ns, fit.b_ns] == pytest.approx([A, B], rel=1e-6)
    assert fit.residual < 1e-9


def test_two_gpus_predict_four_and_the_measured_four_lie_in_the_range() -> None:
    made = scaling.predictions(study({"graph": ONE, "tp2": TWO, "tp4": FOUR}))
    four = [prediction for prediction in made if prediction.ranks == 4]
    assert [prediction.error for prediction in four] == [pytest.approx(0, abs=1e-9)] * 4
    # A tree of four is twice as deep as one of two; a ring has three times its steps.
    assert four[0].low_ns == pytest.approx(divided(4)(16))
    assert four[0].high_ns - four[0].low_ns == pytest.approx(A)
    assert [prediction.measured_ns for prediction in made if prediction.ranks == 8] == [None] * 4


def test_a_measurement_outside_of_the_range_is_off_by_its_distance() -> None:
    slow = (FOUR[0], lambda m: 2 * divided(4)(m))
    made = scaling.predictions(study({"graph": ONE, "tp2": TWO, "tp4": slow}))
    last = [prediction for prediction in made if prediction.ranks == 4][-1]
    assert last.measured_ns is not None and last.error is not None
    assert last.error == pytest.approx(last.high_ns / last.measured_ns - 1) and last.error < 0


def test_a_sweep_that_the_model_does_not_describe_predicts_nothing() -> None:
    faster = (TWO[0], lambda m: alone(m) / 4)
    (sweep,) = study({"graph": ONE, "tp2": faster})
    fit = sweep.fit()
    assert fit is not None and (fit.a_ns, fit.b_ns) == (0, 0) and fit.residual == pytest.approx(1.0)
    assert scaling.predictions([sweep]) == []


@pytest.mark.parametrize("kind", ["data", "pipeline"])
def test_other_ways_to_divide_have_no_model(kind: str) -> None:
    (sweep,) = study({"graph": ONE, "v": ({"cuda_graph": True, "parallel": {kind: 2}}, divided(2))})
    assert sweep.fit() is None


def test_two_h200s_pay_from_about_1400_tokens_on() -> None:
    took = {"b1_s16": (4.20, 4.44), "b1_s512": (2.66, 4.41), "b8_s512": (20.9, 12.5)}
    options, medians = {}, {}
    for shape, times in took.items():
        for name, own, ms in zip(("one", "tp2"), ({}, {"parallel": {"tensor": 2}}), times, strict=True):
            options[key(name, shape)], medians[key(name, shape)] = own, ms * 1e6
    (sweep,) = scaling.sweeps(options, medians)
    assert sweep.pays_from() == pytest.approx(
        512 * 8 ** (math.log(4.41 / 2.66) / math.log(20.9 / 12.5 * 4.41 / 2.66))
    )
    assert sweep.pays_from() == pytest.approx(1_436, abs=5)


def test_what_pays_at_every_size_pays_from_the_smallest_and_what_never_does_from_none() -> None:
    (always,) = study({"graph": ONE, "tp2": (TWO[0], lambda m: alone(m) / 2)})
    (never,) = study({"graph": ONE, "tp2": (TWO[0], lambda m: alone(m) * 2)})
    assert always.pays_from() == 16
    assert never.pays_from() == math.inf


LINKS = msgspec.convert(
    {
        **{"status": "ok", "method": "made up", "ranks": 2, "through": {}, "topology": {"not_measured": "made up"}},
        "operations": {
            "AllReduce": {
                "by_size": {
                    size: {"ns": ns, "spread_ns": 0.0, "gb_per_s": 1.0}
                    for size, ns in (("1024", 10_000.0), ("1048576", 20_000.0), ("268435456", 1_000_000.0))
                }
            }
        },
    },
    documents.TYPES["links"],
)
EIGHT = scaling.Messages(512, [("AllReduce", 8.0, 1_048_576 / 16)])
"""Eight of 64 KiB at 512 tokens: of 1 MiB at 8,192."""


def test_the_link_says_what_messages_take_that_grow_with_the_tokens() -> None:
    (sweep,) = study({"graph": ONE, "tp2": TWO})
    last = sweep.points[-1]
    assert sweep.by_links(last, EIGHT, LINKS) == pytest.approx(alone(8_192) / 2 + 8 * 20_000)
    assert EIGHT.ns(LINKS, 16) == pytest.approx(8 * 10_000 * 2 ** (1 / 10))  # 2 KiB: a tenth of the way by logarithms
    assert EIGHT.ns(LINKS, 4) is None  # 512 bytes were not measured


def test_without_links_of_as_many_gpus_or_messages_the_link_says_nothing() -> None:
    (two,), (four,) = (study({"graph": ONE, "tp": each}) for each in (TWO, FOUR))
    assert four.by_links(four.points[-1], EIGHT, LINKS) is None
    assert two.by_links(two.points[-1], EIGHT, None) is None
    assert two.by_links(two.points[-1], None, LINKS) is None


def test_sizes_that_are_more_times_as_fast_as_there_are_gpus_are_told() -> None:
    (sweep,) = study({"graph": ONE, "tp2": (TWO[0], lambda m: alone(m) / (3 if m == 512 else 2))})
    assert [point.tokens for point in sweep.beyond] == [512]
