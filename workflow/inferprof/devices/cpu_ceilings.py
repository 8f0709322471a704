"""How fast this machine's CPU multiplies matrices and reads its memory, measured: the roofs of cases on it.

What NumPy's BLAS reaches with all threads that it takes, and what as many threads as the process may use read and
write together. A roof is what nothing exceeds, so the fastest sample counts. Takes about 2 s.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from inferprof.case import REFERENCE
from inferprof.devices.ceilings import bandwidths, rates

SIZES = (1024, 2048)
BYTES = 1 << 27
"""128 MiB a vector, beyond most caches; three of them."""
SECONDS = 0.4
"""Per kind and size."""
METHOD = (
    "square matrix products of float32 by NumPy with all threads of its BLAS; triad: a = b + c of three vectors, a "
    "part of each by as many threads as the process may use; read: a sum of one; the fastest of all"
)


def measure(clock: Callable[[], int] = time.perf_counter_ns) -> dict[str, Any]:
    """The ceilings of the CPU, for results/{machine}/ceilings.json, as those of a GPU."""
    by_size = {size: _fastest(_product(size), clock) for size in SIZES}
    return {
        "method": METHOD,
        "gemm": {REFERENCE: rates(by_size)},
        "memory": _memory(clock),
    }


def _product(size: int) -> Callable[[], object]:
    a, b = (np.random.default_rng(seed).standard_normal((size, size), np.float32) for seed in (0, 1))
    out = np.empty_like(a)
    return lambda: np.matmul(a, b, out=out)


def _memory(clock: Callable[[], int]) -> dict[str, Any]:
    threads = len(os.sched_getaffinity(0))
    vectors = [np.ones(BYTES // 4, np.float32) for _ in range(3)]
    parts = list(zip(*(np.array_split(vector, threads) for vector in vectors), strict=True))
    with ThreadPoolExecutor(threads) as pool:
        triad = _fastest(lambda: list(pool.map(lambda part: np.add(part[1], part[2], out=part[0]), parts)), clock)
        read = _fastest(lambda: list(pool.map(lambda part: part[1].max(), parts)), clock)
    return bandwidths(BYTES, read, triad)


def _fastest(work: Callable[[], object], clock: Callable[[], int]) -> float:
    """ns of the fastest of all runs within SECONDS, after one."""
    work()
    times: list[int] = []
    end = clock() + SECONDS * 1e9
    while not times or clock() < end:
        begin = clock()
        work()
        times.append(clock() - begin)
    return float(min(times))
