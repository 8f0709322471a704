"""Samples to statements."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.unit.facts import facts

from inferprof.tables import join, records, summary

COLUMNS = [*records.RECORD_KEY, "boundary", "samples", "stopped_by", "settled", "not_measured"]


def row(
    precision: str, boundary: str, samples: Any, round_: int = 0, backend: str = "ort_cuda", shape: str = "b4"
) -> dict[str, Any]:
    lacking = "no device clock" if samples is None else None
    case = ("box", "vit", precision, backend, "default", shape)
    values = None if samples is None else np.asarray(samples, dtype=float)
    return dict(zip(COLUMNS, [*case, round_, "file", boundary, values, "interval", True, lacking], strict=True))


def spread(median_ns: float, seed: int, n: int = 200) -> Any:
    return median_ns * (1 + np.random.default_rng(seed).normal(0, 0.001, n))


def frame(*rows: dict[str, Any]) -> pd.DataFrame:
    return records.frame_of(list(rows), COLUMNS)


def test_the_median_is_that_of_all_rounds_with_its_interval():
    rows = [row("fp16", "device", spread(1e6, seed), seed) for seed in range(3)]
    (found,) = records.rows_of(summary.latency(frame(*rows)))
    samples = np.concatenate([r["samples"] for r in rows])
    assert found["median"] == np.median(samples)
    assert found["low"] < found["median"] < found["high"]
    assert (found["n"], found["rounds"], found["stopped_by"]) == (600, 3, "interval")


def test_too_few_samples_have_no_percentile_and_no_interval():
    (found,) = records.rows_of(summary.latency(frame(row("fp16", "device", [1.0, 2.0, 3.0]))))
    assert found["median"] == 2.0
    assert found["p99"] is None and found["low"] is None and found["high"] is None


def test_a_boundary_without_samples_keeps_its_reason():
    (found,) = records.rows_of(summary.latency(frame(row("fp16", "device", None))))
    assert (found["not_measured"], found["median"]) == ("no device clock", None)


def test_two_gpu_cases_are_compared_by_device():
    rows = []
    for round_ in range(3):
        for name, factor in (("fp32", 2.0), ("fp16", 1.0)):
            rows += [row(name, "device", spread(factor * 1e6, round_), round_)]
            rows += [row(name, "end_to_end", spread(factor * 5e6, round_ + 9), round_)]
    (found,) = records.rows_of(summary.speed_ups(frame(*rows), "fp32/ort_cuda/default"))
    assert found["boundary"] == "device"
    assert found["speed_up"] == pytest.approx(2.0, rel=0.01)
    assert found["low"] <= found["speed_up"] <= found["high"]
    assert (found["verdict"], found["rounds"]) == ("faster", 3)


def test_a_gpu_case_and_a_cpu_case_are_compared_by_end_to_end():
    rows = [
        row("fp32", "device", None, backend="ort_cpu"),
        row("fp32", "end_to_end", spread(30e6, 1), backend="ort_cpu"),
        row("fp32", "device", spread(1e6, 2)),
        row("fp32", "end_to_end", spread(3e6, 3)),
    ]
    (found,) = records.rows_of(summary.speed_ups(frame(*rows), "fp32/ort_cpu/default"))
    assert found["boundary"] == "end_to_end"
    assert found["speed_up"] == pytest.approx(10.0, rel=0.01)


@pytest.mark.parametrize(("times", "verdict"), [(380, "slower"), (1 / 380, "faster"), (3, "undecided")])
def test_a_doubt_leaves_a_verdict_only_where_it_cannot_turn_it(times: float, verdict: str) -> None:
    rows = [row("fp32", "device", spread(1e6, 0)), row("fp16", "device", spread(times * 1e6, 1))]
    doubts = {("box", "vit", "fp16", "ort_cuda", "default", "b4", "device"): "not settled"}
    (found,) = records.rows_of(summary.speed_ups(frame(*rows), "fp32/ort_cuda/default", doubts))
    assert (found["verdict"], found["in_doubt"]) == (verdict, True)


def test_only_rounds_that_both_cases_have_are_paired():
    rows = [row("fp32", "device", spread(2e6, r), r) for r in (0, 1, 2)]
    rows += [row("fp16", "device", spread(1e6, r), r) for r in (1, 2)]
    (found,) = records.rows_of(summary.speed_ups(frame(*rows), "fp32/ort_cuda/default"))
    assert found["rounds"] == 2


def test_a_case_without_a_baseline_at_its_shape_says_so():
    rows = [row("fp32", "device", spread(2e6, 0)), row("fp16", "device", spread(1e6, 0), shape="b8")]
    (found,) = records.rows_of(summary.speed_ups(frame(*rows), "fp32/ort_cuda/default"))
    assert found["speed_up"] is None
    assert facts(found["not_measured"]) == ["fp32/ort_cuda/default", "not"]


def test_items_per_second_are_batch_times_inferences():
    latency = summary.latency(frame(row("fp16", "device", spread(2e6, 0))))
    key = dict(zip(records.KEY, ("box", "vit", "fp16", "ort_cuda", "default", "b4"), strict=True))
    outcomes = records.frame_of(
        [{**key, "outcome": "ok", "reason": "", "batch": 4, "rounds": 1, "files": []}],
        [*records.KEY, "outcome", "reason", "batch", "rounds", "files"],
    )
    mode = {**key, "mode": "back_to_back", "not_measured": None}
    rates = [{**mode, "inferences_per_s": rate} for rate in (90, 100, 130)]
    throughput = records.frame_of(rates, [*records.KEY, "mode", "inferences_per_s", "not_measured"])
    (found,) = records.rows_of(join.measured(outcomes, latency, throughput))
    assert found["back_to_back_items_per_s"] == 400.0
    assert np.isnan(found["pipelined_items_per_s"])
    assert found["device_ms"] == pytest.approx(2.0, rel=0.001)


def host_row(round_: int, on_cpu: list[int] | None, steal: float | None, waited: int = 0) -> dict[str, Any]:
    old = None if on_cpu else records.NO_YARDSTICK
    took = [ns + waited for ns in on_cpu] if on_cpu else None
    no_steal = "no /proc/stat" if steal is None else None
    key = ["box", "vit", "fp32", "ort_cpu", "default", "b4", round_, "file"]
    facts = {"took": took, "on_cpu": on_cpu, "not_measured": old, "steal_percent": steal, "no_steal": no_steal}
    return {**dict(zip(records.RECORD_KEY, key, strict=True)), **facts}


def hosts(*rows: dict[str, Any]) -> dict[str, Any]:
    columns = [*records.RECORD_KEY, "took", "on_cpu", "not_measured", "steal_percent", "no_steal"]
    (found,) = records.rows_of(summary.hosts(records.frame_of(list(rows), columns)))
    return found


def test_the_speed_of_the_host_is_that_of_all_rounds_and_what_was_stolen_that_of_the_worst():
    found = hosts(host_row(0, [100] * 8, 0.5), host_row(1, [150] * 4, 2.0))
    assert (found["readings"], found["yardstick_ns"], found["spread"]) == (12, 100, 1.5)
    assert (found["steal_percent"], found["not_measured"], found["no_steal"]) == (2.0, None, None)


def test_the_share_without_a_core_is_of_the_time_that_all_readings_took():
    found = hosts(host_row(0, [100] * 10, 0.0, waited=25), host_row(1, [100] * 10, 0.0, waited=25))
    assert (found["spread"], found["waited"]) == (1.0, pytest.approx(0.2))


def test_a_few_readings_have_a_median_and_no_spread():
    found = hosts(host_row(0, [100, 110, 130], None))
    assert (found["yardstick_ns"], found["spread"], found["steal_percent"]) == (110, None, None)
    assert found["waited"] == 0.0
    assert facts(found["not_measured"], "readings", "spread") == ["3", "readings", "spread", "10"]
    assert found["no_steal"] == "no /proc/stat"


def test_records_without_a_yardstick_say_so_unless_another_round_has_one():
    assert hosts(host_row(0, None, None))["not_measured"] == records.NO_YARDSTICK
    assert hosts(host_row(0, None, None), host_row(1, [100] * 10, 0.0))["spread"] == 1.0
