"""Captures of one program as a case: rows, iterations, and what the checks of a study say of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pandas as pd
from msgspec import structs

from inferprof.case import Case
from inferprof.diagnosis import frames, ranks, run, verdict
from inferprof.diagnosis.times import on_several_gpus
from inferprof.documents.diagnosed import Verdict
from inferprof.errors import UserError
from inferprof.explain import graph
from inferprof.findings import Answer, Frames, Total
from inferprof.readers import launch_configs
from inferprof.readers.kind import Capture, Lack
from inferprof.tables import records, schema
from inferprof.tables.limits import waterfall
from inferprof.tables.trace import iteration_choice, one_iteration
from inferprof.tables.trace.events import tidy
from inferprof.tables.trace.iteration_choice import Choice
from inferprof.tables.trace.kernel_compare import ITERATION

MACHINE: Final = "foreign"
STUDY: Final = "explain"
UNKNOWN: Final = "unknown"
"""In place of a model, a number format and a backend that no file tells."""


@dataclass(frozen=True, eq=False)
class Foreign:
    """A case that others captured, and what follows. `names`: of its files."""

    names: Sequence[str]
    case: Case
    captures: Sequence[Capture]
    rows: pd.DataFrame
    choice: Choice | None
    frames: Frames
    answers: Sequence[Answer]
    verdict: Verdict
    total: Total | None
    graph: Sequence[str] = ()
    """What the ONNX file of it says, in lines."""
    watched: Sequence[str] = ()
    """What `watch` ran, and what that cost, in lines."""

    @property
    def lacks(self) -> list[Lack]:
        """What none of the files tells, each once."""
        return list(dict.fromkeys(lack for capture in self.captures for lack in capture.lacks))

    @property
    def model(self) -> str | None:
        """The file of the model that it names."""
        return next((capture.model for capture in self.captures if capture.model), None)

    @property
    def failure(self) -> str | None:
        """Why there is nothing to tell."""
        return next((capture.failure for capture in self.captures if capture.failure), None)


def of(
    names: Sequence[str],
    captures: Sequence[Capture],
    case: Case,
    iteration: str | None = None,
    model: Path | None = None,
) -> Foreign:
    """A case out of its captures. Raises UserError for a range that is asked for and not there."""
    if (owned := graph.owned(captures, model)) is not None:
        captures = [*captures, owned]
    if iteration is not None:
        captures = _of_iteration(names, captures, iteration)
    choice = None
    parts = []
    for capture in captures:
        if capture.timeline is not None:
            timeline, choice = iteration_choice.choose(capture.timeline, iteration)
            parts += [tidy(timeline, capture.tool), launch_configs.rows(timeline, capture.tool)]
        if capture.rows is not None:
            parts.append(capture.rows)
    empty = pd.DataFrame(columns=list(schema.COLUMNS)).astype(schema.COLUMNS)
    parts = [part for part in parts if len(part)]
    rows = schema.of_case(pd.concat(parts, ignore_index=True) if parts else empty, MACHINE, case)
    own = _of_means(frames.of_tables(MACHINE, case, _no_peers(case), schema.shared(one_iteration.without(rows))))
    read = [answer for capture in captures for answer in capture.answers]
    checked = {answer.check for answer in read}  # by the file's reader, of the same rows: once is enough
    given = [*(answer for answer in (run.answers(own) if len(rows) else []) if answer.check not in checked), *read]
    total = own.total or next((capture.total for capture in captures if capture.total), None)
    times, work = (verdict.times_of(own) if own.total else {}), ranks.own_work(own)
    judged = verdict.judge(given, total, times, work=work)
    return Foreign(names, case, captures, rows, choice, own, given, judged, total)


def _of_iteration(names: Sequence[str], captures: Sequence[Capture], name: str) -> list[Capture]:
    """The captures, of the ranges that are asked for. Raises UserError where none of them has any."""
    if not any(capture.timeline is not None or capture.of_range for capture in captures):
        raise UserError(
            f"--iteration {name}: {', '.join(names)} holds no ranges to choose from (a trace has them): leave it out"
        )
    return [capture.of_range(name) if capture.of_range else capture for capture in captures]


def _of_means(own: Frames) -> Frames:
    """With shares of an iteration's mean, which the parts beside them add up to, and not of its median; of several
    GPUs that of the busiest, which those parts are of."""
    seen = waterfall.of_ranges(own.timeline).get(ITERATION, {}) if own.tool else {}
    if "gpu_busy" not in seen or own.total is None:
        return own
    total = structs.replace(own.total, ns=seen["gpu_busy"] + seen["gpu_idle"])
    if on_several_gpus(own):
        total = structs.replace(total, of=f"{total.of} on GPU {busiest(own)}")
    return dataclasses.replace(own, total=total)


def busiest(own: Frames) -> int:
    """The GPU that the timeline is of."""
    return int(own.timeline["device"].dropna().iloc[0])


def _no_peers(case: Case) -> Any:
    """Nothing was measured without a profiler, of this case or any other."""
    planned = pd.DataFrame([{"machine": MACHINE, **dataclasses.asdict(case), "outcome": "run", "reason": ""}])
    return frames.peers_of(records.read(Path("/"), planned))


def case_of(captures: Sequence[Capture], name: str) -> Case:
    """What a report calls the case: the file, and the runtime where its captures name one."""
    backend = next((capture.runtime for capture in captures if capture.runtime), UNKNOWN)
    plain = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name).strip("._")[:80]
    return Case(plain or STUDY, UNKNOWN, backend, "default", "b1")
