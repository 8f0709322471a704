"""Which number formats really ran: a planted lie, conversions, and what a name, a layer and a counter each tell."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import cast

import pandas as pd
import pytest
from tests.unit.facts import facts, mentions, naming

from inferprof.errors import UserError
from inferprof.profilers import trt_layers
from inferprof.readers.trt_json import load, read_layers
from inferprof.tables.nodes import precision_truth
from inferprof.tables.nodes.kernel_formats import NOT_TOLD, by_counters, conversion, executed, of_case
from inferprof.tables.nodes.trt_engine import Layer, Tensor
from inferprof.tables.nodes.trt_layers import layers_of
from inferprof.tables.records import rows_of
from inferprof.tables.schema import conform
from inferprof.tables.trace.kernel_class import EITHER_FP8

FP8 = (
    "sm90_xmma_gemm_e4m3f16_e4m3f32_f32_tn_n_tilesize128x128x128_warpgroupsize1x1x1_execute_segment_k_off_kernel_trt"
)
FP16 = "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x64x64_stage3_warpsize2x2x1_tensor16x8x16_execute_kernel_trt"


def tensor(name: str, dtype: str, dims: tuple[int, ...] = (8, 768)) -> dict[str, object]:
    """As EngineInspector writes it."""
    return {"Name": name, "Dimensions": list(dims), "Format/Datatype": dtype}


def gemm(name: str, dtype: str, tactic: str) -> dict[str, object]:
    """A matrix product as TensorRT 10 writes it: two operands and a scale, which is no operand."""
    scale = tensor(f"{name}_scale", "Float", (1,))
    return {
        **{"Name": name, "LayerType": "gemm", "TacticName": tactic, "Metadata": f"[ONNX Layer: /{name}]"},
        "Inputs": [tensor(f"{name}_a", dtype), tensor(f"{name}_b", dtype, (768, 768)), scale],
        "Outputs": [tensor(f"{name}_c", "Half")],
    }


def written(folder: Path, *layers: dict[str, object]) -> tuple[Layer, ...]:
    """The layers as they come back from a file."""
    path = folder / "layers.json"
    path.write_text(json.dumps({"Layers": layers, "Bindings": []}))
    return read_layers(path, load(path))


def table(*rows: tuple[str, int, str | None]) -> pd.DataFrame:
    """(kernel, ns, layer)."""
    return pd.DataFrame(rows, columns=["kernel", "duration_ns", "layer"]).assign(instances=1)


# --- a planted lie ---------------------------------------------------------------------------------------------


@pytest.fixture
def lie(tmp_path: Path) -> tuple[tuple[Layer, ...], pd.DataFrame]:
    """FP8 was asked for; of three blocks the last one runs in FP16, between two casts."""
    layers = written(
        tmp_path,
        gemm("block.0", "FP8", FP8.partition("_execute")[0]),
        gemm("block.1", "FP8", FP8.partition("_execute")[0]),
        {
            **{"Name": "cast", "LayerType": "Reformat", "Origin": "REFORMAT"},
            **{"Inputs": [tensor("a", "FP8")], "Outputs": [tensor("b", "Half")]},
        },
        gemm("block.2", "Half", FP16.partition("_execute")[0]),
        {
            **{"Name": "back", "LayerType": "Reformat", "Origin": "QDQ"},
            **{"Inputs": [tensor("c", "Half")], "Outputs": [tensor("d", "FP8")]},
        },
    )
    rows = [(FP8, 200, "block.0"), (FP8, 210, "block.1"), (FP16, 590, "block.2")]
    moves = [
        ("void genericReformat::copyVectorizedKernel<double>(int)", ns, name)
        for ns, name in ((30, "cast"), (70, "back"))
    ]
    return layers, table(*rows, *moves)  # fmt: skip


def test_a_block_that_ran_in_fp16_is_caught(lie: tuple[tuple[Layer, ...], pd.DataFrame]) -> None:
    layers, kernels = lie
    found = executed(kernels, layers)
    assert precision_truth.share_as_asked(found, "fp8") == pytest.approx(0.41)
    assert facts(precision_truth.sentence(found, "fp8"), "asked", "matrix", "ran") == [
        "asked",
        "fp8",
        "41.0 %",
        "matrix",
        "ran",
        "fp8",
        "59.0 %",
        "fp16",
    ]
    wrong = precision_truth.otherwise(found, "fp8")
    assert wrong[["layer", "dtype", "duration_ns", "share"]].to_numpy().tolist() == [["block.2", "fp16", 590, 0.59]]


def test_casts_and_quantization_around_it_have_their_cost(lie: tuple[tuple[Layer, ...], pd.DataFrame]) -> None:
    layers, kernels = lie
    costs = precision_truth.conversions(executed(kernels, layers))
    assert costs[["conversion", "duration_ns", "instances"]].to_numpy().tolist() == [
        ["quantize", 70, 1],
        ["cast", 30, 1],
    ]
    assert costs["share"].to_list() == pytest.approx([70 / 1100, 30 / 1100])


def test_names_alone_catch_it_too(lie: tuple[tuple[Layer, ...], pd.DataFrame]) -> None:
    _, kernels = lie
    assert precision_truth.share_as_asked(executed(kernels.drop(columns="layer")), "fp8") == pytest.approx(0.41)


def test_a_layer_that_takes_fp8_and_runs_a_kernel_of_fp16_ran_in_fp16(tmp_path: Path) -> None:
    found = executed(table((FP16, 10, "a")), written(tmp_path, gemm("a", "FP8", "x")))
    assert found[["dtype", "source"]].to_numpy().tolist() == [["fp16", "name"]]


# --- what tells a format ---------------------------------------------------------------------------------------


def test_counters_tell_before_the_name() -> None:
    found = executed(table((FP16, 10, None)), counted={FP16: "fp8"})
    assert found[["dtype", "source"]].to_numpy().tolist() == [["fp8", "counters"]]


def test_a_name_that_tells_nothing_leaves_it_to_the_layers_operands(tmp_path: Path) -> None:
    layers = written(tmp_path, gemm("a", "FP8", "x"), gemm("b", "BFloat16", "x"))
    found = executed(table(("cutlass_gemm", 1, "a"), ("cutlass_gemm", 1, "b"), ("cutlass_gemm", 1, None)), layers)
    assert found["dtype"].to_list() == [EITHER_FP8, "bf16", NOT_TOLD]
    assert found["source"].to_list()[:2] == ["layer", "layer"]


def test_the_wider_of_two_operands_decides(tmp_path: Path) -> None:
    mixed = gemm("a", "Half", "x")
    mixed["Inputs"] = [tensor("a", "Half"), tensor("w", "INT4", (768, 768))]
    assert executed(table(("cutlass_gemm", 1, "a")), written(tmp_path, mixed))["dtype"].to_list() == ["fp16"]


def test_weights_of_a_convolution_are_an_operand(shared: Path) -> None:
    path = shared / "real/trt_json/trt8_trex_mobilenet_qat.graph.json"
    layers = read_layers(path, load(path))
    name = "features.0.0.weight + QuantizeLinear_8 + Conv_12 + PWN(Clip_16)"
    found = executed(table(("implicit_convolve", 1, name), ("first_reformat", 2, "QuantizeLinear_2")), layers)
    assert found[["dtype", "conversion"]].fillna("").to_numpy().tolist() == [["int8", ""], ["int8", "quantize"]]


def test_of_the_rest_the_output_is_told(tmp_path: Path) -> None:
    layer = {**gemm("add", "Float", "x"), "LayerType": "kgen"}
    found = executed(table(("__myl_AddMul_0x1", 5, "add")), written(tmp_path, layer))
    assert found[["matrix", "dtype"]].to_numpy().tolist() == [[False, "fp16"]]


def test_time_of_which_nothing_tells_the_format_is_said() -> None:
    found = executed(table((FP8, 60, None), ("cutlass_gemm", 40, None), ("__myl_Add_0x1", 900, None)))
    assert facts(precision_truth.sentence(found, "fp8"), "asked", "matrix", "ran") == [
        "asked",
        "fp8",
        "60.0 %",
        "matrix",
        "ran",
        "fp8",
        "40.0 %",
        "nothing",
    ]
    shares = precision_truth.by_dtype(found)
    assert shares[["matrix", "dtype", "duration_ns"]].to_numpy().tolist() == [
        [True, "fp8", 60],
        [True, NOT_TOLD, 40],
        [False, NOT_TOLD, 900],
    ]
    assert shares["share"].to_list() == [0.6, 0.4, 1.0]


def test_a_case_without_matrix_products_has_no_share() -> None:
    found = executed(table(("__myl_Add_0x1", 900, None)))
    assert precision_truth.share_as_asked(found, "fp16") is None
    assert facts(precision_truth.sentence(found, "fp16"), "asked", "kernel", "matrix") == [
        "asked",
        "fp16",
        "no",
        "kernel",
        "matrix",
    ]


def test_a_format_of_ones_own_has_nothing_to_be_held_against() -> None:
    with pytest.raises(UserError, match=naming("what", "mine", "compute", "not", "bf16", "fp16")):
        precision_truth.wanted("mine")


def test_counters_of_ncu_are_summed_by_kernel() -> None:
    rows = [("a", "tensor_ops_fp16", 5.0), ("a", "tensor_ops_fp8", 3.0), ("a", "tensor_ops_fp8", 4.0)]
    rows += [("b", "tensor_ops_fp8", 0.0), ("c", "duration_total", 9.0), ("d", "tensor_ops_int8", 1.0)]
    frame = pd.DataFrame(rows, columns=["name", "metric", "value"])
    assert by_counters(frame) == {"a": EITHER_FP8, "d": "int8"}


def test_counters_find_the_kernel_of_a_trace_that_spells_its_parameters_otherwise() -> None:
    names = [
        "void one::first<float, (int)4>(float *)",
        "void two::second<half>(half *)",
        "void two::second<float>()",
    ]
    rows = [
        {"level": "kernel", "name": name, "metric": "duration_total", "value": 1.0, "instances": 1} for name in names
    ]
    trace = conform(pd.DataFrame(rows), "nsys")
    spelled = ["void one::first<float, 4>(float *)", "void two::second<__half>(__half *)"]
    counts = [{"level": "kernel", "name": name, "metric": "tensor_ops_fp8", "value": 1.0} for name in spelled]
    found = of_case(trace, conform(pd.DataFrame(counts), "ncu")).set_index("kernel")
    assert found["dtype"].to_list() == [EITHER_FP8, "fp16", "fp32"]
    # Two instances of one function: whose counters these are is not known.
    assert found["source"].to_list() == ["counters", "name", "name"]


# --- FP8 by tensors and by blocks ------------------------------------------------------------------------------


MXFP8 = "cutlass3x_sm120_bstensorop_s16832gemm_block_scaled_ue8m0xe4m3_ue8m0xe4m3_f32_bf16_bf16_128x128x128_0_tnn"
SILENT = "my_fp8_gemm_kernel"
"""A name that tells FP8, and nothing of its scales."""


@pytest.mark.parametrize(
    ("asked", "ran", "sentence"),
    [
        ("mxfp8", FP8, "asked for mxfp8: 0.0 % of the time in matrix products ran in mxfp8, 100.0 % in fp8"),
        ("fp8", MXFP8, "asked for fp8: 0.0 % of the time in matrix products ran in fp8, 100.0 % in mxfp8"),
        ("mxfp8", MXFP8, "asked for mxfp8: 100.0 % of the time in matrix products ran in mxfp8"),
        ("mixed", FP8, "asked for mixed: 100.0 % of the time in matrix products ran in int8 or fp8 or mxfp8 or fp4"),
        (
            "mixed",
            MXFP8,
            "asked for mixed: 100.0 % of the time in matrix products ran in int8 or fp8 or mxfp8 or fp4",
        ),
        (
            "mxfp8",
            SILENT,
            "asked for mxfp8: 0.0 % of the time in matrix products ran in mxfp8, "
            "100.0 % in fp8 or mxfp8 (nothing tells which)",
        ),
    ],
)
def test_one_fp8_in_place_of_the_other_is_seen(asked: str, ran: str, sentence: str) -> None:
    found = executed(table((ran, 10, None)))
    assert precision_truth.sentence(found, asked) == sentence


def test_counters_do_not_tell_how_fp8_is_scaled_and_the_name_does() -> None:
    names = (FP8, MXFP8, SILENT)
    found = executed(table(*((name, 1, None) for name in names)), counted=dict.fromkeys(names, EITHER_FP8))
    assert found[["dtype", "source"]].to_numpy().tolist() == [
        ["fp8", "name"],
        ["mxfp8", "name"],
        [EITHER_FP8, "counters"],
    ]


def test_scales_of_blocks_among_the_inputs_of_a_layer_tell_mxfp8(tmp_path: Path) -> None:
    layer = gemm("a", "FP8", "x")
    scales = [tensor(f"{side}_scales", "E8M0", (8, 24)) for side in "ab"]
    inputs = cast("list[object]", layer["Inputs"])
    layers = written(tmp_path, {**layer, "Inputs": [inputs[0], scales[0], inputs[1], scales[1], *inputs[2:]]})
    found = executed(table(("__myl_MatMul_0x1", 1, "a"), (SILENT, 1, "a")), layers)
    assert found[["dtype", "source"]].to_numpy().tolist() == [["mxfp8", "layer"]] * 2


@pytest.mark.parametrize(
    ("machine", "dtype"),
    [
        ("h100-80gb-hbm3-sm90-0123abcd", "fp8"),
        ("rtx-4090-mig-sm89-0123abcd", "fp8"),
        ("b200-sm100-0123abcd", EITHER_FP8),
        ("my-box", EITHER_FP8),
    ],
)
def test_a_gpu_without_block_scales_leaves_no_doubt(machine: str, dtype: str) -> None:
    row = {"level": "kernel", "name": SILENT, "metric": "duration_total", "value": 1.0, "instances": 1}
    trace = conform(pd.DataFrame([row]), "nsys").assign(machine=machine)
    assert of_case(trace)["dtype"].to_list() == [dtype]


# --- conversions and sparsity ----------------------------------------------------------------------------------


COPY = "copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}"
CASTS = "at::native::memory::LoadWithCast<1>, at::native::memory::StoreWithCast<1>"
"""Names as a trace of torch 2.11 has them, shortened."""


def move(kind: str, before: str | None, after: str | None) -> Layer:
    return Layer(
        "move",
        kind=kind,
        inputs=(Tensor("a", (8,), before, before),),
        outputs=(Tensor("b", (8,), after, after),),
        origin="REFORMAT",
    )


@pytest.mark.parametrize(
    ("kernel", "layer", "what"),
    [
        ("copyVectorizedKernel", move("Reformat", "fp32", "fp16"), "cast"),
        ("copyVectorizedKernel", move("Reformat", "fp16", "fp16"), "reformat"),
        ("copyVectorizedKernel", move("Reformat", None, "fp16"), "reformat"),
        ("void vllm::scaled_fp8_quant_kernel<float>(float *)", None, "quantize"),
        ("__myl_CasTra_0x12", None, "cast"),
        ("__myl_TraRes_0x12", None, "reformat"),
        ("__myl_AddMul_0x12", None, None),
        (FP8, move("gemm", "fp8", "fp16"), None),
        (
            f"void at::native::vectorized_elementwise_kernel<4, bfloat16tofloat32_{COPY}>(int)",
            None,
            "cast",
        ),
        (f"void at::native::unrolled_elementwise_kernel<at::native::direct_{COPY}, {CASTS}>(int)", None, "cast"),
        (
            f"void at::native::elementwise_kernel<128, 4, gpu_kernel_impl<direct_{COPY}>>(int)",
            None,
            "cast",
        ),
        (
            f"void elementwise_kernel<128, 4, gpu_kernel_impl_nocast<direct_{COPY}>>(int)",
            None,
            "reformat",
        ),
    ],
)
def test_what_no_node_computes(kernel: str, layer: Layer | None, what: str | None) -> None:
    assert conversion(kernel, layer) == what


def test_what_ran_on_sparse_weights_has_its_share() -> None:
    layers = (Layer("a", sparse=True), Layer("b", tactic="sm80_xmma_sparse_gemm"), Layer("c", sparse=False))
    kernels = table(("k1", 30, "a"), ("k2", 20, "b"), ("k3", 40, "c"), ("sm80_sparse_conv", 10, None))
    found = precision_truth.sparsity(kernels, layers)
    assert (found.layers, found.duration_ns, found.share) == (("a", "b"), 60, 0.6)


# --- layers without kernels ------------------------------------------------------------------------------------


def test_timed_layers_are_enough_where_nothing_was_traced(shared: Path) -> None:
    """MobileNet of NVIDIA's QAT example: all convolutions in INT8, and a sixth of the time in quantizers."""
    found = of_case(trt_layers.read(shared / "real/trt_json/trt8_trex_mobilenet_qat.profile.json"))
    assert found["kernel_class"].value_counts().to_dict() == {
        **{"convolution": 53, "quantize": 17, "reformat": 2},
        **{"reduction": 1},
    }
    assert precision_truth.share_as_asked(found, "int8") == 1.0
    costs = precision_truth.conversions(found).set_index("conversion")
    assert costs.loc["quantize", "duration_ns"] == pytest.approx(77_984)
    assert costs.loc["quantize", "share"] == pytest.approx(0.166, abs=0.001)


