"""Where verify works: a results folder of its own, filled by the verbs of the command line, each in a new process.

So a crash, a hang or an exhausted GPU ends one verb and nothing else.
"""

from __future__ import annotations

import importlib.util
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from inferprof import documents, outcomes, registry
from inferprof.backends import refusals
from inferprof.case import REFERENCE, Case, OptionValue
from inferprof.documents import Record
from inferprof.documents.base import Outcome
from inferprof.errors import CaseFailed, ended
from inferprof.machine.hardware import Machine

MODEL = "two_layers"
SHAPE = "b4"
BUDGET_S = 0.3
"""Per boundary: enough for the checks of a run, too little for a figure to quote."""
TORCH = ("torch", "transformers")
"""What exports the model, and what runs it without ONNX."""
TABLES = ("pandas", "pyarrow")
COMMAND = "$ "
"""How a log marks the commands in it."""
VERB = (sys.executable, "-m", "inferprof")

T = TypeVar("T", bound=Outcome)
Runner = Callable[[Sequence[str], Path, float], int]
"""Runs a command for at most so many seconds, adds what it says to a log, and returns its exit code."""


def case_of(backend: str, precision: str = REFERENCE, variant: str = "default") -> Case:
    """A case of verify's model."""
    return Case(MODEL, precision, backend, variant, SHAPE)


