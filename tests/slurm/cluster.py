"""A Slurm cluster of virtual nodes on this host, out of a folder of its own: nothing lies under /etc."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

TOOLS = ("munged", "slurmctld", "slurmd", "sbatch", "sinfo")
CONFIG = """\
ClusterName=inferprof
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmctldPort={port}
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/jobs.txt
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout=10
InactiveLimit=0
MinJobAge=3600
SchedulerParameters=sched_interval=2
GresTypes=gpu
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class ClusterError(Exception):
    """The cluster can't be set up here, or did not come up."""


@dataclass
class Cluster:
    """A running cluster. Commands that get `environment` talk to it."""

    folder: Path
    names: Sequence[str]
    _daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which Slurm's commands find this cluster."""
        return {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": f"{self.folder}/bin:{_PATH}"}

    def ask(self, *command: str) -> str:
        """What one of Slurm's commands prints."""
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=True).stdout

    def start_node(self, name: str) -> None:
        """Start a node, also one that was killed."""
        self._start(name, [_program("slurmd"), "-D", "-N", name], SLURMD_NODENAME=name)

    def kill_node(self, name: str) -> None:
        """Let a node die with all that runs on it, as if its power failed."""
        daemon = self._daemons.pop(name)
        daemon.kill()
        # Next what would report the end of the jobs, then the jobs: in the order in which they were started.
        _kill(_processes(self._mark, f"SLURMD_NODENAME={name}"))
        daemon.wait()

    def jobs(self) -> list[Mapping[str, str]]:
        """What Slurm knows of every job: JobId, NodeList, JobState, Restarts, Comment, …"""
        lines = self.ask("scontrol", "--oneliner", "show", "job").splitlines()
        return [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in lines]

    def wait_for(self, states: Mapping[str, str], seconds: float = 60) -> None:
        """Wait until nodes are in these states. Raises ClusterError, with the ends of the logs."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(subprocess.CalledProcessError):
                lines = self.ask("sinfo", "--Node", "--noheader", "--format=%N %t").split()
                found = dict(zip(lines[::2], lines[1::2], strict=True))
                if all(found.get(name, "").startswith(state) for name, state in states.items()):
                    return
            time.sleep(0.5)
        logs = "\n".join(path.read_text(errors="replace")[-800:] for path in sorted(self.folder.glob("*.log")))
        raise ClusterError(f"the nodes are not {dict(states)} after {seconds} s:\n{logs}")

    @property
    def _mark(self) -> str:
        """What the environments of the daemons, and of all that they start, have in common."""
        return f"SLURM_CONF={self.folder}/slurm.conf"

    def _start(self, name: str, command: Sequence[str], **variables: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as log:
            self._daemons[name] = subprocess.Popen(
                command, env={**self.environment, **variables}, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def _stop(self) -> None:
        """End what was started, in the reverse order."""
        for daemon in reversed(self._daemons.values()):
            daemon.terminate()
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        _kill(_processes(self._mark))  # jobs outlive their slurmd


@contextlib.contextmanager
def running(folder: Path, nodes: Mapping[str, str]) -> Iterator[Cluster]:
    """A cluster in a folder. `nodes` maps a name to what Slurm is told of it: `CPUs=2 Feature=big`.

    Raises ClusterError where that can't be: not root, or Slurm is not installed.
    """
    if os.geteuid() != 0:
        raise ClusterError("not root: slurmd runs jobs as other users, so it has to be started by root")
    if lacking := [tool for tool in TOOLS if shutil.which(tool, path=_PATH) is None]:
        raise ClusterError(f"{', '.join(lacking)} missing: apt-get install slurm-wlm munge")
    cluster = Cluster(folder, tuple(nodes))
    _configure(folder, nodes)
    try:
        cluster._start(
            "munged",
            [
                *(_program("munged"), "--foreground", "--force"),
                *(f"--key-file={folder}/munge.key", f"--socket={folder}/munge.socket"),
                *(f"--pid-file={folder}/munge.pid", f"--seed-file={folder}/munge.seed"),
                f"--log-file={folder}/munge.log",
            ],
        )
        _wait_for_file(folder / "munge.socket")
        cluster._start("slurmctld", [_program("slurmctld"), "-D", "-c"])
        for name in nodes:
            cluster.start_node(name)
        cluster.wait_for(dict.fromkeys(nodes, "idle"))
        yield cluster
    finally:
        cluster._stop()


_PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"


def _program(name: str) -> str:
    return str(shutil.which(name, path=_PATH))


def _configure(folder: Path, nodes: Mapping[str, str]) -> None:
    """Write slurm.conf and munge's key; ports that are free now."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)  # munged refuses a socket that others can't reach
    (folder / "state").mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    host = socket.gethostname()
    port, *ports = _free_ports(1 + len(nodes))
    lines = [
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={at} {facts} State=UNKNOWN"
        for (name, facts), at in zip(nodes.items(), ports, strict=True)
    ]
    text = CONFIG.format(host=host, user=getpass.getuser(), folder=folder, port=port, nodes="\n".join(lines))
    (folder / "slurm.conf").write_text(text, encoding="utf-8")
    (folder / "gres.conf").write_text("".join(map(_gres, nodes.items())), encoding="utf-8")
    # The executor's job step drops SLURM_CONF with all other SLURM_ variables before it calls srun.
    srun = folder / "bin" / "srun"
    srun.parent.mkdir()
    srun.write_text(f'#!/bin/sh\nSLURM_CONF={folder}/slurm.conf exec {_program("srun")} "$@"\n', encoding="utf-8")
    srun.chmod(0o755)


def _gres(node: tuple[str, str]) -> str:
    """The line of gres.conf behind `Gres=gpu:KIND:1`: a device file that any host has."""
    name, facts = node
    kind = re.search(r"Gres=gpu:(\w+):1", facts)
    return f"NodeName={name} Name=gpu Type={kind[1]} File=/dev/null\n" if kind else ""


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _wait_for_file(path: Path, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() > deadline:
            raise ClusterError(f"{path.name} did not appear in {seconds} s")
        time.sleep(0.1)


def _processes(*variables: str) -> list[int]:
    """The processes that have these in the environment that they were started with, the oldest first."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if {variable.encode() for variable in variables} <= set(path.read_bytes().split(b"\0")):
                found.append(int(path.parent.name))
    return sorted(found)


def _kill(processes: Sequence[int]) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
