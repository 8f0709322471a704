"""The list of layers that TensorRT-RTX's builder writes into its verbose log, as 1.7.1 wrote it; names shortened."""

from __future__ import annotations

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


def test_a_build_without_a_list_has_no_kernels() -> None:
    assert len(engine_layers.of_build([])) == 0