def test_a_reformat_for_a_convolution_is_no_convolution(shared: Path) -> None:
    found = of_case(trt_layers.read(shared / "real/trt_json/trt8_trex_resnet18_a100_fp16.profile.json"))
    assert precision_truth.share_as_asked(found, "fp16") == 1.0
    costs = precision_truth.conversions(found).set_index("conversion")["duration_ns"]
    assert costs.to_dict() == pytest.approx({"cast": 88_064, "reformat": 0})


def test_a_residual_is_no_operand_of_a_convolution() -> None:
    tensors = tuple(Tensor(name, (8, 8), dtype, dtype) for name, dtype in (("x", "int8"), ("residual", "fp16")))
    layer = Layer("a", kind="CaskConvolution", inputs=tensors, weights="int8")
    assert executed(table(("unnamed", 1, "a")), (layer,))["dtype"].to_list() == ["int8"]


def faulty(repository: Path, name: str) -> pd.DataFrame:
    """The layers and times of a file of tests/data/faults, as a table."""
    return trt_layers.read(repository / f"tests/data/faults/{name}.profile.json")


def test_what_ran_inside_of_a_fused_region_is_not_told_by_its_name_and_ends(repository: Path) -> None:
    frame = faulty(repository, "foreign-node-counted-as-fp16/e")
    (row,) = rows_of(of_case(frame))
    assert (row["kernel_class"], row["matrix"], row["dtype"]) == ("other", True, NOT_TOLD)
    assert precision_truth.share_as_asked(of_case(frame), "fp16") == 0
    (remark,) = precision_truth.remarks(of_case(frame), layers_of(frame))
    assert facts(remark)[0] == "100.0 %" and mentions(remark, "{ForeignNode[stem")
    assert "--profilingVerbosity=detailed" in remark


