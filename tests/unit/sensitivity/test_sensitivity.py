"""Which node loses the accuracy: planted faults are found first, with their causes, in a bounded number of passes."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from scipy.stats import spearmanr

from inferprof import documents, sensitivity
from inferprof.errors import UserError
from inferprof.model import accuracy
from inferprof.model.model_spec import InputSpec, ModelSpec
from inferprof.plugins import ConvertRequest, Precision
from inferprof.precisions.fp16 import FP16
from inferprof.precisions.int8 import INT8
from inferprof.precisions.nvfp4 import NVFP4
from inferprof.sensitivity import measure, switches

WIDTH = 32
Nodes = list[Any]


class Residual:
    """y = x + Σ f_i(x): blocks of a product, an activation and an addition; any of them may be given a fault."""

    def __init__(self, blocks: int) -> None:
        self.random = np.random.default_rng(0)
        self.nodes: Nodes = []
        self.weights: dict[str, Any] = {}
        self.names = (f"t{number}" for number in itertools.count())
        self.last = "x"
        for _ in range(blocks):
            self.block()

    def node(self, op: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        out = next(self.names)
        self.nodes.append(helper.make_node(op, inputs, [out], name=name or f"{op}_{out}", **attributes))
        return out

    def constant(self, array: Any) -> str:
        name = next(self.names)
        self.weights[name] = np.asarray(array, np.float32)
        return name

    def weight(self, scale: float = 0.3) -> str:
        return self.constant(self.random.normal(size=(WIDTH, WIDTH)) * scale / math.sqrt(WIDTH))

    def block(self, name: str = "", scale: float = 1.0) -> None:
        """One more block; its product is multiplied by `scale`."""
        product = self.node("MatMul", self.last, self.weight(0.3 * scale), name=name)
        self.last = self.node("Add", self.last, self.node("Tanh", product) if scale == 1 else product)

    def model(self) -> Any:
        self.nodes.append(helper.make_node("Identity", [self.last], ["y"], name="out"))
        value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["b", 4, WIDTH]) for name in ("x", "y")]
        weights = [numpy_helper.from_array(array, name) for name, array in self.weights.items()]
        graph = helper.make_graph(self.nodes, "g", value[:1], value[1:], weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def quantized(request: ConvertRequest) -> dict[str, Any]:
    """INT8 of every product: a scale per tensor for what it reads, from the largest values of normal inputs."""
    model = onnx.load(request.onnx)
    graph = model.graph
    weights = {weight.name: numpy_helper.to_array(weight) for weight in graph.initializer}
    read = [name for node in graph.node if node.op_type == "MatMul" for name in node.input]
    shown = onnx.ModelProto.FromString(model.SerializeToString())
    made = [name for name in read if name not in weights and name != "x"]
    del shown.graph.output[:]
    shown.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in made)
    data = {"x": np.random.default_rng(1).normal(size=(8, 4, WIDTH)).astype(np.float32)}
    seen = data | (dict(zip(made, accuracy.session(shown).run(made, data), strict=True)) if made else {})
    nodes = []
    for node in list(graph.node):
        for place, name in enumerate(node.input if node.op_type == "MatMul" else ()):
            reach = np.abs(weights[name] if name in weights else seen[name]).max()
            key = f"{node.name}.{place}"
            graph.initializer.extend(
                [
                    numpy_helper.from_array(np.float32(reach / 127), f"{key}.scale"),
                    numpy_helper.from_array(np.int8(0), f"{key}.zero"),
                ]
            )
            pair = [f"{key}.scale", f"{key}.zero"]
            nodes.append(helper.make_node("QuantizeLinear", [name, *pair], [f"{key}.q"]))
            nodes.append(helper.make_node("DequantizeLinear", [f"{key}.q", *pair], [f"{key}.dq"]))
            node.input[place] = f"{key}.dq"
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    onnx.save(model, request.out)
    return {}


TOY_INT8 = dataclasses.replace(INT8, convert=quantized, options={})


def request(model: Any, tmp_path: Path) -> ConvertRequest:
    onnx.save(model, tmp_path / "fp32.onnx")
    inputs = (InputSpec("x", "float32", ("b", 4, WIDTH), data="normal"),)
    spec = ModelSpec("toy", tmp_path / "toy.yaml", "onnx", inputs)
    return ConvertRequest(tmp_path / "fp32.onnx", spec, {}, tmp_path / "out.onnx")


def analysed(model: Any, precision: Precision, tmp_path: Path) -> dict[str, Any]:
    """The document, as it is written."""
    result = sensitivity.analyse(request(model, tmp_path), precision, 16)
    documents.decode(json.dumps(result).encode(), "sensitivity")
    return result


def test_a_layer_scaled_by_1000_is_found_first_in_half_precision_with_the_value_that_overflows(
    tmp_path: Path,
) -> None:
    graph = Residual(3)
    graph.block(name="scaled", scale=1000 * 100)
    graph.block()
    result = analysed(graph.model(), FP16, tmp_path)
    first = result["units"][0]
    assert first["overflow"]
    assert "overflow" in first["cause"]
    reached = re.search(r"reaches ([\d,]+), over", first["cause"])
    assert reached is not None
    assert int(reached[1].replace(",", "")) > 65504
    assert first["name"] == "scaled"


def test_a_layer_scaled_by_1000_is_found_first_in_int8_since_its_errors_outweigh_the_others(tmp_path: Path) -> None:
    graph = Residual(3)
    graph.block(name="scaled", scale=1000)
    result = analysed(graph.model(), TOY_INT8, tmp_path)
    assert result["units"][0]["name"] == "scaled"
    assert "large" in result["units"][0]["cause"]


def test_a_layer_with_an_outlier_channel_is_found_first_with_the_channel(tmp_path: Path) -> None:
    graph = Residual(3)
    gain = np.ones(WIDTH)
    gain[5] = 300
    stretched = graph.node("Mul", graph.last, graph.constant(gain))
    weight = graph.weights[graph.weight(0.3)] / gain[:, None]
    product = graph.node("MatMul", stretched, graph.constant(weight), name="outlier")
    graph.last = graph.node("Add", graph.last, product)
    graph.block()
    result = analysed(graph.model(), TOY_INT8, tmp_path)
    first = result["units"][0]
    assert first["name"] == "outlier"
    assert "channel 5 " in first["cause"]


def test_a_normalization_in_pieces_is_found_first_as_such(tmp_path: Path) -> None:
    graph = Residual(3)
    large = graph.node("Mul", graph.last, graph.constant(400))
    mean = graph.node("ReduceMean", large, axes=[-1])
    centred = graph.node("Sub", large, mean)
    square = graph.node("Pow", centred, graph.constant(2), name="square")
    variance = graph.node("Add", graph.node("ReduceMean", square, axes=[-1]), graph.constant(1e-5))
    graph.last = graph.node("Div", centred, graph.node("Sqrt", variance))
    graph.block()
    first = analysed(graph.model(), FP16, tmp_path)["units"][0]
    assert first["name"] == "square"
    assert first["cause"].startswith("normalization in pieces")
    assert "overflow" in first["cause"]


@pytest.mark.parametrize("blocks", [1, 4, 16, 30])
def test_the_ranking_takes_no_more_passes_than_2_sqrt_n_and_agrees_with_trying_each(
    blocks: int, tmp_path: Path
) -> None:
    graph = Residual(0)
    for _ in range(blocks):
        graph.last = graph.node(
            "Add", graph.last, graph.node("MatMul", graph.last, graph.weight(10 ** graph.random.uniform(-2, 0)))
        )
    asked = request(graph.model(), tmp_path)
    prepared = sensitivity.prepare(asked, TOY_INT8)
    feeds = sensitivity.single_samples(asked.spec, 64, 1)
    switched = measure.Switched(prepared.model, prepared.units, feeds)
    losses = measure.rank(switched)
    assert len(prepared.units) == blocks
    assert losses.passes <= max(2 * math.sqrt(blocks), measure.STATED + 1)
    full = [switched.losses({number}).mean() for number in range(blocks)]
    if blocks > 4:
        assert spearmanr(losses.alone, full).statistic >= 0.9


def test_all_switches_on_are_the_quantized_graph_and_all_off_the_float_one(tmp_path: Path) -> None:
    asked = request(Residual(4).model(), tmp_path)
    quantized(asked)
    model = onnx.load(asked.out)
    units = switches.quantized_units(model)
    session = accuracy.session(switches.switchable(model, units))
    sample = {"x": np.random.default_rng(3).normal(size=(2, 4, WIDTH)).astype(np.float32)}
    for graph, on in ((model, True), (onnx.load(asked.onnx), False)):
        chosen = {switches.switch(number): np.array(on) for number in range(len(units))}
        expected = accuracy.session(graph).run(None, sample)[0]
        np.testing.assert_array_equal(session.run(None, sample | chosen)[0], expected)


def test_leaving_units_out_ends_with_the_fewest_that_meet_the_tolerance(tmp_path: Path) -> None:
    graph = Residual(6)
    graph.block(name="scaled", scale=1000)
    strict = dataclasses.replace(TOY_INT8, tolerance=dataclasses.replace(INT8.tolerance, passes=60.0))
    result = analysed(graph.model(), strict, tmp_path)
    met = [entry["left_out"] for entry in result["tried"] if entry["meets"]]
    missed = [entry["left_out"] for entry in result["tried"] if not entry["meets"]]
    assert min(met) - 1 in {*missed, 0}
    assert result["exclude"][0] == "scaled"
    assert len(result["exclude"]) == min(met)
    assert result["evaluations"]["total"] == result["evaluations"]["ranking"] + len(result["tried"]) + 1


def test_a_format_that_is_made_of_the_torch_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="int8"):
        sensitivity.analyse(request(Residual(1).model(), tmp_path), NVFP4, 4)
