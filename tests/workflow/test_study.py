"""One toy study end to end, and what a change to its inputs runs again. On any machine, without a GPU."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.workflow.conftest import Workspace, environment, shown_by

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def studied(make_workspace: Callable[[Path], Workspace], tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A workspace in which the whole study has run."""
    workspace = make_workspace(tmp_path_factory.mktemp("study") / "workspace")
    done = workspace.run("results/REPORT.txt")
    assert done.returncode == 0, done.stdout + done.stderr
    return workspace


def test_the_report_says_what_ran_and_what_was_refused(studied: Workspace) -> None:
    text = (studied.folder / "results" / "REPORT.txt").read_text(encoding="utf-8")
    assert max(map(len, text.splitlines())) <= 100
    assert "toy" in text and "ort_cpu" in text
    assert "ort_cuda" in text and "no GPU" in text


def test_a_second_run_has_nothing_to_do(studied: Workspace) -> None:
    done = studied.run("results/REPORT.txt")
    assert "Nothing to be done" in done.stdout + done.stderr
    assert studied.jobs("results/REPORT.txt", "--cores", "2") == {}  # more processes may draw, to the same bytes


def test_one_deleted_engine_is_one_job_and_its_report(studied: Workspace) -> None:
    engine = next(studied.folder.glob("results/aot-sm120/engine/**/*.engine"))
    content = engine.read_bytes()
    engine.unlink()
    assert studied.jobs(str(engine.relative_to(studied.folder)))["total"] == 1
    engine.write_bytes(content)


def test_touching_an_input_runs_nothing(studied: Workspace) -> None:
    (studied.folder / "models" / "toy.yaml").touch()
    (studied.folder / "config.yaml").touch()
    assert studied.jobs("results/REPORT.txt") == {}


def test_changed_int8_options_rerun_int8_and_what_follows(studied: Workspace) -> None:
    config = (studied.folder / "config.yaml").read_text(encoding="utf-8")
    studied.configure(precisions=["fp32", "fp16", {"name": "int8", "samples": 16, "calibration": "max"}])
    jobs = studied.jobs("results/REPORT.txt")
    (studied.folder / "config.yaml").write_text(config, encoding="utf-8")
    assert jobs.pop("total") == sum(jobs.values())
    # ort_cpu at two shapes is what int8 runs on here; the engine is the one built ahead of time.
    assert jobs == {
        **{
            "quantize": 1,
            "audit": 1,
            "partition": 1,
            "accuracy": 1,
            "expect": 2,
            "build": 1,
            "cost": 2,
            "benchmark": 2,
        },
        **{"diagnose": 1, "cases": 1, "write_report": 1, "report_in_use": 1},  # a diagnosis looks at all of a model
    }


def test_another_machine_measures_for_itself_and_converts_nothing(studied: Workspace) -> None:
    jobs = studied.jobs("results/REPORT.txt", "--config", "machine=other-box")
    assert jobs["benchmark"] == 10 and jobs["probe"] == 1
    assert not {"export", "quantize", "audit", "expect", "accuracy"} & set(jobs)
    assert list(studied.folder.glob("results/cpu-*/benchmark/**/r0.json"))


def test_a_bundle_of_the_study_gives_the_same_report(studied: Workspace, tmp_path: Path) -> None:
    results, out = studied.folder / "results", tmp_path / "out"
    (machine,) = (path.parent.name for path in results.glob("*/environment.json"))
    commands = (
        f"bundle {results} --study toy --machine {machine} --out {tmp_path}/toy.zip",
        f"unbundle {tmp_path}/toy.zip --out {out}",
        f"report {out} --study toy --machine {machine} --baseline fp32/ort_cpu/default",
    )
    for command in commands:
        subprocess.run(["inferprof", *command.split()], env=environment(), check=True)
    assert {path.suffix for path in out.glob("onnx/**/*.*")} == {".json"}
    files = {path.relative_to(results): path for path in results.glob("reports/toy/csv/*.csv")}
    assert len(files) > 10
    for name, path in {**files, Path("reports/toy/REPORT.txt"): results / "reports/toy/REPORT.txt"}.items():
        assert (out / name).read_bytes() == path.read_bytes(), name


def test_snakemakes_own_report_has_ours_with_captions_and_needs_no_network(
    studied: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # where nobody answers
    done = studied.run("results/REPORT.txt", "--report", str(tmp_path / "report.html"))
    assert done.returncode == 0, done.stdout + done.stderr
    shown = shown_by(tmp_path / "report.html")
    folder = studied.folder / "results" / "reports" / "toy"
    expected = [
        folder / "REPORT.html",
        folder.parents[1] / "REPORT.txt",
        *folder.glob("plots/*.svg"),
        *folder.glob("csv/*.csv"),
    ]
    assert set(shown) == {str(path.relative_to(studied.folder)) for path in expected}
    plot = shown["results/reports/toy/plots/latency_end_to_end-toy.svg"]
    assert plot["labels"] == {"plot": "latency_end_to_end", "subject": "toy"}
    assert "Plot <em>latency_end_to_end</em> of toy" in plot["caption"]
    content = base64.b64decode(plot["data_uri"].partition("base64,")[2])
    assert content == (folder / "plots" / "latency_end_to_end-toy.svg").read_bytes()
    assert all(one["caption"] for one in shown.values())


def test_a_study_of_its_own_takes_no_selection_from_the_default(studied: Workspace, tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(
        "study: own\nprecisions: [fp16]\nbackends: [ort_cpu]\nshapes: [b1]\ntarget: []\n", encoding="utf-8"
    )
    jobs = studied.jobs("benchmarks", "--configfile", str(own))
    assert jobs == {}  # fp16 on ort_cpu at b1 is measured already, and nothing else was asked for


@pytest.mark.timed
def test_a_killed_run_is_carried_on_and_leaves_no_orphan(workspace: Workspace) -> None:
    process = subprocess.Popen(
        workspace.command("results/REPORT.txt"),
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    record = workspace.folder / "results" / "onnx" / "toy" / "fp32.onnx"
    deadline = time.monotonic() + 120
    while not record.exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    time.sleep(1.0)  # into the next job
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 5.0  # a job that was just started has yet to notice
    while (orphans := running(workspace.folder)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not orphans
    subprocess.run(["inferprof", "unlock"], cwd=workspace.folder, env=environment(), check=True)
    done = workspace.run("onnx")
    assert done.returncode == 0, done.stdout + done.stderr


def running(folder: Path) -> list[str]:
    """Command lines of the processes that work in the folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").resolve() == folder:
                found.append((process / "cmdline").read_text(encoding="utf-8").replace("\0", " "))
        except OSError:
            continue  # it ended, or belongs to somebody else
    return found
