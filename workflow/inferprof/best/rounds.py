"""The rounds of cases that a search reads: what they say, what they took, and which are still to come."""

from __future__ import annotations

import datetime
import itertools
import re
import statistics
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from inferprof import documents
from inferprof.best.space import Spot
from inferprof.case import LAST_DUELS, OF_DUELS, REFERENCE, Case
from inferprof.documents import Record
from inferprof.files import unless_damaged
from inferprof.plugins import Boundary
from inferprof.study import Study
from inferprof.words import counted

PAIRS: Final = 100_000
"""Duels have numbers below it, so that two pairs of cases seldom share one."""


SLOW: Final = 1.25
"""How many times as long as at best in the search the host's own work takes where something else slows it down."""
CONFIRM: Final = "confirm"
"""The purpose of the last duel."""


class Waits(Exception):
    """Files that the search cannot go on without."""

    def __init__(self, files: list[str]) -> None:
        super().__init__(f"waits for {counted(len(files), 'file')}")
        self.files = files


UNDER_WAY: Final = re.compile(r"inferprof: .*\(\d+ of \d+\), \d+ s.*|inferprof: .* since it was told to")
"""The last line of the log of a job that was interrupted: it is worth another try."""


def given_up(file: str) -> bool:
    """Whether the job of a file broke, so that a search goes on without it: its log says so."""
    path = Path(file)
    log = Path(path.parts[0], "log", *path.parts[1:]).with_suffix(".log")
    if path.exists() or not log.exists():
        return False
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    last = next((line for line in reversed(lines) if line.strip()), None)
    return last is not None and not UNDER_WAY.fullmatch(last.strip())


def accuracy_file(results: Path, case: Case) -> Path:
    """What says how accurate a case's number format is."""
    return results / "onnx" / case.model / f"{case.precision}.accuracy.json"


def cost_file(results: Path, case: Case) -> Path:
    """What lists the nodes of a case's graph."""
    return results / "onnx" / case.model / f"{case.precision}.{case.shape}.cost.json"


def of_format(study: Study, results: Path, spot: Spot) -> list[str]:
    """What tells whether a case's format is accurate enough, and what its outputs must be; what is there is not."""
    if spot.case.precision == REFERENCE or not study.models[spot.case.model].exported:
        return []
    accuracy = accuracy_file(results, spot.case)
    outputs = accuracy.with_name(f"{spot.case.precision}.{spot.case.shape}.expected.npz")
    return _not_there([str(accuracy), str(outputs)])


def watched(study: Study, results: Path, spot: Spot) -> list[str]:
    """The tables of the profilers that watch a case and the cost of its graph, where they are not there yet."""
    folder = f"{results}/{study.machine.slug}/table"
    tables = [f"{folder}/{name}/{spot.case}.parquet" for name in study.watching(spot.case)]
    exported = study.models[spot.case.model].exported
    return _not_there([*tables, *([str(cost_file(results, spot.case))] if exported else [])])


def _not_there(files: Sequence[str]) -> list[str]:
    """Those whose jobs did not break either."""
    return [file for file in files if not Path(file).exists() and not given_up(file)]


def first_round(incumbent: Spot, candidate: Spot, purpose: str = "duel") -> int:
    """The round before the first of a duel: each pair has rounds of its own, which took turns."""
    pair = zlib.crc32(f"{purpose} {incumbent.name} {candidate.name}".encode()) % PAIRS
    return OF_DUELS * (1 + pair) + (LAST_DUELS if purpose == CONFIRM else 0)


