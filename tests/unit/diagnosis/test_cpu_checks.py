"""The checks of cases on a CPU, on made-up records: threads, limits, operators, conversions."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.unit.diagnosis.asking import approx, ask
from tests.unit.report.conftest import Results

from inferprof import registry
from inferprof.case import Case
from inferprof.devices import cpu_ceilings
from inferprof.diagnosis import frames, run
from inferprof.findings import NEEDS, Change, Frames
from inferprof.tables.schema import conform, of_case

CPU_CHECKS = ("cpu_threads", "cpu_limit", "cpu_operators", "cpu_conversions")
INT8 = "vit/int8/ort_cpu/default/b1"


@pytest.fixture
def results(tmp_path: Path) -> Results:
    made = Results(tmp_path)
    made.write(f"{made.machine}/environment.json", environment(4, None))
    return made


def environment(usable: int, quota: float | None) -> dict[str, Any]:
    cores = {"value": None, "reason": "no limit is set"} if quota is None else quota
    return {"gpus": [], "cpu": {"model": "x", "threads_usable": usable, "quota_cores": cores}}


def host(on_core: list[float], waited: list[float]) -> dict[str, Any]:
    ns = [10**6] * 20
    threads = {"seconds": 2.0, "on_core": on_core, "waited": waited}
    return {"yardstick_ns": ns, "yardstick_cpu_ns": ns, "steal": {"percent": 0.0}, "threads": threads}


def load(results: Results, case: str = INT8, operators: dict[str, float] | None = None) -> Frames:
    """The frames of a case, with a profile of these operators, ns of a run."""
    loaded = frames.load(results.root, results.machine, Case.from_path(case))
    if operators is None:
        return loaded
    rows = [
        {"level": "op", "name": f"n{name}", "owner": f"CPUExecutionProvider > {name}", "instances": 1, "value": ns}
        for name, ns in operators.items()
    ]
    table = pd.concat([pd.DataFrame(rows).assign(metric=metric) for metric in ("duration_total", "first_run")])
    profile = of_case(conform(table, "ort_profile"), results.machine, loaded.case)
    return dataclasses.replace(loaded, profiles=profile)


def test_more_threads_than_cores_that_wait_for_each_other_are_found_with_the_number_that_fits(
    results: Results,
) -> None:
    results.write(f"{results.machine}/environment.json", environment(8, 2.0))
    results.ok(INT8, 10.0, host=host([1.0] * 4 + [0.01], [1.0] * 4 + [0.0]))
    (finding,) = ask("cpu_threads", load(results)).findings
    assert finding.evidence == {"threads": 4.0, "usable_cores": 2.0, "busy_cores": 2.005, "waited": 0.5}
    assert finding.change == Change("variant", {"threads": 2})
    assert "`threads: 2`" in finding.advice
    total = load(results).total
    assert total is not None and finding.gain is not None
    assert finding.gain.low_ns == 0.0 and finding.gain.high_ns == pytest.approx(total.ns / 2, rel=0.02)


def test_threads_that_fit_and_wait_all_the_same_have_neighbours(results: Results) -> None:
    results.ok(INT8, 10.0, host=host([1.5] * 4, [0.5] * 4))
    (finding,) = ask("cpu_threads", load(results)).findings
    assert (finding.evidence["waited"], finding.change) == (0.25, Change("variant"))
    assert finding.share == pytest.approx(0.25, abs=0.02)


def test_waiting_in_a_few_iterations_alone_gains_nothing_of_an_undisturbed_median(results: Results) -> None:
    samples = [10_000_000] * 18 + [60_000_000] * 2  # of 300 ms 100 are waiting
    ends = {"end_to_end": {"samples_ns": samples, "stopped_by": "time", "settled": True}}
    results.ok(INT8, 10.0, host=host([1.0] * 4, [0.5] * 4), boundaries=ends)
    answer = ask("cpu_threads", load(results))
    assert (answer.verdict, answer.evidence["waited"]) == ("clear", approx(1 / 3))
    assert "the median it is 0.0 %" in answer.reason


def test_cores_that_a_case_leaves_idle_are_a_rule_of_thumb(results: Results) -> None:
    results.ok(INT8, 10.0, host=host([2.0], [0.0]))
    (finding,) = ask("cpu_threads", load(results)).findings
    assert (finding.evidence["busy_cores"], finding.share, finding.confidence) == (1.0, 0.75, "low")


def test_threads_that_keep_the_cores_busy_are_clear(results: Results) -> None:
    results.ok(INT8, 10.0, host=host([1.9] * 4, [0.02] * 4))
    assert ask("cpu_threads", load(results)).verdict == "clear"


def test_a_record_without_threads_is_not_assessed(results: Results) -> None:
    results.ok(INT8, 10.0)
    assert ask("cpu_threads", load(results)).verdict == "not assessed"


@pytest.mark.parametrize(
    ("moved", "flops", "bound"), [(8 * 10**7, 10**6, "memory"), (10**6, 10**9, "compute"), (10**6, 10**6, None)]
)
def test_a_case_near_what_the_cpu_was_measured_to_reach_is_bound_by_it(
    results: Results, moved: int, flops: int, bound: str | None
) -> None:
    case = "vit/fp32/ort_cpu/default/b1"
    results.ok(case, 10.0)
    rates = {"gemm": {"fp32": {"flops_per_s": 1e11}}, "memory": {"read": {"bytes_per_s": 1e10}}}
    results.write(f"{results.machine}/ceilings.json", rates)
    node = {"name": "m", "op": "MatMul", "product": True, "dtype": "float32", "flops": flops}
    node |= {"read": 0, "written": 0, "weights": 0}
    sizes = {"weights": moved, "inputs": 0, "outputs": 0}
    results.write("onnx/vit/fp32.b1.cost.json", {**sizes, "nodes": [node]})
    answer = ask("cpu_limit", load(results, case))
    assert [finding.bottleneck for finding in answer.findings] == ([bound] if bound else [])
    evidence = answer.findings[0].evidence if bound else answer.evidence
    assert evidence == {"memory_ns": approx(moved / 10), "compute_ns": approx(flops / 100)}


def test_a_ceiling_that_the_case_was_faster_than_is_none(results: Results) -> None:
    case = "vit/fp32/ort_cpu/default/b1"
    results.ok(case, 10.0)
    results.write(f"{results.machine}/ceilings.json", {"gemm": {}, "memory": {"read": {"bytes_per_s": 1e10}}})
    results.write("onnx/vit/fp32.b1.cost.json", {"weights": 3 * 10**8, "inputs": 0, "outputs": 0, "nodes": []})
    answer = ask("cpu_limit", load(results, case))
    assert answer.verdict == "not assessed" and "ceilings" in answer.reason and "30" in answer.reason


def test_the_operator_that_takes_longest_is_named_with_its_share(results: Results) -> None:
    results.ok(INT8, 10.0)
    (finding,) = ask("cpu_operators", load(results, operators={"MatMul": 6e6, "Softmax": 3e6, "Add": 1e6})).findings
    assert (finding.subject, finding.share, finding.acts) == ("MatMul", 0.6, False)
    assert "Softmax 30.0 %" in finding.reason
    assert ask("cpu_operators", load(results)).reason.startswith("needs a profile")


@pytest.mark.parametrize(
    ("longest", "beside", "fused"),
    [("Softmax", "MatMul", True), ("Softmax", "Conv", False), ("GridSample", "MatMul", False)],
)
def test_only_what_the_transformer_optimizer_fuses_is_said_to_be_fused(
    results: Results, longest: str, beside: str, fused: bool
) -> None:
    results.ok(INT8, 10.0)
    (finding,) = ask("cpu_operators", load(results, operators={longest: 6e6, beside: 3e6})).findings
    assert ("optimizer" in finding.advice) == fused


@pytest.mark.parametrize(
    ("fp32_ms", "casts", "verdict"), [(5.0, 4e6, "found"), (20.0, 4e6, "clear"), (5.0, 1e5, "clear")]
)
def test_conversions_are_found_where_fp32_is_faster_and_saves_what_was_measured(
    results: Results, fp32_ms: float, casts: float, verdict: str
) -> None:
    results.ok(INT8, 10.0)
    results.ok(INT8.replace("int8", "fp32"), fp32_ms)
    answer = ask("cpu_conversions", load(results, operators={"MatMul": 6e6, "DequantizeLinear": casts}))
    assert answer.verdict == verdict
    if verdict == "found":
        (finding,) = answer.findings
        assert finding.gain is not None
        assert 5.1e6 < finding.gain.low_ns < finding.gain.high_ns < 5.3e6
        assert finding.gain.high_ns - finding.gain.low_ns < 0.3e6
        assert finding.evidence["conversions_share"] == approx(0.4)


def test_checks_of_the_cpu_are_not_about_gpus_and_nobody_is_asked_for_what_they_lack(results: Results) -> None:
    case = "vit/fp16/ort_cuda/default/b1"
    results.ok(case, 10.0, gpu=True)
    for name in CPU_CHECKS:
        assert ask(name, load(results, case)).reason == f"needs {NEEDS['cpu']}"
    results.ok(INT8, 10.0)
    others = [answer for answer in run.answers(load(results)) if answer.reason == f"needs {NEEDS['gpu']}"]
    assert len(others) > 40 and set(CPU_CHECKS) <= set(registry.checks())


def test_ceilings_of_this_cpu_are_rates_of_its_blas_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_ceilings, "SIZES", (64,))
    monkeypatch.setattr(cpu_ceilings, "BYTES", 1 << 20)
    monkeypatch.setattr(cpu_ceilings, "SECONDS", 0.01)
    measured = cpu_ceilings.measure()
    fp32 = measured["gemm"]["fp32"]
    assert fp32["flops_per_s"] == approx(2 * 64**3 / fp32["by_size"]["64"] * 1e9)
    assert all(rate["bytes_per_s"] > 1e8 for rate in measured["memory"].values())
