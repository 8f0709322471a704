"""INT4 weights in blocks along the reduction with a scale each; activations and arithmetic stay in half precision."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from inferprof import progress
from inferprof.allowed import one_of
from inferprof.model import onnx_graph, onnx_reader, typed_graph
from inferprof.model.operators import integers
from inferprof.plugins import ConvertRequest, Precision, Tolerance
from inferprof.precisions import autocast, conversion, ptq

METHODS = {"awq": "awq_lite", "awq_clip": "awq_clip", "rtn": "rtn_dq"}
"""Values of the option `calibration` → ModelOpt's name: AWQ's scales by activations, its clipping, rounding alone."""
OPTIONS: dict[str, Any] = {
    "calibration": "awq",
    "samples": 16,
    "block": 128,
    "high_precision": "fp16",
    "exclude": [],
}
ALLOWS = {
    "calibration": one_of(*METHODS),
    **conversion.SAMPLES,
    "block": one_of(32, 64, 128),
    **ptq.AROUND,
}


def convert(request: ConvertRequest) -> dict[str, Any]:
    """Write the graph with 4-bit weights. A reduction that is no multiple of the block is padded with zeros.

    Products whose weight is the first operand, or whose activation is transposed, are left and named.
    """
    method, block = METHODS[str(request.options["calibration"])], int(str(request.options["block"]))
    high = str(request.options["high_precision"])
    exclude: Any = request.options["exclude"]
    batches = conversion.calibration(request)
    progress.step("convert")
    with tempfile.TemporaryDirectory() as folder, conversion.modelopt(request.onnx):
        import onnx
        from modelopt.onnx.quantization import int4

        source = conversion.prepared(request.onnx, Path(folder))
        model = onnx_reader.read(source, external=True)
        padded, left = fit(model, block)
        onnx.save(model, source)
        quantized = int4.quantize(
            str(source),
            calibration_method=method,
            calibration_data_reader=ptq.reader(batches),
            calibration_eps=["cpu"],
            use_external_data_format=False,
            block_size=block,
            nodes_to_exclude=[*exclude, *map(re.escape, left)],
            log_level="ERROR",
            awqlite_fuse_nodes=not _scaled_by_weights(model),
        )
    conversion.save(autocast.rest(quantized, high, request.onnx), request.out)
    return conversion.facts(
        f"ModelOpt INT4 weights in blocks of {block}, {method}, the rest in {high}{conversion.if_nothing(quantized)}",
        padded=padded,
        left=left,
        **conversion.calibration_facts(request, batches),
    )


def _scaled_by_weights(model: Any) -> bool:
    """Whether a product's activation is made with a weight: ModelOpt fuses AWQ's scales into it, and breaks there
    without CuPy."""
    from modelopt.onnx.op_types import is_fusible_scaling_op

    weights = {weight.name for weight in model.graph.initializer}
    scaled = {
        name
        for node in model.graph.node
        if is_fusible_scaling_op(node.op_type) and weights.intersection(node.input)
        for name in node.output
    }
    return any(node.op_type in ("MatMul", "Gemm") and node.input[0] in scaled for node in model.graph.node)


def _fits(node: Any, flags: Mapping[str, int], weights: Mapping[str, Any], shapes: Mapping[str, Any]) -> bool:
    """Whether a product multiplies an activation of known rank by a matrix on its right."""
    right = weights.get(node.input[1])
    alone = right is not None and node.input[0] not in weights and len(right.dims) == 2
    return alone and not flags.get("transA") and node.input[0] in shapes


def fit(model: Any, block: int) -> tuple[list[str], list[str]]:
    """Give each product a weight [k, n] whose k is a multiple of the block; names of the padded and of those left.

    The activation is padded with zeros as its weight is, so that the result is the same.
    """
    import onnx

    graph = typed_graph.analyse(model, {})
    weights = {weight.name: weight for weight in model.graph.initializer}
    nodes, padded, left = [], [], []
    for node in model.graph.node:
        sides = [name for name in node.input[:2] if name in weights] if node.op_type in ("MatMul", "Gemm") else []
        flags = integers(node)
        if sides and not _fits(node, flags, weights, graph.shapes):
            left.append(node.name)
        elif sides:
            array = onnx.numpy_helper.to_array(weights[sides[0]])
            array = array.T if flags.get("transB") else array
            missing = -len(array) % block
            if missing:
                padded.append(node.name)
                rank = len(graph.shapes[node.input[0]])
                pads = np.array([*[0] * (2 * rank - 1), missing], np.int64)
                model.graph.initializer.append(onnx.numpy_helper.from_array(pads, f"{node.name}/pads"))
                wide = f"{node.name}/padded"
                pad = onnx.helper.make_node("Pad", [node.input[0], f"{node.name}/pads"], [wide], f"{node.name}/Pad")
                nodes.append(pad)
                node.input[0] = wide
            node.input[1] = f"{node.name}/weight"  # two nodes that share a weight may want it in two forms
            array = np.pad(array, ((0, missing), (0, 0)))
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, node.input[1]))
            kept = [attribute for attribute in node.attribute if attribute.name != "transB"]
            del node.attribute[:]
            node.attribute.extend(kept)
        nodes.append(node)
    onnx_graph.replace_nodes(model, nodes)
    onnx_graph.drop_unread_weights(model.graph)
    return padded, left


INT4 = Precision(
    name="int4",
    title="INT4 weights",
    source="onnx",
    made_by="ModelOpt, AWQ or round to nearest, weights alone",
    convert=convert,
    tolerance=Tolerance(
        passes=12.0,
        warns=6.0,
        reason="15 steps over a block's range: 20 dB for one weight; 12 dB leaves room for some six in a row",
    ),
    storage="float16",
    computes="fp16",
    roof="fp16",
    quantized=True,
    colour="#332288",
    order=75,
    options=OPTIONS,
    allows=ALLOWS,
    needs_compute_capability=(7, 5),
)
