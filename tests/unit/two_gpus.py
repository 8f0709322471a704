"""A made-up trace of two GPUs, on each a rank, as Kineto writes it: what a test plants in it is known to the ns."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from inferprof.profilers import kineto

RANKS = (0, 1)
GAP_US = 1.0
HOST_US = 30.0
"""A launch is called so long before its kernel begins."""


class TwoGpus:
    """Each rank has a stream for computation and one for communication; times are in µs."""

    def __init__(self) -> None:
        self.now = [1000.0, 1000.0]
        self._talks = [0.0, 0.0]
        self._events: dict[int, list[dict[str, Any]]] = {rank: [] for rank in RANKS}

    @contextlib.contextmanager
    def iteration(self) -> Iterator[None]:
        """A range on each rank, until both streams are done."""
        begin = [now - HOST_US - GAP_US for now in self.now]
        yield
        for rank in RANKS:
            end = max(self.now[rank], self._talks[rank]) + GAP_US
            self._event(rank, "user_annotation", "iteration", begin[rank], end - begin[rank], 1)
            self.now[rank] = end + 2 * HOST_US

    def idle(self, rank: int, us: float) -> None:
        """The next launch of the rank comes later by so much."""
        self.now[rank] += us

    def compute(self, us: float, *ranks: int, name: str = "gemm_128x128") -> None:
        """A kernel on these ranks, by default on both."""
        for rank in ranks or RANKS:
            self._launch(rank, "kernel", name, self.now[rank], us, 7)
            self.now[rank] += us + GAP_US

    def copy(self, us: float, rank: int) -> None:
        """From the host."""
        self._launch(rank, "gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", self.now[rank], us, 7, bytes=1 << 20)
        self.now[rank] += us + GAP_US

    def all_reduce(self, us: float, *, size: int = 1 << 20, beside: bool = False) -> None:
        """A transfer of so long from when both have come; beside what is computed next, or before it."""
        self._talk("AllReduce_Sum_bf16_RING_LL", us, size, beside)

    def send(self, us: float) -> None:
        """From one GPU to the other; both are in it until the data is there."""
        self._talk("SendRecv", us, 1 << 20, False)

    def _talk(self, operation: str, us: float, size: int, beside: bool) -> None:
        last = max(self.now)
        for rank in RANKS:
            message = {"Process Group Name": "0", "dtype": "BFloat16", "In msg nelems": size // 2}
            name = f"ncclDevKernel_{operation}(ncclDevKernelArgsStorage<4096ul>)"
            self._launch(rank, "kernel", name, self.now[rank], last + us - self.now[rank], 20, **message)
            self._talks[rank] = last + us
            self.now[rank] = self.now[rank] if beside else last + us + GAP_US

    def _launch(self, rank: int, kind: str, name: str, start: float, us: float, stream: int, **more: Any) -> None:
        correlation = len(self._events[rank]) + 1
        self._event(rank, "cuda_runtime", "cudaLaunchKernel", start - HOST_US, 2.0, 1, correlation=correlation)
        args = {"device": rank, "stream": stream, "correlation": correlation, "grid": [8, 1, 1], "block": [128, 1, 1]}
        self._event(rank, kind, name, start, us, stream, **args, **more)

    def _event(self, rank: int, kind: str, name: str, start: float, us: float, thread: int, **args: Any) -> None:
        times = {"ts": round(start, 3), "dur": round(us, 3)}
        self._events[rank].append(
            {"ph": "X", "cat": kind, "name": name, "pid": 4000 + rank, "tid": thread, "args": args, **times}
        )

    def table(self, folder: Path) -> pd.DataFrame:
        """The rows of the two traces, put together as those of a study's capture are."""
        out = folder / "trace.json"
        for rank, events in self._events.items():
            content = {"distributedInfo": {"rank": rank, "world_size": len(RANKS)}, "baseTimeNanoseconds": 0}
            kineto.of_rank(out, rank).write_text(json.dumps({**content, "traceEvents": events}))
        kineto.finish(out, lambda command: None)
        return kineto.read(out)
