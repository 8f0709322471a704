"""The studies of the repository, and its stages: each can be planned on a machine that has nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tests.workflow.conftest import Workspace

from inferprof.model.model_spec import package_roots

REPOSITORY = Path(__file__).parents[2]
STUDIES = sorted((REPOSITORY / "studies").glob("*.yaml"))


@pytest.mark.parametrize("study", STUDIES, ids=lambda path: path.stem)
def test_the_dry_run_of_a_study_is_clean(study: Path, tmp_path: Path) -> None:
    if study.stem == "detector-latency" and not package_roots("rapidocr"):
        pytest.skip("rapidocr, which carries the detector's file, is not installed")
    (tmp_path / "models").symlink_to(REPOSITORY / "models")
    (tmp_path / "config.yaml").symlink_to(REPOSITORY / "config.yaml")
    jobs = Workspace(tmp_path, REPOSITORY).jobs("--configfile", str(study), "--", "results/REPORT.txt")
    assert jobs["report_in_use"] == 1
    config = yaml.safe_load(study.read_text(encoding="utf-8"))
    exclude = config.get("exclude", [])
    of_gpus = any(set(entry) == {"machine", "reason"} for entry in exclude)  # all of it is left out here
    converted = ("quantize",) if config["precisions"] != ["fp32"] else ()
    of_torch = set(config["backends"]) <= {"torch_eager", "torch_compile"}  # no graph is made of its models
    for stage in ("expect",) if of_torch else (*converted, "accuracy"):  # what no GPU is needed for
        assert (jobs.get(stage, 0) > 0) is not of_gpus


def test_every_stage_that_the_snakefile_names_can_be_asked_for(workspace: Workspace) -> None:
    text = (REPOSITORY / "Snakefile").read_text(encoding="utf-8")
    stages = text.partition("one stage: ")[2].partition("\n")[0].split()
    assert len(stages) == 12
    assert set(stages) <= set(workspace.jobs(*stages))
