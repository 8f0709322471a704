"""Runs a command under a profiler, so that nothing secret gets into what is kept."""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from inferprof import documents, forked, outcomes, processes, progress, registry
from inferprof.case import PARALLEL, Case
from inferprof.documents import Watched
from inferprof.errors import CaseFailed, SystemRefusal, ToolError, UserError
from inferprof.files import make_folder, write_document, write_json
from inferprof.machine.hardware import Machine
from inferprof.plugins import Profiler
from inferprof.readers.capture_file import reason_in
from inferprof.readers.kind import Kind
from inferprof.secret import allowed_variable

if TYPE_CHECKING:
    import pandas as pd

ALLOWED: Final = re.compile(
    r"PATH|LD_LIBRARY_PATH|HOME|LANG|LC_\w+|TMPDIR|VIRTUAL_ENV|CONDA_PREFIX|XDG_CACHE_HOME|HF_HOME|HF_HUB_OFFLINE|"
    r"CC|CXX|"  # by another compiler's name torch.compile finds nothing in its cache
    r"INFERPROF_PLUGINS|"
    r"(?:CUDA|NVIDIA|CUBLAS|CUDNN|NCCL|NVSHMEM|TRT|POLYGRAPHY|ORT|OMP|MKL|KMP|OPENBLAS|"
    r"TORCH|TORCHINDUCTOR|TRITON|PYTORCH|PYTHON)_?\w*"
)
"""Environment variables that the run may need. Profilers store all that they are started with."""


LOGGER = logging.getLogger(__name__)
EXPORT: Final = "export"
"""The stage in which a tool's file is made of what it saw."""
Done = subprocess.CompletedProcess[str]
Runner = Callable[[Sequence[str], Mapping[str, str]], Done]
"""Runs a command in an environment to its end; what it says on both streams is in `stdout`."""


def allowed_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that a profiler, and with it the run, is started with."""
    return {name: value for name, value in environment.items() if ALLOWED.fullmatch(name) and allowed_variable(name)}


def no_gpu_work(case: Case, machine: Machine) -> str | None:
    """Why there is nothing for a profiler of GPU work to see; None where there is."""
    if machine.gpu is None:
        return "no GPU on this machine"
    if registry.backends()[case.backend].where == "cpu":
        return f"{case.backend} runs on the CPU"
    return None


def no_tool(name: str, product: str, case: Case, machine: Machine) -> str | None:
    """Why a tool of NVIDIA's cannot watch a case; None where it can."""
    if reason := no_gpu_work(case, machine):
        return f"{name}: {reason}"
    return None if name in machine.tools else f"{name}: not on PATH; install {product}"


def first_refusal(name: str, tools: Sequence[Profiler], case: Case, machine: Machine) -> str | None:
    """What speaks against the tools that a profiler is made of, in the profiler's name."""
    reasons = (tool.refuses(case, machine) for tool in tools)
    return next((f"{name}: {reason.partition(': ')[2]}" for reason in reasons if reason), None)


def executable(name: str, product: str) -> str:
    """A tool on PATH. Raises UserError where it is not."""
    if path := shutil.which(name):
        return path
    raise UserError(f"{name} is not on PATH: install {product}, or take {name} out of `profilers`")


def aimed(profiler: Profiler, timeline: Path) -> Profiler:
    """The profiler, told by a timeline's table where to look.

    Raises UserError for one that watches everything, CaseFailed where there is nothing in the table to look at.
    """
    from inferprof.tables import schema

    if profiler.aim is None:
        raise UserError(f"--timeline {timeline}: {profiler.name} watches all of a run; leave the flag out")
    if reason := schema.reason_in(schema.read_table(timeline)):
        raise CaseFailed(reason)
    return profiler.aim(timeline)


def capture_or_reason(
    profiler: Profiler, argv: Sequence[str], out: Path, timeline: Path | None = None, record: Path | None = None
) -> str | None:
    """Capture, aimed by a timeline's table if it is given; where that cannot be done, `out` holds the reason.

    So does `record`, the run's own, if the run could not write it. The reason of a run that failed is the capture's.
    Returns the reason.
    """
    if record:
        record.unlink(missing_ok=True)
    try:
        with outcomes.stage("capture"):
            capture(aimed(profiler, timeline) if timeline else profiler, argv, out, record)
    except CaseFailed as error:
        write_json(out, {"not_measured": str(error) if error.stage == "capture" else f"{error.stage}: {error}"})
        if record and not record.exists():
            write_document(record, "watched", outcomes.failure(error))
        return outcomes.said(error)
    return None


