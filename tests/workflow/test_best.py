"""`snakemake best` end to end on any machine: the search, its trail, and the program that it hands over."""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.workflow.conftest import BIN, Workspace, environment, toy_workspace

from inferprof import documents

pytestmark = [pytest.mark.slow, pytest.mark.timed]
CHANGES = {"arena=false", "spinning=false", "memory_pattern=false"}
TURNS = 3
ELSE = 1.5
"""By how much the program may differ from what a run of inferprof takes in turns with it: it calls the session
without IO binding, and a loaded machine makes processes differ."""


@pytest.fixture(scope="module")
def searched(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A search for the toy model's best case in ONNX Runtime and torch on the CPU."""
    workspace = toy_workspace(tmp_path_factory.mktemp("best") / "w", repository)
    keys = {"precisions": ["fp32", "fp16"], "backends": ["ort_cpu", "torch_eager"], "profilers": [], "target": []}
    workspace.configure(**keys, shapes=["b64"], best={"budget_min": 2.5, "tolerance": 0.1})
    done = workspace.run("best")
    assert done.returncode == 0, done.stdout + done.stderr
    return workspace


def trail_of(workspace: Workspace) -> tuple[Path, documents.Trail]:
    (file,) = workspace.folder.glob("results/*/best/toy.json")
    return file, documents.read(file, "trail")


def test_it_ends_for_a_named_reason_with_each_change_judged(searched: Workspace) -> None:
    file, trail = trail_of(searched)
    assert trail.ended in ("budget", "tolerance", "nothing promises more")
    assert (trail.baseline, trail.shape) == ("fp32/ort_cpu/default", "b64")
    judged = {step.candidate.rpartition("/")[2] for step in trail.steps if step.candidate.startswith("fp32/ort_cpu")}
    assert {step.candidate for step in trail.steps} >= {"fp32/torch_eager/default"}
    assert trail.ended == "budget" or all(any(change in each for each in judged) for change in CHANGES)
    for step in trail.steps:
        assert (step.decision == "kept") <= (step.rounds >= 4 and step.gain is not None and step.gain > 0)
    steps = [json.loads(path.read_text(encoding="utf-8")) for path in file.parent.glob("toy/step*.json")]
    assert sum(step.get("ended") is not None for step in steps) == 1
    assert all(Path(searched.folder, asked).exists() for step in steps for asked in step.get("asked", []))


def test_a_larger_budget_measures_no_record_twice(searched: Workspace) -> None:
    records = {path: path.stat().st_mtime_ns for path in searched.folder.glob("results/*/benchmark/**/r*.json")}
    jobs = searched.jobs("best")
    assert jobs == {}
    searched.configure(best={"budget_min": 2.6, "tolerance": 0.1})
    assert "benchmark" not in searched.jobs("best")
    assert all(path.stat().st_mtime_ns == mtime for path, mtime in records.items())


def test_a_study_without_the_search_is_reported_with_it_and_searches_no_more(searched: Workspace) -> None:
    before = {path: path.stat().st_mtime_ns for path in searched.folder.glob("results/*/best/**/*.json")}
    searched.configure(precisions=["fp32"], best={})
    done = searched.run("results/REPORT.txt")
    assert done.returncode == 0, done.stdout + done.stderr
    assert before == {path: path.stat().st_mtime_ns for path in before}
    (steps,) = searched.folder.glob("results/reports/*/csv/best.csv")
    assert len(steps.read_text(encoding="utf-8").splitlines()) > 1
    assert searched.jobs("results/REPORT.txt") == {}
    started = time.monotonic()
    done = searched.run("results/REPORT.txt")
    assert "Nothing to be done" in done.stdout + done.stderr
    assert time.monotonic() - started < 10


def test_the_program_takes_as_long_as_inferprof_measures_in_turns_with_it(
    searched: Workspace, tmp_path: Path
) -> None:
    file, trail = trail_of(searched)
    program = file.with_suffix(".py")
    assert "inferprof import" not in program.read_text(encoding="utf-8")
    precision, backend, variant = str(trail.best).split("/")
    artifact = f"results/onnx/toy/{precision}.onnx" if backend == "ort_cpu" else "models/toy.yaml"
    flags = [part for name, value in trail.options.items() for part in ("--set", f"{name}={json.dumps(value)}")]
    shape = ["--spec", "models/toy.yaml", "--precision", precision, "--shape", "b64", "--variant", variant]
    command = [str(BIN / "inferprof"), "run", backend, artifact, *shape, *flags, "--budget", "0.3"]
    said, measured = [], []
    for turn in range(TURNS):
        path = {**environment(), "PYTHONPATH": f"{searched.folder / 'models'}:{environment().get('PYTHONPATH', '')}"}
        ran = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True, env=path)
        match = re.match(r"([\d.]+) ms", ran.stdout)
        assert match
        said.append(float(match[1]))
        out = tmp_path / f"{turn}.json"
        subprocess.run([*command, "--out", str(out)], cwd=searched.folder, check=True, capture_output=True)
        record: documents.Record = documents.read(out, "record")
        assert record.boundaries and record.boundaries.end_to_end and record.boundaries.end_to_end.samples_ns
        measured.append(statistics.median(record.boundaries.end_to_end.samples_ns) / 1e6)
    now, median = statistics.median(measured), (trail.median_ns or 0) / 1e6
    low, high = ((ns or trail.median_ns or 0) / 1e6 * now / median for ns in (trail.low_ns, trail.high_ns))
    assert low / ELSE <= statistics.median(said) <= high * ELSE, (said, measured, trail.best)
