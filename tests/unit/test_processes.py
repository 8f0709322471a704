"""Processes end with their parent, and a killed run's lock is found."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

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


def test_a_folder_without_a_lock_needs_nothing(tmp_path: Path) -> None:
    assert processes.release_stale_lock(tmp_path) is None


def alive(process: int) -> bool:
    """Whether the process runs; one that ended and was not waited for does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
