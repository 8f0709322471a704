"""Processes that end together, readers that leave early, and locks that a killed process left behind."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

PR_SET_PDEATHSIG = 1
STACKS_S = 1.0
"""How long a process that is over its limit has to write down where it is."""
GIB = 1 << 30


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent ends, so that no orphan holds the GPU (Linux, prctl(2))."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def go_on_watched(limit_s: float) -> None:
    """Return in a child; this process waits for it, says how it ended where it could not, and ends as it did.

    A child that is not done after `limit_s` seconds is killed with its children, once it has written the stack of
    each of its threads to stderr; so does one that crashes.
    """
    parent = os.getpid()
    child = os.fork()
    if child:
        _wait(child, limit_s)
    die_with_parent()
    if os.getppid() != parent:
        os._exit(1)
    faulthandler.enable()
    faulthandler.dump_traceback_later(limit_s)


def _wait(child: int, limit_s: float) -> NoReturn:
    """Wait for a child and end as it did: with its exit code, or with 1 and a line on stderr."""

    def expired(*_: Any) -> NoReturn:
        raise TimeoutError

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: os.kill(child, number))
    signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, limit_s + STACKS_S)
    try:
        _, status, usage = os.wait4(child, 0)
    except TimeoutError:
        _kill_tree(child)
        os.waitpid(child, 0)
        _end(f"not done after {limit_s:g} s, the limit of a job (protocol.limit_s): ended; its stacks are above")
    if os.WIFEXITED(status):
        os._exit(os.WEXITSTATUS(status))
    _end(_signalled(signal.Signals(os.WTERMSIG(status)), usage))


def _signalled(ended_by: signal.Signals, usage: resource.struct_rusage) -> str:
    """`ended by SIGKILL, …`: and what that usually means."""
    if ended_by != signal.SIGKILL:
        return f"ended by {ended_by.name}; its stack is above"
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    held = f"it held {usage.ru_maxrss * 1024 / GIB:.1f} of {total / GIB:.0f} GiB"
    return f"ended by SIGKILL, as a machine does that is out of memory ({held})"


def _end(reason: str) -> NoReturn:
    """The last line of a job's log."""
    os.write(2, f"inferprof: {reason}\n".encode())
    os._exit(1)


def _kill_tree(process: int) -> None:
    """Kill a process and all that it started."""
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(process).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
    os.kill(process, signal.SIGKILL)


def end_at_once() -> NoReturn:
    """End this process without unloading its libraries."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


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