@dataclass(frozen=True)
class Site:
    """The folder and the machine, as one row sees them: its log, and the seconds that it has left."""

    out: Path
    machine: Machine
    log: Path
    runner: Runner
    seconds_left: Callable[[], float]
    started: str
    """When verify began, as records have it: what is older is of another verify in the same folder."""
    failed: frozenset[str] = frozenset()
    """Rows that failed before this one: what needs a backend takes another one."""
    attempt: bool = False
    """Ask no refusal: what the machine cannot do then fails in the tool's own words."""
    engine: Path | None = None
    """An engine of the model for TensorRT that was built elsewhere, in place of building one."""

    # --- what the machine refuses ------------------------------------------------------------------------------

    def refusal(self, case: Case, *profilers: str) -> str | None:
        """Why a case cannot run here, or not under these profilers."""
        if case.backend in self.failed:
            return needs_row(case.backend)
        if self.attempt:
            return None
        backend = registry.backends()[case.backend]
        watching = (registry.profilers()[name].refuses(case, self.machine) for name in profilers)
        torch = self.lacks(*TORCH) if backend.artifact == "torch" else None
        ranges = self.lacks_modules("nvtx") if profilers else None  # which every watched run opens
        return refusals.first(backend.refuses(case, self.machine), torch, *watching, ranges)

    def lacks(self, *packages: str) -> str | None:
        """The first of these packages that is not installed."""
        return refusals.first(*(refusals.not_installed(self.machine, name) for name in packages))

    def lacks_modules(self, *modules: str) -> str | None:
        """The first of these modules that is not there: verify also runs where little more than NumPy is."""
        missing = next((name for name in modules if importlib.util.find_spec(name) is None), None)
        return f"{missing} is not installed" if missing else None

    def allowed(self, cases: Sequence[Case], *profilers: str) -> Case | None:
        """The first of these cases that is not refused."""
        return next((case for case in cases if self.refusal(case, *profilers) is None), None)

    # --- files -------------------------------------------------------------------------------------------------

    @property
    def spec(self) -> Path:
        """The model's description: its YAML, or the bare ONNX file where there is no torch to export it."""
        described = self.out / "models" / f"{MODEL}.yaml"
        return described if described.exists() else described.with_suffix(".onnx")

    def onnx(self, precision: str = REFERENCE) -> Path:
        """The graph in a number format."""
        return self.out / "onnx" / MODEL / f"{precision}.onnx"

    def measured(self, *parts: str) -> Path:
        """A file of this machine's."""
        return self.out.joinpath(self.machine.slug, *parts)

    def record(self, case: Case, round_: int = 0) -> Path:
        """The record of a run."""
        return self.measured("benchmark", str(case), f"r{round_}.json")

    def capture(self, profiler: str, case: Case) -> Path:
        """What a profiler saw."""
        suffix = registry.profilers()[profiler].suffix
        return self.measured("capture", profiler, str(case.path.parent), case.shape + suffix)

    def table(self, profiler: str, case: Case) -> Path:
        """The same as a tidy table."""
        return self.measured("table", profiler, str(case.path.parent), f"{case.shape}.parquet")

    def artifact(self, case: Case) -> Path:
        """What the backend of a case loads. All variants of a backend share one engine."""
        kind = registry.backends()[case.backend].artifact
        if kind != "engine":
            return self.spec if kind == "torch" else self.onnx(case.precision)
        if self.engine and case.backend == "tensorrt":
            return self.engine
        built = case_of(case.backend, case.precision)
        return self.measured("engine", str(built.path.parent), f"{built.shape}.engine")

    # --- verbs -------------------------------------------------------------------------------------------------

    def verb(self, *words: object) -> None:
        """Run a verb to its end, its command in the log first. Raises CaseFailed where it fails or takes too long."""
        command = [*VERB, *map(str, words)]
        seconds = max(self.seconds_left(), 0.0)
        with self.log.open("a", encoding="utf-8") as log:
            log.write(f"{COMMAND}{shlex.join(command)}\n")
        try:
            code = self.runner(command, self.log, seconds)
        except subprocess.TimeoutExpired:
            said = last_line(self.log)
            raise CaseFailed(f"`inferprof {words[0]}` was not done after {seconds:.0f} s: {said}") from None
        if code not in (0, outcomes.FAILED):  # of what failed, its document says why
            raise CaseFailed(f"`inferprof {words[0]}` {ended(code)}: {last_line(self.log)}")

    def build(self, case: Case, *words: str) -> None:
        """Build the engine of a case. Raises CaseFailed where the runtime refuses the graph."""
        if self.engine and case.backend == "tensorrt":
            return
        out = self.artifact(case)
        self.verb("build", case.backend, self.onnx(case.precision), *self._case_words(case), *words, "--out", out)
        require_built(out)

    def run(
        self,
        case: Case,
        options: Mapping[str, OptionValue] | None = None,
        round_: int = 0,
        budget_s: float = BUDGET_S,
    ) -> Record:
        """Measure a case against the fp32 graph on the CPU; its record. Raises CaseFailed where it failed."""
        out = self.record(case, round_)
        against = ("--reference", self.onnx(), "--budget", budget_s, "--round", round_)
        self.verb("run", *self._run_words(case, options), *against, "--out", out)
        record: Record = require_ok(documents.read(out, "record", self.out))
        return record

    def watch(self, profiler: str, case: Case, timeline: Path | None = None) -> Path:
        """Run a case under a profiler; its capture. Raises CaseFailed where the profiler could not watch."""
        out = self.capture(profiler, case)
        record = out.with_name(f"{case.shape}.record.json")
        run = [*VERB, "run", *self._run_words(case, None)]
        run += ["--profiled", registry.profilers()[profiler].iterations, "--out", record]
        aim = ("--timeline", timeline) if timeline else ()
        for old in (out, record):
            old.unlink(missing_ok=True)
        self.verb("capture", profiler, *aim, "--out", out, "--record", record, "--", *run)
        require_ok(documents.read(record, "watched", self.out))
        return out

    def tabled(self, profiler: str, case: Case) -> Path:
        """The tidy table of a capture."""
        table = self.table(profiler, case)
        self.verb("table", profiler, self.capture(profiler, case), "--machine", self.machine.slug, "--out", table)
        return table

    def _case_words(self, case: Case) -> list[object]:
        return ["--spec", self.spec, "--shape", case.shape, "--variant", case.variant]

    def _run_words(self, case: Case, options: Mapping[str, OptionValue] | None) -> list[Any]:
        """The arguments of `inferprof run`, whoever watches it."""
        given = [
            word for name, value in (options or {}).items() for word in ("--set", f"{name}={str(value).lower()}")
        ]
        where = ["--precision", case.precision, "--machine", self.machine.slug, *given]
        return [case.backend, self.artifact(case), *self._case_words(case), *where]


def require_ok(document: T) -> T:
    """The record of a run or a build. Raises CaseFailed with its reason where it failed."""
    if document.status != "ok":
        raise CaseFailed(str(document.reason))
    return document


def require_built(engine: Path) -> None:
    """Raises CaseFailed with the reason where an engine was not built."""
    require_ok(documents.read(engine.with_suffix(".build.json"), "build"))


def records_since(benchmark: Path, started: str) -> list[tuple[Path, Record]]:
    """The records that were begun then or later, each with its file."""
    records = ((path, documents.read(path, "record", benchmark)) for path in sorted(benchmark.rglob("r*.json")))
    return [(path, record) for path, record in records if record.started >= started]


def needs_row(name: str) -> str:
    """Why a row is not here that rests on another one."""
    return f"needs row {name}, which did not pass"


def last_line(log: Path) -> str:
    """The last line that the last command of a log said."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    last = next((line.strip() for line in reversed(lines) if line.strip()), COMMAND)
    return "it said nothing" if last.startswith(COMMAND) else last.removeprefix("inferprof: ")
