"""Jobs that broke: which log says why there is no record, and what its last line is."""

from __future__ import annotations

import re
from pathlib import Path

from inferprof.case import Case

LAST_LINE_LENGTH = 300
ENDED_WELL = re.compile(r"inferprof: .*: done in \d+ s")
"""What progress writes last: that stage is not the one that broke."""
NOT_RUN = "no record: its job has not run, or left no log"


def reason(results: Path, machine: str, case: Case) -> str:
    """Why a case that was to run has no record, from the last log on its way: benchmark, engine or conversion."""
    for log in _logs(results / "log", machine, case):
        if log.is_file() and (line := _last_line(log)):
            if ENDED_WELL.fullmatch(line):
                return NOT_RUN
            return f"no record: the job broke: {line} (log: {log.relative_to(results).as_posix()})"
    return NOT_RUN


def _logs(folder: Path, machine: str, case: Case) -> list[Path]:
    """Latest stage first."""
    rounds = sorted((folder / machine / "benchmark" / case.path).glob("r*.log"), reverse=True)
    conversion = folder / "onnx" / case.model
    return [
        *rounds,
        folder / machine / "engine" / f"{case.path}.log",
        conversion / f"{case.precision}.log",
        conversion / "fp32.log",
    ]


def _last_line(log: Path) -> str:
    """The last line that says something, shortened in its middle where it is very long."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    line = lines[-1] if lines else ""
    half = LAST_LINE_LENGTH // 2
    return line if len(line) <= LAST_LINE_LENGTH else f"{line[:half]} … {line[-half:]}"
