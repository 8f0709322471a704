"""What a kind of foreign file is: how its content is recognised, and what of it is told.

A kind is a module-level constant `Kind` in a module of `readers/kinds/`; `capture_file` finds it there.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from inferprof.findings import Answer, Total
from inferprof.words import counted

if TYPE_CHECKING:
    import pandas as pd

    from inferprof.tables.trace.timeline import Timeline

WHOLE: Final = ""
"""In place of the name of a range: the capture as a whole."""
HEAD_BYTES: Final = 1 << 16
"""Text tables stand behind what the program printed."""


@dataclass(frozen=True)
class Head:
    """The beginning of a file, unpacked where it is a gzip."""

    path: Path
    raw: bytes

    @functools.cached_property
    def text(self) -> str:
        """The same as text, without blanks and a byte-order mark in front."""
        return self.raw.decode("utf-8", errors="replace").lstrip("\ufeff \r\n\t")


def says(*patterns: re.Pattern[str]) -> Callable[[Head], bool]:
    """Whether one of these stands in a head's text, wherever: a kind's `recognises`."""
    return lambda head: any(pattern.search(head.text) for pattern in patterns)


@dataclass(frozen=True)
class Lack:
    """What cannot be told from a file, and the one command that would tell."""

    what: str
    command: str
    told_by: str = ""
    """What beside it tells all the same: `timeline`, or `counters` of kernels."""


def waits(timeline: Timeline, command: str) -> list[Lack]:
    """What the timeline does not tell of waits: how long operations took, why the GPU was idle, or of which iteration
    operations are."""
    from inferprof.tables.trace.api_kind import launched_by_none, untied

    endless = f"how long {counted(timeline.endless, 'operation')} took: their end was lost, and they count as idle"
    cut = [Lack(endless, command)] if timeline.endless else []
    if reason := untied(timeline):
        return [*cut, Lack(f"why the GPU was idle: {reason}", command)]
    lost = launched_by_none(timeline)
    return [*cut, Lack(f"of which iteration {lost} are", command)] if lost else cut


@dataclass(frozen=True, eq=False)
class Capture:
    """What a foreign file holds.

    ran: what was run on what, in pieces. rows: its tidy table; `timeline` instead where iterations are still to be
    found in it. total, parts: what the file itself says of an inference and where its time
    goes, ns, for files that have no timeline. answers: what follows from them. notes: what else it says, in lines.
    """

    tool: str
    ran: Sequence[str]
    rows: pd.DataFrame | None = None
    timeline: Timeline | None = None
    within: Callable[[], Timeline] | None = None
    """The timeline with the runtime's own operators and modules as ranges, which few answers need."""
    of_range: Callable[[str], Capture] | None = None
    """Of a file with ranges and no timeline: the same of those of a name, or WHOLE; raises UserError where there are
    none."""
    steps: Sequence[str] = ()
    """What of such a file counts as an iteration, and why, in lines."""
    total: Total | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    calls: Mapping[str, float] = field(default_factory=dict)
    """Of the parts that are sums over a whole capture: how many calls of each, by name."""
    answers: Sequence[Answer] = ()
    notes: Sequence[str] = ()
    lacks: Sequence[Lack] = ()
    runtime: str | None = None
    """What ran the model, as a backend's name begins; None where a file of this kind may be of any."""
    compute_major: int | None = None
    """The major number of the compute capability, the least of the GPUs in use; None where the file does not tell."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """On what terms it ran, by name: versions, GPU, clocks, switches. `shapes`: of the inputs."""
    model: str | None = None
    """The name of the model's file, where it is told."""
    failure: str | None = None
    """Why there is nothing to tell: the run that the file is of did not come to its end."""


@dataclass(frozen=True)
class Kind:
    """A kind of file. `refusal`: why it cannot be read as it is, and what to do; `read` of such a kind makes it
    readable by its tool, or says why that is not possible here."""

    name: str
    title: str
    recognises: Callable[[Head], bool]
    read: Callable[[Path], Capture] | None = None
    tool: str | None = None
    """The profiler whose captures are files of this kind."""
    refusal: str | None = None
    convert: Callable[[Path, Path], Path] | None = None
    """Of a kind with a refusal: makes of it, in a folder, a file that can be read; raises UserError if it can't."""
    join: Callable[[Sequence[Path]], Capture | None] | None = None
    """Several files of this kind as one capture; None where they are of different programs."""
    rank: int = 50
    """Kinds are asked in this order, the smallest first."""
