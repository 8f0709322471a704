"""Quantization by ModelOpt: what the rest of the graph computes in."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.unit.facts import naming
from tests.unit.planted import Residual, request

from inferprof.errors import CaseFailed
from inferprof.model import audit
from inferprof.plugins import Precision
from inferprof.precisions import ptq
from inferprof.precisions.fp8 import FP8
from inferprof.precisions.int8 import INT8


@pytest.mark.parametrize("precision", [FP8, INT8])
@pytest.mark.parametrize("large", [False, True])
def test_a_rest_that_half_precision_does_not_hold_stays_in_fp32_and_the_facts_say_so(
    large: bool, precision: Precision, tmp_path: Path
) -> None:
    graph = Residual(2)
    scaled = graph.node("Mul", graph.last, graph.constant(2000 if large else 1))
    square = graph.node("Mul", scaled, scaled)
    mean = graph.node("Add", graph.node("ReduceMean", square, axes=[-1]), graph.constant(1e-3))
    graph.last = graph.node("Div", scaled, graph.node("Sqrt", mean))
    graph.block()
    asked = request(graph.model(), tmp_path)
    options = {**precision.options, "calibration": "max", "samples": 8, "high_precision": "fp16"}
    facts = precision.convert(dataclasses.replace(asked, options=options))
    types = audit.audit(asked.out, None, None)["weight_bytes"]
    assert ("does not hold" in facts["method"]) is large
    assert ("float16" in types) is not large


def test_where_fp32_helps_no_more_the_graph_is_the_one_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = Residual(2)
    graph.block()
    asked = request(graph.model(), tmp_path)
    options = {**INT8.options, "calibration": "max", "samples": 8, "high_precision": "fp16"}
    graphs, methods = [], []
    for poor in (False, True):
        if poor:
            monkeypatch.setattr(ptq, "worst_db", lambda *_: 1.0)
        methods.append(INT8.convert(dataclasses.replace(asked, options=options))["method"])
        graphs.append(asked.out.read_bytes())
    assert graphs[0] == graphs[1] and methods[0] == methods[1]


def test_a_tensor_of_nearly_one_value_fails_with_the_calibration_that_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        ranges = np.array([1, 1 + 2e-7], np.float32)
        try:
            np.histogram(ranges, bins=128)
        except ValueError as error:
            raise CaseFailed(f"ModelOpt: ValueError: {error}") from error

    graph = Residual(2)
    graph.block()
    asked = request(graph.model(), tmp_path)
    monkeypatch.setattr(ptq, "_quantized", fail)
    with pytest.raises(CaseFailed, match=naming("entropy", "calibration", "max")):
        INT8.convert(dataclasses.replace(asked, options={**INT8.options, "samples": 8}))


def test_nodes_whose_names_are_no_regular_expressions_are_quantized_and_keep_their_names(tmp_path: Path) -> None:
    graph = Residual(0)
    for name in ("layer[0", "layer(1", "*2", "a+b"):
        graph.block(name)
    graph.attention()
    asked = request(graph.model(), tmp_path)
    options = {**INT8.options, "calibration": "max", "samples": 8, "exclude": [r"layer\(1"]}
    INT8.convert(dataclasses.replace(asked, options=options))
    model = onnx.load(asked.out)
    makers = {node.output[0]: node for node in model.graph.node}
    fed = {node.name: makers[node.input[0]].op_type for node in model.graph.node if node.op_type == "MatMul"}
    quantized = {name: fed[name] == "DequantizeLinear" for name in ("layer[0", "layer(1", "*2", "a+b", "scores")}
    assert quantized == {"layer[0": True, "layer(1": False, "*2": True, "a+b": True, "scores": False}
