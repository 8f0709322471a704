"""Engine checks on captures of an H100: what fell back, what converts, what looped, and in which formats it ran."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.unit.diagnosis.asking import ask
from tests.unit.diagnosis.conftest import with_documents
from tests.unit.facts import facts, mentions, states
from tests.unit.made_records import node

from inferprof.case import Case
from inferprof.diagnosis import frames as reading
from inferprof.diagnosis import run, verdict
from inferprof.diagnosis.engine import MAY_BE_PRODUCTS
from inferprof.diagnosis.times import on_gpu
from inferprof.documents import Cost
from inferprof.documents.graph import Gemm
from inferprof.findings import Documents, Frames, Gain
from inferprof.profilers import ort_profile, trt_layers
from inferprof.tables import records, schema
from inferprof.tables.nodes.kernel_formats import MATRIX
from inferprof.tables.trace.kernel_class import classify

Captured = Callable[..., Frames]
Measured = Callable[..., Frames]


def of_case(frames: Frames, case: str, *tables: pd.DataFrame, **documents: Any) -> Frames:
    """The frames of a capture under another name, with the tables of further tools and with documents."""
    named = Case.from_path(case)
    profiles = [frames.profiles, *(schema.of_case(table, frames.machine, named) for table in tables)]
    found = records.frame_of([], [*records.RECORD_KEY, "status", "reason", "record"])
    return reading.of_tables(
        frames.machine, named, reading.peers_of(found), pd.concat(profiles), with_documents(Documents(), **documents)
    )


@pytest.fixture(scope="module")
def planted(captured: Captured, repository: Path) -> Frames:
    """TensorRT in ONNX Runtime, with one node on the CPU and a CumSum that became a loop."""
    session = ort_profile.read(repository / "tests/data/ort_profile/h100_ort_tensorrt_ep.json.gz")
    case = "planted/fp32/ort_tensorrt/default/b4"
    return of_case(captured("h100_ort_tensorrt_ep"), case, session, partition={"looped": ["cumsum"]})


@pytest.fixture(scope="module")
def vit(captured: Captured, repository: Path) -> Frames:
    session = ort_profile.read(repository / "tests/data/ort_profile/h100_ort_cuda_vit.json.gz")
    return of_case(captured("h100_ort_cuda_vit", "host_run"), "vit_base/fp16/ort_cuda/default/b8", session)


# --- fallback and loops ----------------------------------------------------------------------------------------


def test_a_node_on_the_cpu_costs_its_two_copies_and_perhaps_its_own_time(planted: Frames) -> None:
    (finding,) = ask("fallback", planted).findings
    assert (finding.subject, finding.bottleneck) == ("hardmax with another provider", "copy")
    assert finding.gain == Gain(21_250.0, 28_850.0)
    assert finding.share == pytest.approx(28_850 / 472_500)
    assert (finding.evidence["copies"], finding.evidence["copies_ns"]) == (2, 21_250)


@pytest.fixture(scope="module")
def layernorm(captured: Captured, repository: Path) -> Frames:
    """An encoder in ONNX Runtime with TensorRT 8.5, which leaves its five LayerNormalizations to the CPU."""
    session = ort_profile.read(repository / "tests/data/ort_profile/h200_ort_tensorrt_layernorm.json.gz")
    case = "encoder/fp32/ort_tensorrt/default/b32_s128"
    return of_case(captured("h200_ort_tensorrt_layernorm"), case, session)


def test_an_operator_that_falls_back_again_and_again_is_one_finding(layernorm: Frames) -> None:
    (finding,) = ask("fallback", layernorm).findings
    assert facts(finding.subject) == ["5", "LayerNormalization", "another"]
    assert facts(finding.reason, "why")[:8] == ["CPU", "ONNX", "Runtime", "not", "why", "10", "copies", "0"]
    assert finding.gain
    assert finding.gain.low_ns == pytest.approx(finding.evidence["copies_ns"])
    assert finding.gain.high_ns == pytest.approx(finding.evidence["copies_ns"] + finding.evidence["nodes_ns"])


def test_where_nodes_run_on_the_cpu_they_come_first_and_no_cuda_graph_is_suggested(layernorm: Frames) -> None:
    answer = ask("cuda_graph", layernorm)
    assert answer.verdict == "clear"
    (waits,) = ask("launch_bound", layernorm).findings
    assert facts(waits.advice) == ["5", "CPU"]
    assert mentions(answer.reason, "no CUDA graph", "CPU", waits.advice)
    judged = verdict.of_case(layernorm, run.answers(layernorm))
    assert judged.groups[0].findings[0].check == "fallback"
    assert states(judged.sentence, "5", "LayerNormalization", "another")


def test_sizes_of_tensors_on_the_cpu_are_no_fallback(vit: Frames) -> None:
    answer = ask("fallback", vit)
    assert answer.verdict == "clear"
    assert facts(answer.reason, "nodes") == ["all", "417", "nodes", "CUDAExecutionProvider"]


def test_only_onnx_runtime_has_providers_to_fall_back_to(captured: Captured) -> None:
    eager = of_case(captured("h100_torch_eager"), "vit_tiny/fp16/torch_eager/default/b8")
    assert ask("fallback", eager).verdict == "clear"


def test_without_a_profile_of_the_session_nothing_is_said_of_fallbacks(captured: Captured) -> None:
    assert mentions(
        ask("fallback", captured("h100_ort_cuda_vit", "host_run")).reason,
        "needs",
        "ort_nodes or ort_nodes_kineto",
        "or ort_profile",
    )


def alone(session: pd.DataFrame, case: str) -> Frames:
    """The frames of a case that nothing but ONNX Runtime's profile watched."""
    named = Case.from_path(case)
    none = records.frame_of([], [*records.RECORD_KEY, "status", "reason", "record"])
    return reading.of_tables("box", named, reading.peers_of(none), schema.of_case(session, "box", named))


