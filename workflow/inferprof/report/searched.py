"""What a search for a model's best case confirmed, for the answer and for the section about it."""

from __future__ import annotations

from inferprof.documents import Trail
from inferprof.documents.trail import last_duel
from inferprof.report.evidence import Evidence
from inferprof.report.numbers import milliseconds


def confirmed(evidence: Evidence, model: str, shape: str) -> Trail | None:
    """The search for a model at a shape whose best case new rounds confirmed, by the boundary of the answer."""
    trails = (search.content for search in evidence.searches if search.content)
    wanted = (model, shape, evidence.boundary, "call")
    return next((t for t in trails if (t.model, t.shape, t.boundary, t.per) == wanted and is_confirmed(t)), None)


def is_confirmed(trail: Trail) -> bool:
    """Whether its best case is another than the baseline and faster in new rounds."""
    last = last_duel(trail.steps)
    return (
        trail.ended is not None and trail.best != trail.baseline and last is not None and last.decision == "confirmed"
    )


def described(trail: Trail, takes: str = ", ") -> str:
    """`fp16/ort_cpu/graph, 12.3 ms (one more process: 12 to 12.6), 21.0% less than fp32/ort_cpu/default (…)`."""
    said, last = str(trail.best), last_duel(trail.steps)
    if trail.median_ns is not None:
        said += f"{takes}{milliseconds(trail.median_ns)} ms"
        if trail.low_ns and trail.high_ns:
            said += f" (one more process: {milliseconds(trail.low_ns)} to {milliseconds(trail.high_ns)})"
    if trail.best != trail.baseline and last and None not in (gains := (last.gain, last.low, last.high)):
        gain, low, high = (f"{share:.1%}" for share in gains)
        said += f", {gain} less than {trail.baseline} ({low} to {high}: {last.decision})"
    elif trail.best == trail.baseline:
        said += ", the baseline: nothing that was tried is faster for sure"
    return said
