"""Every stage that hangs, through the real Snakefile. It sleeps for most of its time, while other modules compute."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.workflow.test_injected_faults import each_is_listed_and_the_others_are_whole, study_of

pytestmark = pytest.mark.slow

LIMIT_S = 30
"""Of a job: several times what those take that do not hang, also beside other studies."""


def test_each_job_that_hangs_is_ended_and_listed_and_the_others_are_whole(repository: Path, tmp_path: Path) -> None:
    workspace = study_of(tmp_path / "w", repository, ["hang"], LIMIT_S)
    each_is_listed_and_the_others_are_whole(workspace, {"hang": f"not done after {LIMIT_S} s"})