def test_a_region_gives_no_format_to_the_kernels_inside_of_it() -> None:
    region = move("Myelin", "fp16", "fp16")
    found = executed(table(("cutlass_gemm", 1, "move"), (FP8, 1, "move")), [region])
    assert found[["kernel_class", "dtype"]].to_numpy().tolist() == [["gemm", NOT_TOLD], ["gemm", "fp8"]]


@pytest.mark.parametrize("described", [True, False])
def test_of_layers_by_name_alone_reformats_are_reformats_and_no_name_tells_a_format(
    repository: Path, tmp_path: Path, described: bool
) -> None:
    for kind in ("profile", "graph") if described else ("profile",):
        text = (repository / f"tests/data/faults/foreign-node-counted-as-fp16/names.{kind}.json").read_text()
        (tmp_path / f"names.{kind}.json").write_text(text.replace("conv0 + relu0", "conv_fp16 + relu0"))
    frame = trt_layers.read(tmp_path / "names.profile.json")
    found = of_case(frame)
    assert found[["kernel_class", "dtype"]].to_numpy().tolist() == [
        ["reformat", NOT_TOLD],
        ["convolution", NOT_TOLD],
        ["gemm", NOT_TOLD],
    ]
    assert found["conversion"].fillna("").to_list() == ["reformat", "", ""]
    (remark,) = precision_truth.remarks(found, layers_of(frame))
    assert "--profilingVerbosity=detailed" in remark


