"""Kernels are classed by what they do, in names that real runtimes gave them."""

from __future__ import annotations

import pytest

from inferprof.tables.trace.kernel_class import EITHER_FP8, classify, own_name

CASES = [
    # attention
    ("void flashinfer::BatchDecodeWithPagedKVCacheKernel<(PosEncodingMode)0>(Params)", "attention", None, None),
    # copy
    ("void flashinfer::AppendPagedKVCacheKernel<128>(paged_kv_t)", "copy", None, None),
    # gemm
    ("nvjet_sm90_hsh_64x64_64x13_1x4_h_bz_bias_TNT", "gemm", "fp16", True),
    ("nvjet_tst_192x8_64x8_4x1_v_bz_TNT", "gemm", "bf16", True),
    ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_32x6_tn", "gemm", "bf16", True),
    ("ampere_sgemm_128x32_tn", "gemm", "fp32", False),
    (
        "sm80_xmma_gemm_f16f16_f16f16_f16_nn_n_tilesize64x64x64_stage4_warpsize2x2x1_tensor16x8x16_fused13_kernel",
        "gemm",
        "fp16",
        True,
    ),
    (
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x32x8_stage3_warpsize1x2x1_ffma_aligna4_execute_kernel_trt",
        "gemm",
        "fp32",
        False,
    ),
    (
        "void cutlass::Kernel2<cutlass_80_wmma_tensorop_f16_s161616gemm_f16_16x16_128x1_tn_align8>(T1::Params)",
        "gemm",
        "fp16",
        True,
    ),
    (
        "void gemvNSP_kernel<float, float, float, float, 1, 16, 4, 1024>(cublasGemvParams<float>)",
        "gemm",
        "fp32",
        None,
    ),
    ("bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16", "gemm", "fp4", None),
    ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT16x32x512_MI16x16x1_SN", "gemm", "bf16", True),
    ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x16_stage4_tensor16x8x8", "gemm", "tf32", True),
    ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x16_stage4_tensor16x8x8", "gemm", "tf32", True),
    ("sm80_xmma_gemm_f32f32_bf16f32_f32_tn_n_tilesize64x64x16", "gemm", "bf16", None),
    ("cutlass_80_tensorop_s1688gemm_128x256_16x3_tn_align4", "gemm", "tf32", True),
    ("cutlass_80_tensorop_s1688f16gemm_64x64_16x6_tn_align4", "gemm", "fp16", True),
    ("cutlass_80_tensorop_s1688bf16gemm_64x64_16x6_tn_align4", "gemm", "bf16", True),
    ("turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn", "gemm", "fp16", True),
    ("cutlass3x_sm90_tensorop_s64x128x8gemm_f32_f32_f32_f32_f32_128x128x32_0_tnn", "gemm", "tf32", True),
    ("cutlass3x_sm100_tensorop_s256x128x32gemm_f8_f8_f32_f16_f16_256x128x128", "gemm", "fp8", True),
    ("cutlass_80_tensorop_i16832gemm_s8_128x128_64x5_tn_align16", "gemm", "int8", True),
    ("ampere_igemm_int8_128x128_ldg4_nn", "gemm", "int8", None),
    ("trt_turing_fp32_icudnn_int8x4_128x128_relu_small_nn_v1", "convolution", "int8", None),
    ("__myl_FcAddCast_0x0a", "gemm", None, None),
    ("triton_tem_fused_addmm_relu_5", "gemm", None, None),
    ("triton_tem_fused__scaled_mm_2", "gemm", None, None),
    ("triton_tem_fused_convolution_3", "convolution", None, None),
    ("triton_tem_fused_flex_attention_0", "attention", None, None),
    ("fused_moe_kernel", "gemm", None, None),
    ("void mul_mat_vec_q<(ggml_type)12>", "gemm", None, None),
    ("void vllm::moe::topkGatingSoftmax<8, 64, 4, 16, int>(float const*)", "reduction", "fp32", None),
    ("void soft_max_f32<true, 0, 0>", "softmax", None, None),
    ("__myl_MulMinMaxRounCast_0x0a", "quantize", None, None),
    ("__myl_MulMinMaxRounCastConc_0x0a", "quantize", None, None),
    ("__myl_Dyna_0x0a", "quantize", None, None),
    ("__myl_CorrDivErfAddMulMul_myl0_14", "convolution", None, None),
    ("__myl_DecoCast_myl0_14", "convolution", None, None),
    ("__myl_FcAddMeanSubMulMeanAddSqrtDivMul_0x0a", "gemm", None, None),
    ("__myl_MulAddMinMaxMul_0x0a", "elementwise", None, None),
    ("__myl_TranMean_0x0a", "reduction", None, None),
    ("__myl_MulMaxrSubExpSum_0x0a", "softmax", None, None),
    ("__myl_SlicMove_0x0a", "copy", None, None),
    ("__myl_CastConc_0x0a", "reformat", None, None),
    ("__myl_CastIotaCastReshConcCastGathReshEqlGtrOr_myl0_0", "embedding", None, None),
    ("__myl_CastMulAddReshTran_0x0a", "elementwise", None, None),
    ("__myl_ReshTranReshMove_0x0a", "reformat", None, None),
    ("_gemm_mha_v2_0x0a", "attention", None, None),
    # attention
    (
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_cga1x1x1_kernel0_0",
        "attention",
        "fp16",
        True,
    ),
    ("void flash::flash_fwd_splitkv_kernel<cutlass::bfloat16_t>(flash::Flash_fwd_params)", "attention", "bf16", None),
    ("fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128", "attention", "fp8", None),
    # convolution
    ("void implicit_convolve_sgemm<__half, __half, 128, 5, 5, 3, 3, 3, 1>(int)", "convolution", "fp16", False),
    (
        "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_tensor16x8x8",
        "convolution",
        "tf32",
        True,
    ),
    ("cudnn_infer_volta_scudnn_128x64_relu_medium_nn_v1", "convolution", "fp32", False),
    # normalisation
    (
        "void onnxruntime::cuda::cuApplyLayerNorm<__half, float, __half, false>(__half*)",
        "normalisation",
        "fp16",
        None,
    ),
    ("void vllm::rms_norm_kernel<c10::BFloat16, 8, 2>(c10::BFloat16*)", "normalisation", "bf16", None),
    ("void cudnn::bn_fw_inf_1C11_kernel_NCHW<float, float, true, 1>(float)", "normalisation", "fp32", None),
    ("__myl_bb0_6_AddSumMulSubMulSumMulAddSqrDivMulMulAdd", "normalisation", None, None),
    ("triton_red_fused__unsafe_view_add_mean_mul_pow_rsqrt_1", "normalisation", None, None),
    # softmax
    (
        "void onnxruntime::cuda::softmax_warp_forward<__half, __half, float, 8, false>(__half*)",
        "softmax",
        "fp16",
        None,
    ),
    ("__myl_bb0_11_MulMaxSubExpSumDivMul", "softmax", None, None),
    # elementwise
    ("void onnxruntime::contrib::cuda::VectorizedBiasGeluKernel<__half>(long)", "elementwise", "fp16", None),
    (
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)",
        "elementwise",
        "fp32",
        None,
    ),
    ("triton_poi_fused_add_cos_sin_0", "elementwise", None, None),
    ("void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*)", "elementwise", "bf16", None),
    ("__myl_bb4_4_AddMovAdd", "elementwise", None, None),
    # reduction
    ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(T3)", "reduction", "fp32", None),
    ("sm50_xmma_pooling_fw_4d_FP32FP32NCHW_Average_FastDiv_execute_kernel_trt", "reduction", "fp32", None),
    ("__myl_bb0_4_AddSumMulSubMulSum", "reduction", None, None),
    # quantize
    (
        "void vllm::scaled_fp8_quant_kernel_strided<c10::BFloat16, c10::Float8_e4m3fn>(T2*)",
        "quantize",
        EITHER_FP8,
        None,
    ),
    (
        "void fbgemm_gpu::(anonymous namespace)::_compute_FP8_quantize_cuda_kernel<float>(T)",
        "quantize",
        EITHER_FP8,
        None,
    ),
    # block scales: their formats are not those of the numbers
    ("nvjet_sm100_qqtst_128x256_128x6_2x1_2cta_v_bz_bias_TNT", "gemm", "fp8", True),
    ("nvjet_qqtst_128x256_128x6_2x2_2cta_h_bz_Avec32UE8M0_Bvec32UE8M0_TNT", "gemm", "mxfp8", True),
    ("nvjet_sm100_ootst_128x128_256x7_4x1_2cta_v_bx_Avec16UE4M3_Bvec16UE4M3_TNT", "gemm", "fp4", True),
    (
        "cutlass3x_sm120_bstensorop_s16832gemm_block_scaled_ue8m0xe4m3_ue8m0xe4m3_f32_bf16_bf16_128x128x128_1x1x1_0_tnn",
        "gemm",
        "mxfp8",
        True,
    ),
    ("cutlass3x_sm120_bstensorop_s16864gemm_block_scaled_ue4m3xe2m1_ue4m3xe2m1_f32_f16", "gemm", "fp4", True),
    ("cutlass3x_sm100_bstensorop_gemm_ue4m3xf4_ue4m3xf4_f32_f16_f16_256x192x256_0_tnn", "gemm", "fp4", True),
    (
        "kernel_cutlass__scaled_gemm_mxfp8_kernel_tensorptrf8E4M3FNgmemalign16_tensorptrf8E8M0FNUgmemalign4",
        "gemm",
        "mxfp8",
        None,
    ),
    ("bmm_MxE4m3_MxE4m3MxE4m3_Fp32_t128x16x256u2_s3_et128x16", "gemm", "mxfp8", None),
    ("bmm_E4m3_E4m3E4m3_Fp32_t128x16x256u2_s3_et128x16", "gemm", "fp8", None),
    # reformat
    (
        "void genericReformat::copyVectorizedKernel<double, __half, float, true>(unsigned int)",
        "reformat",
        "fp16",
        None,
    ),
    ("void onnxruntime::cuda::Transpose3DKernel<short, 32u>(long)", "reformat", None, None),
    (
        "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIter)>()",
        "reformat",
        None,
        None,
    ),
    ("__myl_bb8_1_Tra", "reformat", None, None),
    # copy
    ("void onnxruntime::cuda::_ConcatKernelInputMajor<short>(int)", "copy", None, None),
    ("__myl_bb4_7_Mov", "copy", None, None),
    ("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>(T1)", "copy", "bf16", None),
    # TensorRT 8 on convolutions of cuDNN's making
    ("volta_int8x4_icudnn_int8x4_128x32_relu_xregs_medium_c32_nn_v1", "convolution", "int8", None),
    ("turing_fp16_i8816cudnn_int8_128x128_ldg16_relu_small_nt_v1", "convolution", "int8", None),
    # TensorRT: the operands count, whatever is written
    ("sm89_xmma_gemm_f16e4m3_f16f32_f32_tn_n_tilesize128x128x64", "gemm", "fp16", None),
    ("sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize128x128x128_warpgroupsize1x1x1", "gemm", "fp8", True),
    # Inductor: products with one row, and what is not one
    ("triton_red_fused__fused_rms_norm__to_copy__unsafe_view_add_mm_mul_t_view_7", "gemm", None, None),
    ("triton_red_fused__to_copy_mm_mul_t_transpose_view_5", "gemm", None, None),
    ("triton_red_fused_addmm_3", "gemm", None, None),
    ("triton_red_fused__fused_rms_norm__to_copy__unsafe_view_add_3", "normalisation", None, None),
    ("triton_poi_fused__unsafe_view_mm_mul_silu_4", "elementwise", None, None),
    # embedding
    ("void onnxruntime::cuda::_GatherKernel<short>(long)", "embedding", None, None),
    ("void at::native::(anonymous namespace)::indexSelectLargeIndex<float>(T)", "embedding", "fp32", None),
    # communication
    ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "communication", None, None),
    # other
    ("divergence(int, int, double, bool *)", "other", "fp64", None),
    ("__omp_offloading_31_18a8104__Z_1...", "other", None, None),
]


