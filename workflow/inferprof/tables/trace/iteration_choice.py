"""What of a foreign capture counts as its iterations, and why: a range that is asked for, one that repeats around
the GPU's work, or the period of what was launched."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from inferprof.errors import UserError
from inferprof.tables.trace import iterations, numbered, period
from inferprof.tables.trace.api_kind import UNTIED, has_no_calls
from inferprof.tables.trace.kernel_compare import ITERATION
from inferprof.tables.trace.timeline import NO_CALL, PATH_SEPARATOR, Timeline, process_of
from inferprof.words import counted, ms, spread, times_apart

STEP: Final = "ProfilerStep"
"""torch.profiler's own range around each step of its schedule."""
LEAST_COVERED: Final = 0.2
"""Ours: of the GPU's time, what a range must be around to be what the capture is about."""
SIMILAR: Final = 0.5
"""Ours: a range around half of what another one, or the period, is around is not the larger part of something."""
RUNTIME: Final = re.compile(r"ExecutionContext::")
"""How the ranges begin that a runtime opens around its own inferences."""
LIBRARY: Final = re.compile(
    r"(?:aten|c10|cub|CCCL|thrust|nccl|cudnn|cublas|cusparse|cutlass|autograd|torch|MPI|myelin)(?:::|:|_|[A-Z]|\b)|"
    r"Optimizer\.|DistributedDataParallel|\[param\||## |op:"
)
"""How ranges begin that libraries open around their own calls, often hundreds in an inference."""


@dataclass(frozen=True)
class Candidate:
    """A range that may be an iteration: how often it is there, and of the GPU's time how much was launched in it."""

    name: str
    count: int
    mean_ns: float
    share: float


@dataclass(frozen=True)
class Choice:
    """How the iterations were found, in a sentence, and what else they could have been. `by`: none where there are
    none, so that the capture counts as a whole; `mean_ns`: how long one takes; `spread`: how far they
    differ, in words."""

    by: str | None
    reason: str
    count: int = 0
    mean_ns: float | None = None
    candidates: tuple[Candidate, ...] = ()
    periods: tuple[period.Period, ...] = ()
    spread: str = ""
    apart: float = 1.0
    """How many times as long as the shortest the longest is (words.times_apart)."""


def choose(timeline: Timeline, asked: str | None = None) -> tuple[Timeline, Choice]:
    """The timeline of the case with its iterations, and how they were chosen. Raises UserError for a range that is
    asked for and is not there."""
    if has_no_calls(timeline):
        if asked is not None:
            raise UserError(f"--iteration {asked}: {UNTIED}; capture again with --trace=cuda,nvtx")
        return iterations.without(timeline), Choice(None, UNTIED)
    if asked is None or numbered.NUMBER in asked:
        timeline = numbered.as_one(timeline)
    candidates = candidates_of(timeline)
    if asked is not None:
        return _by_range(timeline, asked, "asked for with --iteration", candidates)
    for name in (ITERATION, STEP):
        if any(candidate.name == name for candidate in candidates):
            return _by_range(timeline, name, "named so", candidates)
    if len(timeline.ops):
        timeline = iterations.without(timeline)  # those that the GPU did nothing for
    phases = period.phases(timeline)
    chosen = period.chosen(phases)
    named = best(candidates, max((phase.share for phase in chosen), default=0.0))
    while named is not None and iterations.unfit(timeline, named.name):
        candidates = tuple(candidate for candidate in candidates if candidate != named)
        named = best(candidates, max((phase.share for phase in chosen), default=0.0))
    if named is not None:
        return _by_range(timeline, named.name, _why(named), candidates)
    if not chosen:
        return timeline, Choice(None, _no_period(phases), candidates=candidates, periods=tuple(phases))
    made = iterations.of_case(period.with_iterations(timeline, chosen, ITERATION))
    count, mean, differ, apart = _size(made)
    return made, Choice("period", _told(chosen[0]), count, mean, candidates, tuple(phases), differ, apart)


def candidates_of(timeline: Timeline) -> tuple[Candidate, ...]:
    """The names of ranges around launches, those around most of the GPU's time of their processes first; no library's
    own, and none inside of a runtime's, as those of layers are."""
    parts = [path.split(PATH_SEPARATOR) for path in timeline.paths]
    work = _work_by_path(timeline)
    totals = _totals_by_path(timeline)
    sums: dict[str, list[float]] = {}
    for code, path in enumerate(parts):
        for name in set(path):
            own = name == path[-1] and path.count(name) == 1 and not any(map(RUNTIME.match, path[:-1]))
            count, length, total = totals.get(code, (0, 0.0, 0.0)) if own else (0, 0.0, 0.0)
            entry = sums.setdefault(name, [0, 0.0, 0.0, 0.0])
            entry[:] = [entry[0] + count, entry[1] + length, entry[2] + work[code], max(entry[3], total)]
    candidates = [
        Candidate(name, int(count), length / count, min(1.0, inside / total))
        for name, (count, length, inside, total) in sums.items()
        if count and inside and total and name and not LIBRARY.match(name)
    ]
    return tuple(sorted(candidates, key=lambda candidate: (-candidate.share, candidate.count, candidate.name)))


