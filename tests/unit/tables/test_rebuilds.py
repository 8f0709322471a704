"""The spread over builds of one engine."""

from typing import Any

import pandas as pd
import pytest

from inferprof.tables.records import KEY
from inferprof.tables.summary import rebuilds


def engine(variant: str, median: float | None, width: float | None = 0.01, **options: Any) -> dict[str, Any]:
    return {
        **dict.fromkeys(KEY, "x"),
        "variant": variant,
        "boundary": "device",
        "median": median,
        "low": width and median and median * (1 - width / 2),
        "high": width and median and median * (1 + width),
        "not_measured": None if median else "no clock",
        "options": options,
    }


def spread(*engines: dict[str, Any]) -> pd.DataFrame:
    frame = pd.DataFrame(engines, dtype=object)
    frame = frame.where(frame.notna(), None)
    return rebuilds(frame.drop(columns="options"), frame[[*KEY, "options"]])


def test_the_spread_is_from_the_fastest_to_the_slowest_build_beside_the_widest_interval() -> None:
    table = spread(
        engine("default", 100.0), engine("second", 110.0, 0.02, rebuild=1), engine("third", 95.0, rebuild=2)
    )
    (row,) = table.to_dict("records")
    assert (row["builds"], row["fastest"], row["slowest"]) == (3, "third", "second")
    assert row["spread"] == pytest.approx(110 / 95 - 1)
    assert row["noise"] == pytest.approx(0.02)


def test_engines_with_other_options_are_others() -> None:
    table = spread(
        engine("default", 100.0),
        engine("again", 101.0, rebuild=1),
        engine("graph", 50.0, cuda_graph=True),
        engine("graph_again", 55.0, cuda_graph=True, rebuild=1),
        engine("opt5", 70.0, optimization_level=5),
    )
    assert table[["fastest", "slowest"]].to_numpy().tolist() == [["default", "again"], ["graph", "graph_again"]]


def test_two_variants_that_are_no_rebuilds_have_no_spread() -> None:
    assert spread(engine("default", 100.0), engine("the_same", 101.0)).empty


def test_a_build_that_was_not_measured_does_not_count() -> None:
    assert spread(engine("default", 100.0), engine("again", None, rebuild=1)).empty


def test_where_an_interval_is_missing_the_noise_is_not_known() -> None:
    (row,) = spread(engine("default", 100.0), engine("again", 101.0, None, rebuild=1)).to_dict("records")
    assert row["noise"] is None
