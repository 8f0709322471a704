"""The trail of a search so far: its steps, the latency of the best case, and what nobody did yet."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from inferprof.best import space
from inferprof.best.rounds import CONFIRM, first_round
from inferprof.best.trail import same
from inferprof.documents.diagnosed import PLANNED
from inferprof.documents.trail import Ended, Idea, Trail, last_duel

if TYPE_CHECKING:
    from inferprof.best.search import Search


def trail(search: Search, ended: Ended | None, why: str, asked: list[str] | None = None) -> Trail:
    """The trail so far. ended: None where it waits for the files `asked`."""
    medians = _last_medians(search)
    low, high = _of_one_more(medians)
    ideas = list(_ideas(search)) if ended and ended != "failed" else []
    return Trail(
        model=search.model,
        shape=search.shape,
        boundary=search.rounds.boundary,
        per="item" if search.rounds.per_item else "call",
        baseline=search.baseline.name,
        best=search.best.name,
        options=dict(search.best.variant.options),
        median_ns=statistics.median(medians) if medians else None,
        low_ns=low,
        high_ns=high,
        status="failed" if ended == "failed" else "ok",
        reason=why if ended == "failed" else None,
        ended=ended,
        stopped=why,
        steps=search.steps,
        asked=asked or [],
        spent_s=search.rounds.spent_s,
        next=[idea for idea in ideas if idea.change.by in PLANNED],
        yours=[idea for idea in ideas if idea.change.by not in PLANNED],
    )


def _last_medians(search: Search) -> list[float]:
    """Of the best case: those of the rounds that confirmed it, else of the search's, else of its first."""
    last = last_duel(search.steps)
    if last is not None and last.candidate == search.best.name and last.rounds:
        base = first_round(search.baseline, search.best, CONFIRM)
        return search.rounds.medians(search.best, *range(base + 1, base + last.rounds + 1))
    own = search.rounds.of_search(search.best) or [0]
    return search.rounds.medians(search.best, *own) if search.rounds.samples(search.best, own[0]) else []


def _ideas(search: Search) -> Iterator[Idea]:
    """What the diagnosis of the best case advises and the search did not do."""
    done = {step.candidate for step in search.steps}
    said: list[Idea] = []
    for check, finding in search.advice.get(search.best.name, ()):
        spots = space.neighbours(search.study, search.best, [finding])
        tried = any(s.name in done and space.predicted([finding], search.best, s) for s in spots)
        if finding.change and finding.acts and not tried:
            idea = Idea(check=check, advice=finding.advice, change=finding.change, gain=finding.gain)
            if not any(same(idea, before) for before in said):
                said.append(idea)
                yield idea


def _of_one_more(medians: list[float]) -> tuple[float | None, float | None]:
    """Where the median of one more process lies in 95 of 100: Student's prediction interval of the logarithms."""
    if len(medians) < 2:
        return None, None
    from scipy import stats

    logs = np.log(medians)
    half = float(stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) * math.sqrt(1 + 1 / len(logs)))
    return float(np.exp(logs.mean() - half)), float(np.exp(logs.mean() + half))