def test_the_name_of_nodes_says_nothing_where_tensorrt_tells_the_kind(tmp_path: Path) -> None:
    kinds = {"CaskConvolution": "convolution", "PointWiseV2": "elementwise", "kgen": "other", "gemm": "gemm"}
    rows = [{**gemm(f"/conv/{kind}_fp8_cast", "Half", ""), "LayerType": kind} for kind in kinds]
    layers = written(tmp_path, *rows)
    found = executed(table(*((layer.name, 1, layer.name) for layer in layers)), layers)
    assert found["kernel_class"].to_list() == list(kinds.values())
    assert found["dtype"].to_list() == ["fp16"] * 4
    assert found["conversion"].isna().all()


@pytest.mark.parametrize(
    ("name", "row"), [("e", ["gemm", "tf32", None]), ("quantizer", ["quantize", "int8", "quantize"])]
)
def test_tactics_tell_tf32_and_quantizers(repository: Path, name: str, row: list[str | None]) -> None:
    found = of_case(faulty(repository, f"tf32-kernel-called-fp32/{name}"))
    (told,) = found[["kernel_class", "dtype", "conversion"]].astype(object).to_numpy().tolist()
    assert told[:2] == row[:2]
    assert (told[2] if isinstance(told[2], str) else None) == row[2]


@pytest.mark.parametrize(
    ("before", "after", "what"), [("int8", "fp16", "quantize"), ("fp32", "fp16", None), ("fp16", "fp8", "quantize")]
)
def test_scaling_and_moving_to_or_from_narrow_numbers_is_quantization(
    before: str, after: str, what: str | None
) -> None:
    layer = dataclasses.replace(move("kgen", before, after), tactic="__myl_CastMulMoveResh_0x2")
    assert conversion("__myl_CastMulMoveResh_0x2", layer) == what


CUDNN = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_cga1x1x1_kernel0_0"
BF16, FP16 = "nvjet_sm90_tst_128x128_64x6_2x1_v_bz_TNT", "nvjet_sm90_hsh_128x72_64x8_1x2_h_bz_NNT"


@pytest.mark.parametrize(
    ("others", "expected"), [([BF16], "bf16"), ([FP16], "fp16"), ([BF16, FP16], "not told"), ([], "not told")]
)
def test_a_name_of_both_16_bit_formats_has_that_of_all_other_products(others: list[str], expected: str) -> None:
    kernels = pd.DataFrame({"kernel": [*others, CUDNN], "duration_ns": 1.0, "instances": 1})
    assert executed(kernels)["dtype"].tolist()[-1] == expected
