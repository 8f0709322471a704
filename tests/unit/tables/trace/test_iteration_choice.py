"""What counts as an iteration of a foreign capture: a range, or the period of what is launched."""

from __future__ import annotations

import lzma
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.unit.conftest import Export
from tests.unit.facts import naming

from inferprof.errors import UserError
from inferprof.readers import nsys_sqlite
from inferprof.tables.trace import iteration_choice, iterations, period
from inferprof.tables.trace.events import tidy
from inferprof.tables.trace.timeline import Timeline, without_serial


def bare(timeline: Timeline) -> Timeline:
    """The same without any range."""
    ops = timeline.ops.drop(columns="made", errors="ignore")
    return replace(
        timeline, ops=ops, ranges=timeline.ranges.iloc[:0], calls=timeline.calls.assign(path=0), paths=[""]
    )


def lengths(timeline: Timeline, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Starts and lengths of the ranges of a name."""
    own = [path.rpartition(" > ")[2] == without_serial(name) for path in timeline.paths]
    ranges = timeline.ranges[np.array(own)[timeline.ranges["path"].to_numpy()]].sort_values("start")
    return ranges["start"].to_numpy(), (ranges["end"] - ranges["start"]).to_numpy()


@pytest.mark.parametrize(
    ("capture", "name"),
    [
        ("h100_ort_cuda_vit", "host_run"),
        ("h100_ort_cuda_vit", "device_run"),
        ("h100_torch_eager", "iteration"),
        ("h100_torch_graph_trace", "iteration"),
        ("h100_torch_node_trace", "iteration"),
        ("h100_ort_cuda_minilm", "iteration"),
        ("h100_ort_cuda_graph_vit_tiny", "iteration"),
    ],
)
def test_the_period_is_as_long_as_the_range_that_was_taken_away(
    capture: str, name: str, captured: Callable[[str], Path]
) -> None:
    timeline = nsys_sqlite.read_timeline(captured(capture))
    begun, took = lengths(timeline, name)
    phases = period.phases(bare(timeline))
    inside = [
        (phase, (phase.start >= begun[0] - took[0]) & (phase.start < begun[-1] + took[-1]))
        for phase in phases
        if ((phase.start >= begun[0]) & (phase.start < begun[-1])).sum() >= len(begun) - 3
    ]
    phase, own = max(inside, key=lambda pair: pair[0].share)
    assert phase.confidence != "low"
    # A period lasts up to the next one: the range, and what the loop does between two of them.
    assert np.median(np.diff(phase.start[own])) == pytest.approx(np.median(np.diff(begun)), rel=0.01)
    assert np.median(phase.took[own]) == pytest.approx(np.median(took), rel=0.015)


def test_without_ranges_the_vit_waits_for_launches(captured: Callable[[str], Path]) -> None:
    timeline, choice = iteration_choice.choose(bare(nsys_sqlite.read_timeline(captured("h100_ort_cuda_vit"))))
    assert choice.by == "period"
    assert choice.count == iterations.is_iteration(timeline).sum() == 14
    assert [round(phase.share, 1) for phase in choice.periods if phase.confidence != "low"] == [0.5, 0.3]


def steps(built: Export, names: list[str], at: int, *, wait: bool = True, gap: int = 1000) -> int:
    """Launch kernels of these names, each 700 ns long, then wait; when the next may be launched."""
    for name in names:
        built.kernel(name, at + 200, at + 900, call=built.call("cudaLaunchKernel", at, at + 100))
        at += gap
    if wait:
        built.call("cudaStreamSynchronize", at, at + 500)
    return at + 1000


def chosen(built: Export, asked: str | None = None) -> iteration_choice.Choice:
    return iteration_choice.choose(nsys_sqlite.read_timeline(built.done()), asked)[1]


def test_layers_that_are_alike_are_no_iterations(export: Callable[..., Export]) -> None:
    built, at = export(), 1000
    for _ in range(6):
        at = steps(built, ["embed", *["attention", "mlp"] * 12, "head"], at)
    choice = chosen(built)
    assert (choice.by, choice.count) == ("period", 6)
    assert choice.periods[-1].steps == 26


def test_layers_of_a_single_inference_are_not_taken_for_iterations(export: Callable[..., Export]) -> None:
    built = export()
    steps(built, ["embed", *["attention", "mlp"] * 40, "head"], 1000)
    choice = chosen(built)
    assert (choice.by, choice.count) == (None, 0)
    assert "layers of one inference" in choice.reason


def test_start_up_and_warm_up_are_left_out(export: Callable[..., Export]) -> None:
    built, at = export(), 1000
    at = steps(built, ["fill", "copy", "tune", "tune_2", "check"], at)
    at = steps(built, ["a", "b", "c"], at, gap=9000)
    for _ in range(8):
        at = steps(built, ["a", "b", "c"], at)
    (phase,) = chosen(built).periods
    assert (phase.count, phase.warmup, phase.startup, phase.steps, phase.confidence) == (8, 1, 5, 3, "high")


def test_a_capture_of_queued_inferences_with_nothing_between_is_not_split(export: Callable[..., Export]) -> None:
    built, at = export(), 1000
    for _ in range(6):
        at = steps(built, ["a", "b", "c"], at, wait=False)
    assert chosen(built).by is None


def test_each_process_has_its_own_period(shared: Path, tmp_path: Path) -> None:
    path = tmp_path / "nsys.sqlite"
    path.write_bytes(lzma.decompress((shared / "captures/h200x2-tensor-parallel/nsys.sqlite.xz").read_bytes()))
    timeline, choice = iteration_choice.choose(bare(nsys_sqlite.read_timeline(path)))
    assert choice.by == "period"
    assert {phase.steps for phase in choice.periods} == {52}  # of four blocks of 13 each
    assert len({phase.process for phase in choice.periods}) == 2
    assert timeline.others.empty


def test_a_range_that_is_asked_for_is_taken_and_a_wrong_one_refused(export: Callable[..., Export]) -> None:
    built, at = export(), 1000
    for _ in range(3):
        begin = at
        at = steps(built, ["a", "b"], at)
        built.range("step", begin, at - 100)
        built.range("half", begin + 900, begin + 1500)
    path = built.done()
    timeline = nsys_sqlite.read_timeline(path)
    assert iteration_choice.choose(timeline)[1].by == "step"
    assert [c.name for c in iteration_choice.candidates_of(timeline)] == ["step", "half"]
    assert iteration_choice.choose(timeline, "half")[1].by == "half"
    with pytest.raises(UserError, match="no range nosuch"):
        iteration_choice.choose(timeline, "nosuch")


def test_a_range_around_all_of_it_goes_before_one_inside_that_repeats(export: Callable[..., Export]) -> None:
    built, at = export(), 1000
    for number in range(3):
        begin = at
        at = steps(built, ["q", f"k{number}", "v"], at, wait=False)
        built.range("attention", begin, begin + 150)
    built.range("forward", 500, at)
    assert chosen(built).by == "forward"


def test_another_process_on_the_gpu_does_not_hide_whose_ranges_there_are(repository: Path) -> None:
    made = nsys_sqlite.read_timeline(repository / "tests/data/nsys/made/two_processes.sqlite")
    timeline, choice = iteration_choice.choose(made)
    assert (choice.by, choice.count, choice.candidates[0].share) == ("infer", 2, 1.0)
    assert len(timeline.others) > 0


def test_a_period_that_is_found_at_the_end_is_followed_to_its_beginning(
    export: Callable[..., Export], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(period, "MOST_STEPS", 40)
    built, at = export(), 1000
    at = steps(built, ["fill", "copy"], at)
    for _ in range(30):
        at = steps(built, ["a", "b", "c"], at)
    (phase,) = chosen(built).periods
    assert (phase.count, phase.startup, phase.steps) == (30, 2, 3)


def test_of_many_repetitions_the_shortest_counts(export: Callable[..., Export]) -> None:
    built, at = export(), 1000
    for _ in range(300):
        at = steps(built, ["a", "b", "b", "c"], at)
    (phase,) = chosen(built).periods
    assert (phase.count, phase.steps) == (300, 4)


@pytest.mark.parametrize("name", ["step", "iteration", "ProfilerStep#1"])
def test_a_range_inside_of_one_of_its_name_is_no_iteration(name: str, export: Callable[..., Export]) -> None:
    made = export()
    for begin in range(0, 60_000, 10_000):
        made.range(name, begin, begin + 9_000)
        made.range("within", begin + 10, begin + 8_000)
        made.range(name, begin + 20, begin + 3_000)
        made.kernel("k", begin + 1_000, begin + 5_000, made.call("cudaLaunchKernel_v7000", begin + 100, begin + 200))
    timeline, choice = iteration_choice.choose(nsys_sqlite.read_timeline(made.done()))
    assert (choice.count, choice.mean_ns) == (6, 9_000)
    assert iterations.is_iteration(timeline).sum() == 6


def in_ranges(built: Export, names: list[str], gap: int = 1000) -> None:
    """A step of 3,000 ns in a range of each name, 4,000 apart, with another wait between."""
    at = 10_000
    for name in names:
        built.range(name, at, at + 3000)
        steps(built, ["a", "b"], at)
        built.call("cudaStreamSynchronize", at + 3500, at + 3900)
        at += 4000


@pytest.mark.parametrize(
    ("names", "by", "count"),
    [
        ([f"step {number}" for number in range(8)], "step #", 8),
        ([f"Iteration_{number:03d}" for number in range(8)], "Iteration_#", 8),
        ([f"request id={1000 + 7 * number} batch=8" for number in range(8)], "request id=# batch=8", 8),
        ([f"step {number}/8" for number in range(8)], "step #/8", 8),
        ([f"batch {size}" for size in (1, 2, 4, 8, 16, 32, 64, 128)], "period", 8),  # sizes, not a counter
        ([f"encoder.layer.{number}" for number in range(8)], "period", 8),
        ([f"epoch {number}" for number in range(8)], "period", 8),
        ([f"batch {number % 3}" for number in range(9)], "period", 9),
    ],
)
def test_ranges_that_differ_by_a_counter_are_of_one_name(
    names: list[str], by: str, count: int, export: Callable[..., Export]
) -> None:
    built = export()
    in_ranges(built, names)
    choice = chosen(built)
    assert (choice.by, choice.count) == (by, count)


def test_a_range_of_one_number_can_still_be_asked_for(export: Callable[..., Export]) -> None:
    built = export()
    in_ranges(built, [f"step {number}" for number in range(8)])
    assert chosen(built, "step 3").count == 1
    with pytest.raises(UserError) as caught:
        iteration_choice.choose(nsys_sqlite.read_timeline(built.path), "nosuch")
    assert "step # (8)" in str(caught.value)


def test_iterations_below_several_ranges_are_all_in_one_row(export: Callable[..., Export]) -> None:
    built = export()
    in_ranges(built, ["infer"] * 6)
    for number, (first, last) in enumerate(((9_000, 18_000), (21_000, 26_000), (29_000, 34_000))):
        built.range(f"phase {'abc'[number]}", first, last)
    timeline, choice = iteration_choice.choose(nsys_sqlite.read_timeline(built.done()))
    rows = tidy(timeline, "nsys").query("level == 'range' and name == 'iteration' and metric == 'duration_total'")
    assert (choice.by, rows["instances"].tolist(), rows["value"].tolist()) == ("infer", [6], [18_000])


def inferences(export: Callable[..., Export], kind: int, begin: int, end: int, name: str = "infer") -> Export:
    """Four inferences of a kernel, 1 ms apart, each with a range from `begin` to `end` µs behind its start."""
    built = export()
    for number in range(1, 5):
        start = number * 1_000_000
        call = built.call("cudaLaunchKernel", start + 90_000, start + 95_000)
        built.kernel("gemm", start + 100_000, start + 600_000, call)
        built.range(name, start + begin * 1000, start + end * 1000, kind=kind)
    return built


@pytest.mark.parametrize(
    ("kind", "begin", "end", "said"), [(59, 92, 92, ("4", "one time")), (60, 50, 1350, ("3 of 4",))]
)
def test_ranges_without_length_and_ranges_that_overlap_are_no_iterations(
    kind: int, begin: int, end: int, said: tuple[str, ...], export: Callable[..., Export]
) -> None:
    timeline = nsys_sqlite.read_timeline(inferences(export, kind, begin, end).done())
    with pytest.raises(UserError, match=naming("infer", *said)):
        iteration_choice.choose(timeline, "infer")
    assert iteration_choice.choose(timeline)[1].by != "infer"


@pytest.mark.parametrize("kind", [59, 60])
def test_push_pop_and_start_end_ranges_one_after_the_other_are_iterations(
    kind: int, export: Callable[..., Export]
) -> None:
    timeline = nsys_sqlite.read_timeline(inferences(export, kind, 50, 750).done())
    _, choice = iteration_choice.choose(timeline, "infer")
    assert (choice.count, choice.mean_ns) == (4, 700_000)


def test_a_registered_string_that_the_export_lacks_keeps_its_number(export: Callable[..., Export]) -> None:
    built = inferences(export, 59, 50, 750)
    built.database.execute("UPDATE NVTX_EVENTS SET text = NULL, textId = 4711")
    timeline = nsys_sqlite.read_timeline(built.done())
    with pytest.raises(UserError, match=r"\[string 4711\] \(4\)"):
        iteration_choice.choose(timeline, "infer")


def test_a_capture_in_which_no_range_ends_says_so(export: Callable[..., Export]) -> None:
    built = inferences(export, 59, 50, 750)
    built.database.execute("UPDATE NVTX_EVENTS SET end = NULL")
    timeline = nsys_sqlite.read_timeline(built.done())
    with pytest.raises(UserError, match=naming("infer", "none", "ends")):
        iteration_choice.choose(timeline, "infer")


def test_a_kernel_whose_launch_is_lost_is_one_of_the_iteration_that_it_begins_in(
    export: Callable[..., Export],
) -> None:
    built = inferences(export, 59, 50, 750)
    for number in range(1, 5):
        built.kernel("ncclDevKernel_AllReduce", number * 1_000_000 + 610_000, number * 1_000_000 + 640_000, 9000)
    built.kernel("ncclDevKernel_AllReduce", 5_900_000, 5_950_000, 9001)
    timeline, _ = iteration_choice.choose(nsys_sqlite.read_timeline(built.done()), "infer")
    paths = [timeline.paths[code] for code in timeline.op_path]
    assert paths.count("iteration") == 8 and paths[-1] == ""
