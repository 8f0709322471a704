"""Small residual networks with faults planted in them, and INT8 of them by hand."""

from __future__ import annotations

import dataclasses
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from inferprof.model import accuracy
from inferprof.model.model_spec import InputSpec, ModelSpec
from inferprof.plugins import ConvertRequest
from inferprof.precisions.int8 import INT8

WIDTH = 32
TAKEN = ("MatMul", "Gemm", "Conv")
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

    def attention(self, gain: float = 1.0) -> None:
        """Attention of two heads over the tokens; queries and keys are multiplied by `gain`, the scores divided."""
        split = self.integers([0, 0, 2, WIDTH // 2])
        q, k, v = (
            self.node("Reshape", self.node("MatMul", self.last, self.weight(scale)), split)
            for scale in (gain, gain, 1.0)
        )
        q, v = (self.node("Transpose", each, perm=[0, 2, 1, 3]) for each in (q, v))
        scores = self.node("MatMul", q, self.node("Transpose", k, perm=[0, 2, 3, 1]), name="scores")
        shares = self.node("Softmax", self.node("Div", scores, self.constant(4 * gain**2)), axis=-1)
        values = self.node("Transpose", self.node("MatMul", shares, v, name="values"), perm=[0, 2, 1, 3])
        self.last = self.node("Add", self.last, self.node("Reshape", values, self.integers([0, 0, WIDTH])))

    def integers(self, values: list[int]) -> str:
        name = next(self.names)
        self.weights[name] = np.array(values, np.int64)
        return name

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
    read = [name for node in graph.node if node.op_type in TAKEN for name in node.input]
    shown = onnx.ModelProto.FromString(model.SerializeToString())
    made = [name for name in read if name not in weights and name != "x"]
    del shown.graph.output[:]
    shown.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in made)
    data = {"x": np.random.default_rng(1).normal(size=(8, 4, WIDTH)).astype(np.float32)}
    seen = data | (dict(zip(made, accuracy.session(shown).run(made, data), strict=True)) if made else {})
    nodes = []
    for node in list(graph.node):
        for place, name in enumerate(node.input if node.op_type in TAKEN else ()):
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


TOY_INT8 = dataclasses.replace(INT8, convert=quantized, options={"exclude": []})


def request(model: Any, tmp_path: Path) -> ConvertRequest:
    onnx.save(model, tmp_path / "fp32.onnx")
    inputs = (InputSpec("x", "float32", ("b", 4, WIDTH), data="normal"),)
    spec = ModelSpec("toy", tmp_path / "toy.yaml", "onnx", inputs, options={"onnx": "fp32.onnx"})
    return ConvertRequest(tmp_path / "fp32.onnx", spec, {}, tmp_path / "out.onnx")
