"""The audit: multiply-accumulates by type with exact counts, sizes that waste tiles, and claims that are not true."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.facts import facts, mentions, states

onnx = pytest.importorskip("onnx")

from inferprof.case import Shape  # noqa: E402
from inferprof.model import audit, inference  # noqa: E402

FLOAT, FLOAT16, INT8, INT64 = 1, 10, 3, 7
B8 = Shape.parse("b8")
node = onnx.helper.make_node


def weight(name: str, *shape: int, dtype: str = "float16") -> Any:
    return onnx.numpy_helper.from_array(np.ones(shape, dtype), name)


def value(name: str, dtype: int, *dims: int | str) -> Any:
    return onnx.helper.make_tensor_value_info(name, dtype, dims)


def save(path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: list[Any]) -> Path:
    body = onnx.helper.make_graph(nodes, "test", inputs, outputs, weights)
    opsets = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("trt", 1)]
    onnx.save(onnx.helper.make_model(body, opset_imports=opsets, ir_version=10), path)
    return path


def two_layers(path: Path, second: str = "float16") -> Path:
    """x [b, 64] → MatMul to 32 → MatMul to 16, the second in `second` behind a Cast."""
    number = FLOAT if second == "float32" else FLOAT16
    nodes = [
        node("MatMul", ["x", "w1"], ["h"], "first"),
        node("Cast", ["h"], ["h2"], "cast", to=number),
        node("MatMul", ["h2", "w2"], ["y"], "second"),
    ]
    weights = [weight("w1", 64, 32), weight("w2", 32, 16, dtype=second)]
    return save(path, nodes, [value("x", FLOAT16, "b", 64)], [value("y", number, "b", 16)], weights)


def test_macs_and_weight_bytes_are_counted_exactly(tmp_path: Path) -> None:
    found = audit.audit(two_layers(tmp_path / "m.onnx"), "fp16", B8)
    assert found["macs"] == 8 * (64 * 32 + 32 * 16)
    assert found["macs_share"] == {"float16": 1.0}
    assert found["weight_bytes"] == {"float16": 2 * (64 * 32 + 32 * 16)}
    assert (found["casts"], found["quantizers"], found["dequantizers"]) == (1, 0, 0)
    assert (found["high_precision"], found["advice"]) == ([], [])


def test_products_behind_computed_shapes_are_counted(tmp_path: Path) -> None:
    """What torch's exporter writes for attention: the sequence by Shape with a start, a Slice and a Reshape by it."""
    nodes = [
        node("Shape", ["x"], ["sequence"], "shape", start=1, end=2),
        node("Slice", ["table", "zero", "sequence", "zero"], ["part"], "slice"),
        node("Add", ["x", "part"], ["sum"], "add"),
        node("Shape", ["x"], ["batch"], "shape_1", end=1),
        node("Concat", ["batch", "sequence", "split"], ["target"], "concat", axis=0),
        node("Reshape", ["sum", "target"], ["heads"], "reshape"),
        node("Transpose", ["heads"], ["left"], "left", perm=[0, 2, 1, 3]),
        node("Transpose", ["heads"], ["right"], "right", perm=[0, 2, 3, 1]),
        node("MatMul", ["left", "right"], ["y"], "scores"),
    ]
    weights = [
        weight("table", 512, 64, dtype="float32"),
        onnx.numpy_helper.from_array(np.array([0], np.int64), "zero"),
        onnx.numpy_helper.from_array(np.array([4, 16], np.int64), "split"),
    ]
    inputs, outputs = [value("x", FLOAT, "b", "s", 64)], [value("y", FLOAT, "b", 4, "s", "s")]
    path = save(tmp_path / "m.onnx", nodes, inputs, outputs, weights)
    found = audit.audit(path, "fp32", Shape.parse("b2_s128"))
    assert found["macs"] == 2 * 4 * 128 * 128 * 16
    assert found["products_of_unknown_size"] == []


