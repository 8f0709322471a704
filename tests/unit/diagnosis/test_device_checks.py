"""Device checks on records and captures of an H100."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.diagnosis.asking import ask
from tests.unit.facts import facts, mentions

from inferprof.findings import END_TO_END, Frames, Gain, Total
from inferprof.tables.trace.kernel_compare import ITERATION

Captured = Callable[..., Frames]
Measured = Callable[..., Frames]


def with_idle(frames: Frames, cause: str, ns: float) -> Frames:
    """The same where so much of the time that the GPU waits for launches is of another cause."""
    timeline = frames.timeline.copy()
    rows = timeline["level"].eq("range") & timeline["name"].eq(ITERATION)
    for metric, more in ((f"idle_{cause}", ns), ("idle_launch", -ns)):
        own = rows & timeline["metric"].eq(metric)
        timeline.loc[own, "value"] = timeline.loc[own, "value"] + more
    return dataclasses.replace(frames, timeline=timeline)


# --- gaps ------------------------------------------------------------------------------------------------------


def test_a_gpu_that_waits_for_launches_alone_has_no_other_gaps(captured: Captured) -> None:
    answer = ask("gaps", captured("h100_ort_cuda_vit", "host_run"))
    assert facts(answer.reason, "idle") == [
        "GPU",
        "idle",
        "sync",
        "0.0 %",
        "copy",
        "4.2 %",
        "queued",
        "1.8 %",
        "unknown",
        "0.0 %",
    ]


@pytest.mark.parametrize(("cause", "bottleneck"), [("sync", "idle"), ("queued", "idle"), ("copy", "copy")])
def test_a_gap_is_found_by_its_cause(captured: Captured, cause: str, bottleneck: str) -> None:
    frames = captured("h100_ort_cuda_minilm")
    assert ask("gaps", frames).verdict == "clear"
    (finding,) = ask("gaps", with_idle(frames, cause, 400_000.0)).findings
    assert (finding.subject, finding.bottleneck) == (cause, bottleneck)
    assert finding.gain and finding.gain == Gain(0.0, finding.evidence[f"idle_{cause}_ns"])


def test_where_streams_overlap_no_gap_asks_for_one_stream_nor_for_more(captured: Captured) -> None:
    frames = with_idle(captured("h100_ort_cuda_minilm"), "queued", 400_000.0)
    (alone,) = ask("gaps", frames).findings
    timeline = frames.timeline.copy()
    own = timeline["level"].eq("range") & timeline["name"].eq(ITERATION) & timeline["metric"].eq("streams_overlap")
    timeline.loc[own, "value"] = 1e5
    assert own.any()
    (beside,) = ask("gaps", dataclasses.replace(frames, timeline=timeline)).findings
    assert "one stream" in alone.advice
    assert "one stream" not in beside.advice and "cudaStreamWaitEvent" in beside.advice


def test_the_copies_of_inputs_and_outputs_are_no_gap(captured: Captured) -> None:
    """The GPU waits for copies for 124,860 ns of an iteration, all of them in the stages h2d and d2h."""
    frames = dataclasses.replace(captured("h100_ort_cuda_graph_vit_tiny"), total=Total(2e6, END_TO_END))
    assert ask("gaps", frames).evidence["idle_copy_ns"] == 0.0


def test_gaps_between_nodes_that_are_traced_are_not_believed(captured: Captured) -> None:
    assert ask("gaps", captured("h100_torch_node_trace")).verdict == "not assessed"


# --- overlap ---------------------------------------------------------------------------------------------------


def test_pageable_copies_that_no_pipeline_hides_are_found(measured: Measured) -> None:
    (finding,) = ask("no_overlap", measured("vit_base/fp16/ort_cuda/default/b114")).findings
    assert finding.evidence["overlap"] == pytest.approx(0.0616, abs=1e-4)
    # 40 inferences in 1.21 s, where `device` takes 19.55 ms and the copies 11.4 ms
    assert facts(finding.reason)[-4:] == ["33.02", "inferences/s", "best", "51.15"]
    assert finding.gain is None


def test_copies_that_a_pipeline_hides_are_clear(measured: Measured) -> None:
    def hidden(record: dict[str, Any]) -> None:
        record["throughput"]["pipelined"]["overlap"] = 0.9

    assert ask("no_overlap", measured("vit_base/fp16/ort_cuda/default/b114", hidden)).verdict == "clear"


def test_where_there_is_next_to_nothing_to_hide_no_overlap_is_no_finding(measured: Measured) -> None:
    frames = measured("bert_base/fp32/ort_cuda/default/b64_s128")
    assert facts(ask("no_overlap", frames).reason)[:2] == ["0.0 %", "copies"]


def test_without_a_pipeline_its_reason_is_given(measured: Measured) -> None:
    def alone(record: dict[str, Any]) -> None:
        record["throughput"]["pipelined"] = {"not_measured": "a graph's memory is its own"}

    answer = ask("no_overlap", measured("vit_base/fp16/ort_cuda/default/b114", alone))
    assert mentions(answer.reason, "needs", "pipelined throughput", "graph's memory")


# --- batch -----------------------------------------------------------------------------------------------------


def test_a_batch_below_the_saturated_one_is_found_with_that_batch(measured: Measured) -> None:
    (finding,) = ask("small_batch", measured("vit_base/fp16/ort_cuda/default/b8")).findings
    assert facts(finding.reason) == ["b8", "2,983", "items/s", "device", "51.2 %", "5,831"]
    assert mentions(finding.advice, "batches of 57", "Only throughput")
    assert (finding.share, finding.gain) == (None, None)


def test_a_batch_within_five_percent_of_the_peak_is_clear(measured: Measured) -> None:
    assert ask("small_batch", measured("vit_base/fp16/ort_cuda/default/b57")).verdict == "clear"


def test_where_the_largest_batch_is_the_fastest_it_may_still_rise(measured: Measured) -> None:
    (finding,) = ask("small_batch", measured("bert_base/fp32/ort_cuda/default/b1_s128")).findings
    assert facts(finding.advice, "throughput") == ["64", "more", "larger", "throughput"]


def test_one_batch_alone_tells_nothing(measured: Measured) -> None:
    answer = ask("small_batch", measured("vit_base/fp32/torch_compile/default/b64"))
    assert mentions(answer.reason, "needs", "two batches", "`shapes:`")
