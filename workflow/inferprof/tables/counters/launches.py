"""The launches that counters watched, a row for each, out of the tidy table."""

from __future__ import annotations

import pandas as pd


def by_launch(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per launch of one case's table: `launch`, `name`, a column per metric (NaN or None: not counted)."""
    kernels = frame[(frame["level"] == "kernel") & frame["launch"].notna()]
    content = kernels["value"].astype(object).where(kernels["value"].notna(), kernels["text"])
    wide = kernels.assign(content=content).pivot(index=["launch", "name"], columns="metric", values="content")
    return wide.rename_axis(columns=None).reset_index()
