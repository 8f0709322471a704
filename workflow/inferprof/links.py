"""The links between GPUs: how long collectives and copies take by size, and how the GPUs are connected.

Sizes and bus bandwidths are those of nccl-tests, so that both can be compared:
https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from inferprof import loading
from inferprof.backends import torch_ranks
from inferprof.device import Device
from inferprof.errors import UserError
from inferprof.machine import hardware
from inferprof.measure import device_lock
from inferprof.ranks import supervise
from inferprof.ranks.supervise import Rank
from inferprof.ranks.world import MOST, World
from inferprof.tables.trace.collectives import BUS, POINT_TO_POINT

SIZES: Final = tuple(1 << power for power in range(10, 29, 2))
"""1 KiB to 256 MiB."""
CPU_SIZES: Final = SIZES[:6]
CPU_RANKS: Final = 2
WARM_UPS, REPEATS, CALLS = 3, 7, 10
FLOAT_BYTES: Final = 4
METHOD: Final = (
    f"median of {REPEATS} times {CALLS} calls behind a barrier, on GPUs in a CUDA graph, which waits for no host; "
    "the slowest rank's, and the spread over the ranks"
)
LEVELS: Final[Mapping[int, str]] = {
    **{0: "on one board", 10: "one PCIe switch", 20: "several PCIe switches", 30: "one PCIe host bridge"},
    **{40: "one NUMA node", 50: "several NUMA nodes"},
}
"""nvmlGpuTopologyLevel_t: what two GPUs have in common on the way over PCIe."""
Time = Callable[[Callable[[], Any]], float]
"""ns that something takes."""


def measure(count: int | None) -> dict[str, Any]:
    """The document of the links between so many GPUs, by default all; between processes where there is no GPU.

    Raises UserError for more GPUs than there are, and for fewer than two.
    """
    there = hardware.count_gpus()
    ranks = count or there or CPU_RANKS
    if not 2 <= ranks <= MOST or (there and ranks > there):
        raise UserError(f"--gpus {ranks}: a link is between 2 or more GPUs, and this machine has {there}")
    gpus = [gpu for index in range(ranks if there else 0) if (gpu := hardware.detect_gpu(index))]
    with device_lock.hold(gpus, "links"):
        each = supervise.run(World("data", ranks), lambda rank: _of_rank(rank, loading.device_of(gpus, rank)))
    first = each[0]
    return {
        "status": "ok",
        "reason": None,
        "method": METHOD,
        "ranks": ranks,
        "through": first["through"],
        "operations": {name: {"by_size": _by_size(name, ranks, each)} for name in first["operations"]},
        "copies": first["copies"],
        "topology": _topology(ranks) if there else {"not_measured": "no GPU"},
    }


def _by_size(name: str, ranks: int, each: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    factor = BUS[name](ranks) if name in BUS else 1.0
    sizes = each[0]["operations"][name]
    times = {size: [own["operations"][name][size] for own in each] for size in sizes}
    return {
        str(size): {"ns": max(own), "spread_ns": max(own) - min(own), "gb_per_s": factor * size / max(own)}
        for size, own in times.items()
    }


def _of_rank(rank: Rank, device: Device) -> dict[str, Any]:
    """What one rank measures; all do the same in the same order."""
    on_gpu = device.where == "cuda"
    with torch_ranks.group(rank, device):
        operations: dict[str, dict[int, float]] = {}
        for name, size, call in _calls(rank.world.size, on_gpu):
            operations.setdefault(name, {})[size] = _of_collective(rank, call, on_gpu)
        return {
            "through": torch_ranks.facts(device),
            "operations": operations,
            "copies": _copies(rank) if on_gpu else {"not_measured": "no GPU"},
        }


def _calls(ranks: int, on_gpu: bool) -> Iterator[tuple[str, int, Callable[[], Any]]]:
    """Operation, size in bytes, and a call of it."""
    import torch
    from torch import distributed

    sizes = [size // (FLOAT_BYTES * ranks) * FLOAT_BYTES * ranks for size in (SIZES if on_gpu else CPU_SIZES)]
    where = "cuda" if on_gpu else "cpu"
    mine, out = (torch.zeros(sizes[-1] // FLOAT_BYTES, device=where) for _ in range(2))
    rank = distributed.get_rank()

    def neighbours(count: int) -> None:
        """Send to the next rank and receive from the one before, as nccl-tests' sendrecv does."""
        to = distributed.P2POp(distributed.isend, mine[:count], (rank + 1) % ranks)
        by = distributed.P2POp(distributed.irecv, out[:count], (rank - 1) % ranks)
        for work in distributed.batch_isend_irecv([to, by]):
            work.wait()

    calls: dict[str, Callable[[int], Any]] = {
        "AllReduce": lambda count: distributed.all_reduce(mine[:count]),
        "AllGather": lambda count: torch_ranks.collective("all_gather")(out[:count], mine[: count // ranks]),
        "ReduceScatter": lambda count: torch_ranks.collective("reduce_scatter")(out[: count // ranks], mine[:count]),
        "AllToAll": lambda count: distributed.all_to_all_single(out[:count], mine[:count]),
        POINT_TO_POINT: neighbours,
    }
    for name, call in calls.items():
        for size in sizes:
            yield name, size, functools.partial(call, size // FLOAT_BYTES)


def _of_collective(rank: Rank, call: Callable[[], Any], on_gpu: bool) -> float:
    """ns of a call on this rank. All ranks ask for the same at the same time."""
    from torch import distributed

    for _ in range(WARM_UPS):
        call()
    if not on_gpu:
        return _median(rank, functools.partial(_calls_in_a_row, call), _clock, distributed.barrier)
    import torch

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode=torch_ranks.capture_mode()):
        _calls_in_a_row(call)
    graph.replay()
    return _median(rank, graph.replay, _events, distributed.barrier)


def _calls_in_a_row(call: Callable[[], Any]) -> None:
    for _ in range(CALLS):
        call()


def _median(rank: Rank, calls: Callable[[], Any], timed: Time, together: Callable[[], Any]) -> float:
    """ns of one of CALLS; each time `together` is called before."""
    times = []
    for _ in range(REPEATS):
        together()
        rank.board.begun(rank.number)  # this rank gets on: supervise.Limits
        times.append(timed(calls) / CALLS)
    return statistics.median(times)


def _clock(calls: Callable[[], Any]) -> float:
    start = time.perf_counter_ns()
    calls()
    return time.perf_counter_ns() - start


def _events(calls: Callable[[], Any]) -> float:
    import torch

    torch.cuda.synchronize()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    calls()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) * 1e6


def _copies(rank: Rank) -> dict[str, Any]:
    """Rank 0: copies of the largest size between its GPU and each other one, a way at a time and both at once."""
    import torch

    if not rank.leads:  # they wait without a kernel: one that spins would take part of what is measured
        rank.board.until(lambda: rank.board.left)
        return {}
    by_pair: dict[str, Any] = {}
    for other in range(1, rank.world.size):
        size = SIZES[-1]
        pairs = [(torch.empty(size, dtype=torch.uint8, device=a) for a in (0, other)) for _ in range(2)]
        (here, there), (here_too, there_too) = pairs
        # A stream of each GPU: a copy is on that of its source, and that of its target waits for it.
        streams = torch.cuda.Stream(0), torch.cuda.Stream(other)

        def both(
            here: Any = here, there: Any = there, back: Any = (here_too, there_too), streams: Any = streams
        ) -> None:
            streams[0].wait_stream(torch.cuda.current_stream())
            there.copy_(here)
            with torch.cuda.stream(streams[1]), torch.cuda.stream(streams[0]):
                back[0].copy_(back[1])
            torch.cuda.current_stream().wait_stream(streams[0])

        ways: dict[str, tuple[Callable[[], Any], int]] = {
            f"0 to {other}": (functools.partial(there.copy_, here), 1),
            f"{other} to 0": (functools.partial(here.copy_, there), 1),
            f"0 and {other} at once": (both, 2),
        }
        for call, _ in ways.values():
            for _ in range(WARM_UPS):  # the first ones map the memory of the other GPU
                call()
        for name, (call, times) in [*ways.items(), *ways.items()]:  # twice: in the first second a link is slow
            ns = _median(rank, functools.partial(_calls_in_a_row, call), _events, torch.cuda.synchronize)
            ns = min(ns, by_pair.get(name, {"ns": ns})["ns"])
            by_pair[name] = {"ns": ns, "spread_ns": 0.0, "gb_per_s": times * size / ns}
    rank.board.leave()
    return {name: {"by_size": {str(SIZES[-1]): own}} for name, own in by_pair.items()}


def _topology(ranks: int) -> dict[str, Any]:
    """NVLinks of each GPU that are up, and what each pair has in common on PCIe, as NVML tells them."""
    import pynvml

    pynvml.nvmlInit()
    try:
        handles = [hardware.visible_handle(pynvml, index) for index in range(ranks)]
        links = [
            sum(_is_up(pynvml, handle, link) for link in range(pynvml.NVML_NVLINK_MAX_LINKS)) for handle in handles
        ]
        pairs = {
            f"{a}-{b}": LEVELS.get(pynvml.nvmlDeviceGetTopologyCommonAncestor(handles[a], handles[b]), "unknown")
            for a in range(ranks)
            for b in range(a + 1, ranks)
        }
    except pynvml.NVMLError as error:
        return {"not_measured": f"NVML: {' '.join(str(error).split())}"}
    finally:
        pynvml.nvmlShutdown()
    return {"nvlinks": links, "pcie": pairs}


def _is_up(nvml: Any, handle: Any, link: int) -> bool:
    try:
        return bool(nvml.nvmlDeviceGetNvLinkState(handle, link))
    except nvml.NVMLError:
        return False


def lines(document: Mapping[str, Any]) -> Iterator[str]:
    """The document for a terminal."""
    through = document["through"]
    yield f"{document['ranks']} ranks over {through['library']} {through.get('version', '')}".rstrip()
    if through["library"] == "gloo":
        yield "processes on the CPU: this shows that it works, and says nothing about GPUs"
    for name, value in through.get("settings", {}).items():
        yield f"{name}={value}"
    topology = document["topology"]
    if "nvlinks" in topology:
        yield f"NVLinks up: {', '.join(map(str, topology['nvlinks']))}; PCIe: " + "; ".join(
            f"{pair} {level}" for pair, level in topology["pcie"].items()
        )
    yield f"{'operation':<22}{'bytes':>12}{'µs':>12}{'± ranks':>12}{'bus GB/s':>12}"
    entries = {**document["operations"], **({} if "not_measured" in document["copies"] else document["copies"])}
    for name, entry in entries.items():
        for size, own in entry["by_size"].items():
            numbers = (own["ns"] / 1e3, own["spread_ns"] / 1e3, own["gb_per_s"])
            yield f"{name:<22}{int(size):>12,}" + "".join(f"{number:>12,.2f}" for number in numbers)
