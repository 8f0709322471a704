"""Snakemake in a process forked from one that has imported it: what it plans and refuses costs no start of its own.

Its command line, its Snakefile and its output are the real ones. What runs jobs is started as users start it.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

LIMIT_S = 900
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    ["pytest", "snakemake.cli", "snakemake.report.html_reporter", "inferprof.cluster", "inferprof.targets"]
)


def run(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """What a command line of Snakemake ends with, which runs no job: a dry run, or a refusal."""
    with tempfile.TemporaryDirectory() as folder:
        streams = [Path(folder, name) for name in ("stdout", "stderr")]
        process = FORKS.Process(target=_snakemake, args=(list(command), dict(environment), streams))
        process.start()
        process.join(LIMIT_S)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(list(command), LIMIT_S)
        out, err = (path.read_text(encoding="utf-8") for path in streams)
    return subprocess.CompletedProcess(list(command), process.exitcode, out, err)


def _snakemake(command: list[str], environment: Mapping[str, str], streams: Sequence[Path]) -> None:
    """Become Snakemake with its output in files."""
    for target, path in enumerate(streams, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), target)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:] = command
    from snakemake import cli

    cli.main()
