"""Counted launches beside the timeline's: which are tied, and what is said of those that are not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from inferprof.profilers import ncu, nsys
from inferprof.readers.ncu_launches import Launch, rows
from inferprof.tables.counters.ncu_timeline import AMBIGUOUS, NO_TIMELINE, NOT_IN_TIMELINE, against_timeline
from inferprof.tables.schema import conform


def counted(*launches: tuple[str, str, str | None]) -> pd.DataFrame:
    """Launches of 10 ns by (name, grid, symbol)."""
    return rows(
        [
            Launch(number, name, grid, "128,1,1", 0, 7, {"gpu__time_duration.sum": 10.0}, symbol=symbol)
            for number, (name, grid, symbol) in enumerate(launches)
        ],
        "ncu",
    )


def timeline(*configs: tuple[str, str, str | None, float]) -> pd.DataFrame:
    """Configurations of two launches by (name, grid, symbol, total ns)."""
    found: list[dict[str, Any]] = []
    for number, (name, grid, symbol, total) in enumerate(configs):
        place = {"level": "launch_config", "name": name, "launch": number, "instances": 2}
        words = {"grid": grid, "block": "128,1,1", "symbol": symbol}
        found += [{**place, "metric": metric, "text": text} for metric, text in words.items() if text]
        times = {"total": total, "min": total / 2 - 1, "max": total / 2 + 1}
        found += [{**place, "metric": f"duration_{what}", "value": value} for what, value in times.items()]
    return conform(
        pd.DataFrame(found, columns=["level", "name", "launch", "instances", "metric", "value", "text"]), "nsys"
    )


def test_a_launch_is_held_against_all_of_its_grid() -> None:
    table = against_timeline(
        counted(("ns::gemm(float *)", "4,1,1", None)),
        timeline(("void other::gemm<(int)4>(float *)", "4,1,1", None, 16), ("gemm", "8,1,1", None, 84)),
    )
    row = table.iloc[0]
    assert (row["timeline_mean"], row["timeline_min"], row["timeline_max"], row["timeline_launches"]) == (8, 7, 9, 2)
    assert row["time_share"] == pytest.approx(0.16)
    assert row["no_timeline"] is None


def test_the_launch_that_takes_longest_in_the_timeline_comes_first() -> None:
    table = against_timeline(
        counted(("a", "1,1,1", None), ("b", "1,1,1", None)),
        timeline(("a", "1,1,1", None, 10), ("b", "1,1,1", None, 30)),
    )
    assert table["name"].tolist() == ["b", "a"]


def test_mangled_names_tell_kernels_of_one_function_apart() -> None:
    configs = timeline(("k<float>", "1,1,1", "_Zf", 10), ("k<half>", "1,1,1", "_Zh", 30))
    assert against_timeline(counted(("k<h>", "1,1,1", "_Zh")), configs)["timeline_mean"].tolist() == [15]
    assert against_timeline(counted(("k<h>", "1,1,1", None)), configs)["no_timeline"].tolist() == [AMBIGUOUS]


def test_what_the_timeline_lacks_is_said_to_be_so() -> None:
    configs = timeline(("gemm", "4,1,1", None, 16))
    assert against_timeline(counted(("gemm", "8,1,1", None)), configs)["no_timeline"].tolist() == [NOT_IN_TIMELINE]
    assert against_timeline(counted(("gemm", "4,1,1", None)), timeline())["no_timeline"].tolist() == [NO_TIMELINE]


def test_no_launches_are_no_rows() -> None:
    assert against_timeline(counted(), timeline(("gemm", "4,1,1", None, 16))).empty


def test_a_real_capture_is_tied_to_its_timeline_whole(repository: Path, captured: Callable[[str], Path]) -> None:
    """ncu cuts namespaces and casts out of the names that nsys has; every launch is found all the same."""
    counters = ncu.read(repository / "tests/data/ncu/h100_ort_cuda_vit_raw.csv.gz")
    table = against_timeline(counters, nsys.read(captured("h100_ort_cuda_vit"))).set_index("launch")
    assert table["no_timeline"].isna().all()
    assert table.loc[2, "timeline_mean"] == pytest.approx(5914704 / 420)
    ratios = (table["duration_total"] / table["timeline_mean"]).astype(float)
    assert ratios.between(1.0, 1.6).all()
