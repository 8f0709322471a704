"""A program of two ranks with planted delays and overlap, for a profiler: `planted_ranks.py FOLDER [kineto]`.

Ranges, ITERATIONS times each. Behind an all-reduce that lets both begin together, rank LATE comes late to others: by
a kernel that spins, DELAYS_US in turn (`eager`, and `graphed` in a CUDA graph); by its host, HELD_US (`held`); by a
copy from the host (`copied`). An all-reduce runs beside products that take longer (`overlapped`), and beside one that
takes less (`partly`).
"""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

RANKS, LATE = 2, 1
DELAYS_US = (0, 50, 250, 1000)
REPEATS = 4
HELD_US = 1000
"""Ten times what two hosts leave a barrier apart: 85 µs at the median of a busy hour."""
ITERATIONS = 10
SIZE = 4096
LEAD_US = 2000
"""Both GPUs spin so long before an iteration: launches come before the GPU needs them, so that no host is late."""
COPIED_BYTES = 16 << 20
MEET_S = 2e-3
GLOO = {"GLOO_SOCKET_IFNAME": "lo"}
"""All ranks are on this host."""
FIRST_US = 50
"""What is computed first beside a message: by one block, so that NCCL's find room on the GPU."""
LARGE = 128 << 20
"""Elements of a message that takes longer than a product."""


def start(folder: Path, *words: str) -> None:
    """All ranks, each a process; this one waits for them."""
    command = [sys.executable, __file__, str(folder), *words]
    ranks = [subprocess.Popen(command, env={**os.environ, **GLOO, "RANK": str(rank)}) for rank in range(RANKS)]
    sys.exit(max(process.wait() for process in ranks))


@contextlib.contextmanager
def recorded(out: Path) -> Iterator[None]:
    """Kineto's trace of a rank."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True) as trace:
        yield
    trace.export_chrome_trace(str(out))


class Planted:
    """What a rank does in an iteration of each range."""

    def __init__(self, rank: int) -> None:
        import torch
        from torch import distributed

        gpu = torch.device("cuda", rank)
        self.late = rank == LATE
        self.hosts = distributed.new_group(backend="gloo")
        self.x, self.w, self.y, self.z = (
            torch.full((SIZE, SIZE), 1e-3, device=gpu, dtype=torch.bfloat16) for _ in range(4)
        )
        self.large = torch.zeros(LARGE, device=gpu, dtype=torch.bfloat16)
        self.inputs = torch.zeros(COPIED_BYTES, dtype=torch.uint8).pin_memory()
        self.there = torch.empty_like(self.inputs, device=gpu)
        self.cycles_per_us = _cycles_per_us()
        self.modes: dict[str, Callable[[], None]] = {
            "eager": self.delayed,
            "held": self.held,
            "copied": self.copied,
            "overlapped": functools.partial(self.beside, self.y, 4),
            "partly": functools.partial(self.beside, self.large, 1),
        }

    def spin(self, us: float) -> None:
        """A kernel that takes so long."""
        import torch

        torch.cuda._sleep(round(us * self.cycles_per_us))

    def together(self) -> None:
        """Launches get ahead, and the GPUs begin at the same time."""
        self.spin(LEAD_US)
        self.reduce()

    def meet(self, late_us: float = 0.0) -> None:
        """Hosts go on at the same time, a rank so much later: a profiler, or another process, delays each of them by
        up to half a millisecond. All processes of a machine have one monotonic clock."""
        import torch
        from torch import distributed

        until = torch.tensor([time.monotonic() + MEET_S], dtype=torch.float64)
        distributed.broadcast(until, 0, self.hosts)
        begin = float(until) + late_us * 1e-6
        while time.monotonic() < begin:
            pass

    def reduce(self) -> None:
        """The all-reduce that ranks wait in."""
        from torch import distributed

        distributed.all_reduce(self.y)

    def product(self) -> None:
        """What is computed before each."""
        import torch

        torch.mm(self.x, self.w, out=self.y)

    def delayed(self) -> None:
        """Late by computing."""
        self.together()
        for _ in range(REPEATS):
            for delay in DELAYS_US:
                self.product()
                if self.late and delay:
                    self.spin(delay)
                self.reduce()

    def held(self) -> None:
        """Late by its host."""
        import torch

        self.reduce()
        torch.cuda.synchronize()
        for _ in range(REPEATS):
            self.product()
            torch.cuda.synchronize()
            self.meet(HELD_US * self.late)
            self.reduce()
            torch.cuda.synchronize()

    def copied(self) -> None:
        """Late by a copy."""
        self.together()
        for _ in range(REPEATS):
            self.product()
            if self.late:
                self.there.copy_(self.inputs, non_blocking=True)
            self.reduce()

    def beside(self, message: torch.Tensor, products: int) -> None:
        """Communication on a stream of its own."""
        import torch
        from torch import distributed

        self.meet()
        self.spin(LEAD_US)
        sent = distributed.all_reduce(message, async_op=True)
        self.spin(FIRST_US)
        for _ in range(products):
            torch.mm(self.x, self.w, out=self.z)
        sent.wait()


def work(folder: Path, rank: int, kineto: bool) -> None:
    """What a rank does."""
    import torch
    from torch import distributed
    from torch.profiler import record_function

    torch.cuda.set_device(rank)
    meeting = f"file://{folder}/meeting"
    distributed.init_process_group(
        "nccl", init_method=meeting, rank=rank, world_size=RANKS, device_id=torch.device("cuda", rank)
    )
    planted = Planted(rank)
    with torch.inference_mode():
        for run in (*planted.modes.values(), *planted.modes.values()):
            run()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            planted.delayed()
        graph.replay()
        torch.cuda.synchronize()
        with recorded(folder / f"rank{rank}.json") if kineto else contextlib.nullcontext():
            for name, run in {**planted.modes, "graphed": graph.replay}.items():
                distributed.barrier()
                torch.cuda.synchronize()
                for _ in range(ITERATIONS):
                    with torch.cuda.nvtx.range(name), record_function(name):
                        run()
                        torch.cuda.synchronize()
    distributed.barrier()
    del graph, run  # NCCL ends a communicator only when no CUDA graph has its kernels any more
    distributed.destroy_process_group()


def _cycles_per_us() -> float:
    """Of this GPU, at the clock that it works with."""
    import torch

    cycles = 20_000_000
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(2):
        begin.record()
        torch.cuda._sleep(cycles)
        end.record()
        torch.cuda.synchronize()
    return cycles / (float(begin.elapsed_time(end)) * 1e3)


if __name__ == "__main__":
    if "RANK" in os.environ:
        work(Path(sys.argv[1]), int(os.environ["RANK"]), "kineto" in sys.argv[2:])
    else:
        start(Path(sys.argv[1]), *sys.argv[2:])
