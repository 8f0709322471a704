"""Nsight Compute after nsys on a real GPU: a tiny ViT in ONNX Runtime, in a CUDA graph of it, and in PyTorch.

Durations: nsys has the mean of all launches of a kernel with one grid, ncu one launch, alone. With its caches left
(--cache-control none) half of the kernels must be within TOLERANCE of the timeline; with emptied ones, as the study
takes them, ncu takes longer, and no kernel more than SLOWEST times as long.
"""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from inferprof import registry
from inferprof.errors import CaseFailed
from inferprof.profilers import capturing, ncu, nsys
from inferprof.profilers.ncu import Options
from inferprof.tables.counters.ncu_choice import choose
from inferprof.tables.counters.ncu_timeline import against_timeline
from inferprof.tables.schema import by_launch

pytestmark = pytest.mark.gpu
TOLERANCE = 0.25
SLOWEST = 3.0
INFERPROF = [sys.executable, "-m", "inferprof"]
CASES = {
    "ort_cuda": ["ort_cuda"],
    "graph": ["ort_cuda", "--variant", "graph", "--set", "cuda_graph=true"],
    "torch_eager": ["torch_eager"],
}


@dataclass(frozen=True)
class Captured:
    """One case: its command, the timeline's table, the report and its table."""

    command: list[str]
    timeline: pd.DataFrame
    report: Path
    counters: pd.DataFrame

    @property
    def launches(self) -> pd.DataFrame:
        return against_timeline(self.counters, self.timeline)


@pytest.fixture(scope="module")
def fp32(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers")
    path = tmp_path_factory.mktemp("onnx") / "fp32.onnx"
    subprocess.run([*INFERPROF, "export", str(repository / "models/vit_tiny.yaml"), "--out", str(path)], check=True)
    return path


@pytest.fixture(scope="module", params=CASES)
def captured(
    request: pytest.FixtureRequest, repository: Path, fp32: Path, tmp_path_factory: pytest.TempPathFactory
) -> Captured:
    """The case under nsys, then under ncu, as the study does it."""
    for tool in ("nsys", "ncu"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not on PATH")
    pytest.importorskip("ncu_report")
    backend, *options = CASES[request.param]
    pytest.importorskip("torch" if backend == "torch_eager" else "onnxruntime")
    folder = tmp_path_factory.mktemp(request.param)
    spec = str(repository / "models/vit_tiny.yaml")
    artifact = spec if backend == "torch_eager" else str(fp32)
    run = [*INFERPROF, "run", backend, artifact, "--spec", spec, "--shape", "b8", *options]

    def command(iterations: int) -> list[str]:
        return [*run, "--profiled", str(iterations), "--out", str(folder / "record.json")]

    nsys.capture(command(10), folder / "b8.sqlite")
    timeline = nsys.read(folder / "b8.sqlite")
    timeline.to_parquet(folder / "b8.parquet")
    report = folder / "b8.ncu-rep"
    try:
        capturing.capture(capturing.aimed(registry.profilers()["ncu"], folder / "b8.parquet"), command(1), report)
    except CaseFailed as error:
        pytest.skip(str(error))
    return Captured(command(1), timeline, report, ncu.read(report))


def test_every_chosen_kernel_is_counted_once_per_grid_inside_an_iteration(captured: Captured) -> None:
    choice = choose(captured.timeline)
    wide = by_launch(captured.counters)
    assert set(wide["symbol"]) == {symbol for kernel in choice.kernels for symbol in kernel.symbols}
    assert not wide.duplicated(["symbol", "grid", "block", "shared_memory"]).any()
    paths = captured.counters.loc[captured.counters["level"] == "kernel", "range"]
    assert paths.str.startswith("iteration").all()


def test_each_launch_is_found_in_the_timeline_and_they_are_most_of_its_time(captured: Captured) -> None:
    launches = captured.launches
    assert launches["no_timeline"].isna().all(), launches[["name", "grid", "no_timeline"]].to_string()
    share = launches.drop_duplicates(["symbol", "grid", "block"])["time_share"].astype(float).sum()
    assert share >= 0.7  # 80 % where twelve launches are enough for it


def test_it_is_kept_how_the_clocks_ran(captured: Captured) -> None:
    rows = captured.counters.query("level == 'run'").set_index("metric")
    assert rows.loc["clock_control", "text"] == "none"
    assert rows.loc["cache_control", "text"] == "all"


def test_invocations_are_counted_from_the_start_of_the_window(captured: Captured) -> None:
    """ncu's manual does not say whether launches before cuProfilerStart count; if so, the other way was taken."""
    settings = json.loads(captured.report.with_suffix(".settings.json").read_text())
    assert settings["selection"] == "invocation"


def test_the_report_is_small_and_for_its_owner(captured: Captured) -> None:
    assert stat.S_IMODE(captured.report.stat().st_mode) == 0o600
    assert captured.report.stat().st_size < 64_000_000


def test_the_sections_have_all_that_a_full_set_has(captured: Captured, repository: Path) -> None:
    """The metrics of a capture with `--set full` on an H100 are the ones that can be had."""
    full = ncu.read(repository / "tests/data/ncu/h100_ort_cuda_vit_raw.csv.gz")
    kernels = captured.counters[captured.counters["level"] == "kernel"]
    assert set(full["metric"]) - set(kernels["metric"]) == set()


def test_nvidias_rules_come_with_their_estimates(captured: Captured) -> None:
    rules = captured.counters[captured.counters["level"] == "ncu_rule"]
    gains = rules.loc[rules["metric"] == "rule_speed_up_kernel", "value"]
    assert len(gains) > 0 and gains.between(0, 100).all()
    assert not rules["text"].dropna().str.contains("@section:", regex=False).any()


def ratios(captured: Captured) -> pd.Series[Any]:
    """ncu's duration over the timeline's mean, of each launch."""
    launches = captured.launches
    return (launches["duration_total"] / launches["timeline_mean"]).astype(float)


def test_with_empty_caches_a_kernel_takes_as_long_as_in_the_timeline_or_longer(captured: Captured) -> None:
    found = ratios(captured)
    assert found.between(1 - TOLERANCE, SLOWEST).all(), captured.launches.assign(ratio=found).to_string()
    assert found.median() >= 1 - TOLERANCE / 2


def test_with_caches_left_alone_durations_are_the_timelines(captured: Captured, tmp_path: Path) -> None:
    profiler = ncu.looking_into(choose(captured.timeline), Options(cache_control="none"))
    report = tmp_path / "warm.ncu-rep"
    capturing.capture(profiler, captured.command, report)
    launches = against_timeline(ncu.read(report), captured.timeline)
    found = (launches["duration_total"] / launches["timeline_mean"]).astype(float)
    assert abs(found.median() - 1) <= TOLERANCE, launches.assign(ratio=found).to_string()
    assert found.median() <= ratios(captured).median() + TOLERANCE / 2
