"""Where end_to_end goes, stacked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from inferprof.plots.style import GREY, OKABE_ITO, WIDTH_IN, name_bars, shape_panels
from inferprof.plugins import Plot
from inferprof.tables.limits.waterfall import PARTS, Part

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

UNSPLIT_BLUE = "#9DB4C0"
LABELS: dict[Part, str] = {"kernels": "kernels, unsplit", "execution": "execution, unsplit"}
COLOURS: dict[Part, str] = {
    "launch": OKABE_ITO[4],
    "copy": OKABE_ITO[1],
    "memory": OKABE_ITO[2],
    "compute": OKABE_ITO[0],
    "latency": OKABE_ITO[5],
    "tail": OKABE_ITO[3],
    "idle": OKABE_ITO[7],
    "kernels": UNSPLIT_BLUE,
    "execution": GREY,
    "unexplained": "none",
}
HATCHES: dict[Part, str] = {"copy": "///", "latency": "||", "tail": "xx", "kernels": "\\\\\\", "unexplained": "////"}
"""Tell neighbouring parts apart in grey."""
LEGEND_IN = 0.55
LEGEND_COLUMNS = 6
CARD_IN = 4.2
"""Wide enough for the names of cases, and narrow enough for a phone."""


def in_card(frame: pd.DataFrame) -> Figure:
    """The same as wide as a card."""
    return draw(frame, CARD_IN)


def draw(frame: pd.DataFrame, width_in: float = WIDTH_IN) -> Figure:
    """Milliseconds of each part, a panel for the smallest and one for the largest shape."""
    split = frame[frame["unexplained_part_ms"].notna()]
    parts = [part for part in PARTS if (split[f"{part}_part_ms"].fillna(0) > 0).any()]
    figure, panels = shape_panels(split, LEGEND_IN, width_in)
    for ax, panel in panels:
        _panel(ax, panel.sort_values("end_to_end_ms", kind="stable"), parts)
    ax.set_xlabel("end_to_end median, ms")
    columns = min(len(parts), int(LEGEND_COLUMNS * width_in / WIDTH_IN))
    figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=columns)
    return figure


def _panel(ax: Axes, frame: pd.DataFrame, parts: list[Part]) -> None:
    places = np.arange(len(frame))
    left = np.zeros(len(frame))
    longest = float(frame["end_to_end_ms"].max())
    for part in parts:
        width = frame[f"{part}_part_ms"].fillna(0).to_numpy(dtype=float)
        ax.barh(
            places, width, left=left, height=0.68, label=LABELS.get(part, part), color=COLOURS[part],
            hatch=HATCHES.get(part, ""), edgecolor=GREY if part == "unexplained" else "white", linewidth=0.4,
        )  # fmt: skip
        left += width
    ax.set_xlim(0, longest * 1.1)
    ax.grid(axis="x")
    name_bars(ax, frame)
    for place, total in zip(places, left, strict=True):
        ax.annotate(f"{total:.4g}", (total, place), (5, 0), textcoords="offset points", va="center", fontsize=8)


WATERFALL = Plot(
    name="waterfall",
    title="Where end_to_end goes",
    caption="Parts that add up to the bare run's median. Smallest and largest shape, the others are in the table.",
    needs={"unexplained_part_ms": 1},
    draw=draw,
    place=45,
    section="Waterfall",
)
