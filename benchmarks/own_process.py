"""A command in a process of its own, and what it took: what the benchmarks of scale share."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Took:
    """What a command took: wall clock and CPU time in seconds, its peak memory in bytes, and what it printed.

    CPU time is that of its own processes too; peak memory is of the largest of them all.
    """

    seconds: float
    cpu: float
    peak: int
    output: str

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s ({self.cpu:.1f} s of CPU time), {self.peak / 2**20:.0f} MiB"


def run_command(command: Sequence[str], folder: Path) -> Took:
    """Run a command to its end in a folder. Exits with what it printed where it fails."""
    started = time.monotonic()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=folder)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        seconds, cpu = time.monotonic() - started, usage.ru_utime + usage.ru_stime
        took = Took(seconds, cpu, usage.ru_maxrss * 1024, output.read())
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} exited with {process.returncode}:\n{took.output[-3000:]}")
    return took
