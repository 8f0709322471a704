"""Processes that end together, readers that leave early, and locks that a killed process left behind."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from inferprof.errors import UserError
from inferprof.units import GIB

PR_SET_PDEATHSIG = 1
STACKS_S = 1.0
"""How long a process that is over its limit has to write down where it is."""
END_S = 3.0
"""How long jobs have to end where their Snakemake is told to; a container that is stopped has 10 s in all."""
_RESUMED: Final = b"running jobs are ended, what was measured stays; the same command goes on where it stopped\n"
ENDED_BY: Final[Mapping[int, bytes]] = {
    signal.SIGTERM: b"inferprof: told to end: " + _RESUMED,
    signal.SIGINT: b"\ninferprof: interrupted: " + _RESUMED,
}
LOCKS = Path(".snakemake", "locks")
HOLDER = Path(".snakemake", "inferprof-holder.json")
"""Beside the lock: who holds it, and which files it is."""
_BY_HAND = "look for a running Snakemake, and if there is none, run snakemake --unlock"


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent ends, so that no orphan holds the GPU (Linux, prctl(2))."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def go_on_watched(limit_s: float) -> None:
    """Return in a child; this process waits for it, says how it ended where it could not, and ends as it did."""
    die_with_parent()  # and the child with this one
    if (code := watched(limit_s)) is not None:
        os._exit(code)


def watched(limit_s: float | None, beside: Callable[[int], None] = lambda child: None) -> int | None:
    """None in a child, which goes on; in this process the child's exit code, or 1 and a line on stderr.

    A child that is not done after `limit_s` seconds (None: without a limit) is killed with its children, once it has
    written the stack of each of its threads to stderr; so does one that crashes. `beside` is called with the child's
    process id.
    """
    parent = os.getpid()
    child = os.fork()
    if child:
        beside(child)
        return _wait(child, limit_s)
    die_with_parent()
    if os.getppid() != parent:
        os._exit(1)
    faulthandler.enable()
    if limit_s is not None:
        faulthandler.dump_traceback_later(limit_s)
    return None


def _wait(child: int, limit_s: float | None) -> int:
    """Wait for a child: its exit code, or 1 and a line on stderr."""

    def expired(*_: Any) -> NoReturn:
        raise TimeoutError

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: os.kill(child, number))
    signal.signal(signal.SIGALRM, expired)
    if limit_s is not None:
        signal.setitimer(signal.ITIMER_REAL, limit_s + STACKS_S)
    try:
        _, status, usage = os.wait4(child, 0)
    except TimeoutError:
        kill_tree(child)
        os.waitpid(child, 0)
        return _said(
            f"not done after {limit_s:g} s, the limit of a job (protocol.limit_s): ended; its stacks are above"
        )
    if os.WIFEXITED(status):
        return os.WEXITSTATUS(status)
    return _said(_signalled(signal.Signals(os.WTERMSIG(status)), usage))


def _signalled(ended_by: signal.Signals, usage: resource.struct_rusage) -> str:
    """`ended by SIGKILL, …`: and what that usually means."""
    if ended_by in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        return f"ended by {ended_by.name}, since it was told to"
    if ended_by != signal.SIGKILL:
        return f"ended by {ended_by.name}; its stack is above"
    held = f"it held {usage.ru_maxrss * 1024 / GIB:.1f} of {memory() / GIB:.0f} GiB"
    return f"ended by SIGKILL, as a machine does that is out of memory ({held})"


def memory() -> int:
    """Bytes of this machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _said(reason: str) -> int:
    """The exit code of a job that could not write the last line of its log itself."""
    os.write(2, f"inferprof: {reason}\n".encode())
    return 1


