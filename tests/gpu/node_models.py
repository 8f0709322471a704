"""ONNX models for the join of kernels with nodes: two transformers, twenty operators, and one that must fall back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

WIDTH, HEADS, LAYERS = 768, 12, 4
ROWS = 64 * 512
"""Rows of WIDTH floats that an operator works on: 96 MiB, more than the L2 of an H100 can hold."""
YAML = "source: onnx\nonnx: {name}.onnx\ninputs:\n{inputs}"
OPERATORS: dict[str, dict[str, Any]] = {
    "Add": {"inputs": ["x", "row"]},
    "AveragePool": {"inputs": ["image"], "kernel_shape": [2, 2], "strides": [2, 2]},
    "Clip": {"inputs": ["x", "low", "high"]},
    "Concat": {"inputs": ["x", "x"], "axis": 1},
    "Conv": {"inputs": ["image", "kernel"], "pads": [1, 1, 1, 1]},
    "CumSum": {"inputs": ["short", "axis"]},
    "Erf": {"inputs": ["x"]},
    "Exp": {"inputs": ["x"]},
    "Gather": {"inputs": ["x", "indices"]},
    "Gemm": {"inputs": ["x", "matrix"]},
    "LayerNormalization": {"inputs": ["x", "row", "row"]},
    "MatMul": {"inputs": ["x", "matrix"]},
    "MaxPool": {"inputs": ["image"], "kernel_shape": [2, 2], "strides": [2, 2]},
    "Mul": {"inputs": ["x", "x"]},
    "ReduceMean": {"inputs": ["x"], "axes": [1]},
    "Relu": {"inputs": ["x"]},
    "Sigmoid": {"inputs": ["x"]},
    "Softmax": {"inputs": ["x"], "axis": 1},
    "Tanh": {"inputs": ["x"]},
    "Transpose": {"inputs": ["x"], "perm": [1, 0]},
}
"""Operator → inputs and attributes of the node that has it; every one has its own kernel on the CUDA EP."""
UNREDUCED = {"Transpose"}
"""ONNX Runtime's optimizer drops a transpose in front of a reduction."""
DATA: dict[str, tuple[int, ...]] = {"x": (ROWS, WIDTH), "image": (64, 32, 112, 112), "short": (4096, WIDTH)}


class Graph:
    """A graph in the making; weights are random, seeded and of one type."""

    def __init__(self, dtype: Any = np.float16) -> None:
        self.dtype = dtype
        self.nodes: list[Any] = []
        self.weights: dict[str, np.ndarray[Any, Any]] = {}
        self._rng = np.random.default_rng(0)

    def weight(self, name: str, *shape: int) -> str:
        self.weights[name] = (self._rng.standard_normal(shape, np.float32) * 0.02).astype(self.dtype)
        return name

    def constant(self, name: str, value: Any, dtype: Any = np.int64) -> str:
        self.weights[name] = np.array(value, dtype)
        return name

    def node(self, op_type: str, inputs: list[str], name: str, **attributes: Any) -> str:
        import onnx

        self.nodes.append(onnx.helper.make_node(op_type, inputs, [name], name=name, **attributes))
        return name

    def save(self, path: Path, inputs: dict[str, tuple[Any, ...]], outputs: list[str]) -> Path:
        """Inputs: name → (type, dimensions). With a YAML file beside it that feeds integers below 1000."""
        import onnx

        helper = onnx.helper
        types = {name: helper.np_dtype_to_tensor_dtype(np.dtype(dtype)) for name, (dtype, _) in inputs.items()}
        model = helper.make_model(
            helper.make_graph(
                self.nodes,
                path.stem,
                [helper.make_tensor_value_info(name, types[name], dims) for name, (_, dims) in inputs.items()],
                [onnx.ValueInfoProto(name=name) for name in outputs],
                [onnx.numpy_helper.from_array(value, name) for name, value in self.weights.items()],
            ),
            opset_imports=[helper.make_opsetid("", 17)],
            ir_version=8,
        )
        onnx.save(onnx.shape_inference.infer_shapes(model), path)
        data = {
            name: "integers:1000" if np.dtype(dtype).kind == "i" else "normal" for name, (dtype, _) in inputs.items()
        }
        lines = [
            f"  - {{name: {name}, dtype: {np.dtype(dtype)}, dims: {list(dims)}, data: '{data[name]}'}}".replace(
                "'b'", "b"
            )
            for name, (dtype, dims) in inputs.items()
        ]
        path.with_suffix(".yaml").write_text(YAML.format(name=path.stem, inputs="\n".join(lines)) + "\n")
        return path


def vit(path: Path) -> Path:
    """x [b, 3, 224, 224] → patches of 16 → LAYERS blocks as wide as ViT-B's."""
    graph = Graph()
    patches = graph.node("Conv", ["x", graph.weight("patch", WIDTH, 3, 16, 16)], "patches", strides=[16, 16])
    flat = graph.node("Reshape", [patches, graph.constant("flat_shape", [0, 0, 196])], "flat")
    tokens = graph.node("Transpose", [flat], "tokens", perm=[0, 2, 1])
    placed = graph.node("Add", [tokens, graph.weight("places", 196, WIDTH)], "placed")
    return graph.save(path, {"x": (np.float16, ("b", 3, 224, 224))}, [_blocks(graph, placed)])