@dataclass
class Rounds:
    """The records of a machine by one boundary, each read once; `seconds` are those of the records looked at."""

    results: Path
    machine: str
    boundary: Boundary
    limit_s: float
    per_item: bool = False
    """Whether a median is that of a call over the items of its batch."""
    seconds: dict[str, float] = field(default_factory=dict)
    _records: dict[str, Record] = field(default_factory=dict)

    def file(self, spot: Spot, number: int) -> str:
        """The record of a round."""
        return f"{self.results}/{self.machine}/benchmark/{spot.case}/r{number}.json"

    def missing(self, spot: Spot, *numbers: int) -> list[str]:
        """The records that are not there, and whose jobs did not break."""
        return _not_there([self.file(spot, number) for number in numbers])

    def to_come(self, sides: Sequence[Spot], base: int, look: int) -> list[str]:
        """The records of the first rounds behind `base` that are not there, the cases of a round side by side."""
        pairs = itertools.product(range(base + 1, base + look + 1), sides)
        return [file for number, side in pairs for file in self.missing(side, number)]

    def record(self, spot: Spot, number: int) -> Record | None:
        """A round; None where it is not there, or can't be read."""
        file = self.file(spot, number)
        if file not in self._records and (path := Path(file)).exists():
            record: Record | None = unless_damaged(documents.read, path, "record", self.results)
            if record is None:
                return None
            started = datetime.datetime.fromisoformat(record.started).timestamp()
            self.seconds[file] = min(max(0.0, path.stat().st_mtime - started), self.limit_s)
            self._records[file] = record
        return self._records.get(file)

    def failure(self, spot: Spot, *numbers: int) -> str | None:
        """Why a case has no median in one of these rounds; None where it has all."""
        for number in numbers:
            record = self.record(spot, number)
            if record is None:
                damaged = Path(self.file(spot, number)).exists()
                return "its record can't be read" if damaged else "its job broke: the log says how"
            if record.failure:
                return record.failure
            if not self.samples(spot, number):
                return f"{self.boundary} was not measured"
        return None

    def samples(self, spot: Spot, number: int) -> list[float]:
        """The samples of a round, ns; none where it failed."""
        record = self.record(spot, number)
        boundary = getattr(record.boundaries, self.boundary) if record and record.boundaries else None
        return list(boundary.samples_ns or ()) if boundary else []

    def undisturbed(self, spot: Spot, *numbers: int) -> list[int]:
        """Those of the rounds whose core nothing else slowed down: a busy hyper-thread beside it makes launches half
        as slow again, and a case whose GPU waits for them."""
        own = {number: _yardstick(self.record(spot, number)) for number in numbers}
        least = min((host for host in map(_yardstick, self._records.values()) if host), default=0.0)
        return [number for number, host in own.items() if not host or host <= SLOW * least]

    def of_search(self, spot: Spot) -> list[int]:
        """The rounds of a case that were looked at and that the search itself asked for."""
        folder = Path(self.file(spot, 0)).parent
        numbers = [int(path.stem[1:]) for path in map(Path, self._records) if path.parent == folder]
        return sorted(number for number in numbers if number >= OF_DUELS and self.samples(spot, number))

    def of_study(self, spot: Spot) -> list[int]:
        """The rounds of a case that a study measured, which are those of its report."""
        files = Path(self.file(spot, 0)).parent.glob("r*.json")
        numbers = sorted(int(path.stem[1:]) for path in files if path.stem[1:].isdecimal())
        return [number for number in numbers if number < OF_DUELS and self.samples(spot, number)]

    def medians(self, spot: Spot, *numbers: int) -> list[float]:
        """The median of each of these rounds, ns."""
        items = spot.batch if self.per_item else 1
        return [statistics.median(self.samples(spot, number)) / items for number in numbers]

    def median(self, spot: Spot, *numbers: int) -> float:
        """The median of all samples of these rounds, ns, as reports have it."""
        samples = [sample for number in numbers for sample in self.samples(spot, number)]
        return statistics.median(samples) / (spot.batch if self.per_item else 1)

    def latency_ns(self, spot: Spot, *numbers: int) -> float:
        """What a call takes by these rounds."""
        return statistics.median(statistics.median(self.samples(spot, number)) for number in numbers)

    @property
    def spent_s(self) -> float:
        """What all records took that were looked at."""
        return sum(self.seconds.values())

    def fits(self, files: Sequence[str], budget_s: float) -> bool:
        """Whether these records may be made, too, within so many seconds for all."""
        return self.spent_s + sum(map(self.will_take_s, files)) <= budget_s

    @property
    def knows_duels(self) -> bool:
        """Whether a record for one boundary was looked at."""
        return any(map(_of_duel, self.seconds))

    def will_take_s(self, file: str) -> float:
        """What a record will take: as those of its case that measured as much, else as most of such, else as most."""
        alike = {other: seconds for other, seconds in self.seconds.items() if _of_duel(other) == _of_duel(file)}
        folder = file.rpartition("/")[0] + "/"
        own = [seconds for other, seconds in alike.items() if other.startswith(folder)]
        return statistics.fmean(own) if own else statistics.median((alike or self.seconds).values())


def _yardstick(record: Record | None) -> float | None:
    """How long the host took for work of its own beside a round; None where nobody timed it."""
    return statistics.median(record.host.yardstick_ns) if record and record.host else None


def _of_duel(file: str) -> bool:
    """Whether a record is for one boundary."""
    return int(Path(file).stem[1:]) >= OF_DUELS
