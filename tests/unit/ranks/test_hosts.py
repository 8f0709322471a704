"""A case over two hosts of a Slurm job. Here `srun` is a script that starts the other host's process beside the
first; tests/slurm has two nodes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.facts import facts, mentions, naming
from tests.unit.ranks.test_runs_on_ranks import FAULTY, FAULTY_YAML, MODEL, REPOSITORY
from tests.unit.test_processes import alive

from inferprof import outcomes
from inferprof.errors import CaseFailed, UserError
from inferprof.ranks.hosts import Hosts
from inferprof.ranks.world import World

SRUN = """#!/bin/sh
while [ "${1#--}" != "$1" ]; do shift; done
SLURM_LAUNCH_NODE_IPADDR=127.0.0.1 exec "$@"
"""
FOUR = World("tensor", 4)


def measured(folder: Path, model: Path, shape: str, parallel: str) -> dict[str, Any]:
    """The record of a case over two hosts."""
    srun, out = folder / "bin" / "srun", folder / "record.json"
    srun.parent.mkdir()
    srun.write_text(SRUN)
    srun.chmod(0o755)
    words = ["run", "torch_eager", str(model), "--spec", str(model), f"--shape={shape}", "--precision=fp32"]
    paths = os.pathsep.join([str(REPOSITORY / "workflow"), os.environ.get("PYTHONPATH", "")])
    variables = {"GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": paths}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "inferprof",
            *words,
            f"--set=parallel={parallel}",
            "--hosts=2",
            "--budget=0.05",
            f"--out={out}",
        ],
        env={**os.environ, **variables, "PATH": f"{srun.parent}:{os.environ['PATH']}", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    record: dict[str, Any] = json.loads(out.read_text())
    assert done.returncode == (0 if record["status"] == "ok" else outcomes.FAILED), done.stderr
    return record


def test_ranks_are_spread_evenly_over_the_hosts_of_a_job() -> None:
    assert [Hosts(number, 2).ranks(FOUR) for number in (0, 1)] == [range(2), range(2, 4)]
    with pytest.raises(CaseFailed, match=naming("{tensor: 4}", "4", "3 hosts")):
        Hosts(0, 3).ranks(FOUR)


def test_another_host_meets_the_first_where_srun_was_called() -> None:
    given = {"INFERPROF_HOST": "1/4242", "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.7"}
    assert Hosts.of(2, given) == Hosts(1, 2, "tcp://10.0.0.7:4242")
    assert Hosts.of(1, {}) == Hosts()


def test_several_hosts_need_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(UserError, match=naming("--hosts 2", "srun", "PATH")):
        Hosts.of(2, {})


def test_the_ranks_of_two_hosts_give_what_one_process_gives(tmp_path: Path) -> None:
    record = measured(tmp_path, MODEL, "b4_s16", "{data: 4}")
    assert (record["status"], record["reason"]) == ("ok", None)
    assert [rank["rank"] for rank in record["ranks"]] == [0, 1, 2, 3]
    assert {json.dumps(rank["outputs"]) for rank in record["ranks"][1:]} == {json.dumps(record["outputs"])}


@pytest.mark.parametrize(
    ("fault", "said"),
    [("os.kill(os.getpid(), 9)", ["1", "SIGKILL"]), ("raise RuntimeError('planted')", ["1", "RuntimeError"])],
)
def test_a_rank_that_dies_on_another_host_fails_the_case_and_leaves_no_process(
    tmp_path: Path, fault: str, said: list[str]
) -> None:
    (tmp_path / "faulty.py").write_text(FAULTY.replace("FAULT", fault))
    (tmp_path / "faulty.yaml").write_text(FAULTY_YAML)
    record = measured(tmp_path, tmp_path / "faulty.yaml", "b2", "{data: 2}")
    assert (record["status"], facts(record["reason"])) == ("failed", said)
    pids = [int(path.read_text()) for path in tmp_path.glob("pid*")]
    assert len(pids) == 2 and not any(alive(pid) for pid in pids)


def test_ranks_that_hosts_cannot_share_evenly_are_a_failed_case(tmp_path: Path) -> None:
    record = measured(tmp_path, MODEL, "b3_s16", "{data: 3}")
    assert record["status"] == "failed" and mentions(record["reason"], "{data: 3}", "2 hosts")
