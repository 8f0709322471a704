"""Products of ONNX Runtime's own operators, and shapes behind them, against the same work in ONNX's operators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from inferprof.case import Shape
from inferprof.model.audit import audit
from inferprof.model.cost import cost

F = TensorProto.FLOAT
Dims = list[int]


def weight(name: str, *dims: int, dtype: str = "float32") -> Any:
    return numpy_helper.from_array(np.ones(dims, dtype), name)


def saved(folder: Path, node: Any, inputs: dict[str, Dims], weights: list[Any], *, behind: int = 0) -> Path:
    """A graph of the node, and behind it a MatMul with [`behind`, 32] where that is asked for."""
    nodes, result = [node], node.output[0]
    if behind:
        nodes.append(helper.make_node("MatMul", [result, "behind"], ["last"], name="last"))
        weights, result = [*weights, weight("behind", behind, 32)], "last"
    types = {"ids": TensorProto.INT64, "lengths": TensorProto.INT32, "bytes": TensorProto.UINT8}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, types.get(name, F), dims) for name, dims in inputs.items()],
        [helper.make_tensor_value_info(result, F, None)],
        weights,
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    path = folder / "a.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


def made(kind: str, *inputs: str, **attributes: Any) -> Any:
    return helper.make_node(kind, list(inputs), ["y"], name="it", domain="com.microsoft", **attributes)


X = {"x": [2, 16, 64]}
CASES: dict[str, tuple[Any, dict[str, Dims], list[Any], int]] = {
    "fused, transposed": (made("FusedMatMul", "x", "k", transB=1), X | {"k": [2, 24, 64]}, [], 2 * 16 * 64 * 24),
    "gemm": (made("FusedGemm", "a", "w", transB=1), {"a": [5, 64]}, [weight("w", 32, 64)], 5 * 64 * 32),
    "gelu behind": (made("GemmFastGelu", "x", "w"), X, [weight("w", 64, 32)], 2 * 16 * 64 * 32),
    "convolution": (
        made("FusedConv", "i", "w", pads=[1, 1, 1, 1], activation="Relu"),
        {"i": [1, 3, 16, 16]},
        [weight("w", 8, 3, 3, 3)],
        256 * 8 * 27,
    ),
    "steps through a sequence": (
        made("DynamicQuantizeLSTM", "t", "w", "r", hidden_size=8, direction="bidirectional"),
        {"t": [16, 2, 24]},
        [weight("w", 2, 24, 32, dtype="int8"), weight("r", 2, 8, 32, dtype="int8")],
        16 * 2 * 2 * 32 * (24 + 8),
    ),
    "packed weight": (
        made("MatMulNBits", "x", "w", "s", K=64, N=96, bits=4, block_size=32),
        X,
        [weight("w", 96, 2, 16, dtype="uint8"), weight("s", 192)],
        2 * 16 * 64 * 96,
    ),
    "attention with weights": (
        made("Attention", "x", "w", "b", num_heads=4),
        X,
        [weight("w", 64, 192), weight("b", 192)],
        2 * 16 * 64 * 192 + 2 * 4 * 16 * 16 * 32,
    ),
    "cross attention": (
        made("MultiHeadAttention", "x", "k", "v", num_heads=8),
        X | {"k": [2, 24, 64], "v": [2, 24, 64]},
        [],
        2 * 8 * 16 * 24 * 16,
    ),
    "grouped queries, one tensor, with a past": (
        made("GroupQueryAttention", "x", "", "", "pk", "pv", "lengths", num_heads=4, kv_num_heads=2),
        X | {"pk": [2, 2, 31, 8], "pv": [2, 2, 31, 8], "lengths": [2]},
        [],
        2 * 4 * 16 * 47 * 16,
    ),
    "experts": (
        made("MoE", "x", "r", "u", "", "d", k=2),
        X | {"r": [32, 8]},
        [weight("u", 8, 64, 128), weight("d", 8, 128, 64)],
        32 * 2 * 2 * 64 * 128,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_products_of_onnx_runtimes_operators_are_counted(name: str, tmp_path: Path) -> None:
    node, inputs, weights, macs = CASES[name]
    result = audit(saved(tmp_path, node, inputs, weights), None, None)
    assert (result["macs"], result["products_of_unknown_size"], result["uncounted_domains"]) == (macs, [], [])
    (counted,) = cost(tmp_path / "a.onnx", Shape.parse("b1"))["nodes"]
    assert counted["flops"] >= 2 * macs


@pytest.mark.parametrize(
    ("node", "inputs", "weights", "width"),
    [
        (
            made("RotaryEmbedding", "x", "ids", "c", "s"),
            X | {"ids": [2, 16]},
            [weight("c", 9, 8), weight("s", 9, 8)],
            64,
        ),
        (made("SkipSimplifiedLayerNormalization", "x", "k", "g"), X | {"k": [2, 16, 64]}, [weight("g", 64)], 64),
        (made("MatMulNBits", "x", "w", "x", K=64, N=96), X, [weight("w", 96, 2, 16, dtype="uint8")], 96),
        (
            made("GroupQueryAttention", "x", "", "", "", "", "lengths", num_heads=4, kv_num_heads=2),
            X | {"lengths": [2]},
            [],
            32,
        ),
        (
            made("EmbedLayerNormalization", "ids", "", "w", "p", "", "g", "b"),
            {"ids": [2, 16]},
            [weight("w", 9, 48), weight("p", 16, 48), weight("g", 48), weight("b", 48)],
            48,
        ),
    ],
)  # fmt: skip
def test_what_is_behind_them_has_its_sizes(
    node: Any, inputs: dict[str, Dims], weights: list[Any], width: int, tmp_path: Path
) -> None:
    result = audit(saved(tmp_path, node, inputs, weights, behind=width), None, None)
    assert result["products_of_unknown_size"] == []
    assert result["macs"] % (2 * 16 * width * 32) in (0, result["macs"] - 2 * 16 * width * 32)
    assert result["macs"] >= 2 * 16 * width * 32


def test_an_operator_that_quantizes_its_input_itself_computes_in_the_weights_type(tmp_path: Path) -> None:
    node = made("DynamicQuantizeMatMul", "x", "w", "s")
    path = saved(tmp_path, node, X, [weight("w", 64, 32, dtype="int8"), weight("s")])
    assert audit(path, None, None)["macs_share"] == {"int8": 1.0}


def test_a_table_in_bytes_tells_no_width(tmp_path: Path) -> None:
    node = made("GatherBlockQuantized", "w", "ids", "s", block_size=32)
    path = saved(tmp_path, node, {"ids": [2, 16]}, [weight("w", 9, 32, dtype="uint8"), weight("s", 9, 2)], behind=64)
    assert audit(path, None, None)["products_of_unknown_size"] == ["last"]


def test_operators_that_are_not_known_are_said_to_count_as_nothing(tmp_path: Path) -> None:
    node = made("PackedMultiHeadAttention", "x", "x", "x", num_heads=4)
    assert audit(saved(tmp_path, node, X, []), None, None)["uncounted_domains"] == ["com.microsoft"]
