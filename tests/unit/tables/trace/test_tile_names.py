"""Tiles by the names of kernels: each library's convention, and the share of real captures that is told."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from inferprof.profilers import nsys
from inferprof.tables.trace.kernel_class import classify, own_name
from inferprof.tables.trace.kernel_compare import per_iteration
from inferprof.tables.trace.tile_names import Tile, parse, values_per_load


@pytest.mark.parametrize(
    ("name", "tile"),
    [
        ("sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x32_stage4_warpsize2x2x1_kernel", Tile(128, 128, 32)),
        ("sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize64x128x64_warpgroupsize1x1x1_kernel", Tile(64, 128, 64)),
        ("sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_tilesize256x64x32_stage3", Tile(256, 64, 32)),
        ("cutlass_80_tensorop_h16816gemm_128x256_32x3_nn_align8", Tile(128, 256, 32)),
        ("cutlass_80_tensorop_f16_s16816gemm_relu_f16_128x128_32x5_nt_align8", Tile(128, 128, 32)),
        ("void cutlass::Kernel2<cutlass_75_tensorop_f16_s1688gemm_f16_64x64_nn_align1>(T1::Params)", Tile(64, 64)),
        ("cutlass_75_wmma_tensorop_f16_s161616gemm_f16_32x32_64x2_nn_align1", Tile(32, 32, 64)),
        (
            "cutlass3x_sm90_tensorop_s64x128x16gemm_f16_f16_f32_void_f16_128x256x64_2x1x1_0_tnn_align8_warpspecialized",
            Tile(128, 256, 64),
        ),
        (
            "void gemm::Kernel<cutlass::gemm::GemmShape<(int)128, (int)256, (int)64>, float>(Params)",
            Tile(128, 256, 64),
        ),
        ("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_32x6_nn", Tile(128, 64, 32)),
        ("ampere_bf16_s16816gemm_bf16_64x64_sliced1x2_ldg8_relu_f2f_stages_64x6_tn", Tile(64, 64, 64)),
        ("turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn", Tile(128, 128)),
        ("volta_sgemm_64x32_sliced1x4_nn", Tile(64, 32)),
        ("cudnn_infer_volta_scudnn_128x64_relu_medium_nn_v1", Tile(128, 64)),
        ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNN", Tile(128, 256, 64)),
        ("nvjet_sm90_hsh_256x144_64x4_2x1_v_bz_coopA_NNT", Tile(256, 144, 64)),
        ("nvjet_tst_64x16_64x16_2x4_2cta_h_bz_bias_TNT", Tile(64, 16, 64)),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN_LDSB1", Tile(256, 192, 64)),
        ("bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_cga1x1x1_16dp256b", Tile(128, 16, 256)),
        ("cudnn_infer_volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", None),
        ("void cublasLt::splitKreduce_kernel<32, 16, int, float, float>(float const*)", None),
        ("void gemvNSP_kernel<float, float, float, float, 1, 16, 4, 1024>(Params)", None),
        ("void implicit_convolve_sgemm<__half, __half, 1024, 5, 5, 3, 3, 3, 1, false, false, true>(int)", None),
    ],
)
def test_each_library_writes_the_tile_its_own_way(name, tile):
    assert parse(name) == tile


def test_a_tile_is_written_as_far_as_it_is_known():
    assert [Tile(128, 256, 64).label, Tile(64, 64).label] == ["128x256x64", "64x64"]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("void cutlass::Kernel2<cutlass_75_tensorop_f16_s1688gemm_f16_64x64_nn_align1>(T1::Params)", 1),
        ("cutlass_80_tensorop_h16816gemm_128x256_32x3_nn_align8", 8),
        ("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_32x6_nn", 8),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize128x32x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4", 4),
        ("nvjet_sm90_hsh_128x72_64x8_1x2_h_bz_NNT", 8),
        ("volta_sgemm_64x32_sliced1x4_nn", None),
    ],
)
def test_a_name_tells_how_many_values_are_loaded_at_once(name, values):
    assert values_per_load(name) == values


@pytest.mark.parametrize(
    ("capture", "share"),
    [
        # What is left is implicit_convolve_sgemm, whose name holds no tile: the patch embedding.
        ("h100_ort_cuda_vit", 0.8929),
        ("h100_torch_eager", 0.7709),
        ("h100_tensorrt_vit2", 1.0),
        ("h100_ort_cuda_minilm", 1.0),
    ],
)
def test_the_tiles_of_a_capture_are_told_for_all_gemms_and_most_of_the_time(
    captured: Callable[[str], Path], capture: str, share: float
):
    table = per_iteration(nsys.read(captured(capture)))
    gemms = table[table["kernel_class"] == "gemm"]
    assert all(parse(name) for name in gemms["name"])
    products = table[table["kernel_class"].isin(["gemm", "convolution"])]
    told = products[[parse(name) is not None for name in products["name"]]]
    assert told["duration"].sum() / products["duration"].sum() == pytest.approx(share, abs=1e-4)


def test_other_peoples_traces_name_the_tile_of_every_kernel_that_has_one(shared: Path):
    names = set()
    for path in sorted((shared / "real/kineto").glob("*.json.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        names |= {event["name"] for event in events if str(event.get("cat", "")).lower() == "kernel"}
    gemms = {name for name in names if classify(name).kernel_class == "gemm"}
    untold = {own_name(name) for name in gemms if parse(name) is None}
    assert (len(gemms), sum(parse(name) is not None for name in gemms)) == (98, 89)
    assert untold == {
        *("internal::gemvx::kernel", "gemvNSP_kernel", "gemmk1_kernel"),  # matrix times vector: no tiles
        *("cublasLt::splitKreduce_kernel", "splitKreduce_kernel", "epilogue::impl::globalKernel"),  # behind a GEMM
        "sgemm_largek_lds64",
    }