def test_what_onnx_runtime_says_while_it_folds_is_not_shown(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It warns of an Unsqueeze that it cannot remove, since its result is asked for."""
    import onnxruntime

    constants = {"one": np.array(1), "zero": np.array([0])}
    weights = [onnx.numpy_helper.from_array(array.astype(np.int64), name) for name, array in constants.items()]
    nodes = [node("Unsqueeze", ["one", "zero"], ["y"], "kept")]
    path = save(tmp_path / "m.onnx", nodes, [], [value("y", INT64, 1)], weights)
    with inference._without_warnings():
        onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert capfd.readouterr().err == ""
    onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert mentions(capfd.readouterr().err, "UnsqueezeElimination cannot remove", "kept")


def test_a_product_whose_output_has_no_known_size_is_listed_and_no_share_is_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    nodes = [node("Magic", ["x"], ["m"], "magic", domain="trt"), node("Conv", ["m", "w"], ["y"], "conv")]
    inputs, outputs = [value("x", FLOAT, "b", 3, 8, 8)], [value("y", FLOAT, "b", 16, 6, 6)]
    path = save(tmp_path / "m.onnx", nodes, inputs, outputs, [weight("w", 16, 3, 3, 3, dtype="float32")])
    found = audit.audit(path, None, B8)
    assert (found["macs"], found["macs_share"], found["products_of_unknown_size"]) == (0, {}, ["conv"])
    assert facts(found["advice"][0], "products")[:4] == ["1", "1", "products", "only"]
    assert facts(found["advice"][-1], "products", "trt") == [
        "TensorRT",
        "only",
        "trt",
        "Magic",
        "products",
        "nothing",
    ]
    assert [file.name for file in tmp_path.iterdir()] == ["m.onnx"]


def test_a_planted_lie_is_flagged_by_name(tmp_path: Path) -> None:
    found = audit.audit(two_layers(tmp_path / "m.onnx", "float32"), "fp16", B8)
    assert found["macs_share"] == {"float16": 0.8, "float32": 0.2}
    assert found["high_precision"] == [{"name": "second", "dtype": "float32", "macs_share": 0.2, "with_weight": True}]
    assert facts(found["advice"][0], "products", "second", "weights") == [
        "1",
        "2",
        "products",
        "weights",
        "20.0%",
        "MACs",
        "not",
        "fp16",
        "second",
        "float32",
    ]
    assert facts(found["advice"][1], "weights") == ["33.3%", "weights", "float32", "fp16"]


def test_without_a_claim_nothing_is_a_lie(tmp_path: Path) -> None:
    assert audit.audit(two_layers(tmp_path / "m.onnx", "float32"), None, B8)["high_precision"] == []


def quantized(path: Path, activation: bool) -> Path:
    """x [b, 32] → MatMul to 32 whose weight, and on request whose activation, goes through INT8, past a Transpose."""
    nodes = [
        node("QuantizeLinear", ["x", "scale", "zero"], ["xq"], "qx"),
        node("DequantizeLinear", ["xq", "scale", "zero"], ["xd"], "dqx"),
        node("QuantizeLinear", ["w", "scale", "zero"], ["wq"], "qw"),
        node("DequantizeLinear", ["wq", "scale", "zero"], ["wd"], "dqw"),
        node("Transpose", ["wd"], ["wt"], "turn", perm=[1, 0]),
        node("MatMul", ["xd" if activation else "x", "wt"], ["y"], "product"),
    ]
    weights = [
        weight("w", 32, 32, dtype="float32"),
        weight("scale", dtype="float32"),
        onnx.numpy_helper.from_array(np.array(0, np.int8), "zero"),
    ]
    return save(path, nodes, [value("x", FLOAT, "b", 32)], [value("y", FLOAT, "b", 32)], weights)


def test_a_product_counts_as_what_both_its_operands_were_dequantized_from(tmp_path: Path) -> None:
    found = audit.audit(quantized(tmp_path / "m.onnx", activation=True), "int8", B8)
    assert (found["macs_share"], found["high_precision"]) == ({"int8": 1.0}, [])
    assert (found["quantizers"], found["dequantizers"]) == (2, 2)


def test_a_product_with_a_quantized_weight_alone_computes_in_float(tmp_path: Path) -> None:
    found = audit.audit(quantized(tmp_path / "m.onnx", activation=False), "int8", B8)
    assert found["macs_share"] == {"float32": 1.0}
    assert [entry["name"] for entry in found["high_precision"]] == ["product"]


def test_blocks_of_tensorrt_are_seen_through_their_own_operators_and_casts(tmp_path: Path) -> None:
    nodes = [
        node("TRT_FP4DynamicQuantize", ["x", "scale"], ["xq", "xs"], "qx", domain="trt", axis=-1, block_size=16),
        node("DequantizeLinear", ["xs", "scale"], ["xd"], "dqs"),
        node("DequantizeLinear", ["xq", "xd"], ["xf"], "dqx", axis=-1, block_size=16),
        node("Cast", ["xf"], ["xh"], "half", to=FLOAT16),
        node("DequantizeLinear", ["w", "ws"], ["wf"], "dqw", axis=0, block_size=16),
        node("Cast", ["wf"], ["wh"], "half_w", to=FLOAT16),
        node("MatMul", ["xh", "wh"], ["y"], "product"),
    ]
    four_bit = onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT4E2M1, [32, 16], bytes(256), raw=True)
    weights = [weight("scale", dtype="float32"), four_bit, weight("ws", 2, 16, dtype="float32")]
    path = save(tmp_path / "m.onnx", nodes, [value("x", FLOAT16, "b", 32)], [value("y", FLOAT16, "b", 16)], weights)
    found = audit.audit(path, "nvfp4", B8)
    assert found["macs_share"] == {"float4e2m1": 1.0}
    assert found["weight_bytes"]["float4e2m1"] == 256
    assert found["foreign_domains"] == {"trt": ["TRT_FP4DynamicQuantize"]}
    assert facts(found["advice"][-1], "trt") == ["TensorRT", "only", "trt", "TRT_FP4DynamicQuantize"]


def test_an_operator_that_onnx_lacks_is_named_and_said_to_count_as_nothing(tmp_path: Path) -> None:
    nodes = [onnx.helper.make_node("EfficientNMS_TRT", ["x"], ["y"])]
    path = save(tmp_path / "m.onnx", nodes, [value("x", 1, 1, 8)], [value("y", 1, 1, 8)], [])
    found = audit.audit(path, None, None)
    assert found["foreign_domains"] == {"": ["EfficientNMS_TRT"]}
    assert found["uncounted_domains"] == [""] and mentions(found["advice"][-1], "EfficientNMS_TRT", "nothing")


def test_attention_over_197_tokens_would_be_padded_to_208(tmp_path: Path) -> None:
    nodes = [
        node("Transpose", ["k"], ["kt"], "turn", perm=[0, 2, 1]),
        node("MatMul", ["q", "kt"], ["scores"], "scores"),
        node("Softmax", ["scores"], ["weights"], "softmax", axis=-1),
        node("MatMul", ["weights", "v"], ["y"], "mix"),
    ]
    inputs = [value(name, FLOAT16, "b", 197, 64) for name in "qkv"]
    found = audit.audit(save(tmp_path / "m.onnx", nodes, inputs, [value("y", FLOAT16, "b", 197, 64)], []), "fp16", B8)
    assert found["macs"] == 2 * 8 * 197 * 197 * 64
    assert found["softmax"] == {"float16": 1}
    assert found["unaligned"] == [
        {"size": 197, "multiple": 16, "padded": 208, "roles": ["k", "m", "n"], "products": 2, "example": "scores"}
    ]
    assert [
        facts(text, "k", "m", "multiple", "n", "padded", "products", "scores", "size") for text in found["advice"]
    ] == [
        [
            "size",
            "197",
            "k",
            "m",
            "n",
            "2",
            "products",
            "e.g",
            "scores",
            "no",
            "multiple",
            "16",
            "padded",
            "208",
            "5.3%",
        ]
    ]


def test_many_sizes_that_are_padded_share_one_line_the_most_frequent_first() -> None:
    entry = {"multiple": 16, "roles": ["k"], "example": "Conv.0", "padded": 16, "products": 1}
    unaligned = [{**entry, "size": size, "products": 9 if size == 7 else 1} for size in range(2, 9)]
    result: dict[str, Any] = {
        "precision": "fp32",
        "high_precision": [],
        "products_of_unknown_size": [],
        "weight_bytes": {},
    }
    result |= {"unaligned": unaligned, "foreign_domains": {}}
    assert [facts(text, "multiple", "padded", "products") for text in audit.advice(result, [])] == [
        [
            "7",
            "no",
            "multiple",
            "16",
            "32",
            "8",
            "padded",
            "7",
            "16",
            "9",
            "2",
            "16",
            "1",
            "3",
            "16",
            "1",
            "4",
            "16",
            "1",
            "5",
            "16",
            "1",
            "2",
            "more",
            "products",
        ]
    ]


@pytest.mark.parametrize(
    ("wide", "lines"), [(9, []), (100, ["1.0% of the weights' bytes are in float32 in this fp16 graph"])]
)
def test_a_few_constants_in_a_wider_type_are_not_worth_a_word(wide: int, lines: list[str]) -> None:
    result: dict[str, Any] = {
        "precision": "fp16",
        "high_precision": [],
        "products_of_unknown_size": [],
        "unaligned": [],
    }
    result |= {"weight_bytes": {"float16": 10_000 - wide, "float32": wide}, "softmax": {}, "normalization": {}}
    assert audit.advice(result | {"foreign_domains": {}}, []) == lines


def test_convolutions_count_their_window_per_group(tmp_path: Path) -> None:
    nodes = [node("Conv", ["x", "w"], ["y"], "conv", kernel_shape=[3, 3], group=2, strides=[2, 2], pads=[1, 1, 1, 1])]
    inputs = [value("x", FLOAT16, "b", 32, 8, 8)]
    path = save(tmp_path / "m.onnx", nodes, inputs, [value("y", FLOAT16, "b", 64, 4, 4)], [weight("w", 64, 16, 3, 3)])
    found = audit.audit(path, "fp16", B8)
    assert found["macs"] == 8 * 64 * 4 * 4 * (16 * 3 * 3)
    assert found["unaligned"] == []


def test_the_batch_of_a_product_with_a_weight_is_not_called_odd(tmp_path: Path) -> None:
    assert audit.audit(two_layers(tmp_path / "m.onnx"), "fp16", Shape.parse("b7"))["unaligned"] == []


def test_wide_softmax_in_a_half_precision_graph_is_pointed_out(tmp_path: Path) -> None:
    nodes = [
        node("Cast", ["x"], ["wide"], "up", to=FLOAT),
        node("Softmax", ["wide"], ["p"], "softmax"),
        node("Cast", ["p"], ["y"], "down", to=FLOAT16),
    ]
    path = save(tmp_path / "m.onnx", nodes, [value("x", FLOAT16, "b", 64)], [value("y", FLOAT16, "b", 64)], [])
    assert [facts(text, "softmax", "wide") for text in audit.audit(path, "fp16", B8)["advice"]] == [
        ["1", "softmax", "float32", "wide"]
    ]
    assert audit.audit(path, "fp32", B8)["advice"] == []


def test_the_screen_shows_the_same_facts(tmp_path: Path) -> None:
    text = audit.render(audit.audit(two_layers(tmp_path / "m.onnx", "float32"), "fp16", B8))
    assert any(states(line, "MACs", "float16", "80.0%", "float32", "20.0%") for line in text.splitlines())
    assert facts(text.splitlines()[-2], "products", "weights")[:4] == ["1", "2", "products", "weights"]


def test_types_of_next_to_no_weights_are_left_out_on_the_screen() -> None:
    counts = {"macs": 0, "macs_share": {}, "casts": 0, "quantizers": 0, "dequantizers": 0}
    shown = audit.render(
        {
            **counts,
            "precision": None,
            "shape": None,
            "weight_bytes": {"float32": 16 << 20, "int64": 64},
            "softmax": {},
            "normalization": {},
            "advice": [],
        }
    )
    assert "weights        float32 16.00 MiB\n" in shown


@pytest.mark.parametrize("domain", ["", "trt"])
def test_products_behind_collectives_between_gpus_are_counted_at_the_sizes_of_one_rank(
    tmp_path: Path, domain: str
) -> None:
    """b8: all of it, a half of the rows behind reduce_scatter, all of them behind all_gather."""

    def talk(operation: str, taken: str, given: str) -> Any:
        reduce = "none" if operation == "all_gather" else "sum"
        attributes = {
            "collective_operation": operation,
            "reduce_op": reduce,
            "root": -1,
            "nb_rank": 2,
            "group_size": 0,
        }
        return node("DistCollective", [taken], [given], given, domain=domain, **attributes)

    nodes = [
        node("MatMul", ["x", "w"], ["a"], "first"),
        talk("all_reduce", "a", "a2"),
        node("MatMul", ["a2", "w"], ["b"], "second"),
        talk("reduce_scatter", "b", "b2"),
        node("MatMul", ["b2", "w"], ["c"], "third"),
        talk("all_gather", "c", "c2"),
        node("MatMul", ["c2", "w"], ["y"], "fourth"),
    ]
    inputs, outputs = [value("x", FLOAT16, "b", 64)], [value("y", FLOAT16, "b", 64)]
    graph = save(tmp_path / "m.onnx", nodes, inputs, outputs, [weight("w", 64, 64)])
    content = audit.audit(graph, "fp16", B8)
    assert content["macs"] == (8 + 8 + 4 + 8) * 64 * 64
    assert content["products_of_unknown_size"] == [] and content["uncounted_domains"] == []
    assert content["collectives"] == {"all_reduce": 1, "reduce_scatter": 1, "all_gather": 1}
    assert content["ranks"] == 2
    assert any(mentions(line, "2 GPUs", "DistCollective", "10.16") for line in content["advice"])
