"""Tiles against products, counted by hand; and which kernel of real captures computes which product."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.unit.made_records import node as made_node

from inferprof.documents.graph import Gemm, Node
from inferprof.profilers import nsys
from inferprof.tables import schema
from inferprof.tables.limits import tiles
from inferprof.tables.limits.tiles import fit, groups_of, place
from inferprof.tables.nodes.product_kernels import Kernel, kernels_of, ties_of
from inferprof.tables.trace.tile_names import Tile

H100_SMS = 132


def gemm(m: int, n: int, k: int, count: int = 1) -> Gemm:
    return Gemm(m, n, k, count, "m" if count == 1 else "count")


def test_a_layer_of_vit_b_at_batch_64_fills_two_waves_and_a_quarter():
    found = fit(gemm(12608, 768, 768), Tile(128, 256, 64), H100_SMS)
    # 12608 / 128 = 98.5, so 99; 768 / 256 = 3: 297 blocks on 132 SMs
    assert (found.blocks, found.waves) == (297, 2.25)
    assert found.last_wave == 0.25
    assert found.padding == pytest.approx(1 - 12608 / 12672)
    assert found.work == 3 * 128 * 256 * 768
    assert found.efficiency == pytest.approx(12608 * 768 * 768 / 132 / found.work)


def test_a_tile_is_laid_the_way_that_takes_less_work():
    # 256 down and 128 across: 50 · 6 = 300 blocks, 3 waves as well, but more blocks; 128 down: 297
    assert fit(gemm(12608, 768, 768), Tile(256, 128, 64), H100_SMS).blocks == 297
    # nvjet lays its 128 along N: 6 · 22 = 132 blocks, one full wave; the other way it were 13 · 11 = 143
    assert fit(gemm(1576, 768, 768), Tile(128, 72, 64), H100_SMS).waves == 1.0


def test_attention_over_197_tokens_wastes_four_tenths_in_tiles_of_128():
    found = fit(gemm(197, 197, 64, count=96), Tile(128, 128), H100_SMS)
    assert found.blocks == 4 * 96
    assert found.padding == pytest.approx(1 - (197 / 256) ** 2)
    assert fit(gemm(256, 256, 64, count=96), Tile(128, 128), H100_SMS).padding == 0


def test_the_sum_is_rounded_up_to_the_step_of_the_tile():
    found = fit(gemm(128, 64, 197), Tile(128, 64, 32), H100_SMS)
    assert (found.padding, found.work) == (1 - 197 / 224, 128 * 64 * 224)


def test_blocks_that_share_an_sm_are_one_wave_of_more_blocks():
    found = fit(gemm(12608, 768, 768), Tile(128, 256, 64), H100_SMS, blocks_per_sm=2)
    assert (found.waves, found.last_wave) == (1.125, 0.4375)
    assert found.work == 2 * 2 * 128 * 256 * 768


def test_a_sum_that_is_split_has_more_blocks_with_less_work_each():
    whole, split = (fit(gemm(197, 768, 3072), Tile(64, 64, 64), H100_SMS, splits=splits) for splits in (1, 2))
    assert (whole.blocks, whole.waves < 1, whole.work) == (48, True, 64 * 64 * 3072)
    assert (split.blocks, split.waves < 1, split.work) == (96, True, 64 * 64 * 1536)
    assert split.efficiency == pytest.approx(2 * whole.efficiency)


def test_efficiency_is_the_share_of_the_paid_work_that_the_product_needs():
    for sizes in ((12608, 768, 768), (197, 64, 197), (8, 1000, 768), (1, 1, 1), (130, 260, 66)):
        for tile in (Tile(128, 256, 64), Tile(64, 64), Tile(256, 144, 32)):
            found = fit(gemm(*sizes), tile, H100_SMS)
            m, n, k = sizes
            assert found.efficiency == pytest.approx(m * n * k / H100_SMS / found.work)
            assert 0 < found.efficiency <= 1


# --- nodes and kernels -----------------------------------------------------------------------------------------


def node(name: str, product: Gemm | None, op: str = "MatMul") -> Node:
    return made_node(name=name, op=op, gemm=product)


def vit(batch: int, width: int, heads: int, layers: int = 12) -> list[Node]:
    """The products of a ViT with patches of 16 × 16, as timm builds it: query, key and value in one."""
    tokens, rows = 197, batch * 197
    nodes = [node("patch", gemm(batch * 196, width, 768), "Conv"), node("norm", None, "LayerNormalization")]
    for layer in range(layers):
        sizes = {
            "qkv": gemm(rows, 3 * width, width),
            "qk": gemm(tokens, tokens, width // heads, batch * heads),
            "av": gemm(tokens, width // heads, tokens, batch * heads),
            "proj": gemm(rows, width, width),
            "fc1": gemm(rows, 4 * width, width),
            "fc2": gemm(rows, width, 4 * width),
        }
        nodes += [node(f"{layer}/{name}", size) for name, size in sizes.items()]
    return [*nodes, node("head", gemm(batch, 1000, width), "Gemm")]


def test_products_of_the_same_sizes_are_one_group():
    groups = groups_of(vit(8, 768, 12))
    assert [(group.nodes[0], len(group.nodes)) for group in groups] == [
        ("0/fc1", 12),
        ("0/fc2", 12),
        ("0/qkv", 12),
        ("0/proj", 12),
        ("0/qk", 12),
        ("0/av", 12),
        ("patch", 1),
        ("head", 1),
    ]
    assert [group.convolution for group in groups].index(True) == 6


@pytest.fixture
def ort(captured: Callable[[str], Path]) -> Any:
    frame = nsys.read(captured("h100_ort_cuda_vit"))
    return frame.replace({"range": {"host_run": "iteration"}, "name": {"host_run": "iteration"}})


def test_each_kernel_of_a_capture_is_found_at_its_product(ort):
    """ViT-B/16 FP16, batch 8: cuBLAS has chosen tiles that make one wave of each layer."""
    placed = place(groups_of(vit(8, 768, 12)), kernels_of(ort), H100_SMS)
    assert [(one.group.nodes[0], one.nodes, one.tile.label, one.source, one.fit.waves) for one in placed] == [
        ("0/fc1", 12, "256x144x64", "grid", 1.0),
        ("0/fc2", 12, "128x72x64", "grid", 1.0),
        ("0/qkv", 12, "192x144x64", "grid", 1.0),
        ("0/proj", 12, "128x72x64", "grid", 1.0),
        ("0/qk", 12, "128x128", "grid", 384 / 132),
        ("0/av", 12, "64x64", "grid", 384 / 132),
        ("patch", 1, "128x256", "assumed", 39 / 132),
        ("head", 1, "64x8x64", "grid", 16 / 132),
    ]
    assert placed[6].kernel is not None and placed[6].kernel.startswith("void implicit_convolve_sgemm")
    assert placed[6].duration == pytest.approx(117_205, abs=1)


def test_names_alone_lead_to_the_same_products(ort):
    alone = ort[ort["level"] != "launch_config"]
    with_grids, without = (place(groups_of(vit(8, 768, 12)), kernels_of(frame), H100_SMS) for frame in (ort, alone))
    assert [one.kernel for one in with_grids] == [one.kernel for one in without]
    assert {one.source for one in without} == {"name", "assumed"}


def test_the_layers_of_an_eager_model_are_told_from_each_other(captured):
    """ViT-Tiny FP16, batch 8, torch, attention fused. By work and grid, fc1 and qkv may have either of two tiles."""
    nodes = [node for node in vit(8, 192, 3) if node.gemm and node.gemm.batch_in == "m"]
    placed = place(groups_of(nodes), kernels_of(nsys.read(captured("h100_torch_eager"))), H100_SMS)
    found = {one.group.nodes[0]: (one.nodes, one.tile.label) for one in placed}
    assert {found.pop("0/fc1"), found.pop("0/qkv")} == {(12, "128x72x64"), (12, "64x160x64")}
    assert found == {
        "0/fc2": (12, "64x64x64"),
        "0/proj": (12, "64x64x64"),
        "patch": (1, "128x256"),
        "head": (1, "64x8x64"),
    }


def test_of_tiles_with_equal_work_the_exact_grid_decides():
    (group,) = groups_of([node("a", gemm(1024, 1024, 64))])
    first = Kernel("gemm_a", Tile(128, 128, 64), 64, launches=1, duration=1.0)
    second = Kernel("gemm_b", Tile(128, 128, 64), 80, launches=1, duration=1.0)
    assert place([group], [second, first], H100_SMS)[0].kernel == "gemm_a"


def test_launches_are_those_of_an_iteration_whatever_else_the_capture_holds(ort):
    found = {kernel.name[:30]: (kernel.launches, kernel.blocks) for kernel in kernels_of(ort)}
    assert found == {
        "nvjet_sm90_hsh_128x72_64x8_1x2": (24, 132),
        "nvjet_sm90_hsh_192x144_64x5_2x": (12, 132),
        "nvjet_sm90_hsh_256x144_64x4_2x": (12, 132),
        "nvjet_sm90_hsh_64x8_64x16_4x1_": (1, 16),
        "void cutlass::Kernel2<cutlass_": (12, 384),
        "void implicit_convolve_sgemm<_": (1, 1176),
    }


def test_without_kernels_the_tile_is_assumed():
    (placed,) = place(groups_of([node("a", gemm(256, 512, 64))]), [], H100_SMS)
    assert (placed.tile, placed.source, placed.kernel, placed.duration) == (
        tiles.ASSUMED,
        "assumed",
        None,
        None,
    )


def test_nodes_that_share_a_launch_get_the_best_tile_of_the_case_and_no_time():
    groups = groups_of([node(name, gemm(1024, 1024, 1024)) for name in "abc"])
    kernel = Kernel("nvjet_hsh_128x128_64x4_1x2_h_bz_TNN", Tile(128, 128, 64), 64, launches=1, duration=500.0)
    assert [(one.nodes, one.source, one.duration) for one in place(groups, [kernel], H100_SMS)] == [
        (1, "grid", 500.0),
        (2, "name", None),
    ]


def test_a_grid_that_is_a_multiple_of_the_tiles_splits_the_sum():
    groups = groups_of([node("fc2", gemm(197, 768, 3072))])
    kernel = Kernel("ampere_fp16_s16816gemm_fp16_64x64_ldg8_f2f_stages_64x5_tn", Tile(64, 64, 64), 48 * 3, 1, 9.0)
    (placed,) = place(groups, [kernel], H100_SMS)
    assert (placed.splits, placed.source, placed.fit.blocks) == (3, "grid", 144)


def test_a_grid_of_another_number_of_tiles_speaks_against_a_product():
    groups = groups_of([node("wide", gemm(8192, 4096, 512)), node("deep", gemm(8192, 512, 4096))])
    first = Kernel("gemm_a", Tile(128, 128, 64), 64 * 32, launches=1, duration=2.0)
    second = Kernel("gemm_b", Tile(128, 128, 64), 64 * 4, launches=1, duration=3.0)
    assert {one.group.nodes[0]: one.kernel for one in place(groups, [second, first], H100_SMS)} == {
        "wide": "gemm_a",
        "deep": "gemm_b",
    }


def test_rows_that_a_kernel_cannot_load_speak_against_a_product():
    groups = groups_of([node("even", gemm(1576, 192, 768)), node("uneven", gemm(197, 64, 197, count=24))])
    single = Kernel(
        "cutlass_75_wmma_tensorop_f16_s161616gemm_f16_32x32_64x2_nn_align1", Tile(32, 32, 64), None, 1, 9.0
    )
    eight = Kernel("nvjet_sm90_hsh_64x64_64x13_1x4_h_bz_NNT", Tile(64, 64, 64), None, 1, 3.0)
    assert {one.group.nodes[0]: one.tile.m for one in place(groups, [single, eight], H100_SMS)} == {
        "even": 64,
        "uneven": 32,
    }


@pytest.mark.parametrize(
    ("launched", "tiles_", "may"),
    [
        (384, 384, True),
        (384, 400, False),
        (132, 264, True),  # persistent, two tiles each
        (120, 264, True),
        (16, 591, False),  # so few blocks would leave the GPU idle
        (84, 75, True),  # clusters of four
        (96, 30, False),
    ],
)
def test_a_grid_is_that_of_the_tiles_or_of_the_gpu(launched, tiles_, may):
    assert tiles._may_launch(launched, tiles_, H100_SMS) is may


def test_a_trace_that_ties_a_kernel_to_a_node_decides():
    """By work alone the larger product would have the larger tile."""
    groups = groups_of([node("large", gemm(4096, 4096, 512)), node("small", gemm(512, 512, 512))])
    wide = Kernel("gemm_256x128", Tile(256, 128, 64), None, launches=1, duration=9.0)
    narrow = Kernel("gemm_64x64", Tile(64, 64, 64), None, launches=1, duration=3.0)
    ties = {"large": frozenset(["gemm_64x64"])}
    free, tied = (place(groups, [wide, narrow], H100_SMS, known) for known in ({}, ties))
    assert [(one.group.nodes[0], one.kernel, one.source) for one in free] == [
        ("large", "gemm_256x128", "name"),
        ("small", "gemm_64x64", "name"),
    ]
    assert [(one.group.nodes[0], one.kernel, one.source) for one in tied] == [
        ("large", "gemm_64x64", "node"),
        ("small", "gemm_256x128", "name"),
    ]


def test_ties_are_of_products_and_a_fused_node_has_the_name_of_its_first():
    parent = "CUDAExecutionProvider > MatMul > "
    rows = [
        ("nvjet_sm90_hsh_128x72_64x8_1x2_h_bz_NNT", f"{parent}/layer.0/MatMul"),
        ("nvjet_sm90_hsh_64x64_64x13_1x4_h_bz_NNT", f"{parent}/layer.1/MatMul/MatMulScaleFusion/"),
        ("void onnxruntime::cuda::Transpose3DKernel<short>(long)", f"{parent}/layer.0/MatMul"),
        ("nvjet_sm90_hsh_64x64_64x13_1x4_h_bz_NNT", None),
    ]
    frame = schema.conform(
        pd.DataFrame(
            [
                {
                    "level": "kernel",
                    "name": name,
                    "owner": owner,
                    "metric": "duration_total",
                    "value": 9.0,
                    "instances": 1,
                }
                for name, owner in rows
            ]
        ),
        "ort_nodes",
    )
    assert ties_of(frame) == {
        "/layer.0/MatMul": frozenset(["nvjet_sm90_hsh_128x72_64x8_1x2_h_bz_NNT"]),
        "/layer.1/MatMul": frozenset(["nvjet_sm90_hsh_64x64_64x13_1x4_h_bz_NNT"]),
    }
