from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.facts import facts, mentions

from inferprof.backends import torch_graphs
from inferprof.backends.torch_graphs import Plan, buckets, by_pool
from inferprof.case import Shape, Variant
from inferprof.errors import UserError
from inferprof.machine import hardware
from inferprof.model.model_spec import InputSpec, ModelSpec
from inferprof.plugins import OpenRequest

PIXELS = ModelSpec("m", Path("m.yaml"), "python", (InputSpec("x", "float32", ("b", 3)),))


def plan(shape: str = "b8", *, trees: bool = False, **options: Any) -> Plan | None:
    return Plan.of(Variant("v", options), Shape.parse(shape), trees=trees)


@pytest.mark.parametrize(
    ("batch", "count", "sizes"),
    [
        (64, 1, (64,)),
        (64, 3, (16, 32, 64)),
        (64, 7, (1, 2, 4, 8, 16, 32, 64)),
        (64, 8, (1, 2, 4, 8, 16, 32, 48, 64)),
        (64, 11, (1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64)),
        (5, 5, (1, 2, 3, 4, 5)),
        (1, 1, (1,)),
    ],
)
def test_buckets_are_halves_of_the_batch_then_the_middles_of_the_widest_gaps(
    batch: int, count: int, sizes: tuple[int, ...]
) -> None:
    assert buckets(batch, count) == sizes