def kill_tree(process: int) -> None:
    """Kill a process and all that it started."""
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(process).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def end_at_once(code: int) -> NoReturn:
    """End this process with an exit code, without unloading its libraries."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


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


def sign_lock(folder: Path) -> None:
    """Say beside Snakemake's lock of a workflow folder that this process holds it: the lock itself does not tell."""
    (folder / HOLDER).write_text(json.dumps({**_identity(os.getpid()), "locks": _locks(folder)}), encoding="utf-8")


def end_with_jobs(unlock: Callable[[], object]) -> None:
    """On Ctrl-C and on SIGTERM, as `docker stop` sends it, end the jobs of this Snakemake and then itself, at once.

    Snakemake waits for running jobs, longer than a container is given. What was measured stays: its files are written
    whole. What was half done Snakemake has marked, and does again. `unlock` removes the locks of this process.
    """

    def end(number: int, _: object) -> NoReturn:
        for each in ENDED_BY:
            signal.signal(each, signal.SIG_IGN)
        os.write(2, ENDED_BY[number])
        for stream in (1, 2):  # Snakemake's threads would say of each job that it failed
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        _end_children()
        unlock()
        os._exit(128 + number)

    for number in ENDED_BY:
        signal.signal(number, end)


def _end_children() -> None:
    """End all that this process started, and kill what does not end in time."""
    import psutil

    children = psutil.Process().children(recursive=True)
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.terminate()
    for child in psutil.wait_procs(children, timeout=END_S)[1]:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()


def release_stale_lock(folder: Path) -> str | None:
    """Unlock a workflow folder whose Snakemake is known to be dead; what was done, or None where there was no lock.

    Dead is a process of this boot, host and PID namespace that is gone, or whose number another one has. Of any other
    nothing is known here: it may be alive, and its lock stays. Raises UserError where it is alive for sure, since
    another run beside it would measure at the same time.
    """
    locks = _locks(folder)
    if not locks:
        return None
    try:
        holder = json.loads((folder / HOLDER).read_text(encoding="utf-8"))
        process = int(holder["pid"])
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return f"{folder} is locked, and nothing says by whom: {_BY_HAND}"
    if holder.get("locks") != locks:
        return f"{folder} is locked by another run than the last that signed: {_BY_HAND}"
    here = _identity(process)
    if here == _identity_of(holder):
        raise UserError(f"a Snakemake (process {process}) works in this folder: wait for it, or stop it")
    if any(not here[key] or here[key] != holder.get(key) for key in ("host", "boot", "namespace")):
        whose = f"process {process} of {str(holder.get('host'))!r}, seen from another host or container"
        return f"{folder} is locked by {whose}: {_BY_HAND}"
    shutil.rmtree(folder / LOCKS)  # all that `snakemake --unlock` does, after reading the workflow
    (folder / HOLDER).unlink(missing_ok=True)
    return "a killed run left this folder locked; unlocked it, as snakemake --unlock does"


def _locks(folder: Path) -> dict[str, int]:
    """The files of Snakemake's lock, and when each was made."""
    return {path.name: path.stat().st_mtime_ns for path in sorted((folder / LOCKS).glob("*"))}


def _identity(process: int) -> dict[str, Any]:
    """What tells a process apart from all others, also from a later one of its number (Linux, proc(5))."""
    return {
        "host": socket.gethostname(),
        "boot": _read(Path("/proc/sys/kernel/random/boot_id")),
        "namespace": _namespace(),
        "pid": process,
        "started": started(process),
    }


def started(process: int) -> str | None:
    """When a process was started, in ticks since the boot; None where there is none, or a zombie."""
    # The name of the program, in brackets, may hold blanks and brackets.
    state, *fields = (_read(Path("/proc", str(process), "stat")) or ")Z").rpartition(")")[2].split()
    return None if state == "Z" else fields[18]


def _identity_of(holder: Mapping[str, Any]) -> dict[str, Any]:
    return {key: holder.get(key) for key in ("host", "boot", "namespace", "pid", "started")}


def _namespace() -> str | None:
    try:
        return Path("/proc/self/ns/pid").readlink().name
    except OSError:
        return None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