@pytest.mark.parametrize("backend", ["ort_tensorrt", "service"])
def test_a_session_profile_with_a_gpus_provider_is_of_a_gpu_case(repository: Path, backend: str) -> None:
    session = ort_profile.read(repository / "tests/data/faults/gpu-case-not-seen/fallback.json")
    (finding,) = ask("fallback", alone(session, f"detector/fp16/{backend}/default/b1")).findings
    assert finding.subject == "nms with another provider"
    assert (finding.evidence["nodes_ns"], finding.evidence["copies_ns"]) == (3.5e6, 0.96e6)
    assert finding.evidence["copies"] == 2
    assert finding.gain == Gain(0.96e6, 4.46e6)
    assert finding.share == pytest.approx(4.46 / 9.47)


def test_the_first_and_only_run_gives_no_shares_and_no_gains(repository: Path) -> None:
    session = ort_profile.read(repository / "tests/data/faults/gpu-case-not-seen/single_run.json")
    frames = alone(session, "detector/fp16/ort_tensorrt/default/b1")
    assert frames.total
    assert (frames.total.ns, mentions(frames.total.of.partition(",")[0], "first and only run")) == (3.00447e9, True)
    (finding,) = ask("fallback", frames).findings
    assert (finding.share, finding.gain, finding.confidence) == (None, None, "low")
    assert finding.evidence["nodes_ns"] == 3.5e6


def test_a_session_of_the_cpu_alone_is_no_gpu_case(repository: Path) -> None:
    session = ort_profile.read(repository / "tests/data/faults/gpu-case-not-seen/fallback.json")
    owner = session["owner"].str.replace(r"^\w+ExecutionProvider", "CPUExecutionProvider", regex=True)
    frames = alone(session.assign(owner=owner), "detector/fp16/ort_cpu/default/b1")
    assert not on_gpu(frames)


def test_the_parser_tells_why_tensorrt_left_a_node(planted: Frames) -> None:
    node = {"node": "hardmax", "op_type": "Hardmax", "why": "operator", "words": ""}
    left = {"static": {"nodes": 2, "taken": 1, "subgraphs": [1], "left": [node]}}
    told = dataclasses.replace(planted, documents=with_documents(Documents(), partition=left))
    (finding,) = ask("fallback", told).findings
    assert mentions(finding.reason, "no kernel")


def test_a_cumsum_is_a_loop_that_holds_up_the_host_longer_than_the_gpu(planted: Frames) -> None:
    (finding,) = ask("kernel_loops", planted).findings
    assert (finding.subject, finding.bottleneck) == ("the loop of cumsum", "launch")
    assert (finding.evidence["steps"], finding.evidence["launches"]) == (8, 64)
    assert finding.gain is not None
    assert finding.gain.high_ns == pytest.approx(9_618_035 / 21)
    assert finding.gain.low_ns == pytest.approx(finding.evidence["duration"] * 7 / 8)


def test_an_engine_without_loops_is_clear(captured: Captured) -> None:
    assert ask("kernel_loops", captured("h100_tensorrt_vit2")).verdict == "clear"