def capture(
    profiler: Profiler,
    argv: Sequence[str],
    out: Path,
    record: Path | None = None,
    runner: Runner = processes.run_merged,
) -> None:
    """Run `argv` under the profiler; its capture is then at `out`, and what else it wrote lies beside it.

    Raises UserError where the tool is missing, CaseFailed where it says that it could not watch, or the run's
    `record` that it failed, ToolError where it or the run broke; nothing is left then.
    """
    make_folder(out.parent)
    allowed = allowed_environment(os.environ)
    with progress.task(f"Capture with {profiler.name}", ("run", "export")):
        server, unseen = _server(profiler, argv, allowed), False
        for environment in [{**allowed, forked.SERVER: server}, allowed] if server else [allowed]:
            try:
                _captured(profiler, argv, out, environment, record, runner)
                break
            except (ToolError, CaseFailed) as error:
                if environment is allowed or getattr(error, "stage", EXPORT) != EXPORT:
                    raise
                LOGGER.warning("a fork of the study's server was watched: %s; once more in its own process", error)
                unseen = getattr(error, "returncode", 0) == 0
                if record:
                    record.unlink(missing_ok=True)
        if unseen:
            _unseen(profiler).touch()


def _server(profiler: Profiler, argv: Sequence[str], allowed: Mapping[str, str]) -> str | None:
    """The server of the study that forks the run, which so has its libraries imported; None where it is to start by
    itself: a tool that counts is in its process from the beginning, and of ranks nsys traces the forks so."""
    divided = any(word.startswith(f"{PARALLEL}=") for word in argv)
    if profiler.counts or divided or Path(argv[0]).name != "inferprof" or _unseen(profiler).exists():
        return None
    return forked.server_for(argv[1:], allowed)


def _unseen(profiler: Profiler) -> Path:
    """A file that says of this study that a tool does not see runs that were forked from a server."""
    return Path(".snakemake", f"inferprof-{os.environ.get(forked.STUDY)}-{profiler.name}-alone")


def _captured(
    profiler: Profiler,
    argv: Sequence[str],
    out: Path,
    environment: Mapping[str, str],
    record: Path | None,
    runner: Runner,
) -> None:
    """As `capture`, with the run in an environment."""

    def run(command: Sequence[str]) -> None:
        require_success(runner(command, environment))

    # Nobody else can look into this folder while its files have the modes and contents that the tool gave them.
    with tempfile.TemporaryDirectory(prefix=f".{profiler.name}-", dir=out.parent) as private:
        inside = Path(private, out.name)
        progress.step("run")

        def watch(way: Profiler) -> Done:
            done = runner(way.command(argv, inside), environment)
            _require_run(record)
            return done

        way, done = _watched(profiler, watch)
        progress.step("export")
        with outcomes.stage(EXPORT):
            if way.finish:
                way.finish(inside, run)
        if not inside.exists():
            raise ToolError(done.args, 0, f"{profiler.name} wrote no capture: did the run reach its iterations?")
        for file in sorted(Path(private).iterdir()):
            file.replace(out.parent / file.name)


def _watched(profiler: Profiler, run: Callable[[Profiler], Done]) -> tuple[Profiler, Done]:
    """The way of watching that saw something, and its process. Raises CaseFailed where the tool says why none can."""
    done = run(profiler)
    if profiler.otherwise and (other := profiler.otherwise(done.stdout)):
        return _watched(other, run)
    if profiler.refusal and (reason := profiler.refusal(done.stdout)):
        raise CaseFailed(f"{profiler.name}: {reason}")
    require_success(done)
    return profiler, done


def _require_run(record: Path | None) -> None:
    """Raise CaseFailed where the run that was watched says that it failed: no profiler can add anything to that."""
    if record is None or not record.exists():
        return
    content: Watched = documents.read(record, "watched")
    if content.status == "failed":
        raise CaseFailed(str(content.reason), content.stage)


def require_success(done: Done) -> None:
    """Raise ToolError where a command failed, SystemRefusal where that was for want of space."""
    if done.returncode != 0 and (full := os.strerror(errno.ENOSPC)) in done.stdout:
        raise SystemRefusal(next(line for line in done.stdout.splitlines() if full in line))
    if done.returncode != 0:
        raise ToolError(done.args, done.returncode, done.stdout)


def read(profiler: Profiler, capture: Path, iteration: str | None = None) -> pd.DataFrame:
    """The tidy table of a capture, with another program's range around an inference as iteration; of what
    `capture_or_reason` wrote where there is no capture, the reason.

    Raises UserError for what the profiler does not read, and where there is no such range.
    """
    from inferprof.tables import schema
    from inferprof.tables.trace.kernel_compare import as_iterations

    if reason := reason_in(capture):
        return schema.not_measured(reason, profiler.name)
    if iteration is None:
        return profiler.read(capture)
    if profiler.read_iterations is not None:
        return profiler.read_iterations(capture, iteration)
    return as_iterations(profiler.read(capture), iteration)


def other_reader(path: Path, kind: Kind) -> UserError:
    """The error of a reader that was given another tool's file."""
    verb = f"inferprof table {kind.tool}" if kind.tool else "inferprof explain"
    return UserError(f"{path} is {kind.title}: read it with `{verb}`")
