"""Kernel checks on captures of an H100: counters with the timeline's shares, tiles, roofs, and NVIDIA's rules."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.unit.diagnosis.asking import ask
from tests.unit.diagnosis.conftest import with_documents as changed
from tests.unit.facts import facts, mentions
from tests.unit.made_records import NODE

from inferprof.diagnosis import kernel_faults, run, verdict
from inferprof.diagnosis.kernel_time import kernels_ns
from inferprof.findings import Frames
from inferprof.profilers import ncu
from inferprof.tables import schema
from inferprof.tables.trace.timeline import PATH_SEPARATOR

Captured = Callable[..., Frames]
Measured = Callable[..., Frames]
GPU = {
    "name": "NVIDIA H100 80GB HBM3",
    "compute_capability": "9.0",
    "sm_count": 132,
    "memory_mib": 81_559,
    "used": True,
}
CEILINGS = {
    "gemm": {"fp16": {"flops_per_s": 6.4e14}, "fp32": {"flops_per_s": 5e13}},
    "memory": {"read": {"bytes_per_s": 3e12}},
}


def counted(frames: Frames, page: Path) -> Frames:
    """The frames of a capture with what ncu counted."""
    counters = schema.of_case(ncu.read(page), frames.machine, frames.case)
    return dataclasses.replace(frames, profiles=pd.concat([frames.profiles, counters]))


def with_documents(frames: Frames, **documents: Any) -> Frames:
    return dataclasses.replace(frames, documents=changed(frames.documents, **documents))


@pytest.fixture(scope="module")
def vit(captured: Captured, repository: Path) -> Frames:
    """ViT-B/16 in ONNX Runtime, eight of its launches counted."""
    return counted(
        captured("h100_ort_cuda_vit", "host_run"), repository / "tests/data/ncu/h100_ort_cuda_vit_raw.csv.gz"
    )


@pytest.fixture(scope="module")
def by_rules(captured: Captured, repository: Path) -> Frames:
    """The same with the details page, which has NVIDIA's rules, and fewer counters."""
    page = repository / "tests/data/ncu/h100_ort_cuda_vit_details.csv.gz"
    return counted(captured("h100_ort_cuda_vit", "host_run"), page)


# --- faults ----------------------------------------------------------------------------------------------------


def test_launches_of_one_kernel_are_one_finding_with_the_time_of_both(vit: Frames) -> None:
    (finding,) = ask("uncoalesced", vit).findings
    assert (finding.subject, finding.bottleneck) == ("onnxruntime::cuApplyLayerNorm", "memory")
    assert finding.evidence["time_share"] == pytest.approx(0.1086, abs=0.0005)
    total = kernels_ns(vit)
    assert total is not None and finding.gain is not None
    assert finding.gain.high_ns == pytest.approx(0.375 * finding.evidence["time_share"] * total)
    assert facts(finding.reason) == ["37.5 %", "605,184", "not", "10.9 %", "kernels"]


def test_data_that_are_read_again_are_told_by_what_the_nodes_of_a_kernel_read(vit: Frames) -> None:
    kernel = "cuApplyLayerNorm"
    counters = vit.profiles[vit.profiles["tool"].eq("ncu") & vit.profiles["name"].str.contains(kernel)]
    changed = {"l2_hit_rate": 10.0, "dram_throughput": 90.0, "dram_bytes_read": 30e6}
    profiles = vit.profiles.assign(
        value=vit.profiles["value"].where(
            ~vit.profiles.index.isin(counters.index), vit.profiles["metric"].map(changed)
        )
    )
    path = PATH_SEPARATOR.join(("CUDAExecutionProvider", "LayerNormalization", "norm"))
    tie = {"level": "kernel", "metric": "duration_total", "name": counters["name"].iloc[0], "owner": path}
    ties = schema.of_case(
        schema.conform(pd.DataFrame([{**tie, "value": 1e5, "instances": 25}]), "ort_nodes"), vit.machine, vit.case
    )
    frames = dataclasses.replace(vit, profiles=pd.concat([profiles, ties]))
    costs = {"nodes": [{**NODE, "name": "norm", "op": "LayerNormalization", "product": False, "read": 10_000_000}]}
    assert ask("l2_misses", frames).verdict != "found"
    (finding,) = ask("l2_misses", with_documents(frames, cost=costs)).findings
    assert finding.evidence["times_read"] == pytest.approx(3)
    assert "read 3.0 times over" in finding.reason


def test_what_a_fault_may_cost_is_never_more_than_its_kernel(vit: Frames) -> None:
    total = kernels_ns(vit)
    found = [finding for answer in run.answers(vit) if answer.level == "kernel" for finding in answer.findings]
    assert len(found) >= 4 and total is not None
    for finding in found:
        if finding.gain and "time_share" in finding.evidence:
            assert 0 <= finding.gain.low_ns <= finding.gain.high_ns <= finding.evidence["time_share"] * total


