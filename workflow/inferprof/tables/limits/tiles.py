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
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from inferprof.documents.graph import Gemm, Node
from inferprof.grouping import grouped
from inferprof.tables.nodes.product_kernels import Kernel, Ties
from inferprof.tables.trace.kernel_class import classify
from inferprof.tables.trace.tile_names import Tile, values_per_load


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
    alike = grouped(((node.gemm, node.dtype, "Conv" in node.op), node.name) for node in nodes if node.gemm)
    groups = [Group(*key, nodes=tuple(names)) for key, names in alike.items()]
    return sorted(
        groups, key=lambda group: -group.gemm.count * group.gemm.m * group.gemm.n * group.gemm.k * len(group.nodes)
    )


# --- which kernel, and so which tile, computes which product ------------------------------------------------------

ASSUMED: Final = Tile(128, 256)
"""Where no kernel is known: the size that NVIDIA's guide lists first among cuBLAS's, as the most efficient."""
Source = Literal["node", "grid", "name", "assumed"]
"""How it is known that a tile is a product's. node: a trace ties the kernel to the node; grid: the kernel's number of
blocks is that of the product's tiles; name: of the case's kernels it leaves all products the least work. assumed: the
kernel's name does not tell its tile, or there is no kernel."""
NO_TIES: Final[Ties] = {}
_UNLIKELY: Final = 16.0
"""How many times its work a pair counts that another fact speaks against: more than any tile of the case costs."""
_MOST_SPLITS: Final = 16
_NEARLY_ALL: Final = 0.75
_WHOLE_CLUSTERS: Final = 1.5
"""Clusters of up to eight blocks round a grid up; in the captures at hand by 23 % at most."""


@dataclass(frozen=True)
class Placed:
    """Nodes of a group and the tile that computes them."""

    group: Group
    nodes: int
    tile: Tile
    source: Source
    fit: Fit
    kernel: str | None
    duration: float | None
    """ns per iteration, all nodes; None where no kernel was found for them."""
    splits: int = 1
    """Blocks per tile."""

    @property
    def macs(self) -> int:
        """Multiply-accumulates of all nodes."""
        gemm = self.group.gemm
        return self.nodes * gemm.count * gemm.m * gemm.n * gemm.k


def place(groups: Sequence[Group], kernels: Sequence[Kernel], sms: int, ties: Ties = NO_TIES) -> list[Placed]:
    """The tile of each product.

    Launches are given to nodes so that the work of all is the least, each launch to one node: the library has made
    such a choice. What speaks against a pair: that a trace ties other kernels to the node, a grid that cannot be that
    of the product's tiles, a convolution's kernel for a matrix product or the other way round, and rows that the
    kernel cannot load as its name says. Nodes that are left over (several may be one launch) get the tile with the
    least work among the case's, and no duration.
    """
    pairs = _assign(groups, kernels, sms, ties)
    placed = []
    for index, group in enumerate(groups):
        mine = {kernel: nodes for (owner, kernel), nodes in pairs.items() if owner == index}
        placed += [_placed(group, nodes, kernels[kernel], sms, ties) for kernel, nodes in sorted(mine.items())]
        if left := len(group.nodes) - sum(mine.values()):
            placed.append(_left_over(group, left, kernels, sms))
    return placed


def _assign(groups: Sequence[Group], kernels: Sequence[Kernel], sms: int, ties: Ties) -> Counter[tuple[int, int]]:
    """(place of the group, place of the kernel) → how many of the group's nodes it computes."""
    from scipy.optimize import linear_sum_assignment

    nodes = [node for group in groups for node in group.nodes]
    owners = np.repeat(np.arange(len(groups)), [len(group.nodes) for group in groups])
    launched = np.repeat(np.arange(len(kernels)), [kernel.launches for kernel in kernels])
    if not launched.size or not owners.size:
        return Counter()
    costs = np.array([[_cost(group, kernel, sms) for kernel in kernels] for group in groups])[owners]
    others = [[node in ties and kernel.name not in ties[node] for kernel in kernels] for node in nodes]
    costs *= np.where(others, _UNLIKELY**2, 1.0)
    rows, columns = linear_sum_assignment(costs[:, launched])
    return Counter(zip(owners[rows].tolist(), launched[columns].tolist(), strict=True))


def _splits(gemm: Gemm, kernel: Kernel, sms: int) -> int:
    """How many blocks a kernel has per tile, where its grid is a multiple of the tiles."""
    if kernel.tile is None or kernel.blocks is None:
        return 1
    splits, rest = divmod(kernel.blocks, fit(gemm, kernel.tile, sms).blocks)
    return splits if rest == 0 and 1 < splits <= _MOST_SPLITS else 1


def _cost(group: Group, kernel: Kernel, sms: int) -> float:
    tile = kernel.tile or ASSUMED
    fitted = fit(group.gemm, tile, sms)
    splits = _splits(group.gemm, kernel, sms)
    against = (
        (classify(kernel.name).kernel_class == "convolution") != group.convolution,
        kernel.tile and kernel.blocks and splits == 1 and not _may_launch(kernel.blocks, fitted.blocks, sms),
        not _loads(kernel.name, group.gemm),
    )
    exact = kernel.blocks == fitted.blocks
    # Of equal work the exact grid, and then the larger tile: it reads each operand less often.
    return float(fitted.work * (1 - 1e-3 * exact - 1e-9 * tile.m * tile.n) * _UNLIKELY ** sum(map(bool, against)))


def _may_launch(launched: int, tiles: int, sms: int) -> bool:
    """Whether so many blocks may go through so many tiles: one each, rounded up to whole clusters; of a persistent
    kernel with more tiles than SMs as many as there are SMs, or a few less."""
    if tiles > sms and launched <= sms:
        return launched >= _NEARLY_ALL * sms
    return tiles <= launched <= tiles * _WHOLE_CLUSTERS if launched <= sms else launched == tiles


def _loads(kernel: str, gemm: Gemm) -> bool:
    """Whether a kernel may be a product's by what it loads at once: single values where no two are aligned."""
    values = values_per_load(kernel)
    if values is None:
        return True
    if values == 1:
        return bool(gemm.n % 2 or gemm.k % 2)
    return gemm.n % values == 0 and gemm.k % values == 0


def _placed(group: Group, nodes: int, kernel: Kernel, sms: int, ties: Ties) -> Placed:
    splits = _splits(group.gemm, kernel, sms)
    fitted = fit(group.gemm, kernel.tile or ASSUMED, sms, splits=splits)
    tied = any(kernel.name in ties.get(node, ()) for node in group.nodes)
    source: Source = "node" if tied else "grid" if kernel.blocks == fitted.blocks else "name"
    return Placed(
        group=group,
        nodes=nodes,
        tile=kernel.tile or ASSUMED,
        source=source if kernel.tile else "assumed",
        fit=fitted,
        kernel=kernel.name,
        duration=nodes * kernel.duration,
        splits=splits,
    )


def _left_over(group: Group, nodes: int, kernels: Sequence[Kernel], sms: int) -> Placed:
    tiles = {kernel.tile for kernel in kernels if kernel.tile}
    tile = min(
        tiles,
        key=lambda candidate: (fit(group.gemm, candidate, sms).work, -candidate.m * candidate.n),
        default=ASSUMED,
    )
    return Placed(group, nodes, tile, "name" if tiles else "assumed", fit(group.gemm, tile, sms), None, None)
