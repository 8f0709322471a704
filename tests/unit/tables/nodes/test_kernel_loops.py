"""Loops of small kernels inside of engines."""

from __future__ import annotations

import lzma
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from inferprof.profilers import nsys, ort_profile
from inferprof.tables.nodes import fallback, providers
from inferprof.tables.nodes.kernel_loops import loops

REGION = "{ForeignNode[(Unnamed Layer* 15) [Constant]...(Unnamed Layer* 25) [LoopOutput]]}"


@pytest.fixture(scope="module")
def folder(shared: Path) -> Path:
    return shared / "captures/h100-ort-tensorrt-ep"


@pytest.fixture(scope="module")
def traced(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    export = tmp_path_factory.mktemp("loops") / "nsys.sqlite"
    export.write_bytes(lzma.decompress((folder / "nsys.sqlite.xz").read_bytes()))
    return nsys.read(export)


def test_cumsum_is_a_loop_of_eight_steps_of_eight_kernels_of_a_microsecond(traced: pd.DataFrame) -> None:
    (loop,) = loops(traced).to_dict("records")
    assert (loop["region"], loop["block"]) == (REGION, "bb4")
    assert (loop["steps"], loop["kernels"], loop["launches"]) == (8, 8, 64)
    total = 528_144 + 189_282 + 187_877 + 189_412 + 188_099 + 184_997
    assert loop["duration"] == total / 21
    assert loop["mean"] == pytest.approx(1092.12, abs=0.01)
    assert loop["share"] == pytest.approx(total / 2_315_543)
    assert loop["region_duration"] == 9_618_035 / 21


def test_the_loop_is_a_worse_bottleneck_than_the_fallback_beside_it(traced: pd.DataFrame, folder: Path) -> None:
    (loop,) = loops(traced).to_dict("records")
    nodes = providers.per_run(ort_profile.read(folder / "ort_profile.json.gz"))
    (stay,) = fallback.ledger(nodes).to_dict("records")
    assert loop["duration"] > 2 * stay["gain_high"]
    assert loop["region_duration"] > 15 * stay["gain_high"]


def test_blocks_that_run_once_are_no_loops(captured: Callable[[str], Path]) -> None:
    assert loops(nsys.read(captured("h100_tensorrt_vit2"))).empty
