"""Accuracy against speed: what a faster case costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from inferprof.plots.style import GREY, case_names, colours, end_shapes, kinds, new_figure, plain_log
from inferprof.plugins import Plot
from inferprof.tables.limits.pareto import BEHIND, FRONT, UNDECIDED
from inferprof.tables.records import rows_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

IDENTICAL_GAP_DB = 8.0
"""How far above the best finite SQNR the identical ones are drawn: their SQNR is infinite."""
FAIL = "#B00020"
PALE = 0.4


def draw(frame: pd.DataFrame) -> Figure:
    """SQNR over end_to_end latency at the smallest shape, with the Pareto front."""
    shape = end_shapes(frame)[0]
    rows = frame[(frame["shape"] == shape) & frame["standing"].notna()]
    top = float(frame["sqnr_db"].astype(float).max()) + IDENTICAL_GAP_DB
    rows = rows.assign(
        case=case_names(rows), db=rows["sqnr_db"].astype(float).where(~rows["identical"].astype(bool), top)
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
    """Colour tells the number format, the marker backend and variant; a cross lies over what fails its tolerance.

    Hollow, and tied to the case that it is not distinguishable from; pale where it is behind another one.
    """
    palette = colours(rows["precision"])
    looks = kinds(rows)
    names = rows["precision"] + "/" + rows["backend"] + "/" + rows["variant"]
    places = dict(zip(names, zip(rows["end_to_end_ms"], rows["db"], strict=True), strict=True))
    for row in rows_of(rows.sort_values("end_to_end_ms")):
        marker, _ = looks[row["backend"], row["variant"]]
        x, y = row["end_to_end_ms"], row["db"]
        colour, alpha = palette[row["precision"]], PALE if row["standing"] == BEHIND else 1.0
        face = "none" if row["standing"] == UNDECIDED else colour
        style: dict[str, Any] = {"color": colour, "marker": marker, "linestyle": "none", "alpha": alpha}
        if not np.isnan(row["end_to_end_low_ms"]):
            ax.hlines(y, row["end_to_end_low_ms"], row["end_to_end_high_ms"], colour, linewidth=1.2, alpha=alpha)
        if row["standing"] == UNDECIDED and row["against"] in places:
            other = places[row["against"]]
            ax.plot([x, other[0]], [y, other[1]], color=GREY, linewidth=0.8, linestyle=":", zorder=1)
        ax.plot([x], [y], label=row["case"], markersize=7, markerfacecolor=face, **style)
        if row["accuracy"] == "fail":
            ax.plot([x], [y], "x", color=FAIL, markersize=13, markeredgewidth=1.6)


def _front(ax: Axes, rows: pd.DataFrame) -> None:
    """A line through the cases that none beats in both."""
    front = rows[rows["standing"] == FRONT].sort_values("end_to_end_ms")
    ax.plot(front["end_to_end_ms"], front["db"], color=GREY, linewidth=1.2, zorder=1)


AGAINST_SPEED = Plot(
    name="accuracy_speed",
    title="Accuracy against speed",
    caption=(
        "The line joins the cases that none beats in both. Hollow: not distinguishable from the case at the end of "
        "the dotted line. Pale: behind one that is as accurate and faster. Bars: 95 % of the median. A cross: its "
        "accuracy fails."
    ),
    needs={"end_to_end_ms": 2, "sqnr_db": 1, "precision": 2},
    draw=draw,
    place=30,
    section="Accuracy against speed",
)
