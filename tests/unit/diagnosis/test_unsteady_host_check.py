"""The check of the host's speed on records of an H100, with readings of a yardstick added."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.unit.diagnosis.asking import approx, ask
from tests.unit.facts import facts, mentions

from inferprof.diagnosis import run
from inferprof.findings import Frames

Measured = Callable[..., Frames]
EAGER = "bert_base/fp16/torch_eager/default/b8_s128"
GRAPH = "minilm/fp16/ort_cuda/graph/b8_s128"
LAUNCHES = "minilm/fp16/ort_cuda/default/b8_s128"
STEADY, SLOWED = [1_000_000] * 32, [1_000_000] * 20 + [1_500_000] * 12


def host(on_cpu: list[int], waited: float = 0.0, steal: float | None = None) -> dict[str, Any]:
    """The part of the record; the thread was without a core for so much of each reading."""
    stolen = {"not_measured": "no /proc/stat"} if steal is None else {"percent": steal}
    took = [round(ns / (1 - waited)) for ns in on_cpu]
    return {"yardstick_ns": took, "yardstick_cpu_ns": on_cpu, "steal": stolen}


def beside(told: dict[str, Any], interval: float = 0.3) -> Callable[[dict[str, Any]], None]:
    """Adds readings, and makes samples of each boundary whose median has about this half width."""

    def change(record: dict[str, Any]) -> None:
        record["host"] = told
        for entry in record["boundaries"].values():
            if "samples_ns" in entry:
                slow = round(2_000_000 * (1 + interval))
                entry["samples_ns"] = [2_000_000, 2_000_000, slow, 2_000_000, slow] * 19 + [2_000_000]

    return change


def test_a_host_of_two_speeds_beside_a_wide_interval_is_found(measured: Measured) -> None:
    answer = ask("unsteady_host", measured(EAGER, beside(host(SLOWED, steal=3.25))))
    (finding,) = answer.findings
    assert facts(finding.reason, "readings", "waited") == [
        "1.50",
        "90th",
        "10th",
        "32",
        "readings",
        "waited",
        "0.0 %",
        "3.2 %",
        "CPU",
        "device",
        "±30.0 %",
    ]
    assert (finding.bottleneck, finding.share, finding.gain) == ("measurement", None, None)
    assert finding.evidence == {
        "spread": 1.5,
        "waited": 0.0,
        "yardstick_ns": 1e6,
        "readings": 32.0,
        "steal_percent": 3.25,
        "half_width": approx(0.3),
    }
    assert facts(finding.advice, "host")[-3:] == ["host", "CUDA", "cuda_graph: true"]


def test_an_interval_that_the_host_cannot_explain_is_told_apart(measured: Measured) -> None:
    (finding,) = ask("unsteady_host", measured(EAGER, beside(host(SLOWED), interval=0.8))).findings
    assert facts(finding.reason, "host")[-4:] == ["device", "±80.0 %", "more", "host"]


def test_a_thread_that_waits_for_its_core_is_found_though_the_core_is_steady(measured: Measured) -> None:
    answer = ask("unsteady_host", measured(EAGER, beside(host(STEADY, waited=0.5), interval=0.8)))
    (finding,) = answer.findings
    assert (finding.evidence["spread"], finding.evidence["waited"]) == (1.0, 0.5)
    assert mentions(finding.reason, "core for 50.0 %")
    assert finding.reason.endswith("±80.0 %.")  # twice as long at most is what half of the time explains


def test_a_steady_host_is_clear_however_wide_the_interval(measured: Measured) -> None:
    answer = ask("unsteady_host", measured(EAGER, beside(host(STEADY))))
    assert answer.verdict == "clear"
    assert facts(answer.reason, "readings", "waited") == [
        "1.00",
        "90th",
        "10th",
        "32",
        "readings",
        "waited",
        "0.0 %",
        "device",
        "±30.0 %",
    ]


def test_a_case_that_does_not_feel_its_host_is_clear(measured: Measured) -> None:
    answer = ask("unsteady_host", measured(EAGER, beside(host(SLOWED), interval=0.005)))
    assert (answer.verdict, answer.evidence["spread"]) == ("clear", 1.5)


def test_a_case_that_waits_for_launches_is_found_even_with_a_narrow_interval(measured: Measured) -> None:
    def change(record: dict[str, Any]) -> None:
        record["host"] = host(SLOWED, steal=0.0)

    frames = measured(LAUNCHES, change, profile="h100_ort_cuda_minilm")
    assert ask("launch_bound", frames).findings
    (finding,) = ask("unsteady_host", frames).findings
    assert finding.evidence["half_width"] < 0.02
    assert mentions(finding.reason, "for its launches")


def test_a_case_without_an_interval_is_not_known_at_all(measured: Measured) -> None:
    def change(record: dict[str, Any]) -> None:
        beside(host(SLOWED))(record)
        record["boundaries"]["call"]["samples_ns"] = [2_000_000] * 5

    (finding,) = ask("unsteady_host", measured(EAGER, change)).findings
    assert "call has no interval" in finding.reason


def test_who_has_a_graph_is_not_told_to_use_one(measured: Measured) -> None:
    (finding,) = ask("unsteady_host", measured(GRAPH, beside(host(SLOWED)))).findings
    assert finding.advice.endswith("`cpu_rounds:`).")


def test_without_a_yardstick_it_is_not_assessed(measured: Measured) -> None:
    assert mentions(ask("unsteady_host", measured(EAGER)).reason, "needs", "bare run", "without the yardstick")
    few = ask("unsteady_host", measured(EAGER, beside(host(SLOWED[:4]))))
    assert (few.verdict, "4 readings" in few.reason) == ("not assessed", True)


def test_the_verdict_has_it_as_a_caution_that_gains_nothing(measured: Measured) -> None:
    bare, cautioned = (
        run.document(frames, run.answers(frames))["verdict"]
        for frames in (measured(EAGER, beside(host(one))) for one in (STEADY, SLOWED))
    )
    names = [{one["check"] for one in verdict["cautions"]} for verdict in (bare, cautioned)]
    assert names[1] - names[0] == {"unsteady_host"}
    assert cautioned["gain"] == bare["gain"]
