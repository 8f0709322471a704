"""verify's model: two layers as YAML for torch, and as nodes that old runtimes can read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from inferprof.case import Shape
from inferprof.model import model_spec
from inferprof.verify import model
from inferprof.verify.site import MODEL, SHAPE


def test_the_yaml_is_a_description_of_two_layers(tmp_path: Path) -> None:
    path = tmp_path / f"{MODEL}.yaml"
    model.describe(path)
    spec = model_spec.load(path)
    assert (spec.name, spec.from_torch, spec.options["config"]["num_hidden_layers"]) == (MODEL, True, 2)
    assert spec.at(Shape.parse(SHAPE)).label == SHAPE


def test_the_nodes_are_a_valid_graph_of_old_operators_with_an_open_batch(tmp_path: Path) -> None:
    path = tmp_path / f"{MODEL}.onnx"
    model.write_onnx(path)
    graph = onnx.load(path)
    onnx.checker.check_model(graph, full_check=True)
    assert (graph.opset_import[0].version, graph.ir_version) == (13, 8)
    assert [node.op_type for node in graph.graph.node] == ["MatMul", "Add", "Relu", "Add"] * 2
    spec = model_spec.load(path)
    assert (spec.symbols, spec.inputs[0].dims) == (("b",), ("b", model.WIDTH))


def test_the_nodes_compute_two_layers_with_residuals(tmp_path: Path) -> None:
    path = tmp_path / f"{MODEL}.onnx"
    model.write_onnx(path)
    weights = {item.name: onnx.numpy_helper.to_array(item) for item in onnx.load(path).graph.initializer}
    x = np.random.default_rng(1).normal(size=(3, model.WIDTH)).astype(np.float32)
    expected = x
    for layer in ("layer0", "layer1"):
        product = expected @ weights[f"{layer}.weight"] + weights[f"{layer}.bias"]
        expected = expected + np.maximum(product, 0)
    (y,) = ReferenceEvaluator(str(path)).run(None, {"x": x})
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


def test_the_same_bytes_are_written_each_time(tmp_path: Path) -> None:
    paths = [tmp_path / folder / f"{MODEL}.onnx" for folder in ("a", "b")]
    for path in paths:
        model.write_onnx(path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
