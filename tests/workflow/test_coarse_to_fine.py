"""One round of each case first; then further rounds and captures where they decide something. On any machine."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from tests.workflow.conftest import Workspace, toy_workspace

pytestmark = pytest.mark.slow

REPORT = "results/REPORT.txt"


@pytest.fixture(scope="module")
def refined(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A study of which ONNX Runtime's profiler may watch any case, run to its report."""
    workspace = toy_workspace(tmp_path_factory.mktemp("refined") / "w", repository)
    keys = {"precisions": ["fp32", "fp16"], "backends": ["ort_cpu"], "profilers": ["ort_profile"], "target": []}
    workspace.configure(**keys, protocol={"budget_s": 0.05, "accuracy_samples": 2, "cpu_rounds": 2})
    done = workspace.run(REPORT)
    assert done.returncode == 0, done.stdout + done.stderr
    return workspace


def chosen(workspace: Workspace, what: str) -> set[str]:
    """The cases of selection.csv that a column of it says yes to."""
    with (workspace.folder / "results/reports/toy/selection.csv").open(encoding="utf-8", newline="") as file:
        return {row["case"] for row in csv.DictReader(file) if row[what]}


def test_what_the_first_round_chose_is_done_and_nothing_else(refined: Workspace) -> None:
    every = {f"toy/{precision}/ort_cpu/default/{shape}" for precision in ("fp32", "fp16") for shape in ("b1", "b4")}
    (machine,) = refined.folder.glob("results/cpu-*")

    def measured(round_: int) -> set[str]:
        files = (machine / "benchmark").rglob(f"r{round_}.json")
        return {file.parent.relative_to(machine / "benchmark").as_posix() for file in files}

    captured = (machine / "capture" / "ort_profile").rglob("*.record.json")
    assert measured(0) == every
    assert measured(1) == chosen(refined, "repeat")
    baseline = {f"toy/fp32/ort_cpu/default/{shape}" for shape in ("b1", "b4")}
    assert baseline <= chosen(refined, "capture") <= every
    assert len(list(captured)) == len(chosen(refined, "capture"))
    assert refined.jobs(REPORT) == {}


def test_reports_before_the_end_say_what_is_still_to_come(refined: Workspace) -> None:
    folder = refined.folder / "results/reports/toy"
    first, once = ((folder / f"REPORT.{part}.txt").read_text(encoding="utf-8") for part in ("first", "once"))
    assert "1 of 4 cases" in " ".join(first.split()) and "4 of 4 cases" in " ".join(once.split())
    assert not (folder / "REPORT.partial.txt").exists()


def test_the_rest_is_done_on_request_and_belongs_to_the_report_from_then_on(refined: Workspace) -> None:
    rest = 4 - len(chosen(refined, "capture"))
    jobs = refined.jobs("tables")
    assert jobs.get("capture_ort_profile", 0) == rest
    assert refined.jobs(REPORT, "--config", "captures=all").get("capture_ort_profile", 0) == rest
    assert refined.jobs(REPORT, "--config", "repeat=all").get("benchmark", 0) == 4 - len(chosen(refined, "repeat"))
    if rest:
        done = refined.run("tables")
        assert done.returncode == 0, done.stdout + done.stderr
        assert {"diagnose", "write_report"} <= set(refined.jobs(REPORT))
