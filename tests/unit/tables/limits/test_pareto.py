"""Accuracy against speed: the front, what is behind it, and what is not distinguishable from it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from inferprof.tables.limits import pareto
from inferprof.tables.records import KEY, rows_of

ROUNDS = 5


def study(cases: dict[str, tuple[float, float, float]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Precision → (median ms, spread between rounds, dB): the points and the samples of each round."""
    random = np.random.default_rng(1)
    points: list[dict[str, Any]] = []
    samples: list[dict[str, Any]] = []
    for name, (ms, spread, db) in cases.items():
        key = dict(zip(KEY, ("gpu", "vit", name, "ort", "default", "b1"), strict=True))
        points.append({**key, "end_to_end_ms": ms, "db": db})
        for number in range(ROUNDS):
            shift = 1 + spread * (number - ROUNDS // 2)
            values = ms * 1e6 * shift * (1 + 0.001 * random.normal(size=200))
            row = {**key, "boundary": "end_to_end", "round": number, "samples": values, "not_measured": None}
            samples.append(row)
    return pd.DataFrame(points), pd.DataFrame(samples)


def standings(cases: dict[str, tuple[float, float, float]]) -> dict[str, tuple[str, str | None]]:
    points, samples = study(cases)
    table = pareto.of_cases(points, samples, {})
    return {row["precision"]: (row["standing"], row["against"]) for row in rows_of(table)}


def test_what_none_beats_in_both_is_on_the_front_and_the_rest_is_behind_the_case_that_beats_it() -> None:
    assert standings({"fp32": (4, 0, math.inf), "fp16": (2, 0, 60), "int8": (1, 0, 15), "slow": (3, 0, 40)}) == {
        "fp32": ("front", None),
        "fp16": ("front", None),
        "int8": ("front", None),
        "slow": ("behind", "fp16/ort/default"),
    }


def test_a_slower_case_within_the_noise_is_not_told_apart() -> None:
    table = standings({"fp32": (4, 0, math.inf), "fp16": (2.0, 0.02, 60), "bf16": (2.02, 0.03, 50)})
    assert table["bf16"] == ("undecided", "fp16/ort/default")
    assert table["fp16"] == ("front", None)


def test_a_faster_case_within_the_noise_of_a_more_accurate_one_is_not_told_apart_either() -> None:
    table = standings({"fp32": (4, 0, math.inf), "int8": (1.99, 0.03, 15), "fp16": (2.0, 0.02, 60)})
    assert table["int8"] == ("undecided", "fp16/ort/default")
    assert table["fp16"] == ("front", None)


def test_equal_accuracy_is_beaten_by_speed_alone() -> None:
    table = standings({"fp16": (2, 0, 60), "same": (1, 0, 60)})
    assert table == {"fp16": ("behind", "same/ort/default"), "same": ("front", None)}


@pytest.mark.parametrize("doubtful", ["fp16", "slow"])
def test_a_time_in_doubt_puts_no_case_behind_another(doubtful: str) -> None:
    points, samples = study({"fp16": (2, 0, 60), "slow": (3, 0, 40)})
    doubts = {("gpu", "vit", doubtful, "ort", "default", "b1", "end_to_end"): "not settled"}
    table = pareto.of_cases(points, samples, doubts)
    assert table.set_index("precision").loc["slow", "standing"] == "undecided"


def test_models_and_shapes_are_fronts_of_their_own() -> None:
    points, samples = study({"fp16": (2, 0, 60), "slow": (3, 0, 40)})
    points.loc[1, "shape"] = samples.loc[samples["precision"] == "slow", "shape"] = "b8"
    assert set(pareto.of_cases(points, samples, {})["standing"]) == {"front"}
