"""Conversions of other people's graphs: converted, or a failure with the tool's reason in one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.facts import facts, mentions, states

onnx = pytest.importorskip("onnx")
pytest.importorskip("modelopt")

from inferprof import precisions, registry  # noqa: E402
from inferprof.errors import CaseFailed, SystemRefusal, UserError, failures_of  # noqa: E402
from inferprof.model import accuracy, audit, export, model_spec, onnx_file, samples  # noqa: E402
from inferprof.plugins import ConvertRequest  # noqa: E402

FAULTS = "tests/data/faults/onnx"


def request(path: Path, out: Path) -> ConvertRequest:
    return ConvertRequest(path, model_spec.load(path), {"samples": 8}, out)


def converted(name: str, path: Path, folder: Path) -> dict[str, Any]:
    """The accuracy of a file in a number format, compared with its export."""
    options = {} if name == "fp32" else {"samples": 8}
    given = replace(request(path, folder / f"{name}.onnx"), options=options)
    precision = registry.precisions()[name]
    precisions.convert(precision, given)
    export.export(given.spec, folder / "exported.onnx")
    return accuracy.measure(replace(given, onnx=folder / "exported.onnx"), precision, samples.feeds, 8, 0)


def written(folder: Path, graph: str, functions: str = "", imports: str = '"": 17') -> Path:
    path = folder / "given.onnx"
    onnx.save(onnx.parser.parse_model(f"<ir_version: 8, opset_import: [{imports}]> {graph} {functions}"), path)
    return path


@pytest.mark.parametrize("name", ["initializer_listed_as_input", "dupnames", "two_biases"])
def test_what_older_exporters_write_is_converted(name: str, repository: Path, tmp_path: Path) -> None:
    assert converted("fp16", repository / FAULTS / f"{name}.onnx", tmp_path)["outcome"] == "pass"


def test_products_without_names_keep_their_own_weights_in_int4(tmp_path: Path) -> None:
    path = written(
        tmp_path, "g (float[b,128] x) => (float[b,64] y) { h = MatMul(x, v) r = Relu(h) y = MatMul(r, w) }"
    )
    model = onnx.load(path)
    for name, width in (("v", 128), ("w", 64)):
        array = np.random.default_rng(width).standard_normal((128, width), np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(model, path)
    result = converted("int4", path, tmp_path)
    assert result["outcome"] == "pass"
    found = audit.audit(tmp_path / "int4.onnx", "int4", None)
    assert (found["macs_share"], found["weight_bytes"]["int4"]) == ({"float16": 1.0}, 128 * (128 + 64) // 2)


@pytest.mark.parametrize("before", ["Mul(x, v)", "MatMul(x, w)"])
def test_a_product_behind_one_or_behind_a_scale_is_made_int4(before: str, tmp_path: Path) -> None:
    path = written(tmp_path, f"g (float[b,128] x) => (float[b,128] y) {{ h = {before} y = MatMul(h, w) }}")
    model = onnx.load(path)
    for name, dims in (("v", [128]), ("w", [128, 128])):
        array = np.random.default_rng(0).standard_normal(dims, np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(model, path)
    assert converted("int4", path, tmp_path)["outcome"] == "pass"


@pytest.mark.parametrize("held_by", ["Constant", "Identity"])
def test_weights_that_a_node_holds_or_renames_are_quantized(held_by: str, tmp_path: Path) -> None:
    path = written(tmp_path, "g (float[b,128] x) => (float[b,64] y) { y = MatMul(x, w) }")
    model = onnx.load(path)
    model.ir_version = 3
    weight = onnx.numpy_helper.from_array(np.random.default_rng(0).standard_normal((128, 64), np.float32), "stored")
    if held_by == "Constant":
        node = onnx.helper.make_node("Constant", [], ["w"], value=weight)
    else:
        node = onnx.helper.make_node("Identity", ["stored"], ["w"])
        model.graph.initializer.append(weight)
        model.graph.input.append(onnx.helper.make_tensor_value_info("stored", 1, [128, 64]))
    model.graph.node.insert(0, node)
    onnx.save(model, path)
    assert converted("int4", path, tmp_path)["outcome"] == "pass"
    assert audit.audit(tmp_path / "int4.onnx", "int4", None)["weight_bytes"]["int4"] == 128 * 64 // 2


def test_constants_that_leave_the_graph_or_a_body_of_it_stay_nodes(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """g (float[2] x, bool c) => (float[2] y, float[2] k, float[2] j) {
            k = Constant<value_floats = [1.0, 2.0]>() j = Identity(k) i = Identity(k) h = Add(x, i)
            y = If(c) <then_branch = t () => (float[2] a) { a = Constant<value_floats = [3.0, 4.0]>() },
                       else_branch = e () => (float[2] b) { b = Add(h, i) }> }""",
    )
    tidy = onnx_file.tidied(onnx.load(path))
    assert [node.op_type for node in tidy.graph.node] == ["Constant", "Identity", "Identity", "Add", "If"]
    feeds = {"x": np.ones(2, np.float32), "c": np.array(False)}
    before, after = (accuracy.session(model).run(None, feeds) for model in (onnx.load(path), tidy))
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


def test_a_name_is_given_to_each_node_without_taking_anothers(tmp_path: Path) -> None:
    path = written(tmp_path, "g (float[2] x) => (float[2] y) { a = Relu(x) b = Relu(a) c = Relu(b) y = Relu(c) }")
    model = onnx.load(path)
    for node, name in zip(model.graph.node, ["", "a", "a", ""], strict=True):
        node.name = name
    assert [node.name for node in onnx_file.tidied(model).graph.node] == ["a_1", "a", "a_2", "y"]


def test_int4_says_where_nothing_could_be_quantized(tmp_path: Path) -> None:
    path = written(tmp_path, "g (float[b,4] x) => (float[b,4] y) { y = Relu(x) }")
    facts = precisions.convert(registry.precisions()["int4"], request(path, tmp_path / "int4.onnx"))
    assert facts["method"].endswith("nothing was quantized")


@pytest.mark.parametrize(("precision", "outcome"), [("fp16", "pass"), ("int8", "warn")])
def test_local_functions_are_converted_with_the_graph(precision: str, outcome: str, tmp_path: Path) -> None:
    """In int8 there is no product to quantize, which is no pass of int8, however small the distance."""
    path = written(
        tmp_path,
        "g (float[b,4] x) => (float[b,4] y) { y = own.twice(x) }",
        '<domain: "own", opset_import: ["": 17]> twice (p) => (q) { r = Relu(p) q = Add(r, r) }',
        '"": 17, "own": 1',
    )
    found = converted(precision, path, tmp_path)
    assert (found["outcome"], found["outputs"]["y"]["max_abs_error"] < 0.01) == (outcome, True)


def test_an_empty_output_is_compared(repository: Path, tmp_path: Path) -> None:
    result = converted("fp32", repository / FAULTS / "empty_output.onnx", tmp_path)
    assert (result["outcome"], result["collapse"]) == ("pass", [])
    assert result["outputs"]["y"]["max_abs_error"] == 0.0


def test_an_output_of_text_has_no_distance(tmp_path: Path) -> None:
    path = written(tmp_path, "g (float[b,4] x) => (string[b,4] y) { y = Cast<to = 8>(x) }")
    result = converted("fp32", path, tmp_path)
    assert result["outcome"] == "not measured"
    assert mentions(result["reason"], "output y", "no tensor")


def test_a_graph_with_scalar_inputs_and_bodies_is_quantized(repository: Path, tmp_path: Path) -> None:
    given = request(repository / FAULTS / "if_bodies.onnx", tmp_path / "int8.onnx")
    facts = precisions.convert(registry.precisions()["int8"], given)
    assert facts["method"].endswith("nothing was quantized")  # ModelOpt leaves bodies alone
    assert facts["calibration_samples"] == 16


def test_what_modelopt_stumbles_over_is_named(repository: Path, tmp_path: Path) -> None:
    given = request(repository / FAULTS / "if_bodies.onnx", tmp_path / "fp16.onnx")
    with pytest.raises(CaseFailed) as failed:
        precisions.convert(registry.precisions()["fp16"], given)
    message = str(failed.value)
    assert message.startswith("ModelOpt: ") and "\n" not in message
    assert mentions(message, "node y (If)") and "a scalar input c" in message


def test_the_first_line_of_a_tools_reason_is_the_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from modelopt.onnx import quantization

    def refuse(*args: Any, **options: Any) -> None:
        raise RuntimeError("\nShape for /MatMul_output_0 is incorrect\n  File x.py, line 1\n")

    monkeypatch.setattr(quantization, "quantize", refuse)
    path = written(tmp_path, "g (float[b,4] x) => (float[b,4] y) { y = Relu(x) }")
    with pytest.raises(CaseFailed) as failed:
        precisions.convert(registry.precisions()["int8"], request(path, tmp_path / "int8.onnx"))
    assert facts(str(failed.value)) == ["ModelOpt", "RuntimeError", "/MatMul_output_0"]


def test_what_the_user_can_mend_and_what_failed_already_stay_what_they_are() -> None:
    for error in (UserError("mend"), CaseFailed("failed")):
        with pytest.raises(type(error)) as caught, failures_of("tool"):
            raise error
        assert caught.value is error
    full = OSError(28, "No space left on device", "x")
    with pytest.raises(SystemRefusal, match=r"^x: ") as refused, failures_of("tool"):
        raise full
    assert refused.value.__cause__ is full
    with pytest.raises(CaseFailed, match=r"^tool: KeyError$"), failures_of("tool"):
        raise KeyError


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_nothing_is_made_of_a_graph_that_is_quantized_already(
    precision: str, repository: Path, tmp_path: Path
) -> None:
    path = repository / FAULTS / "quantized_already.onnx"
    reason = precisions.unconvertible(model_spec.load(path), registry.precisions()[precision])
    assert reason and states(reason, "q", "2", "more") and "\n" not in reason
    with pytest.raises(UserError, match="nothing was quantized"):
        precisions.convert(registry.precisions()[precision], request(path, tmp_path / "out.onnx"))
    assert not (tmp_path / "out.onnx").exists()


def test_a_quantized_graph_that_is_named_by_its_precision_is_taken(repository: Path, tmp_path: Path) -> None:
    for name in ("quantized_already", "half_layernorm"):
        (tmp_path / f"{name}.onnx").write_bytes((repository / FAULTS / f"{name}.onnx").read_bytes())
    described = tmp_path / "m.yaml"
    described.write_text(
        "{source: onnx, onnx: half_layernorm.onnx, variants: {int8: quantized_already.onnx}, "
        "inputs: [{name: x, dtype: float32, dims: [4, 32]}]}"
    )
    spec = model_spec.load(described)
    assert precisions.unconvertible(spec, registry.precisions()["int8"]) is None


def test_tensors_that_are_called_as_behind_casts_do_not_stop_a_conversion(tmp_path: Path) -> None:
    """As of a graph that went through AutoCast before."""
    graph = "g (float[b,64] x) => (float[b,64] y) { y_cast_to_fp32 = MatMul(x, w) y = Relu(y_cast_to_fp32) }"
    model = onnx.load(path := written(tmp_path, graph))
    array = np.random.default_rng(0).standard_normal((64, 64), np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(array, "w"))
    onnx.save(model, path)
    assert converted("fp16", path, tmp_path)["outcome"] == "pass"


def test_autocast_without_tensorrt_says_that_it_needs_it(tmp_path: Path) -> None:
    graph = "g (float[4, 16] x) => (float[4, 16] y) { y = com.microsoft.Nothing(x) }"
    given = request(written(tmp_path, graph, imports='"": 17, "com.microsoft": 1'), tmp_path / "fp16.onnx")
    with pytest.raises(CaseFailed) as failed:
        precisions.convert(registry.precisions()["fp16"], given)
    message = str(failed.value)
    assert "NameError" not in message and mentions(message, "ModelOpt: ", "node y (com.microsoft::Nothing)")
