"""What CUDA graphs of several batch sizes hold of the device's memory, one more at a time, and the time they save.

A serving system that pads requests to a few batch sizes captures a graph for each. A graph keeps all memory that was
allocated while it was captured, in a pool: its own, or one that it shares with other graphs. Beside it lie the static
copies: the inputs that the graph reads and the output that it writes, at addresses that must stay.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from inferprof import progress
from inferprof.allowed import Option, one_of, whole
from inferprof.case import BATCH, Shape, Variant
from inferprof.device import Device
from inferprof.errors import UserError
from inferprof.grouping import grouped
from inferprof.machine.hardware import Machine
from inferprof.measure.loop import Clock
from inferprof.model import data
from inferprof.plugins import OpenRequest

if TYPE_CHECKING:
    import torch

    Tensors = tuple[torch.Tensor, ...]
    Call = Callable[..., torch.Tensor]

COUNT: Final = "graphs"
POOL: Final = "graph_pool"
ORDER: Final = "graph_order"
INPUTS: Final = "graph_inputs"
POOLS: Final = ("private", "shared")
ORDERS: Final = ("ascending", "descending")
WHOSE: Final = ("own", "slices")
OPTIONS: Final[Mapping[str, Option]] = {
    COUNT: Option(
        "torch: number of CUDA graphs that are captured after the measurement, each of another batch size up to the "
        "case's; their memory and the time that they save are recorded",
        whole(1),
    ),
    POOL: Option(
        "of these: `private` (default), a pool of memory for each, or `shared`, one for all; torch.compile has one",
        one_of(*POOLS),
    ),
    ORDER: Option("of these: captured `ascending` (default) or `descending` in batch size", one_of(*ORDERS)),
    INPUTS: Option(
        "of these: each reads inputs of its `own` (default), or all of them `slices` of one buffer", one_of(*WHOSE)
    ),
}
TREES: Final = "cudagraph trees"
"""The pool of torch.compile's own graphs: one for all of them, torch._inductor.cudagraph_trees."""
WARM_UPS: Final = 2
"""Runs before a capture: what a shape allocates and loads at its first run must not be in the graph."""
RECORDING_RUNS: Final = 3
"""Until a shape is replayed by torch.compile: one in its pool, one recorded, one replayed."""
SAMPLES: Final = 15
NO_GPU: Final = "no GPU, and so no CUDA graph whose memory could be measured"
DEFAULT_POOL: Final = (0, 0)
"""The allocator's pool outside of graphs: `segment_pool_id` in torch.cuda.memory_snapshot."""


@dataclass(frozen=True)
class Plan:
    """The batch sizes of the graphs in the order of their captures, whose pool they go into, and what they read."""

    batches: tuple[int, ...]
    pool: str
    order: str
    inputs: str

    @classmethod
    def of(cls, variant: Variant, shape: Shape, *, trees: bool) -> Plan | None:
        """What a variant asks for; None where it does not ask. Raises UserError for what cannot be.

        The graphs of torch.compile begin with the case's own shape, which it has recorded before.
        """
        if COUNT not in variant.options:
            return None
        count, pool = variant.whole(COUNT), TREES if trees else variant.text(POOL, POOLS[0])
        if not 1 <= count <= shape.batch:
            raise UserError(
                f"variant {variant.name}: {COUNT}: {count} at {shape}; each has a batch size of its own: give 1 to "
                f"{shape.batch}"
            )
        order = ORDERS[1] if trees else variant.text(ORDER, ORDERS[0])
        inputs = WHOSE[1] if trees else variant.text(INPUTS, WHOSE[0])
        sizes = buckets(shape.batch, count)
        return cls(sizes if order == ORDERS[0] else sizes[::-1], pool, order, inputs)


def refuses(variant: Variant, shape: Shape, machine: Machine) -> str | None:
    """Why a case's graphs cannot be measured; None where they can, or where none are asked for."""
    if COUNT not in variant.options:
        return None
    if (count := variant.whole(COUNT)) > shape.batch:
        return f"{COUNT}: {count} at {shape}: each needs a batch size of its own (variant {variant.name})"
    return NO_GPU if machine.gpu is None else None


