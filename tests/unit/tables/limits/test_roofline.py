"""Times at the roof, computed by hand, and where the roofs come from."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from msgspec.structs import replace
from tests.unit.made_records import document, made
from tests.unit.made_records import node as made_node

from inferprof.documents import Ceilings, Cost, Environment
from inferprof.documents.base import Unknown
from inferprof.documents.graph import Node
from inferprof.documents.machine import GpuFacts
from inferprof.machine import peaks
from inferprof.readers import ncu_csv, ncu_launches
from inferprof.tables import roofs, schema
from inferprof.tables.counters import kernel_roofline
from inferprof.tables.limits import roofline
from inferprof.tables.nodes import node_roofline
from inferprof.tables.records import KEY, frame_of
from inferprof.tables.roofs import Roof, Roofs

H100 = GpuFacts(name="NVIDIA H100 80GB HBM3", memory_mib=81559, sm_count=132, used=True)
H100_PEAKS = roofs.datasheet(H100)
LIMITS = Roofs(
    {
        "fp16": Roof(100e12, "measured"),
        "int8": Roof(200e12, "datasheet"),
        "fp32": Roof(10e12, "measured"),
        "tf32": Roof(50e12, "datasheet"),
    },
    Roof(1e12, "measured"),
    l2_bytes=50 << 20,
    sparsity=2,
)


def node(name: str, dtype: str, flops: int | None, moved: int = 0, weights: int = 0, **more: Any) -> Node:
    return made_node(**{"name": name, "dtype": dtype, "flops": flops, "read": moved, "weights": weights, **more})


def graph(*nodes: Node, weights: int = 10**8) -> Cost:
    return Cost(shape="b8", inputs=1000, outputs=1000, weights=weights, nodes=list(nodes))


# --- where roofs come from ----------------------------------------------------------------------------------------


def test_without_a_measurement_the_roof_is_the_datasheets():
    found = roofs.roofs(roofs.datasheet(H100), None, None)
    assert found.flops["fp16"] == Roof(989.4e12, "datasheet")
    assert (found.bandwidth, found.l2_bytes, found.sparsity) == (Roof(3352e9, "datasheet"), 50 << 20, 2)


def test_a_measured_ceiling_is_used_instead_of_the_datasheet():
    content = {
        "gemm": {"fp16": {"flops_per_s": 700e12, "by_size": {}}, "fp8": {"not_measured": "torch lacks it"}},
        "memory": {"read": {"bytes_per_s": 3.0e12}, "triad": {"bytes_per_s": 2.9e12}},
    }
    bandwidth = document("bandwidth", {"d2d": {"gb_per_s": 2800.0, "latency_ns": 0, "by_size": {}}})
    found = roofs.roofs(roofs.datasheet(H100), document("ceilings", content), bandwidth)
    assert found.flops["fp16"] == Roof(700e12, "measured")
    assert found.flops["fp8"] == Roof(1978.9e12, "datasheet")
    assert found.bandwidth == Roof(3.0e12, "measured")
    nothing = roofs.roofs(roofs.datasheet(H100), Ceilings(not_measured="torch is not installed"), None)
    assert nothing == roofs.roofs(roofs.datasheet(H100), None, None)
    full = document("ceilings", {"memory": {"read": {"not_measured": "out of memory"}}})
    assert roofs.roofs(None, full, None).bandwidth is None


def test_the_l2_is_the_one_that_the_driver_tells():
    found = roofs.roofs(roofs.datasheet(H100), document("ceilings", {"l2_bytes": 60 << 20}), None)
    assert found.l2_bytes == 60 << 20


def test_an_unknown_gpu_has_the_roofs_that_were_measured_and_no_other():
    assert roofs.datasheet(GpuFacts(name="NVIDIA Something New", memory_mib=81559)) is None
    assert roofs.roofs(None, None, None) == Roofs({}, None)
    found = roofs.roofs(None, document("ceilings", {"gemm": {"fp16": {"flops_per_s": 1e14}}}), None)
    assert (dict(found.flops), found.bandwidth) == ({"fp16": Roof(1e14, "measured")}, None)


def test_a_mig_instance_and_a_gpu_with_other_sms_have_no_datasheet():
    assert roofs.datasheet(replace(H100, sm_count=114)) is None
    assert roofs.datasheet(GpuFacts(name="NVIDIA H100 80GB HBM3", mig_instance=True, used=True)) is None
    assert roofs.datasheet(replace(H100, memory_mib=Unknown(value=None, reason="NVML"))) is not None


def test_the_gpu_in_use_is_the_one_that_the_machine_says():
    assert roofs.gpu_in_use(Environment(gpus=[GpuFacts(name="NVIDIA L4"), H100])) == H100
    assert roofs.gpu_in_use(Environment(gpus=Unknown(value=None, reason="no NVML"))) is None
    assert roofs.gpu_in_use(Environment(gpus=[])) is None
    assert roofs.gpu_in_use(None) is None


# --- graphs -------------------------------------------------------------------------------------------------------


def test_the_fused_graph_is_bound_by_the_slower_of_its_flops_and_its_bytes():
    found = roofline.of_graph(graph(node("a", "float16", 2 * 10**9)), LIMITS)
    assert found["limit"] == "memory"
    assert found["fused_ms"] == pytest.approx((10**8 + 2000) / 1e12 * 1e3)
    assert found["intensity"] == pytest.approx(2e9 / (1e8 + 2000))
    found = roofline.of_graph(graph(node("a", "float16", 2 * 10**10, 5), weights=500), LIMITS)
    assert (found["limit"], found["fused_ms"], found["bytes"]) == ("compute", pytest.approx(0.2), 2500)
    assert (found["source"], found["kind"], found["in_l2"]) == ("measured", "fp16", True)


def test_each_product_has_the_peak_of_its_type_and_the_mix_has_their_harmonic_mean():
    found = roofline.of_graph(graph(node("a", "float16", 10**12), node("b", "uint8", 4 * 10**12)), LIMITS)
    assert found["fused_ms"] == pytest.approx(10 + 20)
    assert found["peak_flops"] == pytest.approx(5e12 / 30e-3)
    assert (found["kind"], found["source"]) == ("int8", "measured, datasheet")


def test_what_is_no_product_runs_beside_the_tensor_cores():
    rest = node("softmax", "float16", 10**10, product=False)
    slow = node("softmax", "float16", 2 * 10**11, product=False)
    products = node("a", "float16", 10**12)
    assert roofline.of_graph(graph(products, rest), LIMITS)["fused_ms"] == pytest.approx(10)
    assert roofline.of_graph(graph(products, slow), LIMITS)["fused_ms"] == pytest.approx(20)


def test_unfused_is_the_sum_of_the_nodes_at_their_own_roofs():
    cost = graph(
        node("a", "float16", 10**11, moved=10**6),
        node("b", "float16", 10**6, moved=10**9, weights=10**9),
        node("add", "float16", 10**6, moved=10**9, product=False),
        node("magic", "unknown", None, moved=10**9, product=False),
    )
    found = roofline.nodes(cost, LIMITS)
    assert list(found["limit"]) == ["compute", "memory", "memory", "memory"]
    assert list(found["roof_ns"]) == pytest.approx([1e6, 2e6, 1e6, 1e6])
    assert found["intensity"][1] == pytest.approx(1e6 / 2e9)
    whole = roofline.of_graph(cost, LIMITS)
    assert (whole["unfused_ms"], whole["uncounted"]) == (pytest.approx(5.0), 1)


def test_tf32_and_sparse_weights_have_peaks_of_their_own():
    fp32 = graph(node("a", "float32", 10**12, weights=1), weights=0)
    assert roofline.of_graph(fp32, LIMITS)["fused_ms"] == pytest.approx(100)
    assert roofline.of_graph(fp32, LIMITS.of_variant({"tf32": True}))["fused_ms"] == pytest.approx(20)
    pruned, dense = node("a", "float16", 10**12, sparse=True), node("qk", "float16", 10**12)
    assert roofline.of_graph(graph(pruned, dense), LIMITS)["fused_ms"] == pytest.approx(10 + 10)
    sparse = LIMITS.of_variant({"sparsity": True})
    assert roofline.of_graph(graph(pruned, dense), sparse)["fused_ms"] == pytest.approx(5 + 10)


@pytest.mark.parametrize(
    ("cost", "limits", "reason"),
    [
        (graph(node("a", "float4e2m1", 10)), LIMITS, "the GPU's peak in fp4 is neither measured nor on file"),
        (graph(node("a", "float16", 10)), Roofs({}, None), "the GPU's bandwidth is neither measured nor on file"),
        (
            replace(graph(node("a", "float16", 10)), inputs=None),
            LIMITS,
            "sizes of its inputs, outputs or weights could not be inferred",
        ),
    ],
)
def test_what_is_not_known_has_a_reason_and_no_time(cost, limits, reason):
    found = roofline.of_graph(cost, limits)
    assert (found["not_known"], "fused_ms" in found) == (reason, False)


def case_rows(**device_ms: float | None) -> pd.DataFrame:
    rows = [
        {**dict(zip(KEY, ["box", "vit", "fp32", backend, "default", "b8"], strict=True)), "device_ms": ms}
        for backend, ms in device_ms.items()
    ]
    return frame_of(rows, [*KEY, "device_ms"]).astype({"device_ms": float})


def test_a_case_has_the_roof_of_its_variant_and_a_cpu_case_none():
    measured = case_rows(ort_cuda=2.0, ort_cpu=None)
    records = frame_of(
        [{**dict(zip(KEY, measured.loc[0, KEY], strict=True)), "record": made({"options": {"tf32": True}})}],
        [*KEY, "record"],
    )
    cost = graph(node("a", "float32", 10**11), weights=0)
    found = roofline.by_case(measured, records, {("vit", "fp32", "b8"): cost}, LIMITS)
    assert list(found["backend"]) == ["ort_cuda"]
    assert (found["fused_ms"][0], found["kind"][0], found["device_ms"][0]) == (pytest.approx(2.0), "tf32", 2.0)


def test_a_case_without_a_count_says_which_file_it_wants():
    found = roofline.by_case(case_rows(ort_cuda=2.0), frame_of([], [*KEY, "record"]), {}, LIMITS)
    assert found["not_known"][0] == "there is no onnx/vit/fp32.b8.cost.json"


# --- nodes of a trace ---------------------------------------------------------------------------------------------


def test_a_node_loses_what_its_kernels_take_beyond_its_roof_and_a_fused_one_keeps_its_name():
    nodes = roofline.nodes(
        graph(
            node("/fc", "float16", 10**8, moved=10),
            node("/qk", "float16", 10**8, moved=10),
            node("/magic", "float16", None, read=None),
        ),
        LIMITS,
    )
    owners = pd.DataFrame(
        [
            ["/fc", 5000, 1],
            ["/qk/MatMulScaleFusion/", 8000, 2],
            ["/magic", 900, 1],
            ["/gone", 100, 1],
            [None, 700, 3],
        ],
        columns=["owner", "duration_ns", "instances"],
    )
    found = node_roofline.of_owners(owners, nodes, runs=2)
    assert list(found["owner"]) == ["/qk/MatMulScaleFusion/", "/fc"]
    assert list(found["duration_ns"]) == [4000, 2500]
    assert list(found["distance"]) == pytest.approx([4.0, 2.5])
    assert list(found["lost_ns"]) == pytest.approx([3000, 1500])


# --- kernels ------------------------------------------------------------------------------------------------------


def launches(*launches: dict[str, float]) -> pd.DataFrame:
    rows = [
        {"level": "kernel", "name": "gemm", "launch": number, "metric": metric, "value": value}
        for number, found in enumerate(launches)
        for metric, value in found.items()
    ]
    return schema.conform(pd.DataFrame(rows), "ncu")


def test_a_kernel_is_held_against_the_roof_of_its_tensor_operations_and_its_bytes():
    traffic = {"dram_bytes_read": 6e8, "dram_bytes_written": 4e8}
    found = kernel_roofline.of_case(
        launches(
            {"duration_total": 4e6, "tensor_ops_fp16": 2e11, "tensor_ops_int8": 0.0, **traffic},
            {"duration_total": 4e6, "tensor_ops_fp16": 0.0, **traffic},
            {"duration_total": 4e6, "tensor_ops_bf16": 1.0, **traffic},
            {"duration_total": 4e6, "dram_bytes_read": 1.0},
        ),
        LIMITS,
    )
    assert list(found["launch"]) == [0, 1]
    assert list(found["limit"]) == ["compute", "memory"]
    assert list(found["roof_ns"]) == pytest.approx([2e6, 1e6])
    assert list(found["distance"]) == pytest.approx([2.0, 4.0])
    assert list(found["intensity"]) == pytest.approx([200.0, 0.0])


def test_the_operations_that_ncu_counts_are_those_of_the_graph_up_to_padding(repository):
    """ViT-B/16, batch 8: 1576 rows (8 × 197) in tiles of 8 times 768 × 3072, and back."""
    path = repository / "tests/data/ncu/h100_ort_cuda_vit_raw.csv.gz"
    found = kernel_roofline.of_case(ncu_launches.rows(ncu_csv.read(path), "ncu"), roofs.roofs(H100_PEAKS, None, None))
    products = found[found["ops"] > 0]
    padded = 2 * 1584 * 768 * 3072
    assert list(products["ops"]) == [padded, padded]
    assert list(products["limit"]) == ["compute", "compute"]
    assert list(products["roof_ns"]) == pytest.approx([padded / 989.4e12 * 1e9] * 2)
    assert list(products["distance"]) == pytest.approx([15264 / 7554.3, 15808 / 7554.3], rel=1e-4)
    assert set(found[found["ops"] == 0]["limit"]) == {"memory"}


def test_every_type_that_a_product_computes_in_has_a_column_of_peaks():
    assert set(roofs.KINDS.values()) <= set(peaks.KINDS)