def test_kernels_with_little_of_the_time_are_left_alone(vit: Frames) -> None:
    patient = dataclasses.replace(vit, thresholds={"kernel_share": 0.2})
    answer = ask("uncoalesced", patient)
    assert answer.verdict == "clear"
    assert facts(answer.reason)[-3:] == ["1", "less", "20%"]


def test_without_a_timeline_a_fault_has_no_share_and_no_gain(vit: Frames) -> None:
    alone = vit.profiles[vit.profiles["tool"] == "ncu"]
    blind = dataclasses.replace(vit, profiles=alone, tool=None, timeline=vit.timeline.head(0))
    (finding,) = ask("uncoalesced", blind).findings
    assert (finding.share, finding.gain) == (None, None)


def test_counters_that_a_page_lacks_leave_a_fault_unassessed(by_rules: Frames) -> None:
    assert ask("bank_conflicts", by_rules).reason == "needs shared_wavefronts, shared_wavefronts_excess"
    assert ask("spills", by_rules).verdict == "clear"


def test_a_profiler_that_was_not_permitted_says_so(captured: Captured) -> None:
    frames = captured("h100_ort_cuda_vit", "host_run")
    told = pd.DataFrame([{"level": "run", "name": "ncu", "metric": "not_measured", "text": "ERR_NVGPUCTRPERM"}])
    refused = schema.of_case(schema.conform(told, "ncu"), frames.machine, frames.case)
    frames = dataclasses.replace(frames, profiles=pd.concat([frames.profiles, refused]))
    assert mentions(ask("tail", frames).reason, "needs counters", "ERR_NVGPUCTRPERM")


def test_blocks_that_use_the_memory_of_other_sms_are_told_from_those_that_do_not(vit: Frames) -> None:
    assert facts(ask("inter_sm_traffic", vit).reason, "read") == ["most", "0.0%", "SMs", "read", "SMs"]
    read = vit.profiles["metric"] == "inter_sm_bytes_read"
    gemm = vit.profiles["name"].str.startswith("nvjet_sm90_hsh_256x144")
    value = vit.profiles["value"].where(~(read & gemm), 60_000_000.0)
    (finding,) = ask("inter_sm_traffic", dataclasses.replace(vit, profiles=vit.profiles.assign(value=value))).findings
    assert finding.subject.startswith("nvjet_sm90_hsh_256x144")
    assert finding.evidence["inter_sm_share"] == pytest.approx(60e6 / (81_100_800 + 9_682_944))


def test_a_gpu_without_clusters_has_no_such_counters(by_rules: Frames) -> None:
    assert ask("inter_sm_traffic", by_rules).verdict == "not assessed"


# --- what bounds, and the longest ------------------------------------------------------------------------------


def test_latency_bounds_most_of_what_was_counted_of_a_vit_at_batch_8(vit: Frames) -> None:
    (finding,) = ask("bound", vit).findings
    assert (finding.bottleneck, finding.subject, finding.gain) == ("latency", "", None)
    assert finding.evidence["latency_share"] == pytest.approx(0.370, abs=0.001)
    assert mentions(finding.reason, "45.5 % was counted")


def test_nothing_bounds_most_of_it_where_the_config_asks_for_more(vit: Frames) -> None:
    assert ask("bound", dataclasses.replace(vit, thresholds={"bound": 0.9})).verdict == "clear"


def test_the_patch_convolution_is_the_first_thing_in_a_small_engine(captured: Captured) -> None:
    frames = captured("h100_tensorrt_vit2")
    (finding,) = ask("hot_kernel", frames).findings
    assert finding.subject == "convolution /p/Conv"
    assert finding.share == pytest.approx(0.2332, abs=0.0001)
    judged = verdict.of_case(frames, run.answers(frames))
    looks = [entry.check for group in judged.groups for entry in group.findings if not entry.finding.acts]
    assert looks[0] == "hot_kernel"  # which changes nothing: attention in pieces comes before it


def test_where_no_kernel_has_a_fifth_of_the_time_none_is_singled_out(vit: Frames) -> None:
    answer = ask("hot_kernel", vit)
    assert answer.verdict == "clear"
    assert answer.evidence["kernel_share"] == pytest.approx(0.131, abs=0.001)


# --- tiles and roofs -------------------------------------------------------------------------------------------


def product(name: str, m: int, n: int, k: int) -> dict[str, Any]:
    gemm = {"m": m, "n": n, "k": k, "count": 1, "batch_in": "m"}
    sizes = {"read": 2 * m * k, "weights": 2 * n * k, "written": 2 * m * n}
    facts = {"op": "MatMul", "dtype": "float16", "product": True, "sparse": False, "flops": 2 * m * n * k}
    return {"name": name, "gemm": gemm, **facts, **sizes}


def graph(rows: int) -> dict[str, Any]:
    """The weighted products of ViT-B/16."""
    sizes = {"qkv": (2304, 768), "proj": (768, 768), "fc1": (3072, 768), "fc2": (768, 3072)}
    nodes = [product(f"{layer}/{name}", rows, *size) for layer in range(12) for name, size in sizes.items()]
    return {"inputs": 10**6, "outputs": 10**4, "weights": 172 * 10**6, "nodes": nodes}


