"""How well the tiles of GEMM kernels fit the products of a graph: padding, waves, and what both waste.

With tiles of m × n elements of the output, one per thread block (NVIDIA, "Matrix Multiplication Background User's
Guide", tile and wave quantization):

blocks       count · ceil(M / m) · ceil(N / n)
waves        blocks / (SMs · blocks per SM)
padding      1 - M·N·K / the same with each size rounded up to the tile's
last wave    1 - waves / ceil(waves)
work         ceil(waves) · blocks per SM · m · n · (K rounded up): multiply-accumulates that the busiest SM pays for
efficiency   (1 - padding) · (1 - last wave) = count·M·N·K / SMs / work

Where the sum over K is split among several blocks per tile (split-K), there are as many times the blocks, each with a
part of K.

Libraries that compute the transposed product (cuBLAS, called for arrays in C order) lay the tile's m along N. Of the
two ways the one with less work counts, as the library's own choice does, so that no waste is made up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from inferprof.documents.graph import Gemm, Node
from inferprof.tables.trace.tile_names import Tile


@dataclass(frozen=True)
class Fit:
    """What a tile makes of a product on a GPU; see the formulas above."""

    blocks: int
    waves: float
    padding: float
    last_wave: float
    work: int

    @property
    def efficiency(self) -> float:
        """The share of the paid multiply-accumulates that the product needs."""
        return (1 - self.padding) * (1 - self.last_wave)


@dataclass(frozen=True)
class Group:
    """The nodes of a graph that compute products of the same sizes in the same type."""

    gemm: Gemm
    dtype: str
    convolution: bool
    nodes: tuple[str, ...]


def fit(gemm: Gemm, tile: Tile, sms: int, blocks_per_sm: int = 1, splits: int = 1) -> Fit:
    """The fit of a tile, laid the way that takes less work."""
    ways = sorted({(tile.m, tile.n), (tile.n, tile.m)})
    fits = [_laid(gemm, Tile(*way, tile.k), sms, blocks_per_sm, splits) for way in ways]
    return min(fits, key=lambda candidate: (candidate.work, candidate.blocks))


def _laid(gemm: Gemm, tile: Tile, sms: int, blocks_per_sm: int, splits: int) -> Fit:
    step = tile.k or 1
    down, across = math.ceil(gemm.m / tile.m), math.ceil(gemm.n / tile.n)
    deep = math.ceil(gemm.k / (splits * step))
    blocks = gemm.count * down * across * splits
    waves = blocks / (sms * blocks_per_sm)
    paid = tile.m * tile.n * deep * step
    return Fit(
        blocks=blocks,
        waves=waves,
        padding=1 - gemm.m * gemm.n * gemm.k / (down * across * splits * paid),
        last_wave=1 - waves / math.ceil(waves),
        work=math.ceil(waves) * blocks_per_sm * paid,
    )


def groups_of(nodes: Iterable[Node]) -> list[Group]:
    """The products among the nodes of a .cost.json, those of the same sizes together, the most work first."""
    alike: dict[tuple[Gemm, str, bool], list[str]] = {}
    for node in nodes:
        if node.gemm:
            alike.setdefault((node.gemm, node.dtype, "Conv" in node.op), []).append(node.name)
    groups = [Group(*key, nodes=tuple(names)) for key, names in alike.items()]
    return sorted(
        groups, key=lambda group: -group.gemm.count * group.gemm.m * group.gemm.n * group.gemm.k * len(group.nodes)
    )
