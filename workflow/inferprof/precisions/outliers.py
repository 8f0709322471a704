"""Outlier channels of what a product reads, computed apart in high precision, so that one scale serves the others.

As LLM.int8 does (Dettmers et al. 2022), with channels that are chosen once: y = Q(x) Q(W) + Σ x_c w_c over the
outliers c, whose rows of W are 0 in the first product and whose values it clips. The sum is pointwise: an epilogue.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from inferprof.allowed import Allowed
from inferprof.model import onnx_file, onnx_graph, onnx_reader, typed_graph
from inferprof.model.operators import DEQUANTIZERS, QUANTIZERS, integers
from inferprof.plugins import ConvertRequest
from inferprof.precisions import results
from inferprof.sensitivity import switches

Array = np.ndarray[Any, Any]
APART = "/apart/"
"""In the names of the nodes that do it, which nothing quantizes."""
ALLOWS: Final[Mapping[str, Allowed]] = {
    "outliers": Allowed(
        lambda given: type(given) in (int, float) and (given == 0 or 1 < given < math.inf),
        "0 (off), or how many times the median channel's reach an outlier's is, such as 8",
    )
}
MOST = 4
"""Channels of a tensor that may be apart, the farthest of them: each is an addition to the result."""
WORTH = 0.8
"""Of the farthest channel's reach: what the channels that stay may reach for the others to be worth that."""


def apart(request: ConvertRequest, folder: Path) -> ConvertRequest:
    """The request, of a graph with outliers apart where option `outliers` asks."""
    times = float(str(request.options.get("outliers", 0)))
    if not times:
        return request
    model = onnx_file.tidied(onnx_reader.read(request.onnx, external=True))
    _Writer(model).write(request, times)
    path = folder / "apart.onnx"
    onnx_file.save(model, path)
    return dataclasses.replace(request, onnx=path)


def outliers(reach: Array, times: float) -> list[int]:
    """The channels that reach farther than so many times the median one, MOST at most; none where more of them would
    leave nearly that reach.
    """
    median = np.median(reach)
    far = [int(number) for number in np.argsort(-reach, kind="stable") if reach[number] > times * median > 0]
    if len(far) > MOST and reach[far[MOST]] > WORTH * reach[far[0]]:
        return []
    return sorted(far[:MOST])


def in_high_precision(model: Any) -> None:
    """Let what is computed apart read tensors as they are where a quantizer lends its result to all who read them.

    ModelOpt excludes these nodes, and still gives them what it quantized for another node that reads the same tensor.
    """
    made = {name: node for node in model.graph.node for name in node.output}
    for node in model.graph.node:
        if APART not in node.name or node.op_type in QUANTIZERS.keys() | DEQUANTIZERS:
            continue
        for place, name in enumerate(node.input):
            if pair := switches.quantized_by(name, made):
                node.input[place] = pair[0].input[0]
    switches.drop_unread(model.graph)


class _Writer:
    """Puts outliers of products of an activation and a stored matrix apart, in place."""

    def __init__(self, model: Any) -> None:
        self.model, self.graph = model, typed_graph.analyse(model, {})
        self.nodes: list[Any] = []

    def write(self, request: ConvertRequest, times: float) -> None:
        """Of every tensor that has some."""
        products = [node for node in self.model.graph.node if _fits(node, self.graph.weights)]
        read = sorted({node.input[0] for node in products})
        reaches = results.channels(self.model, read, self.graph.types, request)
        channels = {name: far for name, reach in reaches.items() if (far := outliers(reach, times))}
        chosen = {node.output[0] for node in products if node.input[0] in channels}
        columns: dict[str, list[str]] = {}
        for node in list(self.model.graph.node):
            if not node.output or node.output[0] not in chosen:
                self.nodes.append(node)
                continue
            tensor = node.input[0]
            if tensor not in columns:
                columns[tensor] = self._columns(tensor, reaches[tensor], channels[tensor])
            self._product(node, channels[tensor], columns[tensor])
        onnx_graph.replace_nodes(self.model, self.nodes)
        onnx_graph.drop_unread_weights(self.model.graph)

    def _add(self, op: str, inputs: list[str], out: str, **attributes: Any) -> str:
        import onnx

        name = out if APART in out else f"{out}{APART}sum"
        self.nodes.append(onnx.helper.make_node(op, inputs, [out], name, **attributes))
        return out

    def _store(self, name: str, array: Any) -> str:
        import onnx

        self.model.graph.initializer.append(onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def _columns(self, tensor: str, reach: Array, channels: list[int]) -> list[str]:
        """The outliers of a tensor one by one, then the tensor clipped to what the other channels reach."""
        top = np.delete(reach, channels).max().astype(np.float32)
        made = [
            self._add("Gather", [tensor, self._store(name, np.array([number]))], f"{name}/column", axis=-1)
            for number in channels
            if (name := f"{tensor}{APART}{number}")
        ]
        bounds = [self._store(f"{tensor}{APART}{end}", np.array(end * top)) for end in (-1, 1)]
        return [*made, self._add("Clip", [tensor, *bounds], f"{tensor}{APART}clipped")]

    def _product(self, node: Any, channels: list[int], columns: list[str]) -> None:
        """The product of the others, and what each outlier adds to it."""
        import onnx

        turned = integers(node).get("transB")
        weight = onnx.numpy_helper.to_array(self.graph.weights[node.input[1]])
        weight = np.array(weight.T if turned else weight)
        out, prefix = node.output[0], f"{node.output[0]}{APART}"
        rows = [self._store(f"{prefix}{number}", weight[number : number + 1]) for number in channels]
        weight[channels] = 0
        node.input[0], node.input[1] = columns[-1], self._store(f"{prefix}weight", weight.T if turned else weight)
        node.output[0] = last = f"{prefix}others"
        self.nodes.append(node)
        for column, row in zip(columns[:-1], rows, strict=True):
            part = self._add("Mul", [column, row], f"{row}/part")
            last = self._add("Add", [last, part], out if row is rows[-1] else f"{row}/sum")


def _fits(node: Any, weights: Mapping[str, Any]) -> bool:
    """Whether a node is a plain product of an activation and a stored matrix."""
    if node.op_type not in ("MatMul", "Gemm") or integers(node).get("transA"):
        return False
    scaled = any(attribute.name == "alpha" and attribute.f != 1 for attribute in node.attribute)
    left, right = node.input[:2]
    return not scaled and left not in weights and right in weights and len(weights[right].dims) == 2
