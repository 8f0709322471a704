"""Ctrl-C, which a terminal sends to Snakemake and all of its jobs at once."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from tests.workflow.conftest import environment, toy_workspace

LONGEST_S = 30.0
"""From Ctrl-C to the end: seconds in all, of which a machine that others use too may need most."""


def test_ctrl_c_ends_a_study_at_once_and_the_same_command_goes_on(repository: Path, tmp_path: Path) -> None:
    workspace = toy_workspace(tmp_path / "w", repository)
    partial = workspace.folder / "results" / "REPORT.partial.txt"
    partial.parent.mkdir()
    partial.write_text("of before")
    said = tmp_path / "said"
    with said.open("w") as file:
        study = subprocess.Popen(
            workspace.command("results/onnx/toy/fp32.onnx"),
            env=environment(),
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
        log = workspace.folder / "results" / "log" / "onnx" / "toy" / "fp32.log"
        while not (log.exists() and log.read_text()):  # the job is at work
            assert study.poll() is None, said.read_text()
            time.sleep(0.05)
        os.killpg(study.pid, signal.SIGINT)
        assert study.wait(timeout=LONGEST_S) == 128 + signal.SIGINT
    text = said.read_text()
    assert "interrupted" in text.splitlines()[-1]
    assert "Traceback" not in text + log.read_text() and "WorkflowError" not in text
    assert partial.read_text() == "of before"
    assert not list(workspace.folder.glob("results/onnx/toy/*.onnx"))
    done = workspace.run("results/onnx/toy/fp32.onnx")
    assert done.returncode == 0, done.stderr
    assert (workspace.folder / "results/onnx/toy/fp32.onnx").stat().st_size
