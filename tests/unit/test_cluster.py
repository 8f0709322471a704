"""What a label asks of Slurm, and the one line that says why no node can serve it."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from tests.unit.facts import mentions, naming

from inferprof import cluster
from inferprof.cluster import Node, Request
from inferprof.errors import UserError

SINFO = """\
g1|gpu|64|h100,ib|gpu:h100:8(S:0-1)|idle
g2|gpu|64|h100,ib|gpu:h100:8(S:0-1)|mixed
g3|old|32|v100|gpu:v100:2,gpu:t4:1|down*
c1|cpu|128|(null)|(null)|allocated
"""


def sinfo(text: str = SINFO, returncode: int = 0, stderr: str = "") -> cluster.Runner:
    def runner(command: Any, **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, returncode, text, stderr)

    return runner


def told() -> list[Node]:
    return cluster.nodes(sinfo())


def test_nodes_are_read_with_their_gpus_by_kind() -> None:
    first, _, third, last = told()
    assert first == Node("g1", "gpu", 64, frozenset({"h100", "ib"}), {"gpu:h100": 8}, "idle")
    assert third.gres == {"gpu:v100": 2, "gpu:t4": 1}
    assert (last.features, last.gres) == (frozenset(), {})


@pytest.mark.parametrize(
    "request_",
    [
        Request("any"),
        Request("h100", gres="gpu:h100:1", constraint="ib", partition="gpu", cpus=64),
        Request("h100", gres="gpu:h100"),
        Request("h100", constraint="v100|ib&h100"),
        Request("h100", constraint="[h100|v100]"),
        Request("h100", partition="gpu,cpu"),
    ],
)
def test_a_request_that_a_node_can_serve_is_not_refused(request_: Request) -> None:
    assert cluster.refuses(request_, told()) is None


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (
            Request("x", gres="gpu:b200:1"),
            "no node has gres gpu:b200:1; there is: gpu:h100:8, gpu:t4:1, gpu:v100:2",
        ),
        (Request("x", partition="hopper"), "no node has partition hopper; there is: cpu, gpu, old"),
        (
            Request("x", gres="gpu:h100:1", constraint="nvlink&ib"),
            "no node with gres gpu:h100:1 has feature nvlink&ib; there is: h100, ib",
        ),
        (
            Request("x", gres="gpu:h100:1", partition="cpu"),
            "no node with partition cpu has gres gpu:h100:1; there is: none",
        ),
        (Request("x", constraint="ib", cpus=65), "no node with feature ib has 65 CPUs; there is: 64"),
        (
            Request("x", gres="gpu:v100:1"),
            "every node with gres gpu:v100:1 is out of service (g3 is down*); "
            "wait for one, or leave this machine out",
        ),
    ],
)
def test_a_request_that_no_node_can_serve_is_refused_with_what_there_is(request_: Request, reason: str) -> None:
    assert cluster.refuses(request_, told()) == reason
    with pytest.raises(UserError) as refused:
        cluster.check([Request("any"), request_], sinfo())
    assert str(refused.value) == f"machine x: {reason}"


def test_a_cluster_that_does_not_answer_is_one_line() -> None:
    with pytest.raises(UserError, match=naming("sinfo", "Unable to contact")):
        cluster.nodes(sinfo("", 1, "Unable to contact\nslurm controller\n"))


def test_jobs_are_not_submitted_for_a_machine_that_nobody_named() -> None:
    with pytest.raises(UserError, match=naming("config", "give machines")):
        cluster.check([], sinfo())


def test_a_host_without_slurm_is_one_line() -> None:
    def runner(command: Any, **_: Any) -> subprocess.CompletedProcess[str]:
        raise FileNotFoundError(command[0])

    with pytest.raises(UserError, match=naming("no sinfo", "PATH")):
        cluster.nodes(runner)


def test_two_machines_of_one_label_are_refused() -> None:
    with pytest.raises(UserError, match=naming("machines:", "labelled a")):
        cluster.requests([{"label": "a"}, {"label": "a", "constraint": "b"}])


def test_a_measurement_gets_the_cpus_of_the_config_or_as_many_as_the_probe_counted() -> None:
    entries: list[dict[str, Any]] = [{"label": "a"}, {"label": "b", "cpus": 4}, {"label": "not probed"}]
    found = cluster.requests(entries, {"a": 64, "b": 64, "not probed": None})
    assert [request.cpus for request in found.values()] == [64, 4, None]


def test_a_job_that_measures_has_its_node_for_itself() -> None:
    asked = Request("h100", gres="gpu:h100:1", constraint="ib", partition="gpu", cpus=8, container="image.sif")
    assert asked.resources == {
        "gres": "gpu:h100:1",
        "constraint": "ib",
        "slurm_partition": "gpu",
        "slurm_extra": "--exclusive",
    }


def test_a_case_over_several_nodes_needs_as_many_that_can_serve_it() -> None:
    two = Request("x", gres="gpu:h100:8", nodes=2)
    assert cluster.refuses(two, told()) is None
    reason = cluster.refuses(Request("x", gres="gpu:h100:8", nodes=3), told())
    assert mentions(reason, "3 nodes", "2", "gpu:h100:8")