def bert(path: Path) -> Path:
    """ids [b, 128] → embeddings → LAYERS blocks as wide as BERT-base's."""
    graph = Graph()
    words = graph.node("Gather", [graph.weight("vocabulary", 1000, WIDTH), "ids"], "words")
    placed = graph.node("Add", [words, graph.weight("places", 128, WIDTH)], "placed")
    return graph.save(path, {"ids": (np.int64, ("b", 128))}, [_blocks(graph, placed)])


def _blocks(graph: Graph, x: str) -> str:
    for layer in range(LAYERS):
        x = _block(graph, x, f"/layer.{layer}")
    return x


def _block(graph: Graph, x: str, at: str) -> str:
    """Attention and a feed-forward net, each behind a normalization and around a residual."""
    ones = graph.constant(f"{at}/scale", np.ones(WIDTH), graph.dtype)
    size = WIDTH // HEADS

    def linear(x: str, name: str, wide: int, narrow: int) -> str:
        product = graph.node("MatMul", [x, graph.weight(f"{at}/{name}/w", wide, narrow)], f"{at}/{name}/MatMul")
        return graph.node("Add", [product, graph.weight(f"{at}/{name}/b", narrow)], f"{at}/{name}/Add")

    def heads(name: str, perm: list[int]) -> str:
        split = graph.constant(f"{at}/{name}/heads", [0, 0, HEADS, size])
        shaped = graph.node("Reshape", [linear(normal, name, WIDTH, WIDTH), split], f"{at}/{name}/Reshape")
        return graph.node("Transpose", [shaped], f"{at}/{name}/Transpose", perm=perm)

    normal = graph.node("LayerNormalization", [x, ones], f"{at}/norm1")
    q, k, v = heads("q", [0, 2, 1, 3]), heads("k", [0, 2, 3, 1]), heads("v", [0, 2, 1, 3])
    scores = graph.node("MatMul", [q, k], f"{at}/scores")
    scaled = graph.node("Mul", [scores, graph.constant(f"{at}/root", size**-0.5, graph.dtype)], f"{at}/scaled")
    mixed = graph.node("MatMul", [graph.node("Softmax", [scaled], f"{at}/softmax", axis=-1), v], f"{at}/mixed")
    back = graph.node("Transpose", [mixed], f"{at}/back", perm=[0, 2, 1, 3])
    joined = graph.node("Reshape", [back, graph.constant(f"{at}/joined_shape", [0, 0, WIDTH])], f"{at}/joined")
    x = graph.node("Add", [x, linear(joined, "out", WIDTH, WIDTH)], f"{at}/residual1")
    normal = graph.node("LayerNormalization", [x, ones], f"{at}/norm2")
    wide = graph.node("Tanh", [linear(normal, "up", WIDTH, 4 * WIDTH)], f"{at}/tanh")
    return graph.node("Add", [x, linear(wide, "down", 4 * WIDTH, WIDTH)], f"{at}/residual2")


def operators(path: Path, chosen: list[str], *, reduced: bool) -> Path:
    """The chosen OPERATORS side by side; `reduced`: each behind a reduction, so that little is copied to the host."""
    graph = Graph(np.float32)
    for name, shape in {"matrix": (WIDTH, WIDTH), "row": (WIDTH,), "kernel": (32, 32, 3, 3)}.items():
        graph.weight(name, *shape)
    graph.constant("low", -1, np.float32)
    graph.constant("high", 1, np.float32)
    graph.constant("axis", 1)
    graph.constant("indices", np.random.default_rng(1).permutation(ROWS))
    graph.constant("axes", [0])
    for op_type in chosen:
        attributes = dict(OPERATORS[op_type])
        graph.node(op_type, attributes.pop("inputs"), op_type, **attributes)
        if reduced and op_type not in UNREDUCED:
            graph.node("ReduceMax", [op_type], f"{op_type}_max", keepdims=0)
    used = {name for node in graph.nodes for name in node.input}
    graph.weights = {name: value for name, value in graph.weights.items() if name in used}
    inputs = {name: (np.float32, shape) for name, shape in DATA.items() if name in used}
    outputs = [f"{name}_max" if reduced and name not in UNREDUCED else name for name in chosen]
    return graph.save(path, inputs, outputs)


def fallback(path: Path) -> Path:
    """x [b, 64, 64] → MatMul → Det, for which the CUDA EP has no kernel → Exp."""
    graph = Graph(np.float32)
    product = graph.node("MatMul", ["x", graph.weight("w", 64, 64)], "product")
    determinant = graph.node("Det", [product], "determinant")
    graph.node("Exp", [determinant], "y")
    return graph.save(path, {"x": (np.float32, ("b", 64, 64))}, ["y"])