def test_a_plan_is_made_of_the_options_of_the_variant() -> None:
    assert plan(cuda_graph=True) is None
    assert plan(graphs=3) == Plan((2, 4, 8), "private", "ascending", "own")
    shared = plan(graphs=3, graph_pool="shared", graph_order="descending", graph_inputs="slices")
    assert shared == Plan((8, 4, 2), "shared", "descending", "slices")
    assert plan(graphs=2, trees=True) == Plan((8, 4), "cudagraph trees", "descending", "slices")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"graphs": 9}, "graphs: 9 at b8; each has a batch size of its own: give 1 to 8"),
        ({"graphs": 0}, "give 1 to 8"),
        ({"graphs": "many"}, "graphs: 'many' is not a whole number"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_in_one_line(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        plan(**options)


def test_without_a_gpu_and_with_more_graphs_than_batch_sizes_the_case_is_refused() -> None:
    laptop = hardware.Machine(gpu=None)
    shape, asked = Shape.parse("b8"), Variant("graphs4", {"graphs": 4})
    assert torch_graphs.refuses(Variant(), shape, laptop) is None
    assert torch_graphs.refuses(asked, shape, laptop) == torch_graphs.NO_GPU
    reason = torch_graphs.refuses(Variant("graphs9", {"graphs": 9}), shape, laptop)
    assert facts(reason, "batch", "graphs", "own") == ["graphs", "9", "b8", "batch", "own", "graphs9"]


def segment(pool: tuple[int, int], total: int, allocated: int) -> dict[str, Any]:
    sizes = {"total_size": total, "allocated_size": allocated, "active_size": allocated}
    return {"segment_pool_id": pool, **sizes}


def test_a_snapshot_becomes_a_row_per_pool() -> None:
    rows = by_pool([segment((2, 0), 20, 4), segment((0, 0), 100, 90), segment((2, 0), 50, 0), segment((0, 3), 7, 7)])
    assert [list(row.values()) for row in rows] == [
        ["0.0", False, 1, 100, 100, 90, 10],
        ["0.3", True, 1, 7, 7, 7, 0],
        ["2.0", True, 2, 50, 70, 4, 66],
    ]


# --- the measurement, on a stand-in for torch.cuda ---------------------------------------------------------------


class Cuda:
    """Counts as torch's allocator does: a capture of batch b needs 100 b bytes, and its pool keeps the most."""

    def __init__(self, room: int = 1 << 30) -> None:
        self.room = room
        self.pools: dict[tuple[int, int], int] = {}
        self.stream: int | None = 7
        self.where = "cuda"
        self.capturing: FakeGraph | None = None
        self.alive: weakref.WeakSet[FakeGraph] = weakref.WeakSet()

    def call(self, x: Any) -> Any:
        import torch

        if self.capturing is None:
            return x.sum(1)
        graph, batch = self.capturing, len(x)
        if batch * 100 > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate")
        self.pools[graph.pool] = max(self.pools.get(graph.pool, 0), batch * 100)
        graph.x, graph.output = x, torch.empty(batch)
        return graph.output

    @contextlib.contextmanager
    def graph(self, graph: FakeGraph, pool: Any, stream: Any) -> Iterator[None]:
        self.trim()
        graph.pool = pool or (len(self.pools) + 1, 0)
        self.alive.add(graph)
        self.capturing = graph
        try:
            yield
        except RuntimeError as error:
            ended = RuntimeError("the capture failed due to a previous error")
            ended.__context__ = error  # as torch does, which raises it in the graph's __exit__
            raise ended from None
        finally:
            self.capturing = None

    def trim(self) -> None:
        """Memory of a pool goes back with the last of its graphs."""
        self.pools = {graph.pool: self.pools[graph.pool] for graph in self.alive if graph.pool in self.pools}

    def snapshot(self) -> list[dict[str, Any]]:
        return [segment((0, 0), 1000, 1000), *(segment(pool, size, 4) for pool, size in self.pools.items())]

    def memory_used(self) -> int:
        return 5000 + sum(self.pools.values())

    def timed(self, work: Any) -> Any:
        work()
        return lambda: 10.0


class FakeGraph:
    """What torch.cuda.CUDAGraph is to the module: replay computes the captured call again."""

    pool: tuple[int, int]
    x: Any
    output: Any

    def replay(self) -> None:
        self.output.copy_(self.x.sum(1))


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    torch = pytest.importorskip("torch")
    fake = Cuda()
    stand_ins = {
        "CUDAGraph": FakeGraph,
        "graph": fake.graph,
        "graph_pool_handle": lambda: (0, 9),
        "memory_snapshot": fake.snapshot,
        "memory_allocated": lambda: 1000,
        "memory_reserved": lambda: 1000 + sum(fake.pools.values()),
        "current_stream": lambda: 7,
        "synchronize": lambda: None,
        "empty_cache": fake.trim,
    }
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor: tensor)
    return fake


def measured(cuda: Any, **options: Any) -> dict[str, Any]:
    variant, shape = Variant("v", options), Shape.parse("b8")
    request = OpenRequest(PIXELS.path, PIXELS, "fp32", shape, variant, cuda, threads=1)
    wanted = Plan.of(variant, shape, trees="compile_mode" in options)
    assert wanted is not None
    return torch_graphs.measure(cuda.call, request, wanted, clock=iter(range(100)).__next__)


def column(found: dict[str, Any], name: str) -> list[Any]:
    return [row.get(name) for row in found["rows"]]


@pytest.mark.slow
def test_private_pools_add_up_and_a_shared_one_holds_the_largest(cuda: Cuda) -> None:
    private = measured(cuda, graphs=3)
    assert (private["pool"], private["order"], private["stopped"]) == ("private", "ascending", None)
    assert column(private, "graphs") == [0, 1, 2, 3]
    assert column(private, "batch") == [None, 2, 4, 8]
    assert column(private, "graph_reserved") == [0, 200, 600, 1400]
    assert column(private, "pools") == [0, 1, 2, 3]
    assert private["least"] == 800
    assert column(private, "device_used") == [5000, 5200, 5600, 6400]
    assert column(private, "static_inputs") == [0, 24, 72, 168]  # float32 of 3 for 2, 4 and 8
    assert column(private, "static_outputs") == [0, 8, 24, 56]
    assert [row["inactive"] for row in private["segments"]] == [0, 196, 396, 796]
    cuda.pools.clear()
    shared = measured(cuda, graphs=3, graph_pool="shared", graph_order="descending", graph_inputs="slices")
    assert column(shared, "batch") == [None, 8, 4, 2]
    assert column(shared, "graph_reserved") == [0, 800, 800, 800]
    assert column(shared, "pools") == [0, 1, 1, 1]
    assert column(shared, "static_inputs") == [0, 96, 96, 96]


@pytest.mark.slow
def test_each_graph_is_timed_and_compared_with_the_same_inference_without_one(cuda: Cuda) -> None:
    found = measured(cuda, graphs=2)
    for row in found["rows"][1:]:
        assert (row["eager_ns"], row["replay_ns"], row["capture_ns"]) == (10.0, 10.0, 1)
        assert (row["difference"], row["intact"]) == (0.0, True)
    assert "eager_ns" not in found["rows"][0]


@pytest.mark.slow
def test_an_output_in_memory_that_another_graph_writes_is_not_intact(
    cuda: Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    memory = torch.empty(8)

    def call(x: Any) -> Any:
        if cuda.capturing is None:
            return x.sum(1)
        cuda.capturing.x, cuda.capturing.output = x, memory[: len(x)]
        return cuda.capturing.output

    monkeypatch.setattr(cuda, "call", call)
    monkeypatch.setattr(torch_graphs, "_inputs", lambda request, own: lambda batch: (torch.full((batch, 3), batch),))
    found = measured(cuda, graphs=2, graph_pool="shared")
    assert column(found, "intact") == [None, False, False]
    assert column(found, "difference") == [None, 0.0, 0.0]


@pytest.mark.slow
def test_the_graphs_that_still_fit_are_kept_with_the_reason_why_there_are_no_more(cuda: Cuda) -> None:
    cuda.room = 500
    found = measured(cuda, graphs=3)
    assert column(found, "batch") == [None, 2, 4]
    assert mentions(found["stopped"], "CUDA out of memory")
    assert [row["pool"] for row in found["segments"]] == ["0.0", "1.0", "2.0"]
    assert found["least"] is None, "the largest does not fit"


@pytest.mark.slow
def test_the_graphs_of_torch_compile_begin_with_the_case_s_own_and_have_no_static_copies(cuda: Cuda) -> None:
    found = measured(cuda, graphs=3, compile_mode="reduce-overhead")
    assert column(found, "graphs") == [1, 2, 3]
    assert column(found, "batch") == [8, 4, 2]
    assert column(found, "static_inputs") == [0, 0, 0]
    assert found["least"] == 0
    assert column(found, "replay_ns") == [10.0, 10.0, 10.0]
    assert column(found, "eager_ns") == [None, None, None]


@pytest.mark.slow
def test_any_other_error_is_no_end_of_memory(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "snapshot", lambda: [{}])
    monkeypatch.setattr(cuda, "call", lambda x: x.no_such_operator())
    with pytest.raises(AttributeError):
        measured(cuda, graphs=1)
    monkeypatch.setattr(cuda, "call", lambda x: x @ x)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        measured(cuda, graphs=1)
