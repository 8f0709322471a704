"""Processes end with their parent, and a killed run's lock is found."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from inferprof import processes

CHILD = (
    "from inferprof.processes import die_with_parent; import time\n"
    "die_with_parent(); print('up', flush=True); time.sleep(60)"
)
PARENT = (
    "import subprocess, sys, time\n"
    f"child = subprocess.Popen([sys.executable, '-c', {CHILD!r}], stdout=subprocess.PIPE)\n"
    "child.stdout.readline(); print(child.pid, flush=True); time.sleep(60)\n"
)


def test_a_child_ends_when_its_parent_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        os.kill(parent.pid, signal.SIGKILL)
    deadline = time.monotonic() + 5
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(child)


def test_what_a_command_says_goes_to_the_log_and_its_exit_code_is_told(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    says = "import sys; print('out'); print('err', file=sys.stderr); sys.stdout.flush(); sys.exit(3)"
    assert processes.run_logged([sys.executable, "-c", says], log, 30) == 3
    assert sorted(log.read_text().split()) == ["before", "err", "out"]


def test_a_crash_is_a_negative_exit_code(tmp_path: Path) -> None:
    crash = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    assert processes.run_logged([sys.executable, "-c", crash], tmp_path / "log", 30) == -signal.SIGSEGV


def test_a_command_that_takes_too_long_ends_with_all_that_it_started(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(subprocess.TimeoutExpired):
        processes.run_logged([sys.executable, "-c", PARENT], log, 3)
    child = int(log.read_text())
    deadline = time.monotonic() + 5
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(child)


def test_a_folder_without_a_lock_needs_nothing(tmp_path: Path) -> None:
    assert processes.release_stale_lock(tmp_path) is None


def test_a_lock_without_a_living_holder_is_removed(tmp_path: Path) -> None:
    lock = tmp_path / ".snakemake" / "locks" / "0.input.lock"
    lock.parent.mkdir(parents=True)
    lock.write_text("models/toy.yaml\n", encoding="utf-8")
    done = processes.release_stale_lock(tmp_path)
    assert done is not None and "unlocked" in done
    assert not lock.exists()


def test_a_living_snakemake_keeps_its_lock(tmp_path: Path) -> None:
    lock = tmp_path / ".snakemake" / "locks" / "0.input.lock"
    lock.parent.mkdir(parents=True)
    lock.write_text("", encoding="utf-8")
    script = tmp_path / "snakemake"
    script.write_text("import time; print('up', flush=True); time.sleep(60)", encoding="utf-8")
    command = [sys.executable, str(script)]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        done = processes.release_stale_lock(tmp_path)
        holder.kill()
    assert done is not None and str(holder.pid) in done
    assert lock.exists()


def alive(process: int) -> bool:
    """Whether the process runs; one that ended and was not waited for does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False


def test_what_a_command_says_on_both_streams_comes_in_its_order() -> None:
    script = (
        "import os, sys\nprint('out', flush=True)\nprint('err', file=sys.stderr)\nsys.exit(len(os.environ['WHO']))"
    )
    done = processes.run_merged([sys.executable, "-c", script], {"WHO": "abc"})
    assert (done.returncode, done.stdout) == (3, "out\nerr\n")
