"""A format for each unit: the fastest mix within a loss that is measured."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pandas as pd
import pytest
import yaml
from tests.unit.planted import TOY_INT8, Residual, request

from inferprof import precisions, registry
from inferprof.errors import UserError
from inferprof.machine import peaks as known_peaks
from inferprof.model import onnx_graph
from inferprof.plugins import ConvertRequest
from inferprof.precisions import mixed
from inferprof.sensitivity import mixing
from inferprof.sensitivity.mixing import Choice
from inferprof.sensitivity.switches import Unit
from inferprof.tables import schema


@pytest.fixture(autouse=True)
def toy_int8(monkeypatch: pytest.MonkeyPatch) -> None:
    formats = registry.precisions() | {"int8": TOY_INT8}
    monkeypatch.setattr(registry, "precisions", lambda: formats)


def converted(model: Any, tmp_path: Path, **options: Any) -> tuple[dict[str, Any], Any, ConvertRequest]:
    """The facts, the graph, and what was asked."""
    given = {"formats": ["int8"], "samples": 16, **options}
    asked = ConvertRequest(
        request(model, tmp_path).onnx, request(model, tmp_path).spec, given, tmp_path / "mixed.onnx"
    )
    return precisions.convert(mixed.MIXED, asked), onnx.load(asked.out), asked


def scaled() -> Any:
    """Three blocks like others, and one of which the errors are 1,000 times as large."""
    graph = Residual(3)
    graph.block(name="scaled", scale=1000)
    return graph.model()


def chosen_nodes(facts: dict[str, Any]) -> list[str]:
    return [*facts["chosen"].get("int8", [])]


def test_the_unit_of_the_largest_loss_stays_out_and_the_tolerance_is_met_on_held_out_samples(tmp_path: Path) -> None:
    facts, graph, _ = converted(scaled(), tmp_path, tolerance=42.0)
    assert "scaled" not in chosen_nodes(facts)
    assert len(chosen_nodes(facts)) == 3
    low, high = facts["held_out"]["interval_db"]
    assert 40 < low < facts["held_out"]["sqnr_db"] < high
    quantized = [node for node in graph.graph.node if node.op_type == "QuantizeLinear"]
    assert len(quantized) == 6


def test_every_mix_that_was_tried_is_told_with_its_time_and_loss(tmp_path: Path) -> None:
    facts, _, _ = converted(scaled(), tmp_path, tolerance=42.0)
    front = facts["front"]
    assert front[0]["units"] == {"int8": 4}
    assert [row["time_us"] for row in front] == sorted(row["time_us"] for row in front)
    on_front = [row["sqnr_db"] for row in front if row["on_front"]]
    assert on_front == sorted(on_front)
    assert facts["evaluations"]["mixes"] == len(front)


def test_what_was_chosen_can_be_kept_and_gives_the_same_graph_without_a_search(tmp_path: Path) -> None:
    _, graph, asked = converted(scaled(), tmp_path, tolerance=42.0)
    (kept,) = yaml.safe_load(asked.out.with_suffix(".yaml").read_text())
    del kept["name"]
    again, same, _ = converted(scaled(), tmp_path, **kept)
    assert "evaluations" not in again
    assert onnx_graph.quantized_nodes(same) == onnx_graph.quantized_nodes(graph)
    assert [*map(str, same.graph.node)] == [*map(str, graph.graph.node)]


def test_the_rest_is_in_the_plain_format(tmp_path: Path) -> None:
    _, graph, _ = converted(scaled(), tmp_path, formats=["int8", "fp16"], tolerance=42.0)
    types = {weight.data_type for weight in graph.graph.initializer}
    assert onnx.TensorProto.FLOAT16 in types


def test_a_tolerance_that_nothing_is_needed_for_quantizes_all(tmp_path: Path) -> None:
    facts, _, _ = converted(Residual(3).model(), tmp_path, tolerance=5)
    assert len(chosen_nodes(facts)) == 3


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"formats": ["int9"]}, "int9"),
        ({"formats": ["fp16"]}, "fp16"),
        ({"formats": ["int8", "fp16", "bf16"]}, "bf16"),
        ({"formats": ["nvfp4"]}, "nvfp4"),
        ({"gpu": "RTX 9090"}, "RTX 9090"),
        ({"nodes": ["fp8 scaled"]}, "fp8"),
        ({"nodes": "int8"}, "int8"),
        ({"nodes": ["int8 nowhere"]}, "nowhere"),
        ({"nodes": ["int8"]}, "nodes of int8"),
        ({"tolerance": "much"}, "much"),
        ({"tolerance": math.inf}, "inf"),
        ({"outliers": 0.5}, "outliers"),
    ],
)
def test_an_option_that_makes_no_mix_is_refused(options: dict[str, Any], names: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=names):
        converted(Residual(1).model(), tmp_path, **options)


def unit(name: str) -> Unit:
    return Unit(name, "MatMul", (name,), ())


def test_the_step_that_saves_the_most_loss_for_its_time_is_taken_first() -> None:
    every = [
        Choice(unit("a"), "narrow", 0, loss=1.0, time_s=1.0),
        Choice(unit("b"), "narrow", 1, loss=0.9, time_s=1.0),
        Choice(unit("b"), "middle", 2, loss=0.1, time_s=2.0),
    ]
    plain = {"a": 10.0, "b": 10.0}
    assert [choice.number for choice in mixing.fastest(every, plain, math.inf)] == [0, 1]
    assert [choice.number for choice in mixing.fastest(every, plain, 1.2)] == [0, 2]
    assert [choice.number for choice in mixing.fastest(every, plain, 0.5)] == [2]
    assert mixing.fastest(every, plain, 0.0) == ()
    units = {"narrow": [unit("a"), unit("b")], "middle": [unit("b")]}
    times = {(choice.unit.name, choice.format): choice.time_s for choice in every}
    assert mixing.full_times(units, times, plain) == {"narrow": 2.0, "middle": 12.0}


def test_a_unit_that_no_format_makes_faster_stays_plain() -> None:
    every = [Choice(unit(name), "narrow", number, loss=0.0, time_s=2.0) for number, name in enumerate("ab")]
    assert [choice.number for choice in mixing.fastest(every, {"a": 1.0, "b": 3.0}, math.inf)] == [1]


def table(folder: Path, name: str, times_us: dict[str, float]) -> None:
    """What ONNX Runtime's profile says of the toy in a format on a machine: ten runs."""
    rows = [
        {"level": "op", "name": node, "owner": "CPUExecutionProvider > Op", "value": 1e4 * us}
        for node, us in times_us.items()
    ]
    rows.append({"level": "range", "name": "call", "value": 1e6})
    frame = schema.conform(pd.DataFrame(rows).assign(instances=10, metric="duration_total"), "ort_profile")
    path = folder / f"table/ort_profile/toy/{name}/ort_cpu/default/b1.parquet"
    path.parent.mkdir(parents=True)
    frame.to_parquet(path)