@pytest.mark.parametrize(
    ("name", "kernel_class", "dtype", "tensor_cores"), CASES, ids=[case[0][:60] for case in CASES]
)
def test_names_of_real_kernels(name: str, kernel_class: str, dtype: str | None, tensor_cores: bool | None) -> None:
    kind = classify(name)
    assert (kind.kernel_class, kind.dtype, kind.tensor_cores) == (kernel_class, dtype, tensor_cores)


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("void at::native::(anonymous namespace)::k<float>(int)", "at::native::anonymous::k"),
        ("<unnamed>::copy(int *)", "anonymous::copy"),
        ("std::enable_if<T2>(int)0, void>::type vllm::norm<c10::BFloat16>(T1 *)", "vllm::norm"),
        ("nvjet_tst_192x8", "nvjet_tst_192x8"),
    ],
)
def test_a_kernels_own_name_is_without_return_type_templates_and_parameters(name: str, own: str) -> None:
    assert own_name(name) == own


@pytest.mark.parametrize(
    ("name", "kernel_class"),
    [
        ("gpu_broadcast_kernel_cartesian(CompilerMetadata<DynamicSize>)", "elementwise"),
        ("loop_broadcast_fusion", "elementwise"),
        ("vectorized_broadcast_add_kernel", "elementwise"),
        ("set_velocity_quantities_jl_L602", "other"),
        ("quantum_step", "other"),
        ("convection_flux", "other"),
        ("ray_scattering", "other"),
        ("forecast_step", "other"),
        ("void Kokkos::parallel<Kokkos::View<double *, Kokkos::LayoutRight>>(T)", "other"),
        ("fp8_upcast", "reformat"),
        ("NCHWCast", "reformat"),
        ("dynamicQuant", "quantize"),
        ("per_token_quant_fp8", "quantize"),
        ("dwconv2d", "convolution"),
        ("masked_scatter", "embedding"),
    ],
)
def test_a_word_is_matched_and_not_a_part_of_another(name: str, kernel_class: str) -> None:
    assert classify(name).kernel_class == kernel_class
