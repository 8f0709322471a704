"""Lower bounds on GPUs by their datasheets: by hand, of made-up graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.report.conftest import Results, evidence_of

from inferprof.documents import Cost
from inferprof.machine import peaks
from inferprof.report.model import Table
from inferprof.report.sections import gpu_floors as section
from inferprof.tables.limits import gpu_floors

NAMED = {gpu.gpu: gpu for gpu in peaks.every()}
T4, RTX_4090, B200 = NAMED["T4"], NAMED["GeForce RTX 4090"], NAMED["B200"]


def graph(flops: int, weights: int, dtype: str = "float16", others: int = 0) -> dict[str, Any]:
    sizes = {"read": 10, "written": 20, "weights": 0}
    product = {"name": "m", "op": "MatMul", "dtype": dtype, "product": True, "flops": flops, **sizes}
    rest = {"name": "a", "op": "Add", "dtype": dtype, "product": False, "flops": others, **sizes}
    return {"weights": weights, "inputs": 0, "outputs": 0, "nodes": [product, rest]}


def cost(*args: Any, **kwargs: Any) -> Cost:
    return msgspec.convert(graph(*args, **kwargs), Cost)


def test_products_take_as_long_as_at_the_datasheets_rate() -> None:
    (floor,) = gpu_floors.floors(cost(65 * 10**9, 10**6), [T4])
    assert floor.ns == pytest.approx(1e6)
    assert floor.limit == "compute"


def test_the_fastest_rate_counts_that_a_kernel_may_use() -> None:
    (floor,) = gpu_floors.floors(cost(3303 * 10**8, 10**6), [RTX_4090])
    assert floor.ns == pytest.approx(1e6)  # with accumulation in fp16, at twice the rate


def test_bytes_beyond_the_l2_take_the_memorys_time_and_others_none() -> None:
    (beyond,) = gpu_floors.floors(cost(1, 320 * 10**6), [T4])
    (inside,) = gpu_floors.floors(cost(1, 4 * 10**6), [T4])
    assert beyond.ns == pytest.approx(1e6)
    assert beyond.limit == "memory"
    assert inside.ns is not None and inside.ns < 1


def test_operators_beside_the_products_count_at_the_cuda_cores() -> None:
    (floor,) = gpu_floors.floors(cost(1, 1, others=81 * 10**8), [T4])
    assert floor.ns == pytest.approx(1e6)


def test_a_type_that_a_datasheet_has_no_rate_of_is_not_known() -> None:
    floors = gpu_floors.floors(cost(10**9, 1, dtype="float8e4m3fn"), [T4, B200])
    assert [floor.ns is None for floor in floors] == [True, False]
    assert "fp8" in floors[0].not_known


def test_memory_is_that_of_weights_and_the_largest_operator() -> None:
    assert gpu_floors.needed_bytes(cost(1, 1000)) == 1030


def test_a_study_without_a_gpu_has_the_floors_of_all_gpus_and_one_with_a_gpu_none(tmp_path: Path) -> None:
    results = Results(tmp_path)
    results.write("onnx/vit/fp16.b8.cost.json", graph(65 * 10**9, 10**6))
    results.ok("vit/fp16/ort_cpu/default/b8", 10.0)
    results.plan()
    shown, every = section.build.build(evidence_of(results))
    assert isinstance(shown, Table) and isinstance(every, Table)
    row = {column.title: cell for column, cell in zip(shown.columns, shown.rows[0], strict=True)}
    assert (row["model"].value, row["format"].value, row["T4"].text) == ("vit", "fp16", "1.00")
    assert len(every.rows) == len(peaks.every())
    assert set(section.SHOWN) <= set(NAMED)
    results.ok("vit/fp16/ort_cuda/default/b8", 10.0, gpu=True)
    results.plan()
    assert section.build.build(evidence_of(results)) == ()


def test_a_graph_of_which_no_operator_is_counted_has_no_floor() -> None:
    trees = graph(0, 10**6)
    for node in trees["nodes"]:
        node |= {"flops": None, "op": "Trees", "product": False}
    (floor,) = gpu_floors.floors(msgspec.convert(trees, Cost), [T4])
    assert floor.ns is None
    assert "Trees" in floor.not_known


def test_outputs_whose_size_only_a_run_tells_leave_a_lower_bound() -> None:
    found = graph(65 * 10**9, 10**6) | {"outputs": None}
    (floor,) = gpu_floors.floors(msgspec.convert(found, Cost), [T4])
    assert floor.ns == pytest.approx(1e6)
    found["nodes"][0]["flops"] = None
    (unknown,) = gpu_floors.floors(msgspec.convert(found, Cost), [T4])
    assert unknown.ns is None
