"""The list of layers that TensorRT-RTX's builder writes into its verbose log, as 1.7.1 wrote it; names shortened."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from inferprof.backends.tensorrt_build import _described
from inferprof.documents.engine import EngineLayer
from inferprof.readers import trt_listing
from inferprof.tables.nodes import engine_layers

FORMAT = "Format: (Linear) Row major linear format"


def tensor(name: str, dims: str, dtype: str) -> str:
    return f"{{ Name: {name}, Dimensions: [{dims}], Strides: [1], StrideOrder: [0], Datatype: {dtype}, {FORMAT} }}"


def line(name: str, kind: str, inputs: str, constants: str, output: str, nodes: str) -> str:
    return (
        f"Name: {name}, LayerType: {kind}, Inputs: [ {inputs}], Constants: [ {constants}], "
        f"Outputs: [ {tensor('y', '8,16', output)}], TacticName: stub, StreamId: 0, Metadata: {nodes}"
    )


ALPHA = tensor("alpha", "1", "Float")
LISTING = "\n".join(
    [
        "Layers:",
        line(
            "/b/MatMul+/a/MatMul_myl0_1",
            "gemm",
            tensor("x, y", "8,16", "Int8"),
            f"{ALPHA}, {tensor('w', '16,32', 'Int8')}",
            "Float",
            "[ONNX Layer: /a/MatMul][ONNX Layer: a_DequantizeLinear]",
        ),
        line(
            "__myl_CastMulCastFc_myl0_2",
            "runtime_fusion",
            tensor("x", "-1,16", "Half"),
            f"{tensor('scales', '16,16', 'Half')}, {tensor('w', '16,16', 'FP8')}",
            "Half",
            "[ONNX Layer: /c/MatMul]",
        ),
        line(
            "/d/MatMul_myl0_3",
            "gemm",
            f"{tensor('x', '8,16', 'FP4E2M1')}, {tensor('s', '8,4', 'FP8')}",
            tensor("w", "16,16", "FP4E2M1"),
            "Half",
            "[ONNX Layer: /d/MatMul]",
        ),
        line("/e/MatMul_myl0_4", "gemm", tensor("x", "8,16", "FP8"), tensor("w", "16,16", "FP8"), "Half", ""),
        "Name: signal_0, LayerType: signal, Inputs: [], Outputs: [], TacticName: , StreamId: 1, Metadata: ",
        line("__myl_MulAdd_myl0_5", "kgen", tensor("x", "8,16", "Half"), ALPHA, "Half", ""),
        line("_gemm_mha_v2_myl0_6", "kgen", tensor("q", "8,4,16", "Half"), ALPHA, "Half", "[ONNX Layer: /f/MatMul]"),
    ]
)


def test_a_layer_has_its_operands_weights_and_onnx_nodes() -> None:
    product, dynamic, *_ = trt_listing.layers_of(LISTING)
    assert (product.kind, product.tactic, product.weights) == ("gemm", "stub", "int8")
    assert [(t.name, t.dims, t.dtype) for t in product.inputs] == [("x, y", (8, 16), "int8")]
    assert product.nodes == ("/a/MatMul", "a_DequantizeLinear")
    assert [t.dtype for t in product.outputs] == ["fp32"]
    assert dynamic.inputs[0].dims == (-1, 16)


@pytest.mark.parametrize("text", ["", "Layers:\n", "Engine Layer Information:\nLayer(Reformat): a"])
def test_a_text_that_lists_none_has_none(text: str) -> None:
    assert trt_listing.layers_of(text) == ()


def test_products_compute_in_their_operands_formats_and_signals_are_no_kernels() -> None:
    documents = [_described(layer) for layer in trt_listing.layers_of(LISTING)]
    kernels = engine_layers.of_build(
        msgspec.convert(msgspec.json.decode(msgspec.json.encode(documents)), list[EngineLayer])
    )
    assert list(kernels["matrix"]) == [True, True, True, True, False, True]
    assert list(kernels["kernel_class"])[-2:] == ["elementwise", "attention"]
    assert list(kernels["dtype"])[:4] == ["int8", "fp16", "fp4", "fp8"]
    assert kernels["nodes"][0] == "/a/MatMul, a_DequantizeLinear"


def test_convolutions_are_products_and_quantizers_conversions(repository: Path) -> None:
    listed = trt_listing.layers_of(
        (repository / "tests/data/trt_layers/rtx_convnet_int8.listing.txt").read_text(encoding="utf-8")
    )
    kernels = engine_layers.of_build(msgspec.convert([_described(layer) for layer in listed], list[EngineLayer]))
    classes = kernels.set_index("kernel")["kernel_class"]
    assert kernels.loc[kernels["matrix"], "dtype"].value_counts().to_dict() == {"int8": 5, "fp32": 3}
    assert list(classes[kernels["kind"].eq("correlation").to_numpy()]) == ["convolution"] * 3
    assert not kernels["kernel_class"].eq("other").any()
    rounds = kernels["kernel"].str.contains("MinMaxRoun")
    assert rounds.sum() == 6 and kernels.loc[rounds, "conversion"].eq("quantize").all()
    assert kernels.loc[~rounds, "conversion"].isna().all()
    assert classes["__myl_MulMinMaxRounCastConc_myl0_0"] == "quantize"
    assert classes["__myl_MulAddSiluMulMinMaxRounCast_myl0_2"] == "elementwise"


@pytest.mark.parametrize(
    ("name", "kind", "inputs", "constants", "output", "expected"),
    [
        (
            "__myl_CorrSilu_myl0_1",
            "runtime_fusion",
            "Int8",
            tensor("w", "8,8,3,3", "Int8"),
            "Half",
            "convolution int8",
        ),
        (
            "__myl_DecoCast_myl0_1",
            "runtime_fusion",
            "Half",
            tensor("w", "8,8,2,2", "Half"),
            "Float",
            "convolution fp16",
        ),
        ("/up/ConvTranspose_myl0_1", "deconv", "Half", tensor("w", "8,8,2,2", "Half"), "Half", "convolution fp16"),
        (
            "__myl_MulCastMulAddSlicReshMulSum_myl0_1",
            "kgen",
            "Float",
            tensor("w", "9,8", "Half"),
            "Half",
            "gemm fp16",
        ),
    ],
)
def test_what_a_product_is_fused_to_does_not_hide_it(
    name: str, kind: str, inputs: str, constants: str, output: str, expected: str
) -> None:
    listed = trt_listing.layers_of(line(name, kind, tensor("x", "8,16", inputs), constants, output, ""))
    kernels = engine_layers.of_build(msgspec.convert([_described(layer) for layer in listed], list[EngineLayer]))
    assert [f"{row.kernel_class} {row.dtype}" for row in kernels.itertuples() if row.matrix] == [expected]


def test_a_build_without_a_list_has_no_kernels() -> None:
    assert len(engine_layers.of_build([])) == 0
