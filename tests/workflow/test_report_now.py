"""Beside a Snakemake that works in the folder: `snakemake report`, and a run with nothing to do."""

from __future__ import annotations

from tests.workflow.conftest import Workspace


def test_the_report_by_now_asks_for_nothing_and_leaves_the_lock_of_a_running_study_alone(
    workspace: Workspace,
) -> None:
    assert workspace.jobs("report") == {"report": 1, "total": 1}
    lock = workspace.folder / ".snakemake" / "locks" / "0.output.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.write_text("results/REPORT.txt\n", encoding="utf-8")
    holder = workspace.folder / ".snakemake" / "inferprof-holder.json"
    holder.write_text("{}", encoding="utf-8")
    done = workspace.run("report")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (workspace.folder / "results/reports/toy/REPORT.now.txt").exists()
    assert lock.exists() and holder.read_text(encoding="utf-8") == "{}"
    assert workspace.run("results/REPORT.txt").returncode != 0  # it is still locked


def test_a_run_with_nothing_to_do_leaves_the_lock_of_a_running_study_alone(workspace: Workspace) -> None:
    workspace.configure(precisions=["fp32"])
    done = workspace.run("onnx", "--until", "export")
    assert done.returncode == 0, done.stdout + done.stderr
    lock = workspace.folder / ".snakemake" / "locks" / "0.output.lock"
    assert not lock.parent.exists() or not list(lock.parent.iterdir())
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.write_text("results/REPORT.txt\n", encoding="utf-8")
    done = workspace.run("onnx", "--until", "export")
    assert done.returncode == 0 and "Nothing to be done" in done.stderr, done.stdout + done.stderr
    assert lock.exists()
    assert workspace.run("onnx", "--unlock").returncode == 0 and not lock.exists()
