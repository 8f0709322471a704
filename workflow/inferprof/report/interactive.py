"""What a reader of the page turns over: an iteration event by event, the kernels of any two cases, and a search.

The page's script draws them from `Report.data`; each iteration is a trace file for Perfetto, too.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pandas as pd

from inferprof import escape, registry, spread
from inferprof.files import write_text
from inferprof.report import answers
from inferprof.report.common import path_of
from inferprof.report.evidence import Evidence
from inferprof.report.model import Widget
from inferprof.report.profiled import Profile, chosen, costs, profiles
from inferprof.tables import schema
from inferprof.tables.records import CASE_KEY, key_of, rows_of
from inferprof.tables.trace import one_iteration, tracks
from inferprof.tables.trace.kernel_class import classify
from inferprof.tables.trace.tracks import Track

TRACES: Final = "traces"
MOST_BYTES: Final = 600_000
"""Of the timelines on a page: those of further cases are trace files alone."""
TRACES_OF_A_PROCESS: Final = 32
"""A process beside this one is worth its start from so many on."""
EVENT: Final = 5
"""Numbers of an event of a track: see _track."""
NOBODY: Final = -1
"""In place of the number of a node."""
TIMELINE: Final = (
    "The iteration of median length of each capture. A profiler lengthens the host's part: the order of things is "
    "right, the lengths of the gaps are not."
)
COMPARE: Final = "Kernels per iteration as the profiler saw them, the largest change first."


@dataclass
class _Numbers:
    """Texts by number, each once."""

    texts: dict[str, int] = field(default_factory=dict)

    def of(self, text: object) -> int:
        return self.texts.setdefault(escape.text(text), len(self.texts)) if isinstance(text, str) else NOBODY

    def of_all(self, texts: np.ndarray[Any, np.dtype[np.object_]]) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The number of each of them, new ones in the order in which they come."""
        places, different = pd.factorize(texts)
        # What is missing has the place -1: the last.
        return np.array([*map(self.of, different), NOBODY], np.int64)[places]


@dataclass
class _Names:
    """What the page calls kernels, calls and ranges, and nodes."""

    names: _Numbers = field(default_factory=_Numbers)
    nodes: _Numbers = field(default_factory=_Numbers)


def worth(evidence: Evidence) -> int:
    """How many processes beside this one the timelines are worth."""
    return len(_watched(evidence)) // TRACES_OF_A_PROCESS


def begin(
    evidence: Evidence, folder: Path, processes: spread.Processes = spread.HERE
) -> Callable[[], tuple[list[Widget], str]]:
    """Begin to write the trace of each iteration into `folder`/traces. The answer waits for them: what stands on the
    page, and its data as JSON."""
    shutil.rmtree(folder / TRACES, ignore_errors=True)
    (folder / TRACES).mkdir(parents=True)
    watched = _watched(evidence)
    files = [f"{TRACES}/{profile.tool}/{path_of(profile.case)}.json" for profile in watched]
    wanted = [
        (_table(evidence, profile), path_of(profile.case), profile.tool, folder / file)
        for profile, file in zip(watched, files, strict=True)
    ]
    drawn = processes.begin(_draw, wanted)

    def page() -> tuple[list[Widget], str]:
        names = _Names()
        timelines = list(_timelines(evidence, zip(watched, files, drawn(), strict=True), names))
        kernels = [_kernels(profile, names) for profile in chosen(evidence, "kernel")]
        classes = [str(classify(name).kernel_class) for name in names.names.texts]
        data = {
            "cases": [[path_of(row), row["outcome"]] for row in rows_of(evidence.outcomes)],
            "names": list(names.names.texts),
            "classes": classes,
            "nodes": list(names.nodes.texts),
            "timelines": timelines,
            "first": _first(evidence, timelines),
            "kernels": kernels,
        }
        return list(_widgets(timelines, kernels)), json.dumps(data, separators=(",", ":"), allow_nan=False)

    return page


def _watched(evidence: Evidence) -> list[Profile]:
    return profiles(evidence, tuple(registry.profilers()))


def _widgets(timelines: list[dict[str, Any]], kernels: list[dict[str, Any]]) -> Iterator[Widget]:
    if timelines:
        files = tuple((f"{line['case']} ({line['tool']})", line["trace"]) for line in timelines)
        yield Widget("iteration", "One iteration, event by event", TIMELINE, "Timeline", 150, files)
    if len(kernels) > 1:
        yield Widget("compare", "Kernels of any two cases", COMPARE, "Kernels of two cases", 190)


