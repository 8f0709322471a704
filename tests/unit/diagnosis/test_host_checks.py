"""Host checks on captures of an H100: ONNX Runtime and torch, launched one by one and as a CUDA graph."""

from __future__ import annotations

import dataclasses
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd
from tests.unit.diagnosis.asking import approx, ask
from tests.unit.facts import mentions

from inferprof.case import Case
from inferprof.diagnosis import frames as of_folder
from inferprof.diagnosis import host
from inferprof.findings import Frames, Gain
from inferprof.tables.trace.idle import LAUNCH_PARTS
from inferprof.tables.trace.kernel_compare import iterations, of_iterations

Captured = Callable[..., Frames]
Measured = Callable[..., Frames]


def with_calls(frames: Frames, level: str, name: str, ns: float, kind: str | None = None) -> Frames:
    """The same with ten calls, one in each iteration's stage:execute."""
    common = {"tool": "nsys", "level": level, "name": name, "range": "iteration > stage:execute", "instances": 10}
    rows = [common | {"metric": "duration_total", "value": ns * 10}]
    if kind:
        rows.append(common | {"metric": "sync_kind", "text": kind})
    more = pd.DataFrame(rows).reindex(columns=frames.timeline.columns).astype(frames.timeline.dtypes)
    return dataclasses.replace(frames, timeline=pd.concat([frames.timeline, more], ignore_index=True))


def test_onnx_runtime_waits_for_its_launches_first_of_all(captured: Captured) -> None:
    (finding,) = ask("launch_bound", captured("h100_ort_cuda_vit", "host_run")).findings
    assert finding.bottleneck == "launch"
    assert finding.evidence["launch_ns"] == 2_328_725.6
    assert finding.share == approx(0.46185, abs=1e-5)
    parts = ["0.924 ms", "1.09 ms", "0.318 ms"]  # the host elsewhere, in launching calls, until the GPU starts
    assert [part for part in parts if mentions(finding.reason, part)] == parts
    assert finding.confidence == "medium"


def test_a_graph_saves_what_tries_saved_of_the_time_without_work(captured: Captured) -> None:
    (finding,) = ask("cuda_graph", captured("h100_ort_cuda_vit", "host_run")).findings
    assert finding.gain == Gain(approx(0.7 * 2_328_725.6), approx(2_711_902.3 - 206_933.8))  # idle, without copies
    assert finding.options == {"cuda_graph": True}
    assert mentions(finding.advice, "`cuda_graph: true`")


def test_a_compiled_model_is_told_of_its_own_way_to_a_graph(captured: Captured) -> None:
    frames = captured("h100_torch_eager")
    compiled = dataclasses.replace(frames, case=dataclasses.replace(frames.case, backend="torch_compile"))
    (finding,) = ask("cuda_graph", compiled).findings
    assert mentions(finding.advice, "`compile_mode: reduce-overhead`")


def test_the_graph_that_torch_then_ran_took_what_was_predicted(captured: Captured) -> None:
    """Both under nsys: eager 8.38 ms, its graph 0.58 ms, which lies between the bounds."""
    eager, graph = captured("h100_torch_eager"), captured("h100_torch_graph_trace")
    (finding,) = ask("cuda_graph", eager).findings
    assert eager.total and graph.total and finding.gain
    saved = eager.total.ns - graph.total.ns
    assert finding.gain.low_ns <= saved <= finding.gain.high_ns <= eager.total.ns


def test_the_graph_that_onnx_runtime_then_ran_took_what_was_predicted(measured: Measured) -> None:
    """Bare runs of MiniLM: 1,334 us, and 604 us as a graph."""
    frames = measured("minilm/fp16/ort_cuda/default/b8_s128", profile="h100_ort_cuda_minilm")
    graph = measured("minilm/fp16/ort_cuda/graph/b8_s128")
    (finding,) = ask("cuda_graph", frames).findings
    assert finding.confidence == "high"
    assert frames.total and graph.total and finding.gain
    assert finding.gain.low_ns < frames.total.ns - graph.total.ns < finding.gain.high_ns


def test_the_wait_for_launches_is_that_of_the_bare_run_where_there_is_one(measured: Measured) -> None:
    """nsys makes MiniLM 2.3 times slower, most of it waiting for launches: 2.38 ms, which are longer than the run."""
    frames = measured("minilm/fp16/ort_cuda/default/b8_s128", profile="h100_ort_cuda_minilm")
    (finding,) = ask("launch_bound", frames).findings
    assert finding.evidence["launch_ns"] == frames.waterfall["launch_ns"] == approx(686e3, rel=0.02)
    assert finding.source == "records, nsys"
    (slow,) = ask("profiler_overhead", frames).findings
    assert slow.evidence["slow_down"] == approx(2.34, abs=0.02)


def test_a_graph_waits_for_nothing_although_its_nodes_were_traced(measured: Measured) -> None:
    frames = measured("vit_tiny/fp16/ort_cuda/graph/b8", profile="h100_ort_cuda_graph_vit_tiny")
    assert ask("launch_bound", frames).verdict == "clear"
    assert ask("gaps", frames).verdict == "clear"


