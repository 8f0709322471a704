"""What all conversions share: who converts, refusals in one line, ready-made files, options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.facts import facts, naming

onnx = pytest.importorskip("onnx")

from inferprof import precisions, registry  # noqa: E402
from inferprof.errors import UserError  # noqa: E402
from inferprof.model import samples  # noqa: E402
from inferprof.model.model_spec import InputSpec, ModelSpec  # noqa: E402
from inferprof.plugins import ConvertRequest  # noqa: E402
from inferprof.precisions import conversion, ptq, sparse  # noqa: E402

EVERY_FORMAT = [
    "bf16",
    "fp16",
    "fp16_sparse",
    "fp32",
    "fp8",
    "fp8_sparse",
    "int4",
    "int8",
    "int8_sparse",
    "mixed",
    "mxfp8",
    "nvfp4",
    "nvfp4_sparse",
]


def write(path: Path, dtype: str = "float32") -> Path:
    """y = x · w, with w of 8 × 4 in `dtype`."""
    number = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    x = onnx.helper.make_tensor_value_info("x", number, ["b", 8])
    y = onnx.helper.make_tensor_value_info("y", number, ["b", 4])
    w = onnx.numpy_helper.from_array(np.arange(32).reshape(8, 4).astype(dtype), "w")
    body = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"], "product")], "toy", [x], [y], [w]
    )
    onnx.save(onnx.helper.make_model(body, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10), path)
    return path


def spec(folder: Path, source: Any = "onnx", data: str = "normal", **more: Any) -> ModelSpec:
    inputs = (InputSpec("x", "float32", ("b", 8), data),)
    return ModelSpec("toy", folder / "toy.yaml", source, inputs, options={"onnx": "toy.onnx"}, **more)


def request(folder: Path, **more: Any) -> ConvertRequest:
    return ConvertRequest(write(folder / "toy.onnx"), spec(folder, **more), {}, folder / "out.onnx")


def test_every_format_is_found() -> None:
    assert sorted(registry.precisions()) == sorted(EVERY_FORMAT)


@pytest.mark.parametrize("name", EVERY_FORMAT)
def test_a_tolerance_fails_below_where_it_warns_and_says_why(name: str) -> None:
    tolerance = registry.precisions()[name].tolerance
    assert tolerance.passes > tolerance.warns > 0
    assert len(tolerance.reason) > 20


@pytest.mark.parametrize("name", ["nvfp4_sparse"])
def test_a_format_made_from_torch_is_refused_by_name_on_a_users_onnx(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        precisions.convert(registry.precisions()[name], request(tmp_path))
    assert facts(str(refused.value), "toy") == [
        *facts(f"{name}"),
        "torch",
        "toy",
        "ONNX",
        "torch",
        "toy.yaml",
        *facts(f"{name}"),
        "FILE.onnx",
    ]


def test_a_ready_made_file_is_taken_as_it_is(tmp_path: Path) -> None:
    ready = write(tmp_path / "mine.onnx")
    given = request(tmp_path, ready_made={"nvfp4": ready})
    facts = precisions.convert(registry.precisions()["nvfp4"], given)
    assert facts["method"] == "ready-made file mine.onnx, untouched"
    assert onnx.load(given.out) == onnx.load(ready)


def test_fp32_is_the_exported_graph(tmp_path: Path) -> None:
    given = request(tmp_path)
    assert precisions.convert(registry.precisions()["fp32"], given)["not_reproducible"] == []
    assert onnx.load(given.out) == onnx.load(given.onnx)


def test_a_half_precision_file_does_not_pass_for_fp32(tmp_path: Path) -> None:
    given = ConvertRequest(write(tmp_path / "half.onnx", "float16"), spec(tmp_path), {}, tmp_path / "out.onnx")
    with pytest.raises(UserError, match=naming("FLOAT16", "not", "fp32", "toy")):
        precisions.convert(registry.precisions()["fp32"], given)
    assert not given.out.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"calibration": "magic"}, "precision int8: calibration: 'magic' is not one of entropy, max"),
        ({"high_precision": "fp8"}, "precision int8: high_precision: 'fp8' is not one of fp32, fp16, bf16"),
        ({"exclude": "head"}, "precision int8: exclude: 'head' is not a list of regular expressions of node names"),
        ({"samples": 0}, "precision int8: samples: 0 is not a whole number of 1 or more"),
        ({"samples": True}, "precision int8: samples: True is not a whole number of 1 or more"),
        ({"samples": "many"}, "precision int8: samples: 'many' is not a whole number of 1 or more"),
    ],
)
def test_a_wrong_option_is_one_line_before_anything_is_computed(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    given = ConvertRequest(write(tmp_path / "toy.onnx"), spec(tmp_path), options, tmp_path / "out.onnx")
    with pytest.raises(UserError) as refused:
        precisions.convert(registry.precisions()["int8"], given)
    assert str(refused.value) == message


def test_an_option_that_the_format_lacks_is_refused_with_those_that_it_has(tmp_path: Path) -> None:
    given = ConvertRequest(write(tmp_path / "toy.onnx"), spec(tmp_path), {"bits": 3}, tmp_path / "out.onnx")
    with pytest.raises(UserError, match=naming("unknown", "options", "fp16", "bits", "samples")):
        precisions.convert(registry.precisions()["fp16"], given)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.full((16, 8), np.nan, np.float32), "NaN"),
        (np.ones((16, 9), np.float32), "[8, 9]"),
        (np.ones((16, 8), np.float64), "float64"),
        (np.ones((0, 8), np.float32), "empty"),
    ],
    ids=["NaN", "shape", "dtype", "empty"],
)
@pytest.mark.parametrize("name", ["fp16", "int8", "fp8"])
def test_bad_calibration_data_is_one_line(name: str, array: Any, message: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(UserError) as refused:
        precisions.convert(registry.precisions()[name], request(tmp_path, data="file:x.npy"))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_no_format_is_judged_by_the_samples_that_calibrated_it(tmp_path: Path) -> None:
    model = spec(tmp_path)
    calibration = [batch["x"] for batch in samples.calibration_feeds(model, 16)]
    for seed in range(4):
        judged = [batch["x"] for batch in samples.feeds(model, 16, seed)]
        assert not any(np.array_equal(a, b) for a in calibration for b in judged)


def test_samples_come_in_whole_batches_that_the_model_allows(tmp_path: Path) -> None:
    assert [len(batch["x"]) for batch in samples.feeds(spec(tmp_path), 9, 0)] == [8, 8]
    assert [len(batch["x"]) for batch in samples.feeds(spec(tmp_path, max_sizes={"b": 2}), 3, 0)] == [2, 2]
    with pytest.raises(UserError, match=naming("0", "samples")):
        samples.feeds(spec(tmp_path), 0, 0)


@pytest.mark.parametrize("exclude", ["(", ["fc1", "("], ["*x"], [1]])
def test_what_is_no_pattern_of_nodes_is_refused_before_anything_is_calibrated(exclude: Any, tmp_path: Path) -> None:
    asked = ConvertRequest(write(tmp_path / "x.onnx"), spec(tmp_path), {"exclude": exclude}, tmp_path / "out.onnx")
    with pytest.raises(UserError, match=naming("int8", "exclude", "list")):
        precisions.convert(registry.precisions()["int8"], asked)


def test_calibration_shapes_are_written_as_modelopt_reads_them() -> None:
    batches = [{"x": np.full((2, 3), i), "y": np.full((2,), i)} for i in range(3)]
    assert ptq.shapes(batches[0]) == "x:2x3,y:2"


def test_pruning_leaves_the_two_largest_of_each_four_along_the_reduction(tmp_path: Path) -> None:
    model = onnx.load(write(tmp_path / "toy.onnx"))
    assert sparse.prune(model) == (["w"], [])
    found = onnx.numpy_helper.to_array(model.graph.initializer[0])
    assert found[:, 1].tolist() == [0, 0, 9, 13, 0, 0, 25, 29]


def test_a_reduction_that_is_no_multiple_of_four_stays_dense() -> None:
    weight = onnx.numpy_helper.from_array(np.ones((6, 4), np.float32), "w")
    node = onnx.helper.make_node("Gemm", ["x", "w"], ["y"])
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "toy", [], [], [weight]))
    assert sparse.prune(model) == ([], ["w"])


def test_the_facts_name_the_library_that_did_it() -> None:
    pytest.importorskip("modelopt")
    assert conversion.facts("a method", left=3)["left"] == 3
    assert conversion.facts("a method")["not_reproducible"] == []