def _first(evidence: Evidence, timelines: list[dict[str, Any]]) -> int:
    """The timeline that is shown first: that of a recommended case, else one of its model and shape, else any."""
    best = [answer.best.row for answer in answers.of(evidence) if answer.best]
    cases = [line["case"].split("/") for line in timelines]
    for parts in (slice(None), slice(None, None, len(CASE_KEY) - 1)):
        wanted = [path_of(row).split("/")[parts] for row in best]
        if fitting := [place for place, case in enumerate(cases) if case[parts] in wanted]:
            return fitting[0]
    return 0


# --- timelines -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Drawn:
    """The tracks of an iteration with names and nodes by their numbers in these lists."""

    tracks: list[dict[str, Any]]
    names: list[str]
    nodes: list[str]


def _draw(table: Path, case: str, tool: str, trace: Path) -> _Drawn | None:
    """Write the trace of the iteration in a table; None where it holds none."""
    every = tracks.of_events(one_iteration.of_case(schema.read_earlier(table, events=True)))
    if not every:
        return None
    content = tracks.chrome_trace(every, f"{case}, one iteration under {tool}")
    write_text(trace, msgspec.json.encode(content).decode() + "\n")
    names = _Names()
    drawn = [_track(track, names) for track in every]
    return _Drawn(drawn, list(names.names.texts), list(names.nodes.texts))


def _timelines(
    evidence: Evidence, every: Iterable[tuple[Profile, str, _Drawn | Exception | None]], names: _Names
) -> Iterator[dict[str, Any]]:
    """One of each capture that holds an iteration; each was read by itself: all of a study would fill the memory."""
    left = MOST_BYTES
    for profile, file, drawn in every:
        if isinstance(drawn, Exception):
            raise drawn
        if drawn is None:
            continue
        numbered = _numbered(drawn, names)
        fits = (size := len(json.dumps(numbered))) <= left
        left -= size if fits else 0
        case = {"case": path_of(profile.case), "tool": profile.tool, "trace": file}
        yield {**case, "slow_down": _slow_down(evidence, profile), "tracks": numbered if fits else None}


def _table(evidence: Evidence, profile: Profile) -> Path:
    folder = evidence.results / profile.case["machine"] / "table" / profile.tool
    return Path(folder, f"{path_of(profile.case)}.parquet")


def _numbered(drawn: _Drawn, names: _Names) -> list[dict[str, Any]]:
    """The tracks with the numbers that their names and nodes have on the page."""
    # NOBODY finds the last.
    name_of = np.array([*(names.names.of(text) for text in drawn.names), NOBODY])
    node_of = np.array([*(names.nodes.of(text) for text in drawn.nodes), NOBODY])
    for track in drawn.tracks:
        events = track["events"]
        events[::EVENT] = name_of[events[::EVENT]]
        events[1::EVENT] = node_of[events[1::EVENT]]
        track["events"] = events.tolist()
    return drawn.tracks


def _slow_down(evidence: Evidence, profile: Profile) -> float | None:
    row = costs(evidence).get((*key_of(profile.case), profile.tool))
    return row["slow_down"] if row else None


def _track(track: Track, names: _Names) -> dict[str, Any]:
    """A track with its events as one row of numbers: name, node, ns since the event before began, ns, row."""
    own, thread = track.events, track.thread
    deepest = np.zeros(track.threads, np.int64)
    np.maximum.at(deepest, thread, track.depth + 1)
    place = (np.cumsum(deepest) - deepest)[thread] + track.depth
    since, length = np.diff(own.start.astype(np.int64), prepend=0), (own.end - own.start).astype(np.int64)
    events = (names.names.of_all(own.name), names.nodes.of_all(own.node), since, length, place)
    return {
        "process": track.process,
        "label": track.label,
        "kind": track.kind,
        "rows": int(deepest.sum()),
        "events": np.stack(events, axis=1).ravel(),  # an array: many of them wait for the others
    }


# --- kernels ---------------------------------------------------------------------------------------------------


def _kernels(profile: Profile, names: _Names) -> dict[str, Any]:
    """The kernels of a case, per iteration: name, launches, ns."""
    rows = [[names.names.of(row["name"]), row["launches"], row["duration"]] for row in rows_of(profile.kernels)]
    return {"case": path_of(profile.case), "tool": profile.tool, "rows": rows}