def test_the_loop_is_named_first_and_then_the_copies_of_the_fallback(planted: Frames) -> None:
    judged = verdict.of_case(planted, run.answers(planted))
    first, second = (group.findings[0].check for group in judged.groups[:2])
    assert (first, second) == ("kernel_loops", "fallback")
    assert facts(judged.sentence, "cumsum", "operator", "steps")[:13] == [
        "ONNX",
        "Runtime",
        "0.472 ms",
        "96.9 %",
        "launches",
        "11.7 %",
        "kernels",
        "6.1 %",
        "copies",
        "cumsum",
        "operator",
        "8",
        "steps",
    ]


# --- conversions and formats -----------------------------------------------------------------------------------


def test_reformats_of_a_vit_take_a_twelfth_of_its_kernels(vit: Frames) -> None:
    (finding,) = ask("conversions", vit).findings
    assert finding.subject == "reformat kernels"
    assert finding.evidence["kernel_share"] == pytest.approx(0.080, abs=0.001)
    assert finding.gain is not None and finding.gain.low_ns == 0


def test_from_which_share_on_conversions_count_is_the_configs(vit: Frames) -> None:
    patient = dataclasses.replace(vit, thresholds={"conversions": 0.1})
    assert ask("conversions", patient).verdict == "clear"


def test_products_that_ran_as_asked_are_clear(vit: Frames) -> None:
    answer = ask("precision", vit)
    assert (answer.verdict, answer.evidence) == ("clear", {"as_asked": 1.0})


def test_products_in_another_format_than_asked_are_told_with_what_the_peaks_say(vit: Frames) -> None:
    environment = {"gpus": [{"name": "NVIDIA H100 80GB HBM3", "memory_mib": 81_559, "sm_count": 132, "used": True}]}
    ceilings = {"gemm": {"fp16": {"flops_per_s": 6e14}, "fp8": {"flops_per_s": 1.2e15}}, "memory": {}}
    case = dataclasses.replace(vit.case, precision="fp8")
    documents = with_documents(Documents(), environment=environment, ceilings=ceilings)
    asked = dataclasses.replace(vit, case=case, documents=documents)
    (finding,) = ask("precision", asked).findings
    assert (finding.subject, finding.evidence) == ("fp16", {"fp16_share": 1.0})
    assert facts(finding.reason) == ["fp8", "100.0 %", "fp16"]
    assert finding.gain is not None and finding.share is not None and asked.total is not None
    assert finding.gain.high_ns == pytest.approx(finding.share * asked.total.ns / 2)


def test_where_the_peaks_are_not_known_the_gain_is_not_bounded(vit: Frames) -> None:
    asked = dataclasses.replace(vit, case=dataclasses.replace(vit.case, precision="fp8"))
    (finding,) = ask("precision", asked).findings
    assert finding.gain is None


def as_fp8_of(vit: Frames, name: str) -> Frames:
    """The case as if FP8 had been asked for, and each of its matrix products had a kernel of that name, on a B200."""
    kernel = vit.profiles["level"] == "kernel"
    product = kernel & vit.profiles["name"].map(lambda one: classify(str(one)).kernel_class in MATRIX).astype(bool)
    profiles = vit.profiles.assign(name=vit.profiles["name"].mask(product, name), machine="b200-sm100-0123abcd")
    return dataclasses.replace(vit, case=dataclasses.replace(vit.case, precision="fp8"), profiles=profiles)


def test_mxfp8_in_place_of_fp8_is_a_finding(vit: Frames) -> None:
    (finding,) = ask("precision", as_fp8_of(vit, "nvjet_sm100_qqtst_128x256_Avec32UE8M0_Bvec32UE8M0_TNT")).findings
    assert facts(finding.reason) == ["fp8", "100.0 %", "mxfp8"]


def test_a_name_that_does_not_tell_the_scales_of_fp8_accuses_nobody(vit: Frames) -> None:
    answer = ask("precision", as_fp8_of(vit, "my_fp8_gemm_kernel"))
    assert (answer.verdict, answer.findings) == ("not assessed", ())


def test_the_layers_of_an_engine_tell_formats_without_a_trace(repository: Path, captured: Captured) -> None:
    profile = repository / "tests/data/trt_layers/h100_tensorrt_vit2.profile.json"
    nothing = captured("h100_tensorrt_vit2")
    bare = dataclasses.replace(nothing, profiles=nothing.profiles.head(0))
    layers = of_case(bare, "vit2/fp16/tensorrt/default/b8", trt_layers.read(profile))
    assert ask("precision", layers).verdict in ("clear", "not assessed")


# --- attention -------------------------------------------------------------------------------------------------


def test_softmax_between_two_products_is_attention_in_pieces(vit: Frames) -> None:
    (finding,) = ask("unfused_attention", vit).findings
    assert finding.subject == "onnxruntime::cuda::softmax_warp_forward"
    assert finding.evidence["softmax_share"] == pytest.approx(0.046, abs=0.001)
    assert finding.confidence == "low"


