"""A config that names machines: planned on a host that is none of them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from tests.unit.facts import mentions
from tests.unit.test_study_on_machines import B200, H100
from tests.workflow.conftest import Workspace, refusal

LABELS = {"hopper": H100, "blackwell": B200}


@pytest.fixture
def two(workspace: Workspace) -> Workspace:
    """The toy study on two machines that nobody probed yet."""
    workspace.configure(machines=[{"label": label} for label in LABELS], backends=["ort_cuda"], target=[])
    return workspace


def probed(workspace: Workspace, **probes: Any) -> None:
    for label, content in probes.items():
        path = workspace.folder / "results" / label / "environment.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content), encoding="utf-8")


def test_probes_come_first_and_what_needs_them_is_refused_in_one_line(two: Workspace) -> None:
    assert two.jobs("probes") == {"probe": 2, "probes": 1, "total": 3}
    assert two.jobs("onnx")["quantize"] == 2  # nothing measured goes into a graph
    probed(two, hopper=H100)
    assert mentions(refusal(two.ask("--dry-run", "benchmarks")), "blackwell", "target probes first")


def test_every_machine_is_measured_and_graphs_are_made_once(two: Workspace) -> None:
    two.configure(repeat="all")
    probed(two, **LABELS)
    jobs = two.jobs("results/REPORT.txt")
    assert jobs["benchmark"] == 2 * 3 * 2 * 3  # machines, formats, shapes, rounds
    assert (jobs["export"], jobs["quantize"]) == (1, 2)
    assert (jobs["ceilings"], jobs["cases"], jobs["write_report"], jobs["compare_machines"]) == (2, 2, 2, 1)
    assert "probe" not in jobs


def test_the_reports_of_the_machines_share_the_cores_and_draw_in_no_more_processes(two: Workspace) -> None:
    probed(two, **LABELS)
    for cores, share in (("1", "1"), ("7", "3")):
        done = two.ask("--dry-run", "--printshellcmds", "--cores", cores, "results/REPORT.txt")
        commands = re.findall(r"inferprof report .* --processes (\d+) ", done.stdout + done.stderr)
        assert commands == [share, share], done.stderr
