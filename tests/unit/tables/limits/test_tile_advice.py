"""Which batch or sequence would waste less: predictions by hand, none above the GEMMs' share, and their test."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.unit.made_records import node

from inferprof.case import Case, Shape
from inferprof.documents.graph import Gemm
from inferprof.profilers import nsys
from inferprof.tables import schema
from inferprof.tables.limits import tile_advice
from inferprof.tables.limits.tile_advice import Tiled, suggestions, with_batch, with_sequence
from inferprof.tables.limits.tile_trials import tried
from inferprof.tables.limits.tiles import Group, Placed, fit
from inferprof.tables.records import KEY
from inferprof.tables.trace.tile_names import Tile

SMS = 132
LAYER = Gemm(12608, 768, 768, 1, "m")
SCORES = Gemm(197, 197, 64, 768, "count")


def placed(gemm: Gemm, tile: Tile, ns: float | None = 100.0, source: Any = "grid", dtype: str = "float16") -> Placed:
    group = Group(gemm, dtype, convolution=False, nodes=("a",))
    return Placed(group, 1, tile, source, fit(gemm, tile, SMS), None if ns is None else "kernel", ns)


def tiled(*products: Placed, shape: str = "b64", device_ns: float = 1000.0) -> Tiled:
    return Tiled(Shape.parse(shape), SMS, products, device_ns)


def by_kind(case: Tiled, kind: str) -> list[dict[str, Any]]:
    return [row for row in suggestions(case) if row["kind"] == kind]


# --- other sizes -----------------------------------------------------------------------------------------------


def test_a_batch_makes_more_rows_or_more_products():
    assert with_batch(LAYER, 64, 57) == Gemm(57 * 197, 768, 768, 1, "m")
    assert with_batch(SCORES, 64, 32) == Gemm(197, 197, 64, 384, "count")
    positions = Gemm(197, 768, 64, 1, "m")
    assert with_batch(positions, 64, 57) == positions


def test_a_sequence_makes_more_rows_of_layers_and_larger_products_of_attention():
    assert with_sequence(LAYER, 64, 197, 208) == Gemm(64 * 208, 768, 768, 1, "m")
    assert with_sequence(SCORES, 64, 197, 208) == Gemm(208, 208, 64, 768, "count")
    classifier = Gemm(64, 1000, 768, 1, "m")
    assert with_sequence(classifier, 64, 197, 208) == classifier


# --- predictions -----------------------------------------------------------------------------------------------


def test_a_layer_in_two_waves_and_a_quarter_wants_a_batch_that_makes_two():
    # b64: 99 · 3 = 297 blocks, 3 waves. 2 waves hold 264 = 88 · 3, so 88 · 128 = 11264 rows, so 57 images.
    smaller, larger = by_kind(tiled(placed(LAYER, Tile(128, 256, 64), 400.0)), "batch")
    assert (smaller["now"], smaller["then"], smaller["suggested_shape"], smaller["per"]) == (64, 57, "b57", "item")
    assert smaller["gemm_gain"] == pytest.approx(1 - (2 / 57) / (3 / 64))
    assert smaller["gemm_share"] == 0.4
    assert smaller["predicted_gain"] == pytest.approx(0.4 * (1 - (2 / 57) / (3 / 64)))
    assert (smaller["confidence"], smaller["not_predicted"]) == ("high", None)
    # and the largest that fits into 4 waves: 528 = 176 · 3, so 176 · 128 rows, so 114 images
    assert larger["then"] == 114


def test_products_count_by_the_time_that_they_take():
    perfect = Gemm(64 * 132, 128, 64, 1, "m")  # a wave exactly, at any even number of waves per batch
    alone = by_kind(tiled(placed(LAYER, Tile(128, 256, 64), 400.0)), "batch")[0]
    both = tiled(placed(LAYER, Tile(128, 256, 64), 400.0), placed(perfect, Tile(64, 128), 400.0))
    assert 0 < both.gain(lambda gemm: with_batch(gemm, 64, 57), 57 / 64) < alone["gemm_gain"]


def test_a_batch_that_fills_its_waves_is_left_alone():
    # 256 rows a wave and image: every batch wastes nothing
    exact = Gemm(64 * 132 * 128, 256, 64, 1, "m")
    assert by_kind(tiled(placed(exact, Tile(128, 256, 64))), "batch") == []


def test_a_sequence_of_a_whole_number_of_tiles_costs_less_per_token():
    layer = Gemm(8 * 197, 768, 768, 1, "m")
    case = tiled(placed(layer, Tile(64, 64, 64), 10.0), placed(SCORES, Tile(128, 128), 300.0), shape="b8_s197")
    best = by_kind(case, "sequence")[-1]
    assert (best["then"], best["per"], best["suggested_shape"]) == (256, "token", "b8_s256")
    assert by_kind(tiled(*case.placed, shape="b8"), "sequence")[-1]["suggested_shape"] is None


def test_rows_that_are_no_whole_number_of_loads_are_named_without_a_prediction():
    layer = Gemm(8 * 197, 768, 768, 1, "m")
    case = tiled(placed(layer, Tile(64, 64, 64), 10.0), placed(SCORES, Tile(128, 128), 300.0), shape="b8")
    (found,) = by_kind(case, "alignment")
    assert suggestions(case)[-1] == found
    assert (found["now"], found["then"], found["gemm_gain"], found["predicted_gain"]) == (197, 200, None, None)
    assert (found["gemm_share"], found["not_predicted"]) == (0.3, tile_advice.NOT_OF_TILES)
    narrow = [placed(layer, Tile(64, 64, 64), 10.0), placed(SCORES, Tile(128, 128), 300.0, dtype="float8e4m3fn")]
    assert by_kind(tiled(*narrow, shape="b8"), "alignment")[0]["then"] == 208
    even = [placed(with_sequence(one.group.gemm, 8, 197, 200), one.tile) for one in case.placed]
    assert by_kind(tiled(*even, shape="b8"), "alignment") == []


def test_no_gain_is_promised_beyond_the_share_that_the_gemms_have():
    random = np.random.default_rng(0)
    for _ in range(100):
        batch = int(random.integers(1, 65))
        products = [
            placed(
                Gemm(batch * sizes[0], sizes[1], sizes[2], 1, "m"),
                Tile(*(int(x) for x in random.choice([64, 128, 256], 2))),
                float(random.random() * 300),
            )
            for sizes in random.integers(8, 3000, (4, 3)).tolist()
        ]
        case = tiled(*products, shape=f"b{batch}")
        for row in suggestions(case):
            assert row["gemm_gain"] < 1
            assert row["predicted_gain"] <= row["gemm_share"] <= 1


def test_without_a_timeline_the_gemms_are_compared_and_nothing_is_promised():
    (row, *_) = suggestions(tiled(placed(LAYER, Tile(128, 256), None, "assumed")))
    assert row["gemm_gain"] > 0.1
    assert (row["gemm_share"], row["predicted_gain"], row["confidence"]) == (None, None, "low")
    assert row["not_predicted"] == tile_advice.NEEDS_TIMELINE


def test_nothing_is_promised_where_the_gpu_mostly_waits():
    slow, busy = (
        Tiled(Shape.parse("b64"), SMS, [placed(LAYER, Tile(128, 256, 64), 400.0)], 1000.0, kernels)
        for kernels in (499.0, 501.0)
    )
    assert [row["predicted_gain"] for row in by_kind(slow, "batch")] == [None, None]
    assert {row["not_predicted"] for row in by_kind(slow, "batch")} == {tile_advice.WAITS}
    assert all(row["predicted_gain"] > 0.05 for row in by_kind(busy, "batch"))


def test_a_tile_that_is_assumed_counts_only_where_none_is_known():
    guess = placed(LAYER, Tile(128, 256), 900.0, "assumed")
    known = placed(Gemm(64 * 132 * 128, 256, 64, 1, "m"), Tile(128, 256, 64), 50.0, "name")
    assert by_kind(tiled(guess, known), "batch") == []
    assert tiled(guess, known).confidence == "medium"


def test_products_without_a_time_count_by_their_work_and_so_do_all_beside_them():
    guesses = [placed(LAYER, Tile(128, 256), 5.0, "assumed"), placed(LAYER, Tile(128, 256), None, "assumed")]
    assert [weight for _, weight in tiled(*guesses).weighted] == [float(guesses[0].fit.work)] * 2


# --- from frames -----------------------------------------------------------------------------------------------

CASE = Case("vit", "fp16", "torch_eager", "default", "b8")


def latency(rows: dict[str, tuple[float, float, float]]) -> pd.DataFrame:
    """Device medians in ns with their intervals, by shape."""
    made = [
        {
            **dict(zip(KEY, ["box", "vit", "fp16", "torch_eager", "default", shape], strict=True)),
            "boundary": "device",
            "median": median,
            "low": low,
            "high": high,
            "doubt": None,
            "not_measured": None,
        }
        for shape, (median, low, high) in rows.items()
    ]
    return pd.DataFrame(made, dtype=object)


NODES = [
    node(name="qkv", gemm=Gemm(1576, 576, 192, 1, "m")),
    node(name="qk", gemm=Gemm(197, 197, 64, 24, "count")),
    node(name="av", gemm=Gemm(197, 64, 197, 24, "count")),
    node(name="proj", gemm=Gemm(1576, 192, 192, 1, "m")),
]


def test_products_inside_of_fused_attention_have_no_tile_of_their_own(captured: Callable[[str], Path]):
    frame = schema.of_case(nsys.read(captured("h100_torch_eager")), "box", CASE)
    costs = {("vit", "fp16", "b8"): NODES}
    gemms, advice = tile_advice.of_cases(latency({"b8": (6e5, 5.9e5, 6.1e5)}), frame, costs, SMS)
    assert gemms["example"].tolist() == ["qkv", "proj"]
    assert gemms["device_share"].notna().all()
    assert set(advice["predicted_gain"].dropna() <= advice["gemm_share"].dropna()) == {True}


def test_a_gpu_whose_sms_are_not_known_gets_no_advice():
    costs = {("vit", "fp16", "b8"): NODES}
    nothing = pd.DataFrame(columns=list(schema.COLUMNS))
    gemms, advice = tile_advice.of_cases(latency({"b8": (6e5, 5.9e5, 6.1e5)}), nothing, costs, None)
    assert (len(gemms), len(advice)) == (0, 0)


@pytest.mark.parametrize(
    ("then", "verdict"),
    [
        ((800.0, 790.0, 810.0), "right"),  # 10 % per item, as predicted
        ((840.0, 838.0, 842.0), "right"),  # 5.5 %: more than half
        ((600.0, 590.0, 610.0), "more"),  # 33 %
        ((889.0, 880.0, 900.0), "wrong"),  # nothing
        ((845.0, 830.0, 860.0), "undecided"),
    ],
)
def test_a_suggestion_whose_shape_was_measured_is_right_or_wrong(then, verdict):
    advice = pd.DataFrame(
        [
            {
                **dict(zip(KEY, ["box", "vit", "fp16", "torch_eager", "default", "b64"], strict=True)),
                **{"kind": "batch", "now": 64, "then": 57, "per": "item", "suggested_shape": "b57"},
                "predicted_gain": 0.1,
            }
        ],
        dtype=object,
    )
    (row,) = tried(advice, latency({"b64": (1000.0, 1000.0, 1000.0), "b57": then})).to_dict("records")
    assert row["measured_gain"] == pytest.approx(1 - then[0] / 57 / (1000 / 64))
    assert row["measured_low"] == pytest.approx(1 - then[2] / 57 / (1000 / 64))
    assert row["verdict"] == verdict
    assert len(tried(advice, latency({"b64": (1000.0, 1000.0, 1000.0)}))) == 0
