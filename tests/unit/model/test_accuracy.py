"""Accuracy: distances with exact values, collapse by name, outcomes by tolerance, and where the numbers come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.facts import states

from inferprof import processes
from inferprof.case import Shape
from inferprof.errors import UserError
from inferprof.model import accuracy, expected, validity
from inferprof.model.accuracy import Outputs
from inferprof.model.model_spec import InputSpec, ModelSpec, Task
from inferprof.plugins import ConvertRequest, Feeds, Precision, Tolerance

TOLERANCE = Tolerance(passes=40.0, warns=20.0, reason="because")
NAN, INF = float("nan"), float("inf")


def spec(task: Task = "other", source: Any = "transformers", **more: Any) -> ModelSpec:
    inputs = (InputSpec("x", "float32", ("b", 4)),)
    return ModelSpec("toy", Path("models/toy.yaml"), source, inputs, task=task, **more)


def array(*rows: list[float]) -> np.ndarray[Any, Any]:
    return np.array(rows, np.float32)


def compared(expected: np.ndarray[Any, Any], actual: np.ndarray[Any, Any], task: Task = "other") -> dict[str, Any]:
    there, here = Outputs({"y": expected}, "there"), Outputs({"y": actual}, "here")
    return accuracy.compare(there, here, [], spec(task), TOLERANCE)


# --- distances -------------------------------------------------------------------------------------------------


def test_sqnr_is_the_energy_of_the_signal_over_that_of_the_error() -> None:
    found = accuracy.distance(array([3.0, 4.0]), array([3.0, 4.5]))
    assert found["sqnr_db"] == pytest.approx(20.0)  # 25 against 0.25
    assert found["max_abs_error"] == 0.5
    assert found["max_abs_expected"] == 4.0


def test_cosine_is_per_sample_and_keeps_the_worst() -> None:
    found = accuracy.distance(array([1.0, 0.0], [1.0, 0.0]), array([2.0, 0.0], [1.0, 1.0]))
    assert found["cosine_min"] == pytest.approx(0.5**0.5)
    assert found["cosine_mean"] == pytest.approx((1 + 0.5**0.5) / 2)


def test_identical_outputs_pass_and_have_no_finite_sqnr() -> None:
    found = compared(array([1.0, 2.0]), array([1.0, 2.0]))
    assert (found["outcome"], found["reason"]) == ("pass", "identical")
    assert found["outputs"]["y"]["sqnr_db"] is None
    assert found["outputs"]["y"]["max_abs_error"] == 0.0


@pytest.mark.parametrize(
    ("error", "outcome", "reason"),
    [
        (0.005, "pass", "output y: SQNR 60.0 dB, at least 40 dB"),
        (0.5, "warn", "output y: SQNR 20.0 dB, under 40 dB (because)"),
        (5.0, "fail", "output y: SQNR 0.0 dB, under 20 dB (because)"),
    ],
)
def test_the_tolerance_decides_and_gives_its_reason(error: float, outcome: str, reason: str) -> None:
    found = compared(array([3.0, 4.0]), array([3.0, 4.0 + error]))
    assert (found["outcome"], found["reason"]) == (outcome, reason)


# --- collapse --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("actual", "reason"),
    [
        (array([NAN, NAN], [NAN, NAN]), "all NaN"),
        (array([1.0, NAN], [3.0, 4.0]), "NaN in 1 of 4 values"),
        (array([1.0, INF], [-INF, 4.0]), "overflow: infinite in 2 of 4 values"),
        (array([7.0, 7.0], [7.0, 7.0]), "constant: every value is 7"),
        (array([1.0, 2.0], [1.0, 2.0]), "constant: the same for every sample"),
    ],
)
def test_a_collapse_fails_by_name(actual: np.ndarray[Any, Any], reason: str) -> None:
    found = compared(array([1.0, 2.0], [3.0, 4.0]), actual)
    assert (found["outcome"], found["reason"]) == ("fail", f"output y: {reason}")
    assert found["agreement"] is None


def test_fewer_nans_than_in_fp32_are_no_collapse() -> None:
    assert accuracy.collapse(array([NAN, 2.0], [NAN, 4.0]), array([1.0, 2.0], [NAN, 4.0])) is None


def test_values_that_are_not_finite_in_fp32_hide_no_error_of_the_others() -> None:
    found = compared(array([NAN, 3.0], [INF, 4.0]), array([NAN, 3.0], [INF, 9.0]))
    assert (found["outcome"], found["outputs"]["y"]["max_abs_error"]) == ("fail", 5.0)
    assert "2 values of fp32" in found["reason"]
    assert compared(array([INF, 3.0], [INF, 4.0]), array([INF, 3.0], [INF, 4.0]))["outcome"] == "pass"


def test_where_fp32_itself_gives_nan_the_verdict_is_no_plain_pass() -> None:
    found = compared(array([NAN, 3.0], [NAN, 4.0]), array([NAN, 3.0], [NAN, 4.0]))
    assert (found["outcome"], found["outputs"]["y"]["max_abs_error"]) == ("warn", 0.0)
    assert states(found["reason"], "NaN", "2", "4", "y")
    assert compared(array([NAN, 3.0], [NAN, 4.0]), array([NAN, 9.0], [NAN, 4.0]))["outcome"] == "fail"


def test_a_value_that_is_no_number_any_more_is_found_beside_one_that_became_a_number() -> None:
    assert accuracy.collapse(array([NAN, 2.0], [3.0, 4.0]), array([1.0, 2.0], [NAN, 4.0])) == "NaN in 1 of 4 values"


def test_where_fp32_gives_nothing_finite_nothing_passes() -> None:
    found = compared(array([NAN, INF]), array([NAN, INF]))
    assert (found["outcome"], len(found["collapse"])) == ("fail", 1)


def test_a_scalar_collapses_as_any_other_output_does() -> None:
    assert accuracy.collapse(np.array(2.0), np.array(NAN)) == "all NaN"
    assert accuracy.collapse(np.array(2.0), np.array(3.0)) is None


def test_a_scalar_output_has_a_distance() -> None:
    found = accuracy.distance(np.array(2.0), np.array(2.5))
    assert (found["max_abs_error"], found["cosine_min"]) == (0.5, 1.0)


def test_an_output_that_is_constant_in_fp32_too_is_no_collapse() -> None:
    assert accuracy.collapse(array([7.0, 7.0]), array([7.0, 7.0])) is None


# --- running ---------------------------------------------------------------------------------------------------


def quantized_product(listed: bool = False) -> Any:
    """x [b, 4] → quantized; weight [4, 4] → quantized, dequantized, transposed → their product."""
    onnx = pytest.importorskip("onnx")
    helper, random = onnx.helper, np.random.default_rng(0)
    weights = {"weight": random.normal(size=(4, 4)), "scale": np.array(0.05), "fine": np.array(0.01)}
    nodes = []
    for name, scale in (("x", "scale"), ("weight", "fine")):
        nodes += [
            helper.make_node("QuantizeLinear", [name, scale, "zero"], [f"{name}/stored"]),
            helper.make_node("DequantizeLinear", [f"{name}/stored", scale, "zero"], [f"{name}/value"]),
        ]
    nodes += [
        helper.make_node("Transpose", ["weight/value"], ["turned"]),
        helper.make_node("MatMul", ["x/value", "turned"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["b", 4]) for name in ("x", "y")]
    given = [helper.make_tensor_value_info("weight", onnx.TensorProto.FLOAT, [4, 4])] if listed else []
    stored = [onnx.numpy_helper.from_array(np.asarray(a, np.float32), name) for name, a in weights.items()]
    stored.append(onnx.numpy_helper.from_array(np.array(0, np.int8), "zero"))
    graph = helper.make_graph(nodes, "toy", [values[0], *given], values[1:], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_weights_are_quantized_once_and_give_what_they_gave() -> None:
    model = quantized_product()
    sample = {"x": np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)}
    (expected,) = accuracy.session(model).run(None, sample)
    ready = accuracy.with_ready_weights(model)
    assert [node.op_type for node in ready.graph.node] == ["QuantizeLinear", "DequantizeLinear", "MatMul"]
    assert {weight.name for weight in ready.graph.initializer} == {"turned", "scale", "zero"}
    np.testing.assert_allclose(accuracy.session(ready).run(None, sample)[0], expected, rtol=1e-6)


def test_a_weight_that_a_caller_may_replace_is_left_as_it_is() -> None:
    model = quantized_product(listed=True)
    assert len(accuracy.with_ready_weights(model).graph.node) == 6


def test_weights_that_would_not_fit_into_a_file_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validity, "MAX_BYTES", 100)
    assert len(accuracy.with_ready_weights(quantized_product()).graph.node) == 6


# --- decisions -------------------------------------------------------------------------------------------------


def test_a_classifier_agrees_where_the_largest_logit_is_the_same_one() -> None:
    expected, actual = (
        array([0.0, 1.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]),
        array([0.0, 0.9], [0.9, 1.0], [0.0, 1.0], [0.0, 1.0]),
    )
    assert compared(expected, actual, "classification")["agreement"] == {"kind": "top-1", "share": 0.75, "of": 4}


def test_embeddings_that_are_turned_alike_rank_alike() -> None:
    vectors = np.random.default_rng(0).standard_normal((16, 3)).astype(np.float32)
    turned = vectors[:, [1, 2, 0]]
    found = compared(vectors, turned, "embedding")["agreement"]
    assert found["spearman"] == pytest.approx(1.0)
    assert (found["shared_neighbours"], found["neighbours"], found["of"]) == (1.0, 10, 16)


def test_ranking_finds_the_neighbour_that_changed() -> None:
    expected = array([1.0, 0.0], [0.9, 0.1], [0.0, 1.0])
    unit = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    found = accuracy.ranking(unit, unit[[2, 1, 0]])
    assert found["shared_neighbours"] == 1.0  # of three vectors each has the same two neighbours
    assert found["spearman"] == pytest.approx(0.5)  # ranks 3 1 2 against 2 1 3


# --- where the numbers come from -------------------------------------------------------------------------------

onnx = pytest.importorskip("onnx")


def write(path: Path, factor: float, domain: str = "") -> Path:
    """y = x × factor, or an operator of a foreign domain."""
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["b", 4]) for name in "xy")
    weight = onnx.numpy_helper.from_array(np.array(factor, np.float32), "factor")
    node = onnx.helper.make_node("Mul", ["x", "factor"], ["y"], "scale", domain=domain)
    opsets = [onnx.helper.make_opsetid("", 20), *([onnx.helper.make_opsetid(domain, 1)] if domain else [])]
    body = onnx.helper.make_graph([node], "toy", [x], [y], [weight])
    onnx.save(onnx.helper.make_model(body, opset_imports=opsets, ir_version=10), path)
    return path


def draw(model: ModelSpec, count: int, seed: int) -> list[Feeds]:
    shape = model.inputs[0].shape(Shape.parse(f"b{count}"))
    return [{"x": np.random.default_rng(seed).standard_normal(shape).astype(np.float32)}]


def measured(folder: Path, domain: str, **more: Any) -> dict[str, Any]:
    reference, candidate = write(folder / "fp32.onnx", 2.0), write(folder / "toy4.onnx", 2.0, domain)
    precision = Precision("toy4", "Toy", "torch", lambda _: {}, TOLERANCE, "int4", "int4", "int4")
    return accuracy.measure(ConvertRequest(reference, spec(**more), {}, candidate), precision, draw, 4, seed=3)


def test_the_graph_itself_is_run(tmp_path: Path) -> None:
    found = measured(tmp_path, "")
    assert (found["from"], found["outcome"], found["samples"]) == ("onnxruntime cpu", "pass", 4)
    assert (found["precision"], found["seed"], found["pretrained"]) == ("toy4", 3, True)
    assert found["random_inputs"] == ["x"]


def test_of_a_graph_that_nothing_here_can_run_nothing_is_measured_and_the_reason_says_why(tmp_path: Path) -> None:
    found = measured(tmp_path, "trt")
    assert found["outcome"] == "not measured"
    assert found["reason"].startswith("toy4.onnx: ") and "trt:Mul" in found["reason"]
    assert "outputs" not in found


def test_outputs_of_fp32_that_were_kept_stand_for_those_of_the_graph(tmp_path: Path) -> None:
    reference, candidate = write(tmp_path / "fp32.onnx", 2.0), write(tmp_path / "toy4.onnx", 2.5)
    precision = Precision("toy4", "Toy", "torch", lambda _: {}, TOLERANCE, "int4", "int4", "int4")
    model = spec()
    expected.write_samples(reference, draw(model, 4, 3), tmp_path / "fp32.samples.npz")

    def found(given: Path, seed: int = 3) -> dict[str, Any]:
        request = ConvertRequest(given, model, {}, candidate)
        return accuracy.measure(request, precision, draw, 4, seed, expected.of_samples)

    of_graph = found(reference)
    reference.unlink()
    assert found(tmp_path / "fp32.samples.npz") == of_graph
    assert of_graph["outputs"]["y"]["sqnr_db"] == pytest.approx(20 * np.log10(2.0 / 0.5))
    with pytest.raises(UserError, match="other inputs"):
        found(tmp_path / "fp32.samples.npz", seed=4)


def test_outputs_that_the_memory_does_not_hold_are_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["": 17]> g (float[2,8] x) => (float[2,8] y) { y = Relu(x) }'
    )
    onnx.save(graph, tmp_path / "m.onnx")
    batches = [{"x": np.zeros((2, 8), np.float32)}] * 3
    monkeypatch.setattr(processes, "memory", lambda: 4 * 64 * 3 - 1)
    with pytest.raises(accuracy.NotMeasured, match="3 batches"):
        accuracy.run_graph(tmp_path / "m.onnx", batches)
    assert len(accuracy.run_graph(tmp_path / "m.onnx", batches[:2])[0]) == 2
