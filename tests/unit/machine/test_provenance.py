from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from inferprof.machine import provenance


def answering(returncode: int, stdout: str) -> provenance.Runner:
    return lambda command, **_: subprocess.CompletedProcess(command, returncode, stdout, "")


def test_the_revision_is_what_git_says(tmp_path: Path) -> None:
    commands = []

    def git(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, "0123abcd-dirty\n", "")

    assert provenance.git_revision(tmp_path, git) == "0123abcd-dirty"
    assert commands[0][:3] == ["git", "-C", str(tmp_path)]


def test_a_folder_without_a_checkout_has_no_revision(tmp_path: Path) -> None:
    assert provenance.git_revision(tmp_path, answering(128, "")) is None


@pytest.mark.parametrize(
    ("content", "revision"), [("c0ffee" * 6 + "c0de", "c0ffee" * 6 + "c0de"), ("$Format:%H$", None)]
)
def test_the_files_of_an_archive_have_the_revision_that_git_wrote_into_them(
    tmp_path: Path, content: str, revision: str | None
) -> None:
    (tmp_path / ".git_archival.txt").write_text(f"{content}\n")
    assert provenance.git_revision(tmp_path / "workflow/inferprof/machine", answering(128, "")) == revision


def test_a_machine_without_git_has_no_revision(tmp_path: Path) -> None:
    def missing(*_: Any, **__: Any) -> subprocess.CompletedProcess[str]:
        raise FileNotFoundError("git")

    assert provenance.git_revision(tmp_path, missing) is None


def test_without_a_gpu_nothing_is_said_of_one() -> None:
    facts = provenance.of_run(None, answering(0, "abc"))
    assert (facts["git"], facts["gpu"], facts["processes_on_gpu"]) == ("abc", None, None)
    assert "numpy" in facts["packages"]
