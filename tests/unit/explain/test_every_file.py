"""Every file of other people and of our own captures: an answer in twenty lines, right numbers, or one line."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from inferprof.errors import UserError
from inferprof.explain import explain
from inferprof.explain.answer import MOST_LINES, entries, render
from inferprof.explain.parts import parts_of

Expected = tuple[str, int, int, str, str]
REFUSED: Final = "refused in one line"
FAILED: Final = "said to hold no result"
ENGINES: Final = (
    "captures/h100-ort-tensorrt-ep/engine_cache/"
    "TensorrtExecutionProvider_TRTKernel_graph_fallback_17722146467878602609"
)
ANSWERS: Final[dict[str, Expected | str]] = {
    "real/kineto/hta_2023_cupti_profiler_counters.json.gz": FAILED,
    "real/kineto/hta_2023_fbgemm_sampled_us_ints.json.gz": ("kineto", 606519000, 2, "kernels 44.5", "gaps"),
    "real/kineto/hta_2023_simple_add_training.json.gz": (
        "kineto",
        10728000,
        0,
        "waiting for the host's launches 98.8",
        "tf32",
    ),
    "real/kineto/hta_2024_ns_resolution_displayTimeUnit.json.gz": ("kineto", 468153602, 5, "kernels 96.8", ""),
    "real/kineto/hta_amd_mi250_rocm6.2.json.gz": (
        "kineto",
        110881,
        2,
        "waiting for the host's launches 95.1",
        "cuda_graph",
    ),
    "real/kineto/hta_rank_non_gpu.json.gz": ("kineto", 0, 0, "between the operators 62.7", "cpu_operators"),
    "real/kineto/hta_triton_example.json.gz": ("kineto", 1760, 0, "idle at the end 100.0", "hot_kernel"),
    "real/kineto/tracelens_b200_eager.json.gz": (
        "kineto",
        10862916,
        1,
        "waiting for the host's launches 81.4",
        "cuda_graph",
    ),
    "real/kineto/tracelens_mi300_bert_small.json.gz": (
        "kineto",
        388344,
        1,
        "waiting for the host's launches 66.1",
        "cuda_graph",
    ),
    "real/kineto/tracelens_sglang_qwen3_decode.json.gz": (
        "kineto",
        9765437,
        1,
        "idle after the launch 97.8",
        "implicit_sync",
    ),
    "real/kineto/tracelens_torch_compile_triton.json.gz": ("kineto", 12549021, 0, "kernels 97.6", "hot_kernel"),
    "real/ncu_csv/ncu_cli_text_openmp_nvhpc.txt": ("ncu", 106030000, 0, "", "ncu_bound"),
    "real/ncu_csv/ncu_cli_text_rtx30_spec_xc_first400lines.txt": ("ncu", 14680000, 0, "", "ncu_bound"),
    "real/ncu_csv/ncu_details_a100_julia_rules.csv": ("ncu", 31093590, 0, "", "low_occupancy"),
    "real/ncu_csv/ncu_metrics_rtx5070_windows_bom_stdout_gemm_naive.csv": ("ncu", 9589248, 0, "", "ncu_bound"),
    "real/ncu_csv/ncu_metrics_rtx5070_windows_bom_stdout_saxpy.csv": ("ncu", 292928, 0, "", ""),
    "real/ncu_csv/ncu_metrics_rtx5070_windows_version.txt": REFUSED,
    "real/ncu_csv/ncu_no_kernels_only_prof_lines.csv": REFUSED,
    "real/ncu_csv/ncu_raw_b200_flashinfer_decode_16launches.csv": ("ncu", 266496, 0, "", "ncu_bound"),
    "real/ncu_csv/ncu_raw_rtx30_spec_xc_918launches.csv.gz": ("ncu", 2311128576, 0, "", "low_occupancy"),
    "real/nsys_csv/cuda_gpu_kern_sum_in_transcript_nvhpc_openmp.txt": ("nsys", 1014055, 0, "", "hot_kernel"),
    "real/nsys_csv/cuda_gpu_kern_sum_nsys2025.3.2_a100_vllm_qwen2.5-7b.csv": (
        "nsys",
        2081145534,
        0,
        "",
        "hot_kernel",
    ),
    "real/nsys_csv/cuda_gpu_kern_sum_nvtxname_base_nsys2026.1.1_torch.txt": ("nsys", 29009177465, 0, "", ""),
    "real/nsys_csv/cuda_gpu_mem_size_sum_nsys2025.3.2_a100_vllm_qwen2.5-7b.csv": ("nsys", 0, 0, "", ""),
    "real/nsys_csv/cuda_gpu_trace_nsys2025.3.2_jetson_thor.csv": ("nsys", 108448, 0, "", "hot_kernel"),
    "real/nsys_csv/nsys_profile_stats_2020_dli_qdrep.txt": ("nsys", 3571860, 0, "", "hot_kernel"),
    "real/nsys_csv/nsys_profile_stats_nsys2022.4_gpukernsum_vecadd.txt": ("nsys", 25610621473, 0, "", "hot_kernel"),
    "real/nsys_csv/nsys_stats_all_nsys2021.1_comma_decimal_openacc.txt": ("nsys", 6433, 0, "", "hot_kernel"),
    "real/nsys_csv/nsys_stats_all_nsys2022.4.2_cupy.txt": ("nsys", 3439085, 0, "", "hot_kernel"),
    "real/nsys_csv/nsys_stats_all_nsys2022.4.2_numba_shell_prompt.txt": ("nsys", 261597, 0, "", "hot_kernel"),
    "real/nsys_csv/nsys_stats_all_nsys2024.6.2_a100_graphtrace_skipped.txt": ("nsys", 78270, 0, "", "hot_kernel"),
    "real/nsys_csv/nsys_stats_all_nsys2025.3.2_a100_clima.txt": ("nsys", 1657755722, 0, "", ""),
    "real/nsys_csv/nvtx_pushpop_trace_nsys2025.3.2_jetson_thor.csv": ("nsys", 0, 0, "", ""),
    "real/nsys_other/magic_bytes_of_binary_reports.txt": REFUSED,
    "real/nsys_sqlite/nsys2020_noversion_v100.sqlite": ("nsys", 7736883740, 0, "kernels 55.8", "hot_kernel"),
    "real/nsys_sqlite/nsys2021.5.2_schema2.7.0_a100_nvtx_cudnn.sqlite": (
        "nsys",
        67790352,
        0,
        "idle after the launch 68.9",
        "",
    ),
    "real/nsys_sqlite/nsys2022.2.1_schema2.9.1_a100_mpi_nvtx.sqlite": (
        "nsys",
        88573480,
        5,
        "idle at the end 65.9",
        "implicit_sync",
    ),
    "real/nsys_sqlite/nsys2023.3.1_schema3.4.0_rtx3060.sqlite": (
        "nsys",
        50141024507,
        0,
        "kernels 99.9",
        "hot_kernel",
    ),
    "real/nsys_sqlite/nsys2024.6.2_schema3.16.1_a100_graphtrace.sqlite": (
        "nsys",
        78270,
        10,
        "kernels 100.0",
        "hot_kernel",
    ),
    "real/nsys_sqlite/nsys2025.3.2_schema3.20.3_a100_resnet50_infer.sqlite": (
        "nsys",
        159443486,
        5,
        "kernels 98.3",
        "conversions",
    ),
    "real/nsys_sqlite/nsys2025.3.2_schema3.20.3_nokernels_vllm.sqlite": REFUSED,
    "real/nsys_sqlite/nsys2026.1.1_schema3.24.14_rtx3080_small.sqlite": (
        "nsys",
        4129,
        0,
        "waiting for the host's launches 99.7",
        "hot_kernel",
    ),
    "real/nsys_sqlite/nsys2026.3.1_schema3.27.0_a100_torch_fwd.sqlite": (
        "nsys",
        43541000,
        1,
        "kernels 75.9",
        "tf32",
    ),
    "real/ort_profile/excerpt_ort0.4.0_unnamed_nodes.json": ("ort_profile", 0, 0, "", "cpu_operators"),
    "real/ort_profile/excerpt_ort_2024_thread_scheduling_stats.json": ("ort_profile", 0, 0, "", "cpu_operators"),
    "real/ort_profile/ort_2019-06_cpu_mnist_no_provider.json": (
        "ort_profile",
        0,
        0,
        "nodes whose provider is not told 80.0",
        "cpu_operators",
    ),
    "real/ort_profile/ort_2019_mkldnn_fences.json": (
        "ort_profile",
        0,
        0,
        "nodes of MKLDNNExecutionProvider 97.7",
        "",
    ),
    "real/trt_json/trex_repo10.13_resnet18_a100_fp16.build.metadata.json": ("trtexec", 0, 0, "", ""),
    "real/trt_json/trt10_resnet18_engine_info_inspector.json": ("trt_layers", 0, 0, "", ""),
    "real/trt_json/trt10_resnet18_layer_latency_custom_iprofiler.json": ("trt_layers", 0, 0, "layers 96.8", ""),
    "real/trt_json/trt10_trtexec_alexnet_fp16.build.metadata.json": ("trtexec", 0, 0, "", ""),
    "real/trt_json/trt10_trtexec_alexnet_fp16.graph.json": ("trt_layers", 0, 0, "", ""),
    "real/trt_json/trt10_trtexec_alexnet_fp16.profile.json": (
        "trt_layers",
        0,
        0,
        "gemm layers 72.5",
        "engine_layers",
    ),
    "real/trt_json/trt10_trtexec_alexnet_fp16.profile.metadata.json": (
        "trtexec",
        0,
        0,
        "kernels 99.7",
        "trtexec_bound",
    ),
    "real/trt_json/trt10_trtexec_alexnet_fp16.timing.json.gz": ("trtexec", 0, 0, "kernels 99.7", "trtexec_bound"),
    "real/trt_json/trt7_jetson_resnet50_int8_exportProfile_concatenated.json": (
        "trt_layers",
        0,
        0,
        "layers 100.0",
        "",
    ),
    "real/trt_json/trt7_jetson_resnet50_int8_exportTimes_concatenated.json.gz": (
        "trtexec",
        0,
        0,
        "kernels 97.3",
        "trtexec_bound",
    ),
    "real/trt_json/trt8_trex_mobilenet_qat.build.metadata.json": ("trtexec", 0, 0, "", ""),
    "real/trt_json/trt8_trex_mobilenet_qat.graph.json": ("trt_layers", 0, 0, "", ""),
    "real/trt_json/trt8_trex_mobilenet_qat.profile.json": (
        "trt_layers",
        0,
        0,
        "CaskConvolution layers 63.4",
        "engine_layers",
    ),
    "real/trt_json/trt8_trex_mobilenet_qat.profile.metadata.json": ("trtexec", 0, 0, "kernels 99.6", "trtexec_bound"),
    "real/trt_json/trt8_trex_mobilenet_qat.timing.json.gz": ("trtexec", 0, 0, "kernels 99.6", "trtexec_bound"),
    "real/trt_json/trt8_trex_resnet18_a100_fp16.build.metadata.json": ("trtexec", 0, 0, "", ""),
    "real/trt_json/trt8_trex_resnet18_a100_fp16.graph.json": ("trt_layers", 0, 0, "", ""),
    "real/trt_json/trt8_trex_resnet18_a100_fp16.metadata.json": ("trtexec", 0, 0, "", ""),
    "real/trt_json/trt8_trex_resnet18_a100_fp16.profile.json": (
        "trt_layers",
        0,
        0,
        "CaskConvolution layers 84.3",
        "engine_layers",
    ),
    "real/trt_json/trt8_trex_resnet18_a100_fp16.profile.metadata.json": (
        "trtexec",
        0,
        0,
        "kernels 99.7",
        "trtexec_bound",
    ),
    "real/trt_json/trt8_trex_resnet18_a100_fp16.timing.json.gz": ("trtexec", 0, 0, "kernels 99.7", "trtexec_bound"),
    "real/trt_json/trt_detr_layer_names_only_exportLayerInfo.json": ("trt_layers", 0, 0, "", ""),
    "real/trt_log/trt10.16.1_trtexec_build_and_infer.log": ("trtexec", 0, 0, "kernels 55.3", "trtexec_bound"),
    "real/trt_log/trt10.16.1_trtexec_cudagraph_spinwait_verbose.log": (
        "trtexec",
        0,
        0,
        "kernels 96.5",
        "trtexec_bound",
    ),
    "real/trt_log/trt10.16.1_trtexec_under_nsys.log": ("trtexec", 0, 0, "kernels 56.6", "trtexec_bound"),
    "real/trt_log/trt7.1_jetson_resnet50_trtexec.txt": ("trtexec", 0, 0, "kernels 98.5", "trtexec_bound"),
    "real/trt_log/trt8.2.3_trtexec_fp16.txt": FAILED,
    "real/trt_log/trt8.4.1_trtexec_load_and_infer.log.gz": ("trtexec", 0, 0, "kernels 99.3", "trtexec_bound"),
    "captures/h100-ort-cuda-vit/kineto.json.gz": (
        "kineto",
        6045955,
        3,
        "waiting for the host's launches 55.1",
        "cuda_graph",
    ),
    "captures/h100-ort-cuda-vit/ncu_details.csv": ("ncu", 80700, 0, "", "low_occupancy"),
    "captures/h100-ort-cuda-vit/ncu_raw.csv": ("ncu", 80704, 0, "", "low_occupancy"),
    "captures/h100-ort-cuda-vit/nsys.sqlite.xz": (
        "nsys",
        70311660,
        10,
        "waiting for the host's launches 40.5",
        "cuda_graph",
    ),
    "captures/h100-ort-cuda-vit/nsys_cuda_gpu_kern_sum.csv": ("nsys", 70311660, 0, "", "conversions"),
    "captures/h100-ort-cuda-vit/ort_profile.json.gz": (
        "ort_profile",
        0,
        0,
        "nodes of CUDAExecutionProvider 73.3",
        "",
    ),
    **{f"{ENGINES}_{number}_{number}.engine": REFUSED for number in range(2)},
    "captures/h100-ort-tensorrt-ep/nsys.sqlite.xz": (
        "nsys",
        2315543,
        20,
        "waiting for the host's launches 39.8",
        "kernel_loops",
    ),
    "captures/h100-ort-tensorrt-ep/ort_profile.json.gz": (
        "ort_profile",
        0,
        0,
        "nodes of TensorrtExecutionProvider 78.1",
        "fallback",
    ),
    "captures/h100-ort-tensorrt-ep/planted_fallback.onnx": REFUSED,
    "captures/h100-tensorrt-8.5-vit2/layers.json": ("trt_layers", 0, 0, "", ""),
    "captures/h100-tensorrt-8.5-vit2/nsys.sqlite.xz": ("nsys", 2451209, 9, "kernels 77.1", "unfused_attention"),
    "captures/h100-tensorrt-8.5-vit2/nsys_cuda_gpu_kern_sum.csv": ("nsys", 2451209, 0, "", "unfused_attention"),
    "captures/h100-tensorrt-8.5-vit2/profile.json": ("trt_layers", 0, 0, "fused regions 61.1", "engine_layers"),
    "captures/h100-torch-vit-tiny/ncu_details.csv": ("ncu", 19870, 0, "", "low_occupancy"),
    "captures/h100-torch-vit-tiny/nsys_eager.sqlite.xz": (
        "nsys",
        7460568,
        10,
        "waiting for the host's launches 90.9",
        "cuda_graph",
    ),
    "captures/h100-torch-vit-tiny/nsys_eager_cuda_gpu_kern_sum.csv": ("nsys", 7460568, 0, "", ""),
    "captures/h100-torch-vit-tiny/nsys_graph_graph_trace.sqlite.xz": (
        "nsys",
        3951064,
        10,
        "kernels 93.1",
        "hot_kernel",
    ),
    "captures/h100-torch-vit-tiny/nsys_graph_node_trace.sqlite.xz": ("nsys", 8788207, 10, "kernels 73.4", ""),
    "captures/h100-torch-vit-tiny/nsys_graph_node_trace_cuda_gpu_kern_sum.csv": ("nsys", 8788207, 0, "", ""),
    "captures/h200x2-tensor-parallel/nsys.sqlite.xz": ("nsys", 36564320, 20, "kernels 74.5", "launch_bound_rank"),
}
"""File → tool, ns in its kernels, iterations, the largest part with its percentage, the check that comes first.

