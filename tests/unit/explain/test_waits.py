"""What a GPU waits for in traces that are written by hand, where each gap is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from inferprof.explain import answer, explain
from inferprof.explain.foreign import Foreign
from inferprof.explain.parts import IDLE_WORDS, parts_of
from inferprof.findings import Finding

GEMM = "sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x64"
STEPS = 6


def event(name: str, kind: str, start: float, took: float, thread: int = 1, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "cat": kind, "ts": start, "dur": took, "pid": 1, "tid": thread, "args": more}


def trace(path: Path, begins: float, *, graph: bool, steps: bool = True, busy: float = 150) -> Foreign:
    """Iterations of 1,000 us: the host is elsewhere for 5 and 290 us, its launches take 10 and 20 us."""
    events = []
    for step in range(STEPS):
        at = 10_000 + 1000 * step
        first, second = 2 * step + 1, 2 * step + 2
        call = "cudaGraphLaunch" if graph else "cudaLaunchKernel"
        events += [event(f"ProfilerStep#{step}", "user_annotation", at, 1000)] if steps else []
        events += [
            event("cudaLaunchKernel", "cuda_runtime", at + 5, 10, correlation=first),
            event(GEMM, "kernel", at + 15, 145, 7, correlation=first, device=0, stream=7),
            event(call, "cuda_runtime", at + 450, 20, correlation=second),
            event(GEMM, "kernel", at + begins, busy, 7, correlation=second, device=0, stream=7),
            event("cudaStreamSynchronize", "cuda_runtime", at + 480, begins + busy - 475, correlation=900 + step),
        ]
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    (case,) = explain([path])
    return case


def finding(case: Foreign, check: str) -> Finding:
    (found,) = next(given.findings for given in case.answers if given.check == check)
    return found


@pytest.mark.parametrize("graph", [True, False])
@pytest.mark.parametrize("begins", [460, 500, 650])
def test_what_passes_behind_the_return_of_a_launch_is_not_the_hosts(
    tmp_path: Path, begins: float, graph: bool
) -> None:
    case = trace(tmp_path / "a.json", begins, graph=graph)
    _, whole, parts = parts_of(case) or ("", 0, {})
    waits = 5 + 10 + 290 + min(20, begins - 450)
    assert parts[IDLE_WORDS["launch"]] == waits * 1000
    assert parts[IDLE_WORDS["queued"]] == max(0, begins - 470) * 1000
    assert whole == sum(parts.values()) == 1_000_000


@pytest.mark.parametrize("begins", [460, 500, 650])
def test_the_host_is_elsewhere_only_until_it_launches(tmp_path: Path, begins: float) -> None:
    assert finding(trace(tmp_path / "a.json", begins, graph=False), "host_work").evidence["between_ns"] == 295_000


@pytest.mark.parametrize("begins", [460, 500, 650])
@pytest.mark.parametrize("check", ["host_work", "launch_bound", "cuda_graph"])
def test_no_advice_gains_more_than_the_wait_that_it_names(tmp_path: Path, begins: float, check: str) -> None:
    case = trace(tmp_path / "a.json", begins, graph=False)
    seen = finding(case, check)
    waits = (5 + 10 + 290 + min(20, begins - 450) + max(0, min(100, begins - 470))) * 1000
    idle = 1_000_000 - 145_000 - 150_000
    assert seen.gain and seen.gain.low_ns == pytest.approx(0.7 * waits)
    assert seen.gain.high_ns == pytest.approx(min(1.2 * waits, idle) if check == "cuda_graph" else waits)


def ort_profile(path: Path, runs: list[float]) -> Foreign:
    """Runs of these ms behind a first one, each all in one Conv."""
    events, at = [], 0
    for took in [50.0, *runs]:
        us = int(1000 * took)
        node = {"op_name": "Conv", "provider": "CPUExecutionProvider"}
        common = {"ph": "X", "pid": 1, "tid": 1, "ts": at, "dur": us}
        events.append({"cat": "Node", "name": "c_kernel_time", "args": node, **common})
        events.append({"cat": "Session", "name": "model_run", "args": {}, **common})
        at += us + 100
    path.write_text(json.dumps(events))
    (case,) = explain([path])
    return case


def test_runs_of_two_kinds_are_told_before_advice_by_their_mean(tmp_path: Path) -> None:
    case = ort_profile(tmp_path / "a.json", [3, 3, 18, 18, 18])
    (line,) = (entry.text for entry in answer.entries(case) if entry.label == "iteration")
    assert all(part in line for part in ("5 × 12 ms", "median 18 ms", "3 ms to 18 ms", "6 times"))
    alike = [entry.text for entry in answer.entries(ort_profile(tmp_path / "b.json", [3, 3, 3]))]
    assert not any("median" in text for text in alike)


def test_an_operator_is_the_subject_of_its_sentence(tmp_path: Path) -> None:
    (reason,) = (e.text for e in answer.entries(ort_profile(tmp_path / "a.json", [3, 3])) if e.label == "cause")
    assert reason.startswith("Conv takes 100.0 %")


def test_a_late_graph_is_named_though_its_nodes_were_traced(tmp_path: Path) -> None:
    labels = {entry.label: entry.text for entry in answer.entries(trace(tmp_path / "a.json", 650, graph=True))}
    assert "0.18 ms (18.0 %)" in labels["doubt"]


def test_without_its_ranges_a_trace_has_the_same_cause_and_formats(tmp_path: Path) -> None:
    ranged = trace(tmp_path / "a.json", 500, graph=False)
    bare = trace(tmp_path / "b.json", 500, graph=False, steps=False)
    assert bare.choice and bare.choice.by == "period"
    first = [case.verdict.groups[0].findings[0].check for case in (ranged, bare)]
    assert first[0] == first[1]
    for case in (ranged, bare):
        assert "fp16 100.0 %" in answer.render(case)


@pytest.mark.parametrize(("busy", "tells"), [(150, True), (8000, False)])
def test_a_gain_is_told_only_of_iterations_that_are_alike(tmp_path: Path, busy: float, tells: bool) -> None:
    events = []
    for step in range(2):
        at, length = 10_000 + 20_000 * step, (busy if step else 150) + 850
        events += [
            event(f"ProfilerStep#{step}", "user_annotation", at, length),
            event("cudaLaunchKernel", "cuda_runtime", at + 500, 10, correlation=step + 1),
            event(GEMM, "kernel", at + 515, length - 520, 7, correlation=step + 1, device=0, stream=7),
        ]
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    (case,) = explain([path])
    gains = [found.gain for given in case.answers for found in given.findings]
    assert gains
    assert any(gain is not None for gain in gains) == tells


def counted(path: Path, **values: float) -> Path:
    """A table of Nsight Compute about one launch, `__` of a metric's name as it is."""
    units = {"gpu__time_duration.sum": "ns"}
    head = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size"]
    head += ["Grid Size", "Device", "CC", "Section Name", "Metric Name", "Metric Unit", "Metric Value"]
    same = ["0", "1", "a", "h", "fill(int)", "1", "7", "(32, 1, 1)", "(64, 1, 1)", "0", "9.0", "Command line"]
    metrics = {"gpu__time_duration.sum": 1e6, **values}
    rows = [[*same, name, units.get(name, "%"), str(value)] for name, value in metrics.items()]
    path.write_text("\n".join(",".join(f'"{cell}"' for cell in row) for row in [head, *rows]) + "\n")
    return path


def test_one_throughput_near_its_peak_tells_what_bounds_a_kernel(tmp_path: Path) -> None:
    name = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
    (case,) = explain([counted(tmp_path / "a.csv", **{name: 97.32})])
    assert finding(case, "ncu_bound").bottleneck == "compute"
    (case,) = explain([counted(tmp_path / "b.csv", **{name: 30.0})])
    assert "ncu_bound" not in [given.check for given in case.answers]


def test_what_a_given_file_tells_is_not_among_what_is_not_told(repository: Path, tmp_path: Path) -> None:
    files = [repository / "tests/data/nsys/made/whole_graph.sqlite", counted(tmp_path / "a.csv")]
    apart = [lack for path in files for case in explain([path]) for lack in case.lacks]
    (together,) = explain(files)
    assert {lack.told_by for lack in apart} >= {"timeline", "counters"}
    assert not [lack for lack in together.lacks if lack.told_by]
