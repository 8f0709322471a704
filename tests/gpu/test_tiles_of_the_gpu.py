"""Tiles on a real GPU: what cuBLAS calls its kernels, and the grids that it launches.

Products in half precision through torch, recorded by Kineto, whose trace holds the grid of each launch.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from inferprof.documents.graph import Gemm
from inferprof.profilers import kineto
from inferprof.tables.limits.tiles import fit
from inferprof.tables.trace.kernel_class import classify
from inferprof.tables.trace.tile_names import parse

pytestmark = pytest.mark.gpu
SIZES = [
    (batch * 197, columns, depth)
    for batch in (1, 8, 57, 64)
    for columns, depth in ((768, 768), (2304, 768), (3072, 768), (768, 3072))
] + [(64, 1000, 768), (8, 1000, 768), (197, 197, 64), (197, 64, 197), (4096, 4096, 4096)]
TOLD = 0.9
"""Of the products, how many at least must be by kernels whose name tells the tile, and have a grid that fits it."""
REPEATS = 5


@dataclass(frozen=True)
class Launch:
    """One launch of a product's kernel."""

    name: str
    blocks: int
    duration: float
    """ns"""


@pytest.fixture(scope="module")
def sms() -> int:
    torch = pytest.importorskip("torch")
    return int(torch.cuda.get_device_properties(0).multi_processor_count)


@pytest.fixture(scope="module")
def launches(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[int, int, int], Launch]:
    """Sizes → the longest launch of a kernel of products; split sums have a second kernel behind it."""
    torch = pytest.importorskip("torch")
    found = {}
    for number, (m, n, k) in enumerate(SIZES):
        left = torch.randn(m, k, device="cuda", dtype=torch.float16)
        right = torch.randn(k, n, device="cuda", dtype=torch.float16)
        for _ in range(3):
            left @ right
        torch.cuda.synchronize()
        trace = tmp_path_factory.mktemp("traces") / f"{number}.json"
        with kineto.record(trace):
            for _ in range(REPEATS):
                left @ right
            torch.cuda.synchronize()
        found[m, n, k] = max(of_trace(trace), key=lambda one: one.duration)
    return found


def of_trace(path: Path) -> list[Launch]:
    events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    kernels = [event for event in events if str(event.get("cat", "")).lower() == "kernel"]
    return [
        Launch(event["name"], math.prod(event["args"]["grid"]), 1e3 * event["dur"])
        for event in kernels
        if classify(event["name"]).kernel_class == "gemm"
    ]


def test_the_names_of_nearly_all_kernels_tell_their_tiles(launches):
    untold = {sizes: launch.name for sizes, launch in launches.items() if parse(launch.name) is None}
    assert len(untold) <= (1 - TOLD) * len(launches), untold


def test_the_grid_of_nearly_all_launches_fits_the_tiles(launches, sms):
    """As many blocks as tiles, a multiple of them, as many as clusters round them up to, or as there are SMs."""
    odd = {}
    told = [(sizes, launch, tile) for sizes, launch in launches.items() if (tile := parse(launch.name))]
    for (m, n, k), launch, tile in told:
        tiles = fit(Gemm(m, n, k, 1, "m"), tile, sms).blocks
        if not fits(launch.blocks, tiles, sms):
            odd[m, n, k] = (launch.name, launch.blocks, tiles)
    assert len(odd) <= (1 - TOLD) * len(told), odd


def fits(blocks: int, tiles: int, sms: int) -> bool:
    persistent = tiles > sms and 0.75 * sms <= blocks <= sms
    return persistent or blocks % tiles == 0 or tiles <= blocks <= 1.5 * tiles