def test_times_of_captures_decide_and_quantizers_count_to_the_units_that_read_them(tmp_path: Path) -> None:
    model, machine = Residual(3).model(), tmp_path / "box"
    products = [node.name for node in model.graph.node if node.op_type == "MatMul"]
    table(machine, "fp32", dict.fromkeys(products, 10.0))
    quantizers = {f"{product}.0.q": 3.0 for product in products} | {f"{products[0]}.0.dq": 30.0}
    table(machine, "int8", dict.fromkeys(products, 4.0) | quantizers)
    facts, _, _ = converted(model, tmp_path, tolerance=10.0, times=str(machine))
    assert chosen_nodes(facts) == products[1:]
    assert facts["time_us"] == pytest.approx(10 + 7 + 7)
    assert facts["full_us"] == {"int8": pytest.approx(37 + 7 + 7)}
    assert "box for 3 of 3" in facts["times_by"]


def test_a_tolerance_that_nothing_quantized_meets_says_how_near_it_came(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"200 dB; .* \d\d\.\d dB"):
        converted(scaled(), tmp_path, tolerance=200)


def test_where_no_node_gets_faster_there_is_no_mix(tmp_path: Path) -> None:
    model, machine = Residual(2).model(), tmp_path / "box"
    products = [node.name for node in model.graph.node if node.op_type == "MatMul"]
    table(machine, "fp32", dict.fromkeys(products, 10.0))
    table(machine, "int8", dict.fromkeys(products, 11.0))
    with pytest.raises(UserError, match="captures of box"):
        converted(model, tmp_path, tolerance=10.0, times=str(machine))


def test_units_that_a_capture_lacks_in_one_of_the_formats_are_timed_by_the_roofline(tmp_path: Path) -> None:
    model, machine = Residual(2).model(), tmp_path / "box"
    products = [node.name for node in model.graph.node if node.op_type == "MatMul"]
    table(machine, "fp32", dict.fromkeys(products, 10.0))
    table(machine, "int8", {products[0]: 99.0})
    facts, _, _ = converted(model, tmp_path, tolerance=10.0, times=str(machine))
    assert chosen_nodes(facts) == products[1:]
    assert "1 of 2" in facts["times_by"]


@pytest.mark.parametrize("folder", ["nowhere", "."])
def test_a_folder_without_captures_of_the_model_is_refused(folder: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="option times"):
        converted(Residual(1).model(), tmp_path, times=str(tmp_path / folder))


def test_an_overflow_is_never_part_of_a_mix_with_a_finite_loss() -> None:
    every = [Choice(unit("a"), "narrow", 0, loss=math.inf, time_s=1.0)]
    assert mixing.fastest(every, {"a": 2.0}, 1e9) == ()


def test_the_interval_holds_the_mean_and_is_a_point_where_samples_are_alike() -> None:
    low, high = mixing.interval(np.array([0.01, 0.02, 0.03, 0.05]), 0)
    assert low is not None
    assert high is not None
    assert low < -10 * math.log10(0.0275) < high
    assert [*mixing.interval(np.full(4, 0.01), 0)] == pytest.approx([20, 20])


@pytest.mark.parametrize(
    ("plain", "high", "far"), [("fp16", -0.4, True), ("fp16", 19.0, False), ("fp32", -0.4, False)]
)
def test_a_mix_whose_rest_does_not_hold_is_refused(plain: str, high: float, far: bool) -> None:
    wanted = mixed.Asked((), registry.precisions()[plain], 20.0, known_peaks.every()[0], ())
    proof = {"sqnr_db": high, "interval_db": [high, high]}
    with pytest.raises(UserError, match=plain) if far else contextlib.nullcontext():
        mixed._proven(proof, wanted)