def _work_by_path(timeline: Timeline) -> np.ndarray:
    """The GPU's time by the path that it was asked for in."""
    length = (timeline.ops["end"] - timeline.ops["start"]).to_numpy()
    return np.bincount(timeline.wanted_path, weights=length, minlength=len(timeline.paths))


def _totals_by_path(timeline: Timeline) -> dict[int, tuple[int, float, float]]:
    """Path of ranges → how many they are, how long together, and the GPU's time of the processes that open them."""
    ops, ranges = timeline.ops, timeline.ranges
    length = (ops["end"] - ops["start"]).where(ops["call"] != NO_CALL, 0)
    owner = ops["process"] if "process" in ops else pd.Series(0, index=ops.index)
    of_process = length.groupby(owner.to_numpy()).sum()
    process = process_of(ranges["thread"].to_numpy()) if "process" in ops else np.zeros(len(ranges), np.int64)
    took = pd.DataFrame({"path": ranges["path"], "process": process, "ns": ranges["end"] - ranges["start"]})
    summed = took.groupby(["path", "process"])["ns"].agg(["size", "sum"]).reset_index()
    summed["total"] = summed["process"].map(of_process).fillna(0.0)
    by_path = summed.groupby("path")[["size", "sum", "total"]].sum()
    rows = zip(by_path.index.tolist(), *(by_path[name].tolist() for name in by_path), strict=True)
    return {path: (count, float(ns), float(total)) for path, count, ns, total in rows}


def best(candidates: Sequence[Candidate], of_period: float) -> Candidate | None:
    """The range to go by: one that repeats around as much as the period does, else the only one around most.

    A runtime's own range is around one engine, of which an inference may have several: a period goes before it.
    """
    most = max([of_period, *(candidate.share for candidate in candidates)], default=0.0)
    enough = [range_ for range_ in candidates if range_.share >= max(LEAST_COVERED, SIMILAR * most)]
    if of_period:
        enough = [range_ for range_ in enough if not RUNTIME.match(range_.name)]
    repeated = [range_ for range_ in enough if range_.count > 1]
    alone = [] if of_period else enough
    return next(iter(repeated or alone), None)


def _why(chosen: Candidate) -> str:
    repeated = "of the ranges that repeat it" if chosen.count > 1 else "which is there once and"
    return f"{repeated} is around most of the GPU's time ({100 * chosen.share:.0f} %)"


def _by_range(timeline: Timeline, name: str, why: str, candidates: tuple[Candidate, ...]) -> tuple[Timeline, Choice]:
    made = iterations.of_case(timeline, name)
    count, mean, differ, apart = _size(made)
    return made, Choice(name, f"the range {name}, {why}", count, mean, candidates, spread=differ, apart=apart)


def _size(timeline: Timeline) -> tuple[int, float | None, str, float]:
    """How many iterations there are, how long one takes, and how far they differ in words and in times."""
    own = timeline.ranges[iterations.is_iteration(timeline)]
    took = (own["end"] - own["start"]).tolist()
    return len(own), statistics.fmean(took) if took else None, spread(took), times_apart(took)


def _told(chosen: period.Period) -> str:
    """How sure a period is, and why."""
    graph = f" with {counted(chosen.replays, 'replay')} of a CUDA graph" if chosen.replays else ""
    waits = "the host waits before each" if chosen.waits >= period.OFTEN else "nobody waits between them"
    after = f" after {chosen.startup:,} of start-up" if chosen.startup else ""
    warm = f", {chosen.warmup} slower at the head left out" if chosen.warmup else ""
    return (
        f"by what is launched, since no range is around them: {counted(chosen.steps, 'call')}{graph} "
        f"{'repeat' if chosen.steps > 1 else 'repeats'}{after}{warm}; "
        f"confidence {chosen.confidence} ({waits}, {100 * chosen.share:.0f} % of the process's GPU time)"
    )


def _no_period(phases: Sequence[period.Period]) -> str:
    """Why nothing counts as an iteration."""
    repeated = [phase for phase in phases if phase.share >= period.LEAST_SHARE]
    if not repeated:
        return "no range of the program is around its work, and no sequence of launches repeats"
    most = max(repeated, key=lambda phase: phase.share)
    why = (
        f"but takes very different times ({ms(most.took.min())} to {ms(most.took.max())})"
        if most.waits >= period.OFTEN
        else "without a wait between, and may be layers of one inference"
    )
    again = f"a sequence of {counted(most.steps, 'call')} repeats {most.count} times"
    return f"no range of the program is around its work; {again}, {why}"