def buckets(batch: int, count: int) -> tuple[int, ...]:
    """`count` different batch sizes up to `batch`, ascending: its halves, then the middles of the widest gaps."""
    sizes = [batch]
    while len(sizes) < count and sizes[0] > 1:
        sizes.insert(0, (sizes[0] + 1) // 2)
    while len(sizes) < count:
        low, high = max(pairwise(sizes), key=lambda pair: pair[1] - pair[0])
        sizes = sorted([*sizes, (low + high) // 2])
    return tuple(sizes)


@dataclass(frozen=True)
class Graph:
    """A captured graph. `replay` queues it; `output` is None where the runtime hands out its memory again."""

    batch: int
    inputs: Tensors
    output: torch.Tensor | None
    replay: Callable[[], Any]
    capture_ns: int


Capture = Callable[[int], Graph]


def measure(call: Call, request: OpenRequest, plan: Plan, clock: Clock = time.perf_counter_ns) -> dict[str, Any]:
    """The part `graphs` of the record's memory. `call` is the model on the current stream, which has run before.

    rows: one per number of captured graphs, bytes: `allocated` and `reserved` by torch's allocator; of these in the
    pools of graphs (`pools` of them) `graph_allocated` and `graph_reserved`; `device_used` by all processes;
    `static_inputs` and `static_outputs`. From the first graph on `batch`, `capture_ns`, and what `_times` says of the
    graph of this batch. least: bytes of a pool with nothing but the largest graph. segments: `by_pool` at the end.
    stopped: why there are fewer graphs than asked for.
    """
    import torch

    device, trees = request.device, plan.pool == TREES
    inputs = _inputs(request, own=plan.inputs == "own")
    alone = _own(call, inputs, None, clock)
    shared = torch.cuda.graph_pool_handle() if plan.pool == "shared" else None
    capture = _of_trees(call, inputs, clock) if trees else _own(call, inputs, shared, clock)
    graphs: list[Graph] = []
    rows: list[dict[str, Any]] = []
    times: list[dict[str, Any]] = []
    stopped = None
    progress.step("CUDA graphs")
    least = None if trees else _least(alone, max(plan.batches), device)
    try:
        if not trees:  # whose pool holds the case's own graph already
            rows.append({"graphs": 0, **_held(device, graphs)})
        for batch in progress.counted(plan.batches, "graph"):
            graph = capture(batch)
            graphs.append(graph)
            captured = {"graphs": len(graphs), "batch": batch, "capture_ns": graph.capture_ns}
            rows.append({**captured, **_held(device, graphs)})
        least = rows[0]["graph_reserved"] if trees else least
        segments = by_pool(torch.cuda.memory_snapshot())
        times = list(_times(call, graphs, device, eager=not trees))
    except RuntimeError as error:
        stopped, segments = _out_of_memory(error), by_pool(torch.cuda.memory_snapshot())
    begun = len(rows) - len(graphs)
    for row, measured in zip(rows[begun:], times, strict=False):
        row.update(measured)
    results = {"rows": rows, "least": least, "segments": segments, "stopped": stopped}
    return {"pool": plan.pool, "order": plan.order, "inputs": plan.inputs, **results}


# --- capturing -------------------------------------------------------------------------------------------------


def _inputs(request: OpenRequest, *, own: bool) -> Callable[[int], Tensors]:
    """Batch size → the first so many of the case's inputs, in the model's order: copies, or on the same memory.

    They are no views: torch.compile compiles again for a part of a tensor than for a whole one.
    """
    import torch

    feeds = data.feeds(request.spec, request.shape, 1, 0)[0]
    arrays = {name: torch.from_numpy(array).cuda() for name, array in feeds.items()}

    def of(batch: int) -> Tensors:
        shape = Shape(tuple({**request.shape.as_dict(), BATCH: batch}.items()))
        parts = [arrays[item.name][tuple(map(slice, item.shape(shape)))] for item in request.spec.inputs]
        if own:
            return tuple(part.clone() for part in parts)
        return tuple(part.new_empty(0).set_(part.untyped_storage(), 0, part.shape, part.stride()) for part in parts)

    return of


def _own(call: Call, inputs: Callable[[int], Tensors], pool: Any, clock: Clock) -> Capture:
    """Graphs of torch.cuda.CUDAGraph. pool: a handle; None makes one for each graph."""
    import torch

    def capture(batch: int) -> Graph:
        static = inputs(batch)
        for _ in range(WARM_UPS):
            call(*static)
        graph = torch.cuda.CUDAGraph()
        start = clock()
        with torch.cuda.graph(graph, pool=pool, stream=torch.cuda.current_stream()):
            output = call(*static)
        return Graph(batch, static, output, graph.replay, clock() - start)

    return capture


def _least(alone: Capture, batch: int, device: Device) -> int | None:
    """What a pool holds with this graph and no other, which goes with it; None where it does not fit."""
    try:
        held: int = _held(device, [alone(batch)])["graph_reserved"]
    except RuntimeError as error:
        _out_of_memory(error)
        return None
    return held


def _out_of_memory(error: RuntimeError) -> str:
    """The words of an error for want of memory; any other is raised again.

    The end of a capture that failed raises an error of its own over the one that made it fail.
    """
    import torch

    for raised in (error, error.__context__):
        if isinstance(raised, torch.OutOfMemoryError):
            return " ".join(str(raised).split())
    raise error


def _of_trees(call: Call, inputs: Callable[[int], Tensors], clock: Clock) -> Capture:
    """Graphs that torch.compile records by itself, of inputs that it copies where it needs them."""

    def capture(batch: int) -> Graph:
        views = inputs(batch)
        start = clock()
        for _ in range(RECORDING_RUNS):
            call(*views)
        return Graph(batch, views, None, lambda: call(*views), clock() - start)

    return capture


# --- memory ----------------------------------------------------------------------------------------------------


def _held(device: Device, graphs: Sequence[Graph]) -> dict[str, Any]:
    """A row's bytes, without what the allocator only keeps for later."""
    import torch

    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    pools = [row for row in by_pool(torch.cuda.memory_snapshot()) if row["of_graphs"]]
    static = [graph for graph in graphs if graph.output is not None]
    inputs: dict[int, int] = {}  # of torch.compile they are the caller's, and its output's memory is used again
    for tensor in (tensor for graph in static for tensor in graph.inputs):
        inputs[tensor.data_ptr()] = max(tensor.nbytes, inputs.get(tensor.data_ptr(), 0))
    return {
        "allocated": torch.cuda.memory_allocated(),
        "reserved": torch.cuda.memory_reserved(),
        "pools": len(pools),
        "graph_allocated": sum(pool["allocated"] for pool in pools),
        "graph_reserved": sum(pool["reserved"] for pool in pools),
        "device_used": device.memory_used(),
        "static_inputs": sum(inputs.values()),
        "static_outputs": sum(_output(graph).nbytes for graph in static),
    }


def by_pool(snapshot: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """torch.cuda.memory_snapshot as a row per pool and state, the pool outside of graphs first.

    Columns: `pool` (its id), `of_graphs`, `segments` and `largest_segment`; `reserved` bytes of the device, of these
    `allocated` to tensors that live, and `inactive`: held for nobody else, though no tensor lies there.
    """
    pools = grouped((tuple(segment["segment_pool_id"]), segment) for segment in snapshot)
    return [
        {
            "pool": ".".join(map(str, pool)),
            "of_graphs": pool != DEFAULT_POOL,
            "segments": len(segments),
            "largest_segment": max(segment["total_size"] for segment in segments),
            "reserved": sum(segment["total_size"] for segment in segments),
            "allocated": sum(segment["allocated_size"] for segment in segments),
            "inactive": sum(segment["total_size"] - segment["active_size"] for segment in segments),
        }
        for pool, segments in sorted(pools.items())
    ]


# --- time and truth --------------------------------------------------------------------------------------------


def _times(call: Call, graphs: Sequence[Graph], device: Device, *, eager: bool) -> Iterator[dict[str, Any]]:
    """Of each graph `replay_ns`, and with `eager` what it saves and what it gives.

    eager_ns: of the same inference without a graph; both medians on the device's clock. difference: from its output,
    relative to the largest element. intact: whether the output survives replays of all other graphs.
    """
    intact = _intact(graphs) if eager else []
    for place, graph in enumerate(graphs):
        row: dict[str, Any] = {"replay_ns": _median_ns(device, graph.replay)}
        if eager and graph.output is not None:
            expected = call(*graph.inputs)
            graph.replay()
            row["difference"] = float((graph.output - expected).abs().max() / expected.abs().max())
            row["eager_ns"] = _median_ns(device, lambda inputs=graph.inputs: call(*inputs))  # type: ignore[misc]
            row["intact"] = intact[place]
        yield row


def _intact(graphs: Sequence[Graph]) -> list[bool]:
    """Which outputs survive the replays of all graphs in one order and in the other."""
    survives = [True] * len(graphs)
    places = range(len(graphs))
    for order in (places, places[::-1]):
        seen = {}
        for place in order:
            graphs[place].replay()
            seen[place] = _output(graphs[place]).clone()
        for place, output in seen.items():
            survives[place] &= bool((_output(graphs[place]) == output).all())
    return survives


def _output(graph: Graph) -> torch.Tensor:
    assert graph.output is not None
    return graph.output


def _median_ns(device: Device, work: Callable[[], Any]) -> float:
    for _ in range(WARM_UPS):
        work()
    return statistics.median(device.timed(work)() for _ in range(SAMPLES))
