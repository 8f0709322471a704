"""FLOPs and bytes of small graphs, counted by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from inferprof.case import Shape  # noqa: E402
from inferprof.model import cost  # noqa: E402

FLOAT, FLOAT16, INT64 = 1, 10, 7
node = onnx.helper.make_node


def weight(name: str, *shape: int, dtype: str = "float16") -> Any:
    return onnx.numpy_helper.from_array(np.ones(shape, dtype), name)


def value(name: str, dtype: int, *dims: int | str) -> Any:
    return onnx.helper.make_tensor_value_info(name, dtype, dims)


def counted(
    tmp_path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: list[Any], at: str = "b4"
) -> dict[str, Any]:
    body = onnx.helper.make_graph(nodes, "test", inputs, outputs, weights)
    opsets = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("trt", 1)]
    path = tmp_path / "m.onnx"
    onnx.save(onnx.helper.make_model(body, opset_imports=opsets, ir_version=10), path)
    return cost.cost(path, Shape.parse(at))


def numbers(result: dict[str, Any], name: str) -> tuple[Any, ...]:
    """flops, read, written, weights."""
    (found,) = (entry for entry in result["nodes"] if entry["name"] == name)
    return tuple(found[key] for key in ("flops", "read", "written", "weights"))


def test_a_matrix_product_is_two_flops_per_multiply_accumulate(tmp_path):
    found = counted(
        tmp_path,
        [node("MatMul", ["x", "w"], ["y"], "product")],
        [value("x", FLOAT16, "b", 64)],
        [value("y", FLOAT16, "b", 32)],
        [weight("w", 64, 32)],
    )
    assert numbers(found, "product") == (2 * 4 * 64 * 32, 4 * 64 * 2, 4 * 32 * 2, 64 * 32 * 2)
    assert {key: found[key] for key in ("shape", "inputs", "outputs", "weights")} == {
        "shape": "b4",
        "inputs": 512,
        "outputs": 256,
        "weights": 4096,
    }
    assert (found["nodes"][0]["dtype"], found["nodes"][0]["product"]) == ("float16", True)
    assert found["nodes"][0]["gemm"] == {"m": 4, "n": 32, "k": 64, "count": 1, "batch_in": "m"}


def test_weights_of_which_half_are_zeros_are_sparse_also_behind_a_transpose(tmp_path):
    pruned = np.ones((32, 64), "float16")
    pruned[:, ::2] = 0
    found = counted(
        tmp_path,
        [
            node("Transpose", ["pruned"], ["turned"], "turn", perm=[1, 0]),
            node("MatMul", ["x", "turned"], ["h"], "pruned"),
            node("MatMul", ["h", "dense"], ["y"], "dense"),
        ],
        [value("x", FLOAT16, "b", 64)],
        [value("y", FLOAT16, "b", 16)],
        [onnx.numpy_helper.from_array(pruned, "pruned"), weight("dense", 32, 16)],
    )
    assert {entry["name"]: entry["sparse"] for entry in found["nodes"]} == {"pruned": True, "dense": False}


def test_a_gemm_adds_its_bias(tmp_path):
    found = counted(
        tmp_path,
        [node("Gemm", ["x", "w", "c"], ["y"], "gemm", transB=1)],
        [value("x", FLOAT, "b", 8)],
        [value("y", FLOAT, "b", 3)],
        [weight("w", 3, 8, dtype="float32"), weight("c", 3, dtype="float32")],
    )
    assert numbers(found, "gemm") == (2 * 4 * 8 * 3 + 4 * 3, 4 * 8 * 4, 4 * 3 * 4, 3 * 8 * 4 + 3 * 4)


def test_a_convolution_is_its_implicit_gemm(tmp_path):
    """3 → 16 channels, 3 × 3, stride 2: 8 × 8 in, 3 × 3 out; in two groups half of the channels are multiplied."""
    inputs, outputs = [value("x", FLOAT, "b", 4, 8, 8)], [value("y", FLOAT, "b", 16, 3, 3)]
    whole = [node("Conv", ["x", "w", "c"], ["y"], "conv", strides=[2, 2])]
    weights = [weight("w", 16, 4, 3, 3, dtype="float32"), weight("c", 16, dtype="float32")]
    found = counted(tmp_path, whole, inputs, outputs, weights)
    size = 4 * 16 * 3 * 3
    assert numbers(found, "conv") == (2 * size * 4 * 9 + size, 4 * 4 * 8 * 8 * 4, size * 4, (16 * 4 * 9 + 16) * 4)
    grouped = [node("Conv", ["x", "w"], ["y"], "conv", strides=[2, 2], group=2)]
    found = counted(tmp_path, grouped, inputs, outputs, [weight("w", 16, 2, 3, 3, dtype="float32")])
    assert numbers(found, "conv")[0] == 2 * size * 2 * 9


def test_attention_is_its_two_products_and_the_softmax_between(tmp_path):
    """b heads of 16 queries by 16 keys of 8: QK^T, softmax over the scores, AV; the transpose moves the keys."""
    heads = ("b", 2, 16, 8)
    found = counted(
        tmp_path,
        [
            node("Transpose", ["k"], ["kt"], "turn", perm=[0, 1, 3, 2]),
            node("MatMul", ["q", "kt"], ["scores"], "qk"),
            node("Softmax", ["scores"], ["p"], "softmax", axis=-1),
            node("MatMul", ["p", "v"], ["y"], "av"),
        ],
        [value(name, FLOAT16, *heads) for name in "qkv"],
        [value("y", FLOAT16, *heads)],
        [],
    )
    one, scores = 4 * 2 * 16 * 8 * 2, 4 * 2 * 16 * 16
    assert numbers(found, "qk") == (2 * scores * 8, 2 * one, scores * 2, 0)
    assert numbers(found, "softmax") == (5 * scores, scores * 2, scores * 2, 0)
    assert numbers(found, "av") == (2 * 4 * 2 * 16 * 8 * 16, scores * 2 + one, one, 0)
    assert numbers(found, "turn") == (0, one, one, 0)
    assert (found["inputs"], found["outputs"], found["weights"]) == (3 * one, one, 0)


def test_what_renames_data_or_follows_from_constants_is_free(tmp_path):
    found = counted(
        tmp_path,
        [
            node("Shape", ["x"], ["all"], "shape", start=0, end=1),
            node("Concat", ["all", "rest"], ["target"], "target", axis=0),
            node("Reshape", ["x", "target"], ["r"], "reshape"),
            node("Transpose", ["w"], ["wt"], "turn", perm=[1, 0]),
            node("MatMul", ["r", "wt"], ["y"], "product"),
        ],
        [value("x", FLOAT16, "b", 2, 32)],
        [value("y", FLOAT16, "b", 16)],
        [weight("w", 16, 64), onnx.numpy_helper.from_array(np.array([64], np.int64), "rest")],
    )
    assert [entry["name"] for entry in found["nodes"]] == ["product"]
    assert (found["weights"], numbers(found, "product")[3]) == (2048, 2048)


def quantized(activation: str, scales: Any, block: int = 0) -> tuple[list[Any], list[Any]]:
    """x [b, 64] → MatMul to 32 with a weight in int8 and its scales; x goes through `activation` first."""
    blocks = {"axis": 0, "block_size": block} if block else {}
    nodes = [
        node(activation, ["x", "sx"], ["xq"], "quantize"),
        node("DequantizeLinear", ["xq", "sx"], ["xd"], "dequantize"),
        node("DequantizeLinear", ["w", "sw"], ["wd"], "weight", **blocks),
        node("MatMul", ["xd", "wd"], ["y"], "product"),
    ]
    return nodes, [weight("w", 64, 32, dtype="int8"), weight("sx", dtype="float16"), scales]


def test_quantized_operands_count_in_their_own_bits_with_their_scales(tmp_path):
    nodes, weights = quantized("QuantizeLinear", weight("sw", 4, 32), block=16)
    found = counted(tmp_path, nodes, [value("x", FLOAT16, "b", 64)], [value("y", FLOAT16, "b", 32)], weights)
    flops = 2 * 4 * 64 * 32
    assert numbers(found, "product") == (flops, 4 * 64 + 2, 4 * 32 * 2, 64 * 32 + 4 * 32 * 2)
    assert numbers(found, "quantize") == (2 * 4 * 64, 4 * 64 * 2, 4 * 64, 2)
    assert [entry["name"] for entry in found["nodes"]] == ["quantize", "product"]
    assert found["nodes"][1]["dtype"] == "uint8"


def test_four_bits_are_half_a_byte_and_a_dynamic_block_has_a_scale_of_a_byte(tmp_path):
    nodes = [
        node("TRT_FP4DynamicQuantize", ["x", "g"], ["xq", "xs"], "quantize", domain="trt", axis=-1, block_size=16),
        node("DequantizeLinear", ["xs", "g"], ["xs32"], "scales"),
        node("DequantizeLinear", ["xq", "xs32"], ["xd"], "dequantize", axis=-1, block_size=16),
        node("MatMul", ["xd", "w"], ["y"], "product"),
    ]
    weights = [weight("w", 64, 32), weight("g", dtype="float32")]
    found = counted(tmp_path, nodes, [value("x", FLOAT16, "b", 64)], [value("y", FLOAT16, "b", 32)], weights)
    assert numbers(found, "quantize")[1:3] == (4 * 64 * 2, 4 * 64 // 2 + 4 * 64 // 16)
    assert numbers(found, "product")[1] == 4 * 64 // 2 + 4 * 64 // 16


def test_of_an_embedding_table_the_rows_that_are_picked_count(tmp_path):
    found = counted(
        tmp_path,
        [node("Gather", ["table", "ids"], ["y"], "embed")],
        [value("ids", INT64, "b", 3)],
        [value("y", FLOAT16, "b", 3, 16)],
        [weight("table", 1000, 16)],
    )
    rows = 4 * 3 * 16 * 2
    assert numbers(found, "embed") == (0, 4 * 3 * 8, rows, rows)
    assert found["weights"] == rows


def test_elementwise_reductions_normalizations_and_poolings_count_their_elements(tmp_path):
    found = counted(
        tmp_path,
        [
            node("Add", ["x", "x"], ["a"], "add"),
            node("LayerNormalization", ["a", "g"], ["n"], "norm"),
            node("ReduceMean", ["n"], ["r"], "mean", keepdims=1),
            node("MaxPool", ["n"], ["y"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        ],
        [value("x", FLOAT, "b", 2, 8, 8)],
        [value("y", FLOAT, "b", 2, 4, 4), value("r", FLOAT, 1, 1, 1, 1)],
        [weight("g", 8, dtype="float32")],
    )
    size = 4 * 2 * 8 * 8
    assert numbers(found, "add") == (size, size * 4, size * 4, 0)
    assert numbers(found, "norm") == (7 * size, size * 4, size * 4, 8 * 4)
    assert numbers(found, "mean") == (size, size * 4, 4, 0)
    assert numbers(found, "pool") == (size // 4 * 4, size * 4, size, 0)


def test_what_is_not_known_is_not_zero(tmp_path):
    found = counted(
        tmp_path,
        [node("Magic", ["x"], ["m"], "magic", domain="trt"), node("MatMul", ["m", "w"], ["y"], "product")],
        [value("x", FLOAT16, "b", 64)],
        [value("y", FLOAT16, "b", 32)],
        [weight("w", 64, 32)],
    )
    assert numbers(found, "magic") == (None, 512, None, 0)
    assert numbers(found, "product") == (None, None, None, 4096)


def test_resnet_50_has_the_multiply_accumulates_that_it_is_known_for(shared):
    """torchvision states 4.09 GFLOPS of multiply-accumulates; the last layer has a bias of 1000."""
    found = cost.cost(shared / "real/onnx/onnx_light_resnet50.onnx", Shape.parse("b1"))
    assert sum(entry["flops"] for entry in found["nodes"] if entry["product"]) == 2 * 4_089_184_256 + 1000


def test_a_dimension_of_minus_one_is_a_size_that_is_not_told(shared):
    found = cost.cost(shared / "real/onnx/rapidocr_cls_mobile.onnx", Shape.parse("b1"))
    known = [entry["flops"] for entry in found["nodes"] if entry["flops"] is not None]
    assert len(known) > 100
    assert min(known) >= 0


def test_a_large_weight_is_not_needed_to_know_sizes(tmp_path):
    """A table of 1 MiB, cut to the sequence: what inference alone gives up on, and folding must not copy."""
    found = counted(
        tmp_path,
        [
            node("Shape", ["x"], ["sequence"], "shape", start=1, end=2),
            node("Slice", ["table", "zero", "sequence", "zero"], ["part"], "slice"),
            node("Add", ["x", "part"], ["y"], "add"),
        ],
        [value("x", FLOAT, "b", "s", 512)],
        [value("y", FLOAT, "b", "s", 512)],
        [weight("table", 512, 512, dtype="float32"), onnx.numpy_helper.from_array(np.array([0], np.int64), "zero")],
        at="b2_s64",
    )
    assert numbers(found, "add") == (2 * 64 * 512, 2 * 64 * 512 * 4, 2 * 64 * 512 * 4, 64 * 512 * 4)


def fused_attention(tmp_path: Path, q: tuple[Any, ...], kv: tuple[Any, ...], **heads: int) -> dict[str, Any]:
    nodes = [node("Attention", ["q", "k", "v"], ["y"], "attention", **heads)]
    inputs = [value("q", FLOAT16, *q), value("k", FLOAT16, *kv), value("v", FLOAT16, *kv)]
    body = onnx.helper.make_graph(nodes, "test", inputs, [value("y", FLOAT16, *q)], [])
    model = onnx.helper.make_model(body, opset_imports=[onnx.helper.make_opsetid("", 23)], ir_version=11)
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    return cost.cost(path, Shape.parse("b4"))


def test_attention_as_one_node_counts_as_much_as_in_three(tmp_path):
    """4 × 2 heads of 16 queries by 32 keys of 8 wide; flat, the heads share a dimension, and keys have fewer."""
    scores = 4 * 2 * 16 * 32
    flops = 2 * scores * 8 + 2 * scores * 8 + 5 * scores
    found = fused_attention(tmp_path, ("b", 2, 16, 8), ("b", 2, 32, 8))
    size = 4 * 2 * 8 * 2
    assert numbers(found, "attention") == (flops, size * (16 + 32 + 32), size * 16, 0)
    assert found["nodes"][0]["product"]
    grouped = fused_attention(tmp_path, ("b", 16, 2 * 8), ("b", 32, 8), q_num_heads=2, kv_num_heads=1)
    assert numbers(grouped, "attention")[0] == flops


@pytest.mark.parametrize("equation", ["bhqd, bhkd -> bhqk", "...qd,...kd->...qk", "b...qd,b...kd->b...qk"])
def test_an_einsum_of_two_is_the_product_of_all_its_subscripts(equation, tmp_path):
    nodes = [node("Einsum", ["q", "k"], ["y"], "einsum", equation=equation)]
    inputs = [value("q", FLOAT16, "b", 2, 16, 8), value("k", FLOAT16, "b", 2, 32, 8)]
    found = counted(tmp_path, nodes, inputs, [value("y", FLOAT16, "b", 2, 16, 32)], [])
    assert numbers(found, "einsum")[0] == 2 * 4 * 2 * 16 * 32 * 8


@pytest.mark.parametrize(
    ("equation", "shapes", "macs"),
    [
        ("bij,bjk,bkl->bil", [("b", 4, 8), ("b", 8, 16), ("b", 16, 32)], 4 * (4 * 8 * 16 + 4 * 16 * 32)),
        ("bi,bj,bk->bijk", [("b", 2), ("b", 3), ("b", 5)], 4 * (2 * 3 + 2 * 3 * 5)),
        ("bij,jk", [("b", 4, 8), (8, 2)], 4 * 4 * 8 * 2),
        ("b...i,...i->b", [("b", 3, 8), (1, 8)], 4 * 3 * 8),
    ],
)
def test_an_einsum_takes_in_its_operands_from_left_to_right(equation, shapes, macs, tmp_path):
    names = ("q", "k", "v")[: len(shapes)]
    nodes = [node("Einsum", list(names), ["y"], "einsum", equation=equation)]
    inputs = [value(name, FLOAT16, *shape) for name, shape in zip(names, shapes, strict=True)]
    found = counted(tmp_path, nodes, inputs, [value("y", FLOAT16)], [])
    assert numbers(found, "einsum")[0] == 2 * macs


def test_what_is_dequantized_for_the_caller_is_written_in_the_callers_type(tmp_path):
    number = onnx.numpy_helper.from_array
    found = counted(
        tmp_path,
        [
            node("QuantizeLinear", ["x", "s"], ["q"], "quantize"),
            node("DequantizeLinear", ["q", "s"], ["d"], "dequantize"),
            node("Transpose", ["d"], ["y"], "turn", perm=[1, 0]),
        ],
        [value("x", FLOAT, "b", 8)],
        [value("d", FLOAT, "b", 8), value("y", FLOAT, 8, "b")],
        [number(np.float32(0.1), "s")],
    )
    values = 4 * 8
    assert numbers(found, "dequantize") == (2 * values, values, 4 * values, 4)
    assert numbers(found, "turn")[2] == 4 * values
    assert found["outputs"] == 2 * 4 * values
