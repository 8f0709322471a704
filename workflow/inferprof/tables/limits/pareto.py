"""Accuracy against speed: which cases none beats in both, and which are not distinguishable from one of these."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import pandas as pd

from inferprof.tables import summary
from inferprof.tables.records import KEY, Key, frame_of, key_of, rows_of

FRONT, UNDECIDED, BEHIND = "front", "undecided", "behind"
BOUNDARY: Final = "end_to_end"


def of_cases(points: pd.DataFrame, boundaries: pd.DataFrame, doubts: summary.Doubts) -> pd.DataFrame:
    """A row per case: KEY, its `standing`, and the `against` (`precision/backend/variant`) that decides it.

    points: KEY, `end_to_end_ms`, and `db`, the SQNR of its graph, infinite where it equals fp32. On the front is what
    no case of its model and shape beats in both; a case is behind one that is as accurate and faster beyond doubt. In
    between it is undecided: either of two may be the faster one, by the rule of all speed-ups.
    """
    rows: list[dict[str, Any]] = []
    samples = dict(iter(boundaries[boundaries["boundary"] == BOUNDARY].groupby(summary.PEERS, sort=False)))
    for peers, group in points.groupby(summary.PEERS, sort=False):
        rows += _of_group(rows_of(group), samples[peers], doubts)
    return frame_of(rows, [*KEY, "standing", "against"])


def _of_group(cases: list[dict[str, Any]], samples: pd.DataFrame, doubts: summary.Doubts) -> list[dict[str, Any]]:
    ordered = sorted(cases, key=lambda row: (row["end_to_end_ms"], -row["db"]))
    best, front = -math.inf, []
    for row in ordered:
        if row["db"] > best:
            best = row["db"]
            front.append(row)
    slower = {key_of(row): _slower(samples, _name(row), doubts) for row in front}
    rows = []
    for row in cases:
        standing, against = _standing(row, front, slower)
        rows.append({**{name: row[name] for name in KEY}, "standing": standing, "against": against})
    return rows


def _standing(
    row: dict[str, Any], front: list[dict[str, Any]], slower: Mapping[Key, set[Key]]
) -> tuple[str, str | None]:
    """slower: case on the front → the cases that take longer than it beyond doubt."""
    if any(row is member for member in front):
        rivals = [
            member for member in front if member["db"] > row["db"] and key_of(member) not in slower[key_of(row)]
        ]
        return (UNDECIDED, _name(rivals[0])) if rivals else (FRONT, None)
    ahead = [m for m in front if m["end_to_end_ms"] <= row["end_to_end_ms"] and m["db"] >= row["db"]]
    beaten = next((member for member in ahead if key_of(row) in slower[key_of(member)]), None)
    return (BEHIND, _name(beaten)) if beaten else (UNDECIDED, _name(ahead[-1]))


def _slower(samples: pd.DataFrame, name: str, doubts: summary.Doubts) -> set[Key]:
    """The cases that are slower than that of a name."""
    table = summary.speed_ups(samples, name, doubts, BOUNDARY)
    return {key_of(row) for row in rows_of(table) if row["verdict"] == "slower"}


def _name(row: Mapping[str, Any]) -> str:
    return "/".join(str(row[key]) for key in ("precision", "backend", "variant"))
