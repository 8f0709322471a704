"""Jobs that broke: which files are not there because of them, and what the end of their logs says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from inferprof.case import Case

LAST_LINE_LENGTH = 300
ENDED_WELL = re.compile(r"inferprof: .*: done in \d+ s|inferprof: failed at .*|inferprof: wrote .*")
"""What a job that ended well writes last."""
STEP = re.compile(r"inferprof: .*: (?P<step>[^:]+) \(\d+ of \d+\), \d+ s.*")
"""What progress says of a step under way."""
NOT_RUN = "no record: its job has not run, or left no log"
PRODUCTS = (".json", ".record.json", ".onnx", ".expected.npz", ".npz", ".engine", ".parquet", "")
"""How the name of a job's product goes on where its log's ends in `.log`."""


@dataclass(frozen=True)
class BrokenJob:
    """A job that ended without its product. `log` is relative to the results folder; `reason` is the end of it."""

    log: str
    reason: str


def reason(results: Path, machine: str, case: Case) -> str:
    """Why a case that was to run has no record, from the last log on its way: measurement, engine or conversion."""
    for log in _on_the_way(results / "log", machine, case):
        if job := _broken(results, log):
            return f"no record: the job broke: {job.reason} (log: {job.log})"
    return NOT_RUN


def jobs(results: Path, machine: str, cases: Iterable[Case]) -> list[BrokenJob]:
    """The jobs about these cases that broke, at whatever stage, in the order of their logs."""
    logs = dict.fromkeys(log for case in cases for log in _about(results / "log", machine, case))
    return [job for log in sorted(logs) if (job := _broken(results, log))]


def _broken(results: Path, log: Path) -> BrokenJob | None:
    """What a log says of the job that wrote it; None where there is no log, or the job did what it was to do."""
    if not log.is_file() or (line := _last_line(log)) is None:
        return None
    product = results / log.relative_to(results / "log").with_suffix("")
    if any(product.with_name(product.name + suffix).exists() for suffix in PRODUCTS):
        return None
    return BrokenJob(log.relative_to(results).as_posix(), line)


def _on_the_way(folder: Path, machine: str, case: Case) -> list[Path]:
    """The logs of the jobs that a record needs, the latest stage first."""
    rounds = sorted((folder / machine / "benchmark" / case.path).glob("r*.log"), reverse=True)
    conversion = folder / "onnx" / case.model
    return [
        *rounds,
        folder / machine / "engine" / f"{case.path}.log",
        conversion / f"{case.precision}.{case.shape}.expected.log",
        conversion / f"{case.precision}.log",
        conversion / "fp32.log",
    ]


def _about(folder: Path, machine: str, case: Case) -> Iterator[Path]:
    """The logs of all jobs about a case, its graph and its machine."""
    yield from _on_the_way(folder, machine, case)
    yield from (folder / "onnx" / case.model).glob(f"{case.precision}.*.log")
    yield from (folder / machine).glob(f"*/{case.path}.log")
    yield from (folder / machine).glob(f"*/*/{case.path}.log")
    yield from (folder / machine).glob("*.log")
    yield folder / machine / "diagnosis" / f"{case.model}.log"


def _last_line(log: Path) -> str | None:
    """The last line that says something, shortened where it is very long, and during which step that was; None of a
    log that is empty or whose job ended well."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    if not lines or ENDED_WELL.fullmatch(lines[-1]):
        return None
    line = lines[-1]
    half = LAST_LINE_LENGTH // 2
    short = line if len(line) <= LAST_LINE_LENGTH else f"{line[:half]} … {line[-half:]}"
    steps = [match["step"] for match in map(STEP.fullmatch, lines[:-1]) if match]
    return f"{short} (during: {steps[-1]})" if steps and line.startswith("inferprof: ") else short