def test_tiles_that_waste_a_noticeable_part_are_named_with_a_better_size(vit: Frames) -> None:
    known = with_documents(vit, cost=graph(8 * 197), environment={"gpus": [GPU]})
    impatient = dataclasses.replace(known, thresholds={"tile_waste": 0.0001})
    findings = ask("tile_waste", impatient).findings
    assert {finding.bottleneck for finding in findings} == {"tail"}
    for finding in findings:
        assert finding.gain is not None
        assert 0 < finding.gain.high_ns <= finding.evidence["duration_ns"]
    assert ask("tile_waste", dataclasses.replace(known, thresholds={"tile_waste": 0.5})).verdict == "clear"


def test_without_the_graph_no_tile_is_judged(vit: Frames) -> None:
    assert mentions(ask("tile_waste", vit).reason, "needs", ".cost.json", "environment.json")


def test_counted_kernels_far_from_their_roof_are_named(vit: Frames) -> None:
    known = with_documents(vit, environment={"gpus": [GPU]}, ceilings=CEILINGS)
    findings = ask("roof", known).findings
    assert findings
    assert all(finding.evidence["distance"] >= 2 for finding in findings)
    near = ask("roof", dataclasses.replace(known, thresholds={"roof_distance": 1000.0}))
    assert mentions(near.reason, "at their roof")


def test_without_counters_the_whole_graph_is_held_against_its_nodes_at_their_roofs(measured: Measured) -> None:
    frames = measured("vit_base/fp16/ort_cuda/default/b8", cost=graph(8 * 197), ceilings=CEILINGS)
    patient = dataclasses.replace(frames, thresholds={"roof_distance": 1000.0})
    assert ask("roof", patient).verdict == "clear"
    (finding,) = ask("roof", dataclasses.replace(frames, thresholds={"roof_distance": 1.0})).findings
    assert mentions(finding.advice, "a timeline", "launches from kernels")
    assert finding.gain is not None
    assert finding.gain.high_ns == pytest.approx(finding.evidence["device_ns"] - finding.evidence["fused_ns"])


def test_where_nodes_are_near_their_roofs_and_the_graph_is_not_fusing_them_is_advised(measured: Measured) -> None:
    cost = graph(8 * 197)
    gelu = {"op": "Gelu", "dtype": "float16", "product": False, "sparse": False, "flops": 10**6}
    cost["nodes"].append({"name": "gelu", **gelu, "read": 10**9, "weights": 0, "written": 10**9})
    frames = measured("vit_base/fp16/ort_cuda/default/b8", cost=cost, ceilings=CEILINGS)
    whole = ask("roof", dataclasses.replace(frames, thresholds={"roof_distance": 1.0}))
    device, fused, unfused = (whole.findings[0].evidence[f"{name}_ns"] for name in ("device", "fused", "unfused"))
    between = {"roof_distance": device / (fused * unfused) ** 0.5}
    (finding,) = ask("roof", dataclasses.replace(frames, thresholds=between)).findings
    assert finding.bottleneck == "memory"
    assert facts(finding.advice)[:4] == ["more", "torch.compile", "ONNX", "Runtime"]
    compiled = dataclasses.replace(
        frames, thresholds=between, case=dataclasses.replace(frames.case, backend="torch_compile")
    )
    assert mentions(ask("roof", compiled).findings[0].advice, "fuses more: an engine or ONNX")
    assert finding.gain is not None
    assert finding.gain.high_ns == pytest.approx(min(device, unfused) - fused)


def test_without_roofs_nothing_is_far_from_them(vit: Frames) -> None:
    assert ask("roof", vit).reason.startswith("needs the GPU's roofs")


# --- NVIDIA's rules --------------------------------------------------------------------------------------------


def test_a_rule_that_sees_what_ours_does_not_is_shown_beside_it(captured: Captured, repository: Path) -> None:
    frames = counted(captured("h100_torch_eager"), repository / "tests/data/ncu/h100_torch_vit_tiny_details.csv.gz")
    (finding,) = ask("ncu_rules", frames).findings
    assert facts(finding.reason, "kernel", "tail") == [
        "NVIDIA",
        "WorkloadImbalance",
        "5.5 %",
        "kernel",
        "19.4 %",
        "kernels",
        "tail",
        "clear",
        "0.75",
        "25 %",
        "SMs",
        "small_grid",
        "clear",
        "1,576",
        "132",
        "SMs",
    ]
    assert finding.confidence == "low"


def test_a_page_without_rules_has_nothing_to_disagree_with(vit: Frames) -> None:
    assert mentions(ask("ncu_rules", vit).reason, "needs", "details page", ".ncu-rep")


@pytest.mark.parametrize(("theoretical", "more_blocks"), [(75.0, True), (12.5, False)])
def test_more_blocks_are_advised_where_more_warps_would_fit(theoretical: float, more_blocks: bool) -> None:
    advice = kernel_faults.FAULTS["low_occupancy"].advice_by({"occupancy_theoretical": theoretical})
    assert advice == (kernel_faults.MORE_BLOCKS if more_blocks else None)