The kernels' times are those that were read by eye or by an independent script (PROVENANCE.md, captures/README.md).
"""


@pytest.mark.parametrize("name", ANSWERS)
def test_a_file_is_answered_as_expected_or_refused_in_one_line(name: str, shared: Path) -> None:
    expected = ANSWERS[name]
    if expected == REFUSED:
        with pytest.raises(UserError) as caught:
            explain([shared / name])
        assert "\n" not in str(caught.value)
        return
    (case,) = explain([shared / name])
    lines = render(case).splitlines()
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= 100
    labels = [entry.label for entry in entries(case)]
    if expected == FAILED:
        assert "failed" in labels
        assert "cause" not in labels
        return
    assert {"ran", "cause", "not told"} <= set(labels)
    rows = case.rows[case.rows["tool"].eq(case.captures[0].tool)]
    kernels = rows[rows["level"].eq("kernel") & rows["metric"].eq("duration_total")]
    parts = parts_of(case)
    largest = max(parts[2].items(), key=lambda part: part[1]) if parts else None
    if parts:
        assert sum(parts[2].values()) == pytest.approx(parts[1])
        assert min(parts[2].values()) >= 0
    groups = case.verdict.groups
    assert (
        case.captures[0].tool,
        int(kernels["value"].sum()),
        case.choice.count if case.choice else 0,
        f"{largest[0]} {100 * largest[1] / parts[1]:.1f}" if parts and largest else "",
        groups[0].findings[0].check if groups else "",
    ) == expected


def test_every_file_beside_the_checkout_is_in_the_table(shared: Path) -> None:
    there = {
        str(path.relative_to(shared))
        for folder in ("real", "captures")
        for path in (shared / folder).rglob("*")
        if path.is_file() and path.suffix not in (".md", ".py") and path.name != ".gitattributes"
    }
    assert {name for name in there if "real/onnx/" not in name} == set(ANSWERS)
