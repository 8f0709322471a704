"""The layers of one engine as a graph: who reads whose output, in which format, and where the time goes.

Not one of the plots of a study, which all draw the same frame: the report draws it of single engines.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from inferprof.plots.style import GREY, INK, OKABE_ITO, colours, new_figure
from inferprof.tables.records import rows_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CAPTION: Final = (
    "A line: the lower layer reads what the upper one writes. The fuller the colour, the larger the layer's share of "
    "the time, which stands behind its name."
)
MOST_LAYERS: Final = 240
"""More than these cannot be read."""
COLUMN_ROWS: Final = 40
"""Depths below each other before the next column begins."""
ROW_IN: Final = 0.2
LEGEND_IN: Final = 0.6
BOX_HEIGHT: Final = 0.7
HALF: Final = 0.46
"""Half of a box, of the width that it has to itself; beside it is room for ways around other boxes."""
GAP: Final = 0.5 - HALF
LANES: Final = 5
"""Ways beside each other in it."""
FULL: Final = 0.2
"""Share of the time from which on a layer has its format's full colour."""
LABEL_LENGTH: Final = 47
"""Characters of a layer's name over the whole width; boxes beside each other share them."""
CONVERTS: Final = OKABE_ITO[4]


def draw(frame: pd.DataFrame) -> Figure:
    """Boxes from top to bottom in columns, frame: layer_times.graph_of. The fuller a colour, the larger the time."""
    columns = max(1, math.ceil((frame["depth"].max() + 1) / COLUMN_ROWS))
    rows = min(int(frame["depth"].max()) + 1, COLUMN_ROWS)
    figure = new_figure(rows * ROW_IN + LEGEND_IN)
    ax = figure.subplots()
    width = frame["depth"].map(frame["depth"].value_counts()).rdiv(1 / columns)
    placed = frame.assign(
        width=width,
        x=frame["depth"].floordiv(COLUMN_ROWS) / columns + (frame["lane"].astype(float) + 0.5) * width,
        y=-frame["depth"].mod(COLUMN_ROWS),
    )
    palette = colours(frame["dtype"].dropna())
    for row in rows_of(placed):
        _edges(ax, row, placed)
        _box(ax, row, palette.get(row["dtype"], GREY))
    ax.set_xlim(0, 1)
    ax.set_ylim(0.6 - rows, 0.6)
    ax.axis("off")
    _legend(figure, palette, placed)
    return figure


def _edges(ax: Axes, row: dict[str, Any], placed: pd.DataFrame) -> None:
    """Straight from the layer above; from further up around the boxes between, out at the right side."""
    half = HALF * row["width"]
    for writer in row["reads"]:
        above = placed.iloc[writer]
        if above["y"] == row["y"] + 1:
            way = [(above["x"], above["y"] - BOX_HEIGHT / 2), (row["x"], row["y"] + BOX_HEIGHT / 2)]
        else:
            out = above["x"] + HALF * above["width"]
            aside = out + GAP * (1 + writer % LANES) / (LANES + 1) * above["width"]
            back = row["x"] + (-half if row["x"] > aside else half)
            way = [(out, above["y"]), (aside, above["y"]), (aside, row["y"]), (back, row["y"])]
        ax.plot(*zip(*way, strict=True), color=GREY, linewidth=0.5, zorder=0)


def _box(ax: Axes, row: dict[str, Any], colour: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    share = row["share"] or 0.0
    half = HALF * row["width"]
    shape = FancyBboxPatch(
        (row["x"] - half, row["y"] - BOX_HEIGHT / 2), 2 * half, BOX_HEIGHT,
        boxstyle="round,pad=0,rounding_size=0.004", mutation_aspect=COLUMN_ROWS,
        facecolor=(colour, 0.08 + 0.72 * min(share / FULL, 1.0)),
        edgecolor=CONVERTS if row["conversion"] else GREY, linewidth=1.2 if row["conversion"] else 0.5,
    )  # fmt: skip
    ax.add_patch(shape)
    time = f"  {100 * share:.1f} %" if row["share"] is not None else ""
    room = max(4, int(LABEL_LENGTH * 2 * row["width"]) - len(time))
    name = row["layer"] if len(row["layer"]) <= room else f"…{row['layer'][1 - room :]}"
    ax.text(row["x"], row["y"], f"{name}{time}", ha="center", va="center", fontsize=7, color=INK, parse_math=False)


def _legend(figure: Figure, palette: dict[str, str], placed: pd.DataFrame) -> None:
    from matplotlib.patches import Patch

    formats = [Patch(color=palette[dtype], label=f"writes {dtype}") for dtype in placed["dtype"].dropna().unique()]
    untold = [Patch(color=GREY, label="format not told")] if placed["dtype"].isna().any() else []
    flagged = [Patch(fill=False, edgecolor=CONVERTS, label="only converts")] if placed["conversion"].any() else []
    handles = [*formats, *untold, *flagged]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
