"""What a study does beyond one round of each case: selection.csv, written when the first round is done.

A further round is worth its time where it can change a verdict, a capture where somebody acts on it: of the fastest
case and of the baseline. `report.select` decides; here the file is written and read.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from inferprof.case import Case
from inferprof.errors import UserError
from inferprof.files import write_text

NAME: Final = "selection.csv"
COLUMNS: Final = ("case", "repeat", "capture", "why")
YES: Final = "yes"


@dataclass(frozen=True)
class Choice:
    """A case of which more than one round is wanted."""

    case: Case
    repeat: bool
    """Whether it has the further rounds."""
    capture: bool
    """Whether the profilers watch it."""
    why: str


@dataclass(frozen=True)
class Selection:
    """The cases with further rounds, and those that are captured."""

    repeated: frozenset[Case]
    captured: frozenset[Case]


def write(path: Path, choices: Iterable[Choice]) -> None:
    """Write selection.csv."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for choice in choices:
        writer.writerow([choice.case, YES * choice.repeat, YES * choice.capture, choice.why])
    write_text(path, text.getvalue())


def read(path: Path) -> Selection:
    """Read selection.csv. Raises UserError where it is not what `write` wrote, or is cut short."""
    text = path.read_text(encoding="utf-8", errors="replace")
    header, *cells = csv.reader(io.StringIO(text)) if text.endswith("\n") else [[]]
    rows = [dict(zip(COLUMNS, row, strict=False)) for row in cells]
    if tuple(header) != COLUMNS or any(len(row) != len(COLUMNS) or row["case"].count("/") != 4 for row in rows):
        raise UserError(f"{path} is not what inferprof wrote: remove it, and it is made anew")
    chosen = {what: frozenset(Case.from_path(row["case"]) for row in rows if row[what]) for what in COLUMNS[1:3]}
    return Selection(chosen["repeat"], chosen["capture"])
