"""Which ranges of other people's captures are iterations, and what belongs to them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from tests.unit.conftest import GLOBAL_PID, THREAD, Export

from inferprof import cli
from inferprof.profilers import kineto, nsys
from inferprof.tables.schema import read_table
from inferprof.tables.trace.idle import IDLE_CAUSES
from inferprof.tables.trace.kernel_compare import per_iteration

LAUNCH, SYNC = "cudaLaunchKernel_v7000", "cudaStreamSynchronize_v3020"
OTHER = GLOBAL_PID + (1 << 24)
"""globalPid of another process."""


@pytest.fixture
def made(repository: Path) -> Path:
    """Folder of exports made by hand."""
    return repository / "tests/data/nsys/made"


def iteration(frame: pd.DataFrame, device: int = 0) -> dict[str, float]:
    """Metric → value of the iterations."""
    rows = frame[frame["level"].eq("range") & frame["name"].eq("iteration")]
    rows = rows[rows["device"].isna() | rows["device"].eq(device)]
    return dict(rows.dropna(subset=["value"])[["metric", "value"]].itertuples(index=False, name=None))


def count(frame: pd.DataFrame) -> int:
    rows = frame[frame["level"].eq("range") & frame["name"].eq("iteration") & frame["metric"].eq("duration_total")]
    return int(rows["instances"].sum())


def kernels(frame: pd.DataFrame) -> dict[str, tuple[float, float]]:
    """Name → launches and ns of an iteration."""
    table = per_iteration(frame)
    return {
        str(name): (float(launches), float(duration))
        for name, launches, duration in table[["name", "launches", "duration"]].to_numpy().tolist()
    }


def idle(frame: pd.DataFrame) -> dict[str, float]:
    """The causes that are not zero."""
    found = iteration(frame)
    causes = (*IDLE_CAUSES, "other_process")
    named = {cause: found.get(f"idle_{cause}", 0.0) for cause in causes}
    assert sum(named.values()) == pytest.approx(found["gpu_idle"])
    return {cause: ns for cause, ns in named.items() if ns}


# --- the flag ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["nosuch", "hostrun", "iteration", "ProfilerStep > x", ""])
def test_a_range_that_is_not_there_is_refused_with_those_that_are(
    name: str, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "x.parquet"
    capture = str(made / "steps.sqlite")
    assert cli.main(["table", "nsys", capture, "--iteration", name, "--out", str(out)]) == 2
    assert not out.exists()
    said = capsys.readouterr().err
    assert "ProfilerStep (2)" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("name", ["ProfilerStep", "ProfilerStep#1", "ProfilerStep#7"])
def test_a_step_of_torch_stands_for_all_of_its_steps(name: str, made: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.parquet"
    assert cli.main(["table", "nsys", str(made / "steps.sqlite"), "--iteration", name, "--out", str(out)]) == 0
    frame = read_table(out)
    assert count(frame) == 2
    assert iteration(frame)["duration_median"] == 1e6
    assert kernels(frame) == {"ampere_h16816gemm_128x128_nn": (1, 1e5)}


def test_without_the_flag_a_capture_needs_no_iterations(made: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.parquet"
    assert cli.main(["table", "nsys", str(made / "steps.sqlite"), "--out", str(out)]) == 0
    assert count(read_table(out)) == 0


def test_a_range_that_is_not_in_a_csv_is_refused_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.csv"
    path.write_text("Time (%),Total Time (ns),Instances,Range\n100.0,8,2,:step\n")
    arguments = ["table", "nsys", str(path), "--out", str(tmp_path / "x.parquet")]
    assert cli.main([*arguments, "--iteration", "nosuch"]) == 2
    assert "step (2)" in capsys.readouterr().err
    assert cli.main([*arguments, "--iteration", "step"]) == 0


def test_an_iteration_may_lie_inside_of_other_ranges(export: Callable[..., Export]) -> None:
    made = export()
    made.range("main", 0, 10_000)
    made.range("model:infer", 1000, 2000)
    made.range("layer", 1100, 1200)
    made.kernel("k", 1300, 1400, made.call(LAUNCH, 1150, 1160))
    frame = nsys.read(made.done(), "model:infer")
    assert (count(frame), iteration(frame)["kernel_busy"]) == (1, 100)
    assert kernels(frame) == {"k": (1, 100)}
    assert len(frame[frame["level"] == "event"])


# --- when they end -----------------------------------------------------------------------------------------------


def test_an_iteration_that_returns_early_lasts_until_its_kernels_are_done(made: Path) -> None:
    frame = nsys.read(made / "asynchronous.sqlite", "infer")
    found = iteration(frame)
    assert (found["duration_median"], found["kernel_busy"], found["idle_launch"]) == (560_000, 500_000, 60_000)
    assert kernels(frame) == {"ampere_h16816gemm_128x128_nn": (1, 500_000)}


def test_an_iteration_that_begins_before_the_one_before_it_is_done_lasts_from_there(
    export: Callable[..., Export],
) -> None:
    made = export()
    for i in range(4):  # the host runs ahead: a launch each 50 ns, a kernel each 500 ns
        made.range("infer", 1000 + 50 * i, 1040 + 50 * i)
        made.kernel("k", 1100 + 500 * i, 1600 + 500 * i, made.call(LAUNCH, 1010 + 50 * i, 1020 + 50 * i))
    frame = nsys.read(made.done(), "infer")
    found = iteration(frame)
    assert (found["duration_min"], found["duration_median"], found["duration_max"]) == (500, 500, 600)
    assert found["kernel_busy"] == 500
    assert kernels(frame) == {"k": (1, 500)}


def test_steps_of_torch_that_run_on_behind_their_end_add_up_to_the_time_that_passed(tmp_path: Path) -> None:
    events = []
    for i in range(3):
        args = {"correlation": i + 1, "device": 0, "stream": 7}
        step = {"cat": "user_annotation", "name": f"ProfilerStep#{i}", "ts": 100 * i, "dur": 100}
        call = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 100 * i + 90, "dur": 5, "args": args}
        events += [step, call, {"cat": "kernel", "name": "k", "ts": 100 * i + 98, "dur": 40, "tid": 7, "args": args}]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [{"ph": "X", "pid": 9, "tid": 9, **event} for event in events]}))
    found = iteration(kineto.read(path, "ProfilerStep#2"))
    assert found["duration_total"] == 338_000
    assert found["kernel_busy"] == 40_000


# --- other threads, processes and GPUs ---------------------------------------------------------------------------


def test_launches_of_another_thread_belong_to_the_iteration_in_which_they_fall(export: Callable[..., Export]) -> None:
    made = export()
    worker, watchdog = THREAD + 1, THREAD + 2
    for i in range(3):
        made.range("infer", 1000 * i, 1000 * i + 900, kind=60)
        made.range("layer", 1000 * i + 90, 1000 * i + 130, thread=worker)
        made.kernel("k", 1000 * i + 200, 1000 * i + 300, made.call(LAUNCH, 1000 * i + 100, 1000 * i + 120, worker))
        made.kernel("j", 1000 * i + 400, 1000 * i + 500, made.call(LAUNCH, 1000 * i + 140, 1000 * i + 150, worker))
        made.call("cudaEventQuery", 1000 * i + 600, 1000 * i + 610, watchdog)
    made.kernel("k", 5000, 5100, made.call(LAUNCH, 4900, 4950, worker))
    frame = nsys.read(made.done(), "infer")
    assert kernels(frame) == {"k": (1, 100), "j": (1, 100)}
    parents = frame[frame["level"].eq("kernel") & frame["metric"].eq("duration_total")]
    assert set(parents["range"].fillna("")) == {"iteration > layer", "iteration", ""}
    assert set(frame.loc[frame["level"].eq("api") & frame["name"].eq("cudaEventQuery"), "range"].fillna("")) == {""}


def test_kernels_of_another_process_are_not_the_cases(made: Path) -> None:
    frame = nsys.read(made / "two_processes.sqlite", "infer")
    assert kernels(frame) == {"ampere_h16816gemm_128x128_nn": (1, 100_000)}
    assert (iteration(frame)["duration_mean"], iteration(frame)["kernel_busy"]) == (1_000_000, 100_000)
    assert idle(frame) == {"launch": 100_000, "end": 100_000, "other_process": 700_000}
    assert set(frame.loc[frame["level"] == "launch_config", "name"]) == {"ampere_h16816gemm_128x128_nn"}


def test_what_another_process_does_in_a_gap_is_none_of_its_causes(export: Callable[..., Export]) -> None:
    made = export()
    made.range("iteration", 0, 1000)
    made.call(SYNC, 0, 300)
    made.kernel("k", 500, 600, made.call(LAUNCH, 400, 420))
    made.kernel("k", 800, 900, made.call(LAUNCH, 430, 440))
    for start, end in ((100, 200), (350, 410), (550, 650), (950, 2000)):
        made.kernel("theirs", start, end, 99, process=OTHER)
    frame = nsys.read(made.done())
    assert idle(frame) == {
        "sync": 200,  # 0 … 300 without 100 … 200
        "launch": 140,  # 300 … 500 without 350 … 410
        "queued": 150,  # 600 … 800 without 600 … 650
        "end": 50,
        "other_process": 100 + 60 + 50 + 50,
    }


def test_two_processes_with_iterations_share_a_gpu_and_each_has_its_own(export: Callable[..., Export]) -> None:
    made = export()
    for process, begin in ((GLOBAL_PID, 0), (OTHER, 100)):
        made.range("iteration", begin, begin + 1000, thread=process | 5)
        made.kernel(
            "k", begin + 200, begin + 300, made.call(LAUNCH, begin + 10, begin + 20, process | 5), process=process
        )
    frame = nsys.read(made.done())
    found = iteration(frame)
    assert (count(frame), found["kernel_busy"], found["idle_other_process"]) == (2, 100, 100)
    assert kernels(frame) == {"k": (1, 100)}


def test_a_process_that_only_starts_others_has_their_kernels(export: Callable[..., Export]) -> None:
    made = export()
    made.range("iteration", 0, 1000)
    made.kernel("k", 200, 300, made.call(LAUNCH, 10, 20, OTHER | 5), process=OTHER)
    frame = nsys.read(made.done())
    assert set(frame.loc[frame["level"] == "kernel", "name"]) == {"k"}
    assert iteration(frame)["kernel_busy"] == 100


def test_several_gpus_of_one_process_have_rows_of_their_own(export: Callable[..., Export]) -> None:
    made = export()
    made.range("iteration", 0, 1000)
    for device in (0, 3):
        made.kernel("k", 200, 300 + 100 * device, made.call(LAUNCH, 10 + device, 20), device=device)
    frame = nsys.read(made.done())
    assert [iteration(frame, device)["kernel_busy"] for device in (0, 3)] == [100, 400]
    assert kernels(frame) == {"k": (2, 500)}


def test_ranks_of_a_model_that_is_spread_are_each_judged_on_their_own_gpu(export: Callable[..., Export]) -> None:
    made = export()
    for rank, process in enumerate((GLOBAL_PID, OTHER)):
        made.range("iteration", 0, 1000 + 500 * rank, thread=process | 5)
        call = made.call(LAUNCH, 10, 20, process | 5)
        made.kernel("k", 200, 700, call, device=rank, process=process)
    frame = nsys.read(made.done())
    assert [iteration(frame, device)["gpu_busy_share"] for device in (0, 1)] == [0.5, 1 / 3]
    assert "idle_other_process" not in set(frame["metric"])


def test_two_processes_may_count_two_gpus_by_the_same_number(export: Callable[..., Export]) -> None:
    made = export()
    made.database.execute("CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId, cudaId, pid)")
    for gpu, process in ((3, GLOBAL_PID), (5, OTHER)):
        made.database.execute(
            "INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (?, 0, ?)", (gpu, (process >> 24) & 0xFFFFFF)
        )
        made.range("iteration", 0, 1000, thread=process | 5)
        made.kernel("k", 200, 300 + 100 * gpu, made.call(LAUNCH, 10, 20, process | 5), process=process)
    frame = nsys.read(made.done())
    assert [iteration(frame, device)["kernel_busy"] for device in (3, 5)] == [400, 600]
    assert "idle_other_process" not in set(frame["metric"])


def test_a_table_of_gpus_may_be_empty(export: Callable[..., Export]) -> None:
    made = export()
    made.database.execute("CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId, cudaId, pid)")
    made.range("iteration", 0, 1000)
    made.kernel("k", 200, 300, made.call(LAUNCH, 10, 20), device=2)
    assert iteration(nsys.read(made.done()), 2)["kernel_busy"] == 100


def test_an_export_whose_kernels_tell_no_process_is_read_as_one(export: Callable[..., Export]) -> None:
    made = export()
    made.range("iteration", 0, 1000)
    made.kernel("k", 200, 300, made.call(LAUNCH, 10, 20))
    path = made.done()
    with sqlite3.connect(path) as database:
        database.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET globalPid = NULL")
    database.close()
    assert iteration(nsys.read(path))["kernel_busy"] == 100


# --- copies ------------------------------------------------------------------------------------------------------


def test_a_copy_costs_what_its_call_lasted_and_the_wait_behind_it_is_of_its_own(repository: Path) -> None:
    frame = kineto.read(repository / "tests/data/kineto/made_idle_copy.json")
    rows = frame[frame["level"].eq("run") & frame["metric"].str.startswith("idle_")]
    found = dict(rows[["metric", "value"]].itertuples(index=False, name=None))
    assert {cause: ns for cause, ns in found.items() if ns} == {
        "idle_sync": 2_000,
        "idle_launch": 8_000,
        "idle_copy": 10_000,
        "idle_queued": 7_980_000 + 1_000,
    }


def test_a_kernel_that_starts_long_after_its_launch_was_not_waiting_for_the_host(
    export: Callable[..., Export],
) -> None:
    made = export()
    made.range("iteration", 0, 10_000_000)
    made.kernel("k", 9_000_000, 10_000_000, made.call(LAUNCH, 0, 5_000))
    assert idle(nsys.read(made.done())) == {"launch": 5_000 + 100_000, "queued": 8_895_000}
