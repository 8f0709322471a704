"""Processes that end together, readers that leave early, and locks that a killed process left behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent ends, so that no orphan holds the GPU (Linux, prctl(2))."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def run_merged(
    command: Sequence[str], environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command that ends with this process, with its stderr in `stdout`; in this environment, or in our own."""
    return subprocess.run(
        command,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=die_with_parent,
    )


def run_logged(command: Sequence[str], log: Path, seconds: float) -> int:
    """Run a command that ends with this process, add what it says to a log, and return its exit code.

    Raises subprocess.TimeoutExpired after so many seconds; its whole process group is killed then.
    """
    with log.open("ab") as file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
    try:
        return process.wait(timeout=seconds)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise


@contextlib.contextmanager
def reader_may_leave() -> Iterator[None]:
    """Let a reader of stdout that has seen enough (`| head`) end the output, but not this process."""
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def release_stale_lock(folder: Path) -> str | None:
    """Unlock a workflow folder whose Snakemake was killed; what was done, or None where there was no lock.

    Snakemake's lock does not name its holder, so a live Snakemake that works in the folder keeps it.
    """
    locks = folder / ".snakemake" / "locks"
    if not any(locks.glob("*")):
        return None
    if holder := _snakemake_in(folder):
        return f"a Snakemake (process {holder}) works in this folder: wait for it, or stop it"
    shutil.rmtree(locks)  # all that `snakemake --unlock` does, after reading the workflow
    return "a killed run left this folder locked; unlocked it, as snakemake --unlock does"


def _snakemake_in(folder: Path) -> int | None:
    """The process id of a Snakemake whose working directory is the folder."""
    import psutil

    for process in psutil.process_iter(["pid", "cmdline", "cwd"]):
        words = [Path(word).name for word in process.info["cmdline"] or []]
        if process.pid != os.getpid() and "snakemake" in words and process.info["cwd"] == str(folder.resolve()):
            return int(process.pid)
    return None
