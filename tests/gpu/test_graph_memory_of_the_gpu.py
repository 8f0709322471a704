"""What CUDA graphs hold on a real GPU: pools, their order, their outputs, and torch.compile's."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from inferprof.units import MIB

pytest.importorskip("torch")

from inferprof import run_request, workload
from inferprof.backends import torch as backend
from inferprof.case import Case, Variant
from inferprof.measure.timing import Protocol
from inferprof.model import model_spec
from inferprof.plugins import OpenRequest

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]

FACTORY = """
import torch

def make():
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (torch.nn.Conv2d(32, 32, 3, padding=1), torch.nn.ReLU())]
    first, last = torch.nn.Conv2d(3, 32, 3, padding=1), torch.nn.Linear(32 * 64 * 64, 8)
    return torch.nn.Sequential(first, *layers, torch.nn.Flatten(), last)
"""
YAML = """
source: python
python: wide_layers:make
export: false
inputs:
  - {name: x, dtype: float32, dims: [b, 3, 64, 64]}
"""
BATCHES = [8, 16, 32, 64]
"""Of four graphs at b64, whose widest tensor is 32 MiB."""


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> model_spec.ModelSpec:
    folder = tmp_path_factory.mktemp("wide")
    (folder / "wide_layers.py").write_text(FACTORY)
    (folder / "wide.yaml").write_text(YAML)
    return model_spec.load(folder / "wide.yaml")


@pytest.fixture
def measured(spec: model_spec.ModelSpec, opening: Callable[..., OpenRequest], infer: Any, feeds_of: Any) -> Any:
    """(backend, options) → the part `graphs` of the record of a session that has run, and has a graph of its own."""

    def of(plugin: Any = backend.TORCH_EAGER, graph: bool = True, **options: Any) -> dict[str, Any]:
        request = opening(spec, "b64", spec.path, graphs=4, cuda_graph=graph, **options)
        with plugin.open(request) as session:
            infer(session, request.device, feeds_of(request), graph=graph)
            found: dict[str, Any] = plugin.graph_memory(session, request)
            return found

    return of


def column(found: dict[str, Any], name: str) -> list[Any]:
    return [row.get(name) for row in found["rows"]]


def test_private_pools_add_up_and_each_output_survives(measured: Any) -> None:
    found = measured()
    assert found["stopped"] is None
    assert column(found, "batch") == [None, *BATCHES]
    assert column(found, "pools") == [0, 1, 2, 3, 4]
    assert column(found, "graph_reserved")[0] == 0, "the session's own graph is still there"
    added = [row["graph_reserved"] for row in found["rows"]]
    steps = [after - before for before, after in pairwise(added)]
    assert all(step > 0 for step in steps) and steps[-1] > 2 * steps[0]
    assert steps[-1] == pytest.approx(found["least"], rel=0.3)
    assert column(found, "static_inputs")[-1] == sum(BATCHES) * 3 * 64 * 64 * 4
    assert max(column(found, "difference")[1:]) < 1e-3
    assert column(found, "intact")[1:] == [True] * 4
    assert min(column(found, "capture_ns")[1:]) > 0
    used = column(found, "device_used")
    assert used[-1] - used[0] > 0.9 * added[-1]  # the driver gives back a little of its own meanwhile


def test_one_pool_captured_largest_first_holds_what_the_largest_needs(measured: Any) -> None:
    private = measured()
    found = measured(graph_pool="shared", graph_order="descending", graph_inputs="slices")
    assert column(found, "batch") == [None, *BATCHES[::-1]]
    assert column(found, "pools") == [0, 1, 1, 1, 1]
    assert column(found, "static_inputs")[1:] == [64 * 3 * 64 * 64 * 4] * 4
    assert column(found, "graph_reserved")[-1] < 0.8 * column(private, "graph_reserved")[-1]
    assert column(found, "graph_reserved")[-1] <= 1.25 * found["least"] + 8 * MIB
    assert max(column(found, "difference")[1:]) < 1e-3


def test_smallest_first_grows_with_each_graph_and_never_beats_largest_first(measured: Any) -> None:
    up, down = (
        column(measured(graph_pool="shared", graph_order=order), "graph_reserved")
        for order in ("ascending", "descending")
    )
    assert up == sorted(up) and up[-1] >= down[-1]


def test_the_memory_comes_back_when_the_session_is_closed(measured: Any) -> None:
    import torch

    measured()
    gc.collect()
    torch.cuda.empty_cache()
    pools = {tuple(segment["segment_pool_id"]) for segment in torch.cuda.memory_snapshot()}
    assert pools <= {(0, 0)}


def test_where_memory_ends_the_graphs_that_fit_are_kept(measured: Any) -> None:
    import torch

    least = measured()["least"]
    gc.collect()
    torch.cuda.empty_cache()
    # The weights, one graph of the largest batch and half of another: by then the smaller ones hold most of a whole.
    room = 1.5 * least + torch.cuda.memory_reserved()
    torch.cuda.set_per_process_memory_fraction(room / torch.cuda.get_device_properties(0).total_memory)
    try:
        found = measured(graph=False)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert found["stopped"].startswith("CUDA out of memory")
    assert 1 <= len(found["rows"]) < 1 + len(BATCHES)


def test_a_record_holds_the_graphs(spec: model_spec.ModelSpec) -> None:
    start = time.perf_counter()
    request = run_request.RunRequest(
        case=Case("wide", "fp32", "torch_eager", "private", "b64"),
        artifact=Path(spec.path),
        spec=spec,
        variant=Variant("private", {"cuda_graph": True, "graphs": 4}),
        machine="gpu-test",
        protocol=Protocol(budget_s=0.1, throughput_min_s=0.1),
    )
    record = workload.run(request)
    assert (record["status"], record["reason"]) == ("ok", None)
    assert [row["graphs"] for row in record["memory"]["graphs"]["rows"]] == [0, 1, 2, 3, 4]
    assert time.perf_counter() - start < 30


def test_torch_compile_keeps_all_graphs_in_one_pool(measured: Any) -> None:
    found = measured(backend.TORCH_COMPILE, graph=False, compile_mode="reduce-overhead")
    assert column(found, "batch") == BATCHES[::-1]
    assert column(found, "graphs") == [1, 2, 3, 4]
    reserved = column(found, "graph_reserved")
    assert reserved[0] > 0 and reserved[-1] < 2 * reserved[0]