def test_a_graph_needs_no_graph_and_waits_little(captured: Captured) -> None:
    frames = captured("h100_torch_graph_trace")
    assert mentions(ask("cuda_graph", frames).reason, "one CUDA graph already")
    assert ask("launch_bound", frames).verdict == "clear"


def test_the_launch_of_a_graph_whose_nodes_are_traced_is_not_believed(captured: Captured) -> None:
    answer = ask("launch_bound", captured("h100_torch_node_trace"))
    assert answer.verdict == "not assessed"
    assert mentions(answer.reason, "needs a bare run", "nodes")


def test_eager_torch_spends_its_time_between_launches_and_onnx_runtime_in_them(captured: Captured) -> None:
    eager = captured("h100_torch_eager")
    (finding,) = ask("host_work", eager).findings
    calling, starting = (finding.evidence[part] for part in LAUNCH_PARTS)
    assert finding.evidence["between_ns"] == approx(7_792_401.0 - calling - starting)
    assert finding.gain == Gain(approx(0.7 * 7_792_401.0), approx(7_792_401.0))
    (finding,) = ask("host_work", captured("h100_ort_cuda_vit", "host_run")).findings
    assert finding.evidence["launching_idle"] > finding.evidence["between_ns"] == approx(923_779.9)


def test_an_asynchronous_copy_from_pageable_memory_is_named_as_the_wait_that_it_is(captured: Captured) -> None:
    (finding,) = ask("implicit_sync", captured("h100_ort_cuda_vit", "host_run")).findings
    assert (finding.subject, finding.bottleneck) == ("cudaMemcpyAsync", "copy")
    assert finding.evidence == {"calls": 2.0, "call_ns": 456_284.4}


def test_a_copy_call_far_longer_than_its_copy_waits_for_the_stream(captured: Captured) -> None:
    frames = captured("h100_ort_cuda_minilm")
    (finding,) = ask("implicit_sync", with_calls(frames, "sync", "cudaMemcpy", 1e9, "implicit")).findings
    assert (finding.subject, finding.bottleneck, finding.gain, finding.acts) == ("cudaMemcpy", "idle", None, False)


def test_page_locked_memory_gains_no_more_than_copies_take(captured: Captured) -> None:
    frames = captured("h100_ort_cuda_vit", "host_run")
    copies = of_iterations(frames.timeline, "memcpy")
    took = copies.loc[copies["metric"].eq("duration_total"), "value"].sum() / iterations(frames.timeline)
    call = 5 * took
    (finding, *_) = ask("implicit_sync", with_calls(frames, "sync", "cudaMemcpy", call, "implicit")).findings
    assert (finding.subject, finding.bottleneck) == ("cudaMemcpy", "copy")
    assert finding.gain is not None
    assert took <= finding.gain.high_ns < call


def test_bound_arrays_wait_for_nothing(captured: Captured) -> None:
    assert ask("implicit_sync", captured("h100_ort_cuda_vit", "device_run")).verdict == "clear"


def test_the_copies_of_inputs_and_outputs_are_no_wait_inside_an_inference(captured: Captured) -> None:
    assert ask("implicit_sync", captured("h100_ort_cuda_minilm")).verdict == "clear"


def test_a_synchronise_before_the_end_of_an_inference_is_found(captured: Captured) -> None:
    frames = with_calls(captured("h100_ort_cuda_minilm"), "sync", "cudaStreamSynchronize", 50_000.0, "explicit")
    (finding,) = ask("implicit_sync", frames).findings
    assert (finding.subject, finding.bottleneck, finding.gain) == (
        "cudaStreamSynchronize",
        "idle",
        Gain(0.0, 50_000.0),
    )


def test_memory_that_each_inference_allocates_is_found_with_the_call(captured: Captured) -> None:
    frames = captured("h100_ort_cuda_minilm")
    assert mentions(ask("allocation", frames).reason, "0.0 allocations")
    (finding,) = ask("allocation", with_calls(frames, "api", "cudaMalloc", 100_000.0)).findings
    assert (finding.subject, finding.evidence) == ("cudaMalloc", {"calls": 1.0, "call_ns": 100_000.0})


def test_the_config_moves_a_threshold(captured: Captured) -> None:
    frames = dataclasses.replace(captured("h100_ort_cuda_vit", "host_run"), thresholds={host.LAUNCH_BOUND.name: 0.5})
    assert ask("launch_bound", frames).verdict == "clear"


def test_what_a_graph_saves_where_the_gpu_is_busy_most_of_the_time_was_predicted(
    repository: Path, tmp_path: Path
) -> None:
    """BERT-base at b64 on an H200: once called little to save, and 11.4 % came."""
    with zipfile.ZipFile(repository / "studies/reference/h200/baseline.zip") as bundle:
        own = [
            name for name in bundle.namelist() if re.search(r"bert_base/fp16/ort_cuda/(default|graph)/b64_s128", name)
        ]
        bundle.extractall(tmp_path, own)
    case = Case.from_path("bert_base/fp16/ort_cuda/default/b64_s128")
    (finding,) = ask("cuda_graph", of_folder.load(tmp_path, own[0].split("/")[0], case)).findings
    assert finding.gain == Gain(approx(514_908.45), approx(882_700.2))
    assert finding.tried is not None and finding.tried.achieved_ns == approx(694_423.5)
