"""`inferprof watch`: a profiler around a program as it is, and what explain says of what came out.

The program runs in its own environment; what it wrote is scrubbed before any of it is read for the report.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from inferprof import processes, registry, secret
from inferprof.bundles import scrub
from inferprof.errors import UserError, ended, unknown
from inferprof.explain import explain, inside
from inferprof.explain.foreign import Foreign
from inferprof.files import make_folder
from inferprof.machine import hardware
from inferprof.profilers import capturing, nsys, nsys_scrub

CAPTURES: Final = "captures"
"""The folder in --out for what was recorded, scrubbed."""


_TIMED: Final = 'trap : INT; date +%s%N >"$0"; "$@"; code=$?; date +%s%N >>"$0"; exit $code'
"""For sh: a command, and when it began and ended, since nsys goes on to write its report."""


@dataclass(frozen=True)
class Asked:
    """What to run and how to watch it. `tool`: None for nsys where it can be had, else what the program allows."""

    command: Sequence[str]
    tool: str | None = None
    bare: bool = False
    graph_trace: nsys.GraphTrace = "node"
    iteration: str | None = None
    model: Path | None = None


@dataclass(frozen=True)
class Ran:
    """A run of the program: its exit code and its seconds, and how many of them went into writing the trace."""

    code: int
    seconds: float
    writing: float = 0.0


def watch(asked: Asked, out: Path | None = None) -> tuple[list[Foreign], int]:
    """The answers to what the program did, and its exit code. With `out` the captures stay there, scrubbed.

    Raises UserError where it can't be started or watched, or nothing was recorded.
    """
    if not asked.command:
        raise UserError("no program was given: inferprof watch -- python infer.py")
    if shutil.which(asked.command[0]) is None:
        raise UserError(f"no program {asked.command[0]} can be started: give the command behind `--`")
    outside = asked.tool == nsys.NAME or (asked.tool is None and _has_nsys())
    modules = {} if outside else _modules(asked.tool)
    if out:  # before the program ran in vain
        make_folder(out / CAPTURES)
    with tempfile.TemporaryDirectory(prefix="inferprof-watch-") as private, _interrupts_end_the_program():
        folder = Path(private)
        bare = [_run(asked.command, folder)] if asked.bare else []
        ran = _under_nsys(asked, folder) if outside else _recorded_inside(asked.command, modules, folder)
        bare += [_run(asked.command, folder)] if asked.bare else []
        files = _scrubbed(folder, modules, out / CAPTURES if out else folder / CAPTURES)
        if not files:
            raise UserError(
                f"nothing was recorded: {asked.command[0]} {ended(ran.code)} and neither torch nor an ONNX Runtime "
                "session was in a Python of it that ended by itself; nsys on PATH sees any program"
            )
        try:
            cases = _answers(files, asked)
        except UserError as error:
            if not ran.code:
                raise
            raise UserError(f"{asked.command[0]} {ended(ran.code)}; of what it did until then: {error}") from error
    by = " and ".join(sorted({capture.tool for case in cases for capture in case.captures if capture.ran}))
    said = [_in_words(asked.command, by, ran), *([slowed(ran, bare, by)] if bare else [])]
    return [dataclasses.replace(case, watched=said) for case in cases], ran.code


def _modules(tool: str | None) -> dict[str, str]:
    """Tool → module of those that can be recorded from within, or of one of them. Raises UserError for another."""
    modules = {name: made.inside for name, made in registry.profilers().items() if made.inside}
    if tool is not None and tool not in modules:
        raise unknown("tools", [tool], [nsys.NAME, *modules])
    return {name: module for name, module in modules.items() if tool in (None, name)}


def _has_nsys() -> bool:
    return shutil.which(nsys.NAME) is not None and hardware.detect_gpu() is not None


@contextlib.contextmanager
def _interrupts_end_the_program() -> Iterator[None]:
    """Ctrl-C is for the program, which may run until then; what it did up to there is explained."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


# --- the program under its profiler ----------------------------------------------------------------------------


