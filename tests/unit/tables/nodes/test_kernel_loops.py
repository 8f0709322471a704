"""Loops of small kernels inside of engines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from inferprof.profilers import nsys, ort_profile
from inferprof.tables.nodes import fallback, providers
from inferprof.tables.nodes.kernel_loops import loops

REGION = "{ForeignNode[(Unnamed Layer* 15) [Constant]...(Unnamed Layer* 25) [LoopOutput]]}"


@pytest.fixture(scope="module")
def traced(captured: Callable[[str], Path]) -> pd.DataFrame:
    return nsys.read(captured("h100_ort_tensorrt_ep"))


def test_cumsum_is_a_loop_of_eight_steps_of_eight_kernels_of_a_microsecond(traced: pd.DataFrame) -> None:
    (loop,) = loops(traced).to_dict("records")
    assert (loop["region"], loop["block"]) == (REGION, "bb4")
    assert (loop["steps"], loop["kernels"], loop["launches"]) == (8, 8, 64)
    total = 528_144 + 189_282 + 187_877 + 189_412 + 188_099 + 184_997
    assert loop["duration"] == total / 21
    assert loop["mean"] == pytest.approx(1092.12, abs=0.01)
    assert loop["share"] == pytest.approx(total / 2_315_543)
    assert loop["region_duration"] == 9_618_035 / 21


def test_the_loop_is_a_worse_bottleneck_than_the_fallback_beside_it(traced: pd.DataFrame, repository: Path) -> None:
    (loop,) = loops(traced).to_dict("records")
    profiled = repository / "tests/data/ort_profile/h100_ort_tensorrt_ep.json.gz"
    nodes = providers.per_run(ort_profile.read(profiled))
    (row,) = fallback.ledger(nodes).to_dict("records")
    assert loop["duration"] > 2 * row["gain_high"]
    assert loop["region_duration"] > 15 * row["gain_high"]


def test_blocks_that_run_once_are_no_loops(captured: Callable[[str], Path]) -> None:
    assert loops(nsys.read(captured("h100_tensorrt_vit2"))).empty
