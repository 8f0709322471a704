"""What must be known of the moment of a measurement: revision, packages, the GPU and who else is on it."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from inferprof import forked
from inferprof.machine import hardware
from inferprof.machine.hardware import Gpu

Runner = Callable[..., "subprocess.CompletedProcess[str]"]


def of_run(gpu: Gpu | None, runner: Runner = subprocess.run) -> dict[str, Any]:
    """The `environment` of a record."""
    return {
        "git": git_revision(Path(__file__).parent, runner),
        "python": platform.python_version(),
        "packages": hardware.detect_packages(),
        **({"imported": list(forked.imported)} if forked.imported else {}),
        "gpu": asdict(gpu) if gpu else None,
        "processes_on_gpu": processes_on_gpu() if gpu else None,
    }


def git_revision(folder: Path, runner: Runner = subprocess.run) -> str | None:
    """The commit of the checkout that holds `folder`, with -dirty where it was changed; None where there is none.

    Of the files of `git archive` it is the commit that git wrote into one of them.
    """
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = runner(command, capture_output=True, text=True)
    except FileNotFoundError:
        return _archived_revision(folder)
    return done.stdout.strip() if done.returncode == 0 else _archived_revision(folder)


def _archived_revision(folder: Path) -> str | None:
    """What stands in .git_archival.txt beside the Snakefile, if `git archive` or an image's build filled it in."""
    files = (parent / ".git_archival.txt" for parent in folder.parents)
    text = next((path.read_text(encoding="utf-8").strip() for path in files if path.is_file()), "")
    return text if re.fullmatch(r"[0-9a-f]{40}", text) else None


def processes_on_gpu() -> list[dict[str, Any]] | None:
    """Other processes that compute on this GPU, with the bytes they hold; None where NVML does not tell."""
    import pynvml

    pynvml.nvmlInit()
    try:
        handle = hardware.visible_handle(pynvml)
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()
    return [{"pid": p.pid, "bytes": p.usedGpuMemory} for p in processes if p.pid != os.getpid()]
