"""Environment checks on records of an H100, as they are and with one fact changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
from tests.unit.diagnosis.asking import approx, ask
from tests.unit.facts import facts, mentions

from inferprof.findings import Frames, Gain
from inferprof.tables import overhead
from inferprof.tables.records import KEY

Measured = Callable[..., Frames]
VIT = "vit_base/fp16/ort_cuda/default/b114"
EAGER = "vit_base/fp16/torch_eager/default/b64"


def of_loop(**facts: Any) -> Callable[[dict[str, Any]], None]:
    """Changes what telemetry says of the loop of end_to_end."""

    def change(record: dict[str, Any]) -> None:
        record["telemetry"]["boundaries"]["end_to_end"] |= facts

    return change


def slowed(frames: Frames, times: float) -> Frames:
    """The same with a profile under which the case took so many times as long."""
    bare = float(frames.latency.loc[frames.latency["boundary"] == "end_to_end", "median"].iloc[0])
    key = dict(zip(KEY, [frames.machine, *frames.case.path.parts], strict=True))
    row = {**key, "tool": "nsys", "bare_ns": bare, "profiled_ns": bare * times, "iterations": 10, "slow_down": times}
    return dataclasses.replace(frames, overheads=pd.DataFrame([row]).reindex(columns=list(overhead.COLUMNS)))


def test_a_clock_that_the_power_limit_lowers_is_found_with_what_it_costs_at_most(measured: Measured) -> None:
    frames = measured(EAGER)
    (finding,) = ask("power_cap", frames).findings
    assert frames.total
    assert finding.gain == Gain(0.0, approx(frames.total.ns * (1 - 1965 / 1980)))
    assert facts(finding.reason, "median") == ["74.5 %", "end_to_end", "median", "1965", "1980 MHz"]
    assert mentions(finding.advice, "own limit")
    assert ask("throttling", frames).verdict == "clear"


def test_a_power_cap_that_leaves_the_median_clock_at_its_highest_is_clear(measured: Measured) -> None:
    answer = ask("power_cap", measured(VIT))
    assert (answer.verdict, answer.evidence["throttled_share"]) == ("clear", approx(0.1739, abs=1e-4))


def test_a_limit_below_the_cards_own_is_to_be_raised(measured: Measured, environment: dict[str, Any]) -> None:
    environment["gpus"][0]["power_limit_w"] = 400.0
    (finding,) = ask("power_cap", measured(EAGER, environment=environment)).findings
    assert facts(finding.advice) == ["400 W", "700 W", "--power-limit"]


def test_heat_is_throttling_and_no_power_cap(measured: Measured) -> None:
    hot = of_loop(throttled_share=0.5, throttle_reasons=["thermal slowdown"], sm_mhz={"median": 990})
    frames = measured(VIT, hot)
    (finding,) = ask("throttling", frames).findings
    assert (finding.subject, finding.share) == ("thermal slowdown", approx(0.5))
    assert ask("power_cap", frames).verdict == "clear"


def test_without_telemetry_its_reason_is_given(measured: Measured) -> None:
    def blind(record: dict[str, Any]) -> None:
        record["telemetry"] = {"not_measured": "NVML: no permission"}

    answer = ask("throttling", measured(VIT, blind))
    assert mentions(answer.reason, "needs telemetry", "end_to_end", "NVML: no permission")


def test_another_process_on_the_gpu_is_found(measured: Measured) -> None:
    assert ask("other_process", measured(VIT)).verdict == "clear"
    (finding,) = ask("other_process", measured(VIT, of_loop(other_processes=2))).findings
    assert (finding.bottleneck, finding.evidence) == ("measurement", {"processes": 2.0})


def test_processes_that_nobody_may_see_are_not_none(measured: Measured) -> None:
    assert ask("other_process", measured(VIT, of_loop(other_processes=None))).verdict == "not assessed"


def test_a_link_of_half_the_lanes_is_found_with_half_the_copies(
    measured: Measured, environment: dict[str, Any]
) -> None:
    assert facts(ask("pcie_width", measured(VIT)).reason) == ["PCIe", "x16", "x16"]
    environment["gpus"][0]["pcie_width"] = 8
    frames = measured(VIT, environment=environment)
    (finding,) = ask("pcie_width", frames).findings
    copies = float(frames.floors[["h2d_ms", "d2h_ms"]].iloc[0].sum()) * 1e6
    assert finding.gain == Gain(0.0, approx(copies / 2))


def test_a_link_that_nobody_tells_of_is_not_assessed(measured: Measured, environment: dict[str, Any]) -> None:
    environment["gpus"][0]["pcie_width"] = {"value": None, "reason": "not told"}
    assert ask("pcie_width", measured(VIT, environment=environment)).verdict == "not assessed"


@pytest.mark.parametrize("memory", ["integrated", "host_page_tables"])
def test_a_gpu_whose_copies_do_not_go_over_pcie_is_not_held_against_its_lanes(
    measured: Measured, environment: dict[str, Any], bandwidth: dict[str, Any], memory: str
) -> None:
    """NVML tells of a PCIe link on Grace, too, which carries no copies."""
    environment["gpus"][0] |= {"pcie_width": 1, memory: True}
    bandwidth["h2d"]["pinned"]["gb_per_s"] = 20.0
    frames = measured(VIT, environment=environment, bandwidth=bandwidth)
    answers = [ask(name, frames) for name in ("pcie_width", "slow_link")]
    assert [(answer.verdict, facts(answer.reason)) for answer in answers] == [
        ("clear", ["copies", "not", "PCIe", "GPU"])
    ] * 2


def test_a_link_that_reaches_its_lanes_is_clear(measured: Measured) -> None:
    assert facts(ask("slow_link", measured(VIT)).reason) == ["copies", "h2d", "84.7 %", "d2h", "87.1 %", "63 GB/s"]


def test_a_direction_far_below_its_lanes_is_found_with_what_the_floor_would_lose(
    measured: Measured, bandwidth: dict[str, Any]
) -> None:
    bandwidth["h2d"]["pinned"]["gb_per_s"] = 6.3008
    frames = measured(VIT, bandwidth=bandwidth)
    (finding,) = ask("slow_link", frames).findings
    assert finding.subject == "h2d"
    assert finding.gain == Gain(0.0, approx(frames.floors["h2d_floor_ms"].iloc[0] * 1e6 * 0.9))


def test_a_link_of_an_unknown_generation_is_not_assessed(measured: Measured, environment: dict[str, Any]) -> None:
    environment["gpus"][0]["pcie_generation_max"] = 9
    assert ask("slow_link", measured(VIT, environment=environment)).verdict == "not assessed"


def test_a_clock_that_is_locked_low_is_no_throttling(measured: Measured) -> None:
    assert ask("low_clock", measured(VIT)).verdict == "clear"
    frames = measured(VIT, of_loop(throttled_share=0.0, throttle_reasons=[], sm_mhz={"median": 990}))
    (finding,) = ask("low_clock", frames).findings
    assert (finding.share, facts(finding.reason, "median")) == (0.5, ["SMs", "nothing", "median", "990", "1980 MHz"])
    assert ask("throttling", frames).verdict == "clear"


def test_a_clock_that_throttling_lowers_is_not_locked(measured: Measured) -> None:
    hot = of_loop(throttled_share=0.5, throttle_reasons=["thermal slowdown"], sm_mhz={"median": 990})
    assert ask("low_clock", measured(VIT, hot)).verdict == "clear"


def test_a_profile_of_more_than_twice_the_time_is_not_to_be_believed(measured: Measured) -> None:
    assert ask("profiler_overhead", measured(VIT)).verdict == "not assessed"
    assert facts(ask("profiler_overhead", slowed(measured(VIT), 1.57)).reason) == ["1.57", "nsys"]
    (finding,) = ask("profiler_overhead", slowed(measured(VIT), 2.5)).findings
    assert (finding.subject, finding.evidence) == ("nsys", {"slow_down": 2.5})


def test_boundaries_that_did_not_settle_or_drifted_are_named(measured: Measured) -> None:
    assert ask("unsettled", measured(VIT)).verdict == "clear"
    (finding,) = ask("unsettled", measured("bert_base/fp16/torch_eager/default/b8_s128")).findings
    assert facts(finding.reason) == ["device", "end_to_end", "not", "device", "-18.4 %"]


def test_an_end_to_end_that_is_shorter_than_its_own_part_is_no_steady_state(measured: Measured) -> None:
    def shorter(record: dict[str, Any]) -> None:
        device = record["boundaries"]["device"]["samples_ns"]
        record["boundaries"]["end_to_end"]["samples_ns"] = [ns / 2 for ns in device]

    (finding,) = ask("unsettled", measured(VIT, shorter)).findings
    assert mentions(finding.reason, "shorter than device")
