"""What is said of any graph within a minute."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from tests.unit.facts import mentions

from inferprof import cli, outcomes, quick
from inferprof.backends import tensorrt_partition
from inferprof.errors import UserError
from inferprof.model import cost
from inferprof.report.sections.gpu_floors import SHOWN

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


@pytest.fixture
def embedding(tmp_path: Path) -> Path:
    """A lookup and a product of batch × length indices."""
    table = onnx.numpy_helper.from_array(np.ones((30, 16), np.float32), "table")
    weight = onnx.numpy_helper.from_array(np.ones((16, 16), np.float32), "weight")
    ids = onnx.helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["batch_size", "length"])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch_size", "length", 16])
    nodes = [
        onnx.helper.make_node("Gather", ["table", "ids"], ["x"], "lookup"),
        onnx.helper.make_node("MatMul", ["x", "weight"], ["y"], "product"),
    ]
    graph = onnx.helper.make_graph(nodes, "graph", [ids], [y], [table, weight])
    path = tmp_path / "embedding.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_a_size_that_nobody_gives_is_assumed_and_named(embedding: Path) -> None:
    assumed = quick.asked(embedding, None)
    assert (assumed.shape.label, assumed.assumed) == ("b1_length128", ("length",))
    given = quick.asked(embedding, "b8_length4")
    assert (given.shape.label, given.assumed) == ("b8_length4", ())
    with pytest.raises(UserError):
        quick.asked(embedding, "b8_height4")


def test_the_answer_has_latency_least_times_formats_and_the_part_of_tensorrt(
    embedding: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quick, "BUDGET_S", 0.02)
    monkeypatch.setattr(tensorrt_partition, "partition", lambda *_: {})
    monkeypatch.setattr(tensorrt_partition, "render", lambda _: "2/2")
    head, latency, floors, formats, partition = quick.answer(quick.asked(embedding, "b2_length8"))
    assert "b2_length8" in head
    assert latency.splitlines()[2].endswith(" items/s") or "settled" in latency
    assert len(floors.splitlines()) == 1 + len(SHOWN) + 2 and "TF32" in floors.splitlines()[-1]
    assert "4,096" in formats  # 2 × 8 × 16 × 16
    assert partition.endswith("2/2")


def test_the_operators_that_take_the_time_are_named_unless_that_takes_too_long(
    embedding: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quick, "BUDGET_S", 0.02)
    graph = quick.asked(embedding, "b2_length8")
    assert "L2" in quick._least_times(graph)
    line = list(quick._latencies(graph))[-1]
    assert {"MatMul", "Gather"} <= set(line.split()) and line.count("%") == 2
    monkeypatch.setattr(quick, "PROFILE_S", 0.0)
    assert "%" not in list(quick._latencies(graph))[-1]


def test_axes_without_a_name_are_assumed_until_a_description_beside_the_file_has_them(tmp_path: Path) -> None:
    values = [onnx.helper.make_tensor_value_info(name, 1, [None, None]) for name in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", values[:1], values[1:])
    path = tmp_path / "open.onnx"
    onnx.save(onnx.helper.make_model(graph), path)
    alone = quick.asked(path, "b2")
    assert (alone.shape.label, alone.assumed) == ("b2_bunnamed128", ("bunnamed",))
    assert mentions(next(quick.answer(alone)), "b2_bunnamed128", "bunnamed: axis 1 of x", "--shape")
    path.with_suffix(".yaml").write_text(alone.spec.stub(alone.assumed).replace("128", "7"))
    described = quick.asked(path, None)
    assert (described.shape.as_dict(), described.assumed) == ({"b": 1, "bunnamed": 7}, ())


@pytest.mark.parametrize(
    ("expression", "shape", "size", "assumed"),
    [
        ("past.length + 1", None, 129, ["pastlength", "seq"]),
        ("past.length + seq", "b2_pastlength7seq3", 10, []),
        ("(seq*past.length)//2 - batch", "b2_pastlength7seq3", 8, []),
        ("floor(seq/2)", "b2_pastlength7seq3", 128, ["bunnamed"]),
    ],
)
def test_a_size_that_follows_from_others_is_no_guess(
    expression: str, shape: str | None, size: int, assumed: list[str], tmp_path: Path
) -> None:
    dims = {"past": ["batch", "past.length"], "ids": ["batch", "seq"], "mask": ["batch", expression]}
    values = [onnx.helper.make_tensor_value_info(name, 1, axes) for name, axes in dims.items()]
    outputs = [onnx.helper.make_tensor_value_info("y", 1, None)]
    node = onnx.helper.make_node("Concat", [*dims], ["y"], axis=1)
    path = tmp_path / "cache.onnx"
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([node], "g", values, outputs)), path)
    asked = quick.asked(path, shape)
    assert (asked.shape.as_dict()["bunnamed"], sorted(asked.assumed)) == (size, assumed)


def test_a_part_that_fails_takes_no_other_with_it(embedding: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("planted")

    monkeypatch.setattr(quick, "_latencies", lambda _: [])
    monkeypatch.setattr(cost, "cost", fail)
    _, _, floors, formats, _ = quick.answer(quick.asked(embedding, None))
    assert "planted" in floors
    assert "MACs" in formats


def test_without_the_parser_the_rest_is_said_all_the_same(embedding: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise UserError("no-parser")

    monkeypatch.setattr(quick, "BUDGET_S", 0.02)
    monkeypatch.setattr(tensorrt_partition, "partition", refuse)
    *_, partition = quick.answer(quick.asked(embedding, "b1_length2"))
    assert partition.endswith("no-parser")


@pytest.mark.parametrize("given", ["", "models/vit_tiny.yaml", "README.md"])
def test_what_is_no_onnx_file_is_refused_by_its_name(given: str) -> None:
    with pytest.raises(UserError, match="onnx") as refused:
        quick.asked(Path(given), None)
    assert repr(str(Path(given))) in str(refused.value)


def test_a_symbol_of_another_name_is_told_with_the_one_that_is_meant(embedding: Path) -> None:
    with pytest.raises(UserError, match=r"b2_s64.*; write b2_length64$"):
        quick.asked(embedding, "b2_s64")
    with pytest.raises(UserError, match=r"b2_s64t3; its symbols: .*length$"):
        quick.asked(embedding, "b2_s64t3")


def test_what_only_moves_a_few_bytes_has_no_least_time(tmp_path: Path) -> None:
    graph = quick.asked(_gather(tmp_path / "gather.onnx"), None)
    floors = quick._least_times(graph).splitlines()
    assert not any("compute," in line or "by compute" in line for line in floors)
    assert len(floors) == 1 + len(SHOWN) + 1


def test_least_times_below_and_above_100_ns_have_the_same_unit(tmp_path: Path) -> None:
    floors = quick._least_times(quick.asked(_product(tmp_path / "product.onnx"), "b16"))
    times = re.findall(r"([\d.]+) (\S+), by compute", floors)
    assert {unit for _, unit in times} == {"µs"} and len(times) == len(SHOWN)
    assert min(float(time) for time, _ in times) < 0.1 < max(float(time) for time, _ in times)


def _product(path: Path) -> Path:
    weights = onnx.numpy_helper.from_array(np.ones((256, 256), np.float32), "w")
    given, out = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["b", 256]) for name in "xy")
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = onnx.helper.make_graph([node], "g", [given], [out], [weights])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def _gather(path: Path) -> Path:
    rows = onnx.numpy_helper.from_array(np.ones((16, 8), np.float32), "w")
    index, out = (
        onnx.helper.make_tensor_value_info(name, dtype, dims)
        for name, dtype, dims in (("i", onnx.TensorProto.INT64, ["b"]), ("o", onnx.TensorProto.FLOAT, ["b", 8]))
    )
    made = onnx.helper.make_graph([onnx.helper.make_node("Gather", ["w", "i"], ["o"])], "g", [index], [out], [rows])
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(made, opset_imports=opset, ir_version=10), path)
    return path


def test_where_the_run_failed_the_exit_code_says_so_and_the_description_keeps_the_sizes_that_were_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensorrt_partition, "partition", lambda *_: {})
    monkeypatch.setattr(tensorrt_partition, "render", lambda _: "")
    values = [onnx.helper.make_tensor_value_info(name, 1, ["batch", name]) for name in ("first", "second", "y")]
    node = onnx.helper.make_node("Add", ["first", "second"], ["y"])  # of 3 and of 128 numbers
    path = tmp_path / "add.onnx"
    graph = onnx.helper.make_graph([node], "g", values[:2], values[2:])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)
    assert cli.main(["quick", str(path), "--shape", "b2_first3"]) == outcomes.FAILED
    said = capsys.readouterr().out
    assert "sizes: {first: 3, second: 128}" in said and "b2_first3secondN" in said
    monkeypatch.setattr(quick, "BUDGET_S", 0.02)
    assert cli.main(["quick", str(path), "--shape", "b2_first3second3"]) == 0