def _run(command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> Ran:
    """Run the program, whose output is the user's, and time it."""
    return _timed(["/bin/sh", "-c", _TIMED, str(folder / "times"), *command], folder, environment)


def _timed(command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> Ran:
    done = subprocess.run(command, env=environment, preexec_fn=processes.die_with_parent)
    times = [int(line) for line in (folder / "times").read_text().split()] if (folder / "times").exists() else []
    return Ran(done.returncode, (times[-1] - times[0]) / 1e9 if times else 0.0)


def _under_nsys(asked: Asked, folder: Path) -> Ran:
    """Run it under nsys; the export is then in the folder."""
    if shutil.which(nsys.NAME) is None:
        raise UserError(f"nsys is not on PATH: install {nsys.PRODUCT}, or use --with {' or '.join(_modules(None))}")
    export = folder / "watched.sqlite"
    options = nsys.Options(graph_trace=asked.graph_trace, ranged=False)
    timed = ["/bin/sh", "-c", _TIMED, str(folder / "times"), *asked.command]
    ran = _timed(nsys.command(timed, export, options), folder)
    nsys.export(export, lambda command: capturing.require_success(processes.run_merged(command)))
    return ran


def _recorded_inside(command: Sequence[str], watched: Mapping[str, str], folder: Path) -> Ran:
    """Run it with `inside` in front of its modules; what its processes wrote is then in the folder."""
    modules = folder / "modules"
    modules.mkdir()
    shutil.copyfile(inside.__file__, modules / "sitecustomize.py")
    path = os.pathsep.join(filter(None, (str(modules), os.environ.get("PYTHONPATH"))))
    own = {"INFERPROF_WATCH_FOLDER": str(folder), "INFERPROF_WATCH_MODULES": ",".join(watched.values())}
    ran = _run(command, folder, {**os.environ, **own, "PYTHONPATH": path})
    written = [sum(map(float, file.read_text().split())) for file in folder.glob("*.seconds")]
    return dataclasses.replace(ran, writing=max(written, default=0.0))


def _scrubbed(folder: Path, modules: Mapping[str, str], kept: Path) -> list[Path]:
    """What was recorded, without secrets, in a folder of its own; the binary report stays behind."""
    hidden = scrub.secrets((), folder)
    make_folder(kept)
    files = []
    for export in folder.glob("*.sqlite"):
        nsys_scrub.scrub(export, hidden)
        files.append(Path(shutil.move(export, kept / export.name)))
    for tool, module in modules.items():
        for number, trace in enumerate(sorted(folder.glob(f"{module}_*.json")), 1):
            files.append(kept / f"{tool}{number}.json.gz")
            files[-1].write_bytes(gzip.compress(scrub.scrubber(hidden)(trace), 1, mtime=0))
    return files


# --- what came of it -------------------------------------------------------------------------------------------


def _answers(files: Sequence[Path], asked: Asked) -> list[Foreign]:
    """Of all files together; of those that hold anything, where some hold nothing."""
    try:
        return explain(files, asked.iteration, asked.model)
    except UserError:
        if not files[1:]:
            raise
        cases: list[Foreign] = []
        for file in files:
            with contextlib.suppress(UserError):
                cases += explain([file], asked.iteration, asked.model)
        if not cases:
            raise
        return cases


def _in_words(command: Sequence[str], by: str, ran: Ran) -> str:
    words = [Path(word).name if Path(word).is_file() else word for word in command]
    said = secret.redact(shlex.join(words), scrub.secrets(()))
    return f"{said}, with {by}: {ran.seconds:.1f} s{f', {ended(ran.code)}' if ran.code else ''}"


def slowed(ran: Ran, bare: Sequence[Ran], by: str) -> str:
    """`start-up and all: bare 4.12 and 4.20 s, with nsys 4.60 s: 11 % slower`."""
    seconds = [run.seconds for run in bare]
    watched = ran.seconds - ran.writing
    usual = sum(seconds) / len(seconds)
    slower = f"{100 * abs(watched / usual - 1):.0f} % {'slower' if watched > usual else 'faster'}"
    if abs(watched - usual) <= max(seconds) - min(seconds):
        slower = "no slower than two bare runs differ"
    listed = " and ".join(f"{value:.2f}" for value in seconds)
    writing = f", {ran.writing:.2f} s to write it left out" if ran.writing else ""
    return f"start-up and all: bare {listed} s, with {by} {watched:.2f} s{writing}: {slower}"
