"""The launches that counters watched, a row for each, out of the tidy table."""

from __future__ import annotations

import pandas as pd

from inferprof.tables.schema import wide


def by_launch(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per launch of one case's table: `launch`, `name`, a column per metric (NaN or None: not counted)."""
    kernels = frame[(frame["level"] == "kernel") & frame["launch"].notna()]
    return wide(kernels, ["launch", "name"])
