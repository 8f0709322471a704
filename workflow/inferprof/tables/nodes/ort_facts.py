"""What a session of ours says of itself in front of its profile: when its clock began, who got which node, and why.

ONNX Runtime's events hold neither. Needs nothing but the standard library, since the run itself writes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

EVENT: Final = "inferprof.session"
"""Name of the event, of no length, that carries the facts; to any other reader it is one of the session's."""


@dataclass(frozen=True)
class Assigned:
    """A node of the graph before fusion, and who took it: nodes of one `subgraph` went together."""

    name: str
    op_type: str
    provider: str
    subgraph: int


@dataclass(frozen=True)
class SessionFacts:
    """What the session itself said. Each part is empty where this ONNX Runtime does not tell it.

    start_ns: when its clock began, on the host's (CLOCK_REALTIME, as time.time_ns).
    reasons: node → why ONNX Runtime did not give it to a provider, in its own words.
    options: provider → those of its options that decide what it takes.
    """

    start_ns: int
    assigned: tuple[Assigned, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def event(facts: SessionFacts, process: int) -> dict[str, Any]:
    """The event that carries the facts."""
    times = {"dur": 0, "ts": 0, "ph": "X"}
    return {"cat": "Session", "pid": process, "tid": process, **times, "name": EVENT, "args": asdict(facts)}


def found(events: Iterable[Mapping[str, Any]]) -> SessionFacts | None:
    """The facts in a profile's events; None in a profile of a session that is not ours."""
    args = next((entry["args"] for entry in events if entry["name"] == EVENT), None)
    if args is None:
        return None
    assigned = tuple(Assigned(**node) for node in args["assigned"])
    return SessionFacts(args["start_ns"], assigned, args["reasons"], args["options"])
