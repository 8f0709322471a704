"""The cases whose accuracy and time are known, with their standing between the two."""

from __future__ import annotations

import math

import pandas as pd

from inferprof.report import fidelity
from inferprof.report.evidence import Evidence
from inferprof.tables.limits import pareto
from inferprof.tables.records import KEY, rows_of


def of(evidence: Evidence) -> pd.DataFrame:
    """tables.join.measured of these cases with `sqnr_db`, `identical`, `accuracy`, and tables.limits.pareto.

    fp32 is what the others are compared with, and so identical.
    """
    frame = evidence.measured
    fidelities = [fidelity.of_case(evidence, row) for row in rows_of(frame)]
    frame = frame.assign(
        sqnr_db=[math.nan if result.sqnr_db is None else result.sqnr_db for result in fidelities],
        identical=[result.identical or result.outcome == "reference" for result in fidelities],
        accuracy=[result.outcome for result in fidelities],
    )
    frame = frame[(frame["sqnr_db"].notna() | frame["identical"]) & frame[f"{pareto.BOUNDARY}_ms"].notna()]
    points = frame.assign(db=frame["sqnr_db"].where(~frame["identical"].astype(bool), math.inf))
    table = pareto.of_cases(points, evidence.boundaries, evidence.doubts)
    return frame.merge(table, on=KEY, how="left", validate="one_to_one")
