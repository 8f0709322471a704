"""The stages of end_to_end, stacked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from inferprof.case import STAGES
from inferprof.plots.style import GREY, OKABE_ITO, shape_panels, stacked_shares
from inferprof.plugins import Plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HATCHES = ("", "///", "||", "", "\\\\\\", "xx")
"""Tell neighbouring stages apart in grey."""
COLOURS = (OKABE_ITO[1], OKABE_ITO[0], GREY, OKABE_ITO[2], OKABE_ITO[3], OKABE_ITO[5])
LEGEND_IN = 0.35


def draw(frame: pd.DataFrame) -> Figure:
    """Shares of the sum of the stages, a panel for the smallest and one for the largest shape."""
    measured = frame[frame["execute_ms"].notna()]
    figure, panels = shape_panels(measured, LEGEND_IN)
    for ax, panel in panels:
        _panel(ax, panel)
    ax.set_xlabel("share of the sum of the stages, %; the sum in ms stands at the right")
    figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=len(STAGES))
    return figure


def _panel(ax: Axes, frame: pd.DataFrame) -> None:
    values = frame[[f"{stage}_ms" for stage in STAGES]].to_numpy(dtype=float)
    sums = np.nansum(values, axis=1)
    shares = np.nan_to_num(values) / sums[:, None] * 100
    looks = zip(STAGES, COLOURS, HATCHES, strict=True)
    parts = {name.replace("_", " "): (shares[:, i], colour, hatch) for i, (name, colour, hatch) in enumerate(looks)}
    stacked_shares(ax, frame, parts)
    for place, total in enumerate(sums):
        ax.annotate(f"{total:.4g}", (100, place), (5, 0), textcoords="offset points", va="center", fontsize=8)


STACKED = Plot(
    name="stages",
    title="Stages of end_to_end",
    caption="With a synchronise behind each stage. Smallest and largest shape, the others are in the table.",
    needs={"execute_ms": 1},
    draw=draw,
    place=40,
    section="Throughput, stages, first use and memory",
)
