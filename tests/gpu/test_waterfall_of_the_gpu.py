"""The waterfall on a real GPU: graphs whose bottleneck was planted, and that little of their time is unexplained."""

from __future__ import annotations

import csv
import dataclasses
import shutil
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from inferprof.case import Case
from inferprof.report import evidence
from inferprof.tables.limits.waterfall import PARTS
from inferprof.tables.records import CASE_KEY, read_cases, rows_of
from inferprof.units import MIB

pytestmark = pytest.mark.gpu
onnx = pytest.importorskip("onnx")
INFERPROF = [sys.executable, "-m", "inferprof"]
MACHINE = "gpu"
STUDY = "planted"
UNEXPLAINED = 0.15
"""Of end_to_end, at most."""
LAYERS = 12
LAUNCHES = 400


def products() -> Any:
    """Large matrix products: 64 · 197 rows as a ViT has them, few bytes in and out."""
    weight = np.full((4096, 4096), 1 / 4096, np.float16)
    nodes = [onnx.helper.make_node("Expand", ["x", "rows"], ["y0"])]
    nodes += [onnx.helper.make_node("MatMul", [f"y{i}", "w"], [f"y{i + 1}"]) for i in range(LAYERS)]
    nodes.append(onnx.helper.make_node("ReduceMax", [f"y{LAYERS}"], ["y"], keepdims=1))
    weights = {"w": weight, "rows": np.array([12608, 4096], np.int64)}
    return graph(nodes, ["b", 4096], [1, 1], onnx.TensorProto.FLOAT16, weights)


def transfers() -> Any:
    """Next to no work on a large input."""
    nodes = [onnx.helper.make_node("ReduceMax", ["x"], ["y"], keepdims=1)]
    return graph(nodes, ["b", 64 * MIB // 4], [1, 1], onnx.TensorProto.FLOAT, {})


def launches() -> Any:
    """Small operators, one behind the other: Sin and Cos in turn are fused by no optimizer."""
    last = LAUNCHES - 1
    names = ["x", *(f"y{i}" for i in range(last)), "y"]
    nodes = [
        onnx.helper.make_node("Cos" if index % 2 else "Sin", [names[index]], [names[index + 1]])
        for index in range(LAUNCHES)
    ]
    return graph(nodes, ["b", 64], ["b", 64], onnx.TensorProto.FLOAT, {})


def graph(nodes: list[Any], dims: list[int | str], out: list[int | str], dtype: int, weights: dict[str, Any]) -> Any:
    made = onnx.helper.make_graph(
        nodes,
        "planted",
        [onnx.helper.make_tensor_value_info("x", dtype, dims)],
        [onnx.helper.make_tensor_value_info("y", dtype, out)],
        [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return onnx.helper.make_model(made, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)


PLANTED = {"products": products, "transfers": transfers, "launches": launches}


@pytest.fixture(scope="module")
def waterfall(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Model → its row, after a bare run and one under nsys each, as the rules of the workflow make them."""
    if shutil.which("nsys") is None:
        pytest.skip("nsys is not on PATH")
    results = tmp_path_factory.mktemp("planted") / "results"
    cases = [Case(name, "fp32", "ort_cuda", "default", "b1") for name in PLANTED]
    for case in cases:
        model = results.parent / f"{case.model}.onnx"
        onnx.save(PLANTED[case.model](), model)
        run = [*INFERPROF, "run", case.backend, str(model), "--spec", str(model), "--precision", case.precision]
        run += ["--shape", case.shape, "--machine", MACHINE]
        folder = results / MACHINE
        record = folder / "benchmark" / case.path / "r0.json"
        capture = folder / "capture/nsys" / f"{case.path}.sqlite"
        watched = [*run, "--profiled", "10", "--out", str(capture.with_suffix(".record.json"))]
        table = folder / "table/nsys" / f"{case.path}.parquet"
        for command in (
            [*run, "--out", str(record)],
            [*INFERPROF, "capture", "nsys", "--out", str(capture), "--", *watched],
            [*INFERPROF, "table", "nsys", str(capture), "--machine", MACHINE, "--out", str(table)],
        ):
            subprocess.run(command, check=True)
    rows = [{"machine": MACHINE, **dataclasses.asdict(case), "outcome": "run", "reason": ""} for case in cases]
    planned = results / "reports" / STUDY / "cases.csv"
    planned.parent.mkdir(parents=True)
    with planned.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["machine", *CASE_KEY, "outcome", "reason"])
        writer.writeheader()
        writer.writerows(rows)
    found = evidence.load(results, STUDY, MACHINE, read_cases(planned), None)
    return {row["model"]: row for row in rows_of(found.waterfall)}


@pytest.mark.parametrize("model", PLANTED)
def test_the_parts_add_up_and_little_is_unexplained(waterfall, model):
    row = waterfall[model]
    parts = [row[f"{part}_ns"] for part in PARTS if row[f"{part}_ns"] is not None]
    assert sum(parts) == row["total_ns"]
    assert min(parts) >= 0
    assert row["unexplained_ns"] <= UNEXPLAINED * row["total_ns"]


@pytest.mark.parametrize(("model", "part"), [("products", "kernels"), ("transfers", "copy"), ("launches", "launch")])
def test_the_planted_bottleneck_is_the_largest_part(waterfall, model, part):
    row = waterfall[model]
    shares = {one: (row[f"{one}_ns"] or 0.0) / row["total_ns"] for one in PARTS}
    assert max(shares, key=lambda one: shares[one]) == part
    assert shares[part] > 0.5
