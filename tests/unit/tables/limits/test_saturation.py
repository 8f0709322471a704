"""Where throughput stops growing, and what holds a case back on the way there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.unit.facts import facts

from inferprof.tables.limits import saturation
from inferprof.tables.limits.waterfall import PARTS
from inferprof.tables.records import KEY

CASE = ("h100", "vit", "fp16", "ort_cuda", "default")


def samples(ms: float, seed: int, spread: float = 0.002) -> Any:
    return ms * 1e6 * (1 + spread * np.random.default_rng(seed).standard_normal(400))


def rounds(**milliseconds: float) -> dict[int, list[Any]]:
    """Two rounds per batch: rounds(b1=0.5, b8=1.0)."""
    return {
        int(name[1:]): [samples(ms, 2 * place), samples(ms, 2 * place + 1)]
        for place, (name, ms) in enumerate(milliseconds.items())
    }


def parts(**ns: float | None) -> dict[str, Any]:
    return {f"{part}_ns": ns.get(part, 0.0) for part in PARTS}


def test_the_smallest_batch_with_95_percent_of_the_peak_saturates() -> None:
    assert saturation.smallest([1, 8, 32, 64], [10.0, 95.0, 99.0, 100.0]) == 8
    assert saturation.smallest([1, 8], [10.0, 20.0]) == 8


def test_a_clear_plateau_has_an_interval_of_one_batch() -> None:
    found = saturation.saturation(rounds(b1=0.5, b8=1.0, b32=3.2, b64=6.4))
    assert (found["batch"], found["low"], found["high"], found["saturated"]) == (32, 32, 32, True)
    assert found["peak_items_per_s"] == pytest.approx(10_000, rel=0.001)


def test_where_95_percent_is_a_close_call_the_interval_spans_both_batches() -> None:
    noisy = {
        batch: [samples(ms, batch + r, spread=0.05) for r in range(2)]
        for batch, ms in ((1, 1.0), (16, 16 / 0.95 / 10), (32, 3.2), (64, 6.4))
    }
    found = saturation.saturation(noisy)
    assert (found["low"], found["high"]) == (16, 32)
    assert found["low"] <= found["batch"] <= found["high"]


def test_throughput_that_still_grows_is_not_saturated() -> None:
    found = saturation.saturation(rounds(b1=0.5, b8=1.0, b32=2.0))
    assert (found["batch"], found["saturated"]) == (32, False)


def test_the_interval_is_the_same_each_time() -> None:
    found = rounds(b1=0.5, b8=1.0, b16=1.9)
    assert saturation.saturation(found) == saturation.saturation(found)


def test_a_case_that_waits_for_launches_is_launch_bound_whatever_its_roof_says() -> None:
    assert saturation.regime(parts(launch=60.0, kernels=40.0), "compute") == "launch"
    assert saturation.regime(parts(launch=30.0, kernels=40.0), "compute") == "compute"
    assert saturation.regime(parts(launch=30.0, kernels=40.0), "memory") == "memory"


def test_counters_decide_before_the_roof() -> None:
    assert saturation.regime(parts(memory=50.0, compute=20.0, kernels=10.0), "compute") == "memory"
    assert saturation.regime(parts(memory=30.0, compute=20.0, latency=25.0, tail=10.0), "compute") == "latency"
    assert saturation.regime(parts(memory=10.0, kernels=90.0), "compute") == "compute"


def test_without_a_timeline_launches_cannot_be_told_from_kernels() -> None:
    assert saturation.regime(parts(launch=None, kernels=None, execution=100.0), "compute") == "not told"


def test_turns_are_the_stretches_of_batches_in_one_regime() -> None:
    by_batch: list[tuple[int, saturation.Regime]] = [(1, "launch"), (8, "launch"), (16, "memory"), (64, "compute")]
    stretches = saturation.turns(by_batch)
    assert stretches == [("launch", 1, 8), ("memory", 16, 16), ("compute", 64, 64)]
    assert facts(saturation.in_words(stretches), "compute", "launch", "memory") == [
        "launch",
        "b1",
        "b8",
        "memory",
        "b16",
        "compute",
        "b64",
    ]


def test_a_series_is_of_one_variant_and_one_rest_of_the_shape() -> None:
    times = {"b1_s128": 0.5, "b8_s128": 1.0, "b1_s512": 0.8}
    rows = [
        {
            **dict(zip(KEY, (*CASE, shape), strict=True)),
            "boundary": boundary,
            "samples": samples(ms, 1),
            "not_measured": None,
        }
        for shape, ms in times.items()
        for boundary in ("device", "end_to_end")
    ]
    waterfall = pd.DataFrame(
        [
            {
                **dict(zip(KEY, (*CASE, shape), strict=True)),
                "not_measured": None,
                **parts(launch=launch, kernels=50.0),
            }
            for shape, launch in (("b1_s128", 90.0), ("b8_s128", 1.0))
        ]
    )
    roofline = pd.DataFrame([{**dict(zip(KEY, (*CASE, "b8_s128"), strict=True)), "limit": "memory"}])
    (row,) = saturation.of_cases(pd.DataFrame(rows), waterfall, roofline).to_dict("records")
    assert (row["rest"], row["batch"], row["boundary"], row["regimes"]) == (
        "s128",
        8,
        "device",
        "launch b1, memory b8",
    )