def test_the_graph_makes_that_sure_or_clear(vit: Frames) -> None:
    scores, other = (
        Cost(inputs=0, outputs=0, weights=0, nodes=[node(gemm=gemm)])
        for gemm in (Gemm(197, 197, 64, 96, "count"), None)
    )
    sure = dataclasses.replace(vit, documents=Documents(cost=scores))
    assert [one.confidence for one in ask("unfused_attention", sure).findings] == ["medium"]
    none = dataclasses.replace(vit, documents=Documents(cost=other))
    assert mentions(ask("unfused_attention", none).reason, "no product")


def test_a_softmax_without_products_around_it_is_no_attention(vit: Frames) -> None:
    product = vit.profiles["name"].map(lambda one: classify(str(one)).kernel_class in MAY_BE_PRODUCTS).astype(bool)
    profiles = vit.profiles[~(vit.profiles["level"].eq("kernel") & product)]
    few = of_case(dataclasses.replace(vit, profiles=profiles), "vit_base/fp16/ort_cuda/default/b8")
    assert ask("unfused_attention", few).verdict == "clear"


def test_flash_attention_is_clear(captured: Captured) -> None:
    assert mentions(ask("unfused_attention", captured("h100_torch_eager")).reason, "kernels of its own")


def test_a_gpu_without_fused_attention_is_not_blamed(vit: Frames) -> None:
    turing = {"gpus": [{"name": "Tesla T4", "compute_capability": "7.5", "used": True}]}
    known = with_documents(Documents(), environment=turing)
    assert ask("unfused_attention", dataclasses.replace(vit, documents=known)).verdict == "clear"


# --- quantized -------------------------------------------------------------------------------------------------


def siblings(frames: Frames, quantized_ms: float, plain_ms: float) -> Frames:
    """The case as int8, and its plain sibling, with medians that are known to a hundredth."""
    case = dataclasses.replace(frames.case, precision="int8")
    rows = [
        {**dataclasses.asdict(case), "machine": frames.machine, "precision": precision}
        | {f"device{part}_ms": ms * factor for part, factor in (("", 1), ("_low", 0.99), ("_high", 1.01))}
        for precision, ms in (("int8", quantized_ms), ("fp16", plain_ms))
    ]
    return dataclasses.replace(frames, case=case, peers=pd.DataFrame(rows))


def test_a_quantized_case_that_is_slower_than_its_plain_sibling_is_told(measured: Measured) -> None:
    frames = siblings(measured("vit_base/fp16/ort_cuda/default/b8"), 2.5, 2.0)
    (finding,) = ask("quantization", frames).findings
    assert facts(finding.reason) == ["slower", "2.5 ms", "int8", "2 ms", "fp16", "device"]
    assert finding.gain == Gain(500_000.0, 500_000.0)


@pytest.mark.parametrize("quantized_ms", [1.5, 2.01])
def test_one_that_is_faster_or_no_slower_for_sure_is_clear(measured: Measured, quantized_ms: float) -> None:
    frames = siblings(measured("vit_base/fp16/ort_cuda/default/b8"), quantized_ms, 2.0)
    assert ask("quantization", frames).verdict == "clear"


def test_a_baseline_375_times_behind_is_a_finding_about_the_baseline(measured: Measured) -> None:
    frames = measured("vit_base/fp16/ort_cuda/default/b8")
    rows = [
        {**dataclasses.asdict(frames.case), "backend": backend, "device_ms": ms, "machine": frames.machine}
        for backend, ms in (("ort_cuda", 2793.0), ("tensorrt", 7.448))
    ]
    behind = dataclasses.replace(frames, peers=pd.DataFrame(rows))
    (finding,) = ask("far_behind", behind).findings
    assert facts(finding.reason)[:4] == ["device", "375", "fastest", "fp16/tensorrt/default"]
    assert (finding.acts, finding.gain) == (False, None)  # the baseline is to be looked at; more than all is no gain
    near = dataclasses.replace(behind, peers=behind.peers.assign(device_ms=[100.0, 7.448]))
    assert ask("far_behind", near).verdict == "clear"
    alone = dataclasses.replace(behind, peers=behind.peers.head(1))
    assert ask("far_behind", alone).verdict == "not assessed"


def test_without_the_sibling_nothing_is_said_of_quantizers(measured: Measured) -> None:
    frames = siblings(measured("vit_base/fp16/ort_cuda/default/b8"), 2.5, 2.0)
    alone = dataclasses.replace(frames, peers=frames.peers.head(1))
    assert mentions(ask("quantization", alone).reason, "needs", "fp16 or bf16")
