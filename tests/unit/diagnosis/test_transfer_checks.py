"""Transfer checks on records and captures of an H100."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.diagnosis.asking import approx, ask
from tests.unit.facts import facts, mentions
from tests.unit.made_records import CURVE

from inferprof.findings import Frames, Gain

Captured = Callable[..., Frames]
Measured = Callable[..., Frames]
VIT = "vit_base/fp16/ort_cuda/default/b114"
BERT = "bert_base/fp16/ort_cuda/default/b1_s128"


def samples(ns: float) -> dict[str, Any]:
    return {"samples_ns": [ns] * 24}


def test_large_inputs_from_pageable_memory_are_found_with_bounds(measured: Measured) -> None:
    frames = measured(VIT)
    (finding,) = ask("pageable_copies", frames).findings
    assert finding.share == approx(0.369, abs=1e-3)
    assert finding.gain and frames.total
    # 69.1 MB: 1.3 ms over the link, and perhaps more than is gained if they must first be copied into such memory
    assert finding.gain == Gain(0.0, finding.evidence["beyond_floor_ns"])
    assert finding.gain.high_ns < frames.total.ns
    assert finding.confidence == "high"


def test_a_host_that_copies_slowly_gains_nothing_from_page_locked_arrays_it_must_fill(
    measured: Measured, bandwidth: dict[str, Any]
) -> None:
    curve = {**CURVE, "by_size": {}}
    (fast,) = ask(
        "pageable_copies", measured(VIT, bandwidth={**bandwidth, "h2h": {**curve, "gb_per_s": 20.0}})
    ).findings
    assert fast.gain and fast.gain.high_ns - fast.gain.low_ns == approx((2.5 - 0.4) * fast.evidence["bytes"] / 20)
    assert "`placement: pinned`" in fast.advice
    (slow,) = ask(
        "pageable_copies", measured(VIT, bandwidth={**bandwidth, "h2h": {**curve, "gb_per_s": 5.8}})
    ).findings
    assert slow.gain == Gain(0.0, slow.evidence["beyond_floor_ns"])
    assert "pinned" not in slow.advice  # a caller that fills them itself has no copy to pay for


@pytest.mark.parametrize("memory", ["integrated", "host_page_tables"])
def test_a_gpu_that_reads_the_hosts_memory_needs_no_copy_at_all(
    measured: Measured, environment: dict[str, Any], memory: str
) -> None:
    environment["gpus"][0][memory] = True
    frames = measured(VIT, environment=environment)
    (finding,) = ask("pageable_copies", frames).findings
    assert finding.gain == Gain(0.0, finding.evidence["copy_ns"]) and finding.confidence == "low"
    assert mentions(finding.advice, "no copy", "placement: mapped")
    (over,) = ask("copy_over_floor", frames).findings
    assert mentions(over.advice, "placement: mapped")
    assert finding.options == over.options == {"placement": "mapped"}
    (own,) = ask("pageable_copies", measured(VIT)).findings
    assert "mapped" not in own.advice


def test_a_gpu_that_shares_the_hosts_memory_needs_no_copy_of_page_locked_arrays_either(
    measured: Measured, environment: dict[str, Any]
) -> None:
    def pinned(record: dict[str, Any]) -> None:
        record["placement"] = "pinned"

    gpu = environment["gpus"][0]
    gpu["integrated"] = True
    (finding,) = ask("pageable_copies", measured(VIT, pinned, environment=environment)).findings
    assert (finding.subject, finding.options) == ("page-locked memory", {"placement": "mapped"})
    assert finding.gain == Gain(0.0, finding.evidence["copy_ns"])
    gpu |= {"integrated": False, "host_page_tables": True}  # there the link stays between the two
    assert ask("pageable_copies", measured(VIT, pinned, environment=environment)).verdict == "clear"


@pytest.mark.parametrize("placement", ["mapped", "device"])
def test_inputs_that_are_not_copied_are_clear_in_one_memory(
    measured: Measured, environment: dict[str, Any], placement: str
) -> None:
    environment["gpus"][0]["integrated"] = True
    frames = measured(VIT, lambda record: record.update(placement=placement), environment=environment)
    assert ask("pageable_copies", frames).verdict == "clear"


def test_page_locked_arrays_are_clear(measured: Measured) -> None:
    frames = measured(VIT, lambda record: record.update(placement="pinned"))
    assert ask("pageable_copies", frames).verdict == "clear"


def test_a_few_bytes_from_pageable_memory_are_clear(measured: Measured) -> None:
    assert ask("pageable_copies", measured(BERT)).verdict == "clear"


def test_a_capture_alone_tells_pageable_copies_by_what_they_touch(captured: Captured) -> None:
    (finding,) = ask("pageable_copies", captured("h100_ort_cuda_vit", "host_run")).findings
    # 241,067 ns of HtoD and 1,820 of DtoH copies, and 206,934 in which the GPU waits for them
    assert finding.evidence["copy_ns"] == approx(241_066.6 + 1_820.8 + 206_933.8)
    assert finding.source == "nsys"
    assert ask("pageable_copies", captured("h100_ort_cuda_vit", "device_run")).verdict == "clear"


def test_the_direction_that_is_far_over_the_links_floor_is_named(measured: Measured) -> None:
    (finding,) = ask("copy_over_floor", measured(VIT)).findings
    assert (finding.subject, finding.options) == ("h2d", {"placement": "pinned"})
    assert facts(finding.reason) == ["11.3 ms", "8.7", "1.29 ms"]


def test_copies_at_the_links_floor_are_clear(measured: Measured) -> None:
    def fast(record: dict[str, Any]) -> None:
        record["stages"] |= {"h2d": samples(1.4e6), "d2h": samples(2e4)}

    assert ask("copy_over_floor", measured(VIT, fast)).verdict == "clear"


def test_the_floor_needs_the_machines_bandwidth(measured: Measured) -> None:
    answer = ask("copy_over_floor", measured(VIT, bandwidth=None))
    assert mentions(answer.reason, "needs bandwidth.json", "inferprof bandwidth")


def test_inputs_that_are_only_handed_on_are_no_conversion(measured: Measured) -> None:
    assert ask("host_conversion", measured(VIT)).verdict == "clear"


@pytest.mark.parametrize(
    ("placement", "spared"), [("pageable", 40e6), ("pinned", 40e6 - 114 * 3 * 224 * 224 * 4 / 5)]
)
def test_inputs_that_take_longer_than_a_memcpy_are_converted(
    measured: Measured, placement: str, spared: float
) -> None:
    def slow(record: dict[str, Any]) -> None:
        record["stages"]["stage_inputs"] = samples(40e6)
        record["boundaries"]["end_to_end"] |= samples(80e6)
        record["placement"] = placement

    (finding,) = ask("host_conversion", measured(VIT, slow)).findings
    assert finding.gain == Gain(0.0, approx(spared))
    assert finding.confidence == "low"


@pytest.mark.parametrize(("prepared_ns", "verdict"), [(30e3, "clear"), (200e3, "found")])
def test_handing_small_arrays_over_is_no_conversion_though_it_takes_longer_than_a_memcpy(
    measured: Measured, prepared_ns: float, verdict: str
) -> None:
    def small(record: dict[str, Any]) -> None:
        record["stages"]["stage_inputs"] = samples(prepared_ns)
        record["boundaries"]["end_to_end"]["samples_ns"] = [400_000] * 60

    assert ask("host_conversion", measured(BERT, small)).verdict == verdict


def test_a_cast_that_the_variant_asks_for_is_known_however_fast_it_is(measured: Measured) -> None:
    def cast(record: dict[str, Any]) -> None:
        record["stages"]["stage_inputs"] = samples(10e6)  # a memcpy would take 13.8 ms
        record["options"] = {"host_cast": "vectorised"}

    (finding,) = ask("host_conversion", measured(VIT, cast)).findings
    assert mentions(finding.subject, "vectorised cast") and finding.confidence == "high"


def test_float_inputs_of_a_half_precision_graph_are_twice_as_wide_as_need_be(measured: Measured) -> None:
    frames = measured(VIT)
    (finding,) = ask("wide_inputs", frames).findings
    assert finding.gain and finding.gain.high_ns == approx(frames.floors["h2d_ms"].iloc[0] * 1e6 / 2)


def test_token_numbers_and_full_precision_are_not_too_wide(measured: Measured) -> None:
    assert ask("wide_inputs", measured(BERT)).verdict == "clear"
    assert ask("wide_inputs", measured("vit_base/fp32/torch_eager/default/b8")).verdict == "clear"


def test_one_output_is_always_wanted(measured: Measured) -> None:
    assert mentions(ask("unused_outputs", measured(BERT)).reason, "one output")


def test_a_large_output_beside_a_small_one_may_be_fetched_for_nobody(measured: Measured) -> None:
    def two(record: dict[str, Any]) -> None:
        record["outputs"]["hidden"] = {"shape": [114, 197, 768], "dtype": "float16"}
        record["stages"] |= {"d2h": samples(4e6), "extract": samples(1e6)}

    (finding,) = ask("unused_outputs", measured(VIT, two)).findings
    assert finding.subject == "hidden"
    assert finding.gain and finding.gain.high_ns == approx(5e6 * 34_495_488 / (34_495_488 + 456_000))


def test_a_record_without_stages_leaves_open_what_rests_on_them(measured: Measured) -> None:
    frames = measured(VIT, lambda record: record.update(stages={}))
    names = ("pageable_copies", "copy_over_floor", "wide_inputs", "host_conversion")
    assert {name: ask(name, frames).verdict for name in names} == dict.fromkeys(names, "not assessed")


def test_inputs_that_the_host_copies_into_page_locked_memory_could_be_written_there(measured: Measured) -> None:
    def pinned(ns: float) -> Callable[[dict[str, Any]], None]:
        return lambda record: record.update(
            placement="pinned", stages=record["stages"] | {"stage_inputs": samples(ns), "h2d": samples(1.3e6)}
        )

    (finding,) = ask("pageable_copies", measured(VIT, pinned(8e6))).findings
    assert (finding.subject, finding.gain) == ("staging", Gain(0.0, 8e6))
    assert facts(finding.reason, "memory")[:3] == ["copies", "memory", "8 ms"]
    assert ask("pageable_copies", measured(VIT, pinned(0.1e6))).verdict == "clear"
    converting = measured(VIT, pinned(60e6))
    assert ask("host_conversion", converting).verdict == "found"
    assert ask("pageable_copies", converting).verdict == "clear"


def test_inputs_that_are_on_the_device_are_not_prepared_on_the_host(measured: Measured) -> None:
    def resident(record: dict[str, Any]) -> None:
        record["placement"] = "device"
        for stage in ("stage_inputs", "h2d"):
            record["stages"][stage] = {"not_measured": "the inputs are placed on the device before the clock starts"}

    frames = measured(VIT, resident)
    assert mentions(ask("host_conversion", frames).reason, "not prepared on the", "host")
    assert ask("pageable_copies", frames).verdict == "clear"
