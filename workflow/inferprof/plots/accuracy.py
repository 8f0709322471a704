"""Accuracy against speed: what a faster case costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from inferprof.plots.style import GREY, case_names, colours, end_shapes, kinds, new_figure, plain_log
from inferprof.plugins import Plot
from inferprof.tables.records import rows_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

IDENTICAL_GAP_DB = 8.0
"""How far above the best finite SQNR the identical ones are drawn: their SQNR is infinite."""
FAIL = "#B00020"


def draw(frame: pd.DataFrame) -> Figure:
    """SQNR over end_to_end latency at the smallest shape, with the Pareto front."""
    shape = end_shapes(frame)[0]
    compared = frame["sqnr_db"].notna() | frame["identical"].astype(bool)
    rows = frame[(frame["shape"] == shape) & compared & frame["end_to_end_ms"].notna()]
    top = float(frame["sqnr_db"].astype(float).max()) + IDENTICAL_GAP_DB
    rows = rows.assign(
        case=case_names(rows), db=np.where(rows["identical"].astype(bool), top, rows["sqnr_db"].astype(float))
    )
    figure = new_figure(3.8)
    ax = figure.subplots()
    if rows["identical"].any():
        ax.axhline(top, color=GREY, linewidth=0.8, linestyle=":")
        ax.annotate("identical to fp32", (1, top), (0, 7), ("axes fraction", "data"), "offset points", ha="right")
    _front(ax, rows)
    _points(ax, rows)
    plain_log(ax, "x")
    ax.margins(y=0.12)
    ax.set_xlabel(f"end_to_end at {shape}, median ms (faster is left)")
    ax.set_ylabel("SQNR against fp32, dB (closer is up)")
    ax.grid()
    figure.legend(*ax.get_legend_handles_labels(), loc="outside right upper")
    return figure


def _points(ax: Axes, rows: pd.DataFrame) -> None:
    """Colour tells the number format, the marker backend and variant; a cross lies over what fails its tolerance."""
    palette = colours(rows["precision"])
    looks = kinds(rows)
    for row in rows_of(rows.sort_values("end_to_end_ms")):
        marker, _ = looks[row["backend"], row["variant"]]
        style: dict[str, Any] = {"color": palette[row["precision"]], "marker": marker, "linestyle": "none"}
        ax.plot([row["end_to_end_ms"]], [row["db"]], label=row["case"], markersize=7, **style)
        if row["accuracy"] == "fail":
            ax.plot([row["end_to_end_ms"]], [row["db"]], "x", color=FAIL, markersize=13, markeredgewidth=1.6)


def _front(ax: Axes, rows: pd.DataFrame) -> None:
    """The Pareto front: from the fastest case on, each that is more accurate than all faster ones."""
    front_ms: list[float] = []
    front_db: list[float] = []
    for row in rows_of(rows.sort_values(["end_to_end_ms", "db"], ascending=[True, False])):
        if not front_db or row["db"] > front_db[-1]:
            front_ms.append(row["end_to_end_ms"])
            front_db.append(row["db"])
    ax.plot(front_ms, front_db, color=GREY, linewidth=1.2, zorder=1)


AGAINST_SPEED = Plot(
    name="accuracy_speed",
    title="Accuracy against speed",
    caption="The line joins the cases that none beats in both. A cross marks a case whose accuracy fails.",
    needs={"end_to_end_ms": 2, "sqnr_db": 1, "precision": 2},
    draw=draw,
    place=30,
    section="Accuracy",
)
