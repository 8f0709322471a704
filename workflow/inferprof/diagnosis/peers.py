"""The measured cases of the model, as rows of Frames.peers, and the boundary by which two of them are compared."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from inferprof.case import Case
from inferprof.plugins import Boundary
from inferprof.tables.records import CASE_KEY, rows_of

Peer = Mapping[str, Any]
"""A row of tables.join.measured."""


def peer_of(peers: pd.DataFrame, case: Case) -> Peer | None:
    """The row of a case; None where it was not measured."""
    return next((row for row in rows_of(peers) if tuple(row[name] for name in CASE_KEY) == case.path.parts), None)


def compared_by(own: Peer, other: Peer) -> Boundary:
    """`device` where both were measured there, else `end_to_end`."""
    return "end_to_end" if any(math.isnan(row["device_ms"]) for row in (own, other)) else "device"
