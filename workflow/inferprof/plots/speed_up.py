"""The speed-ups of all cases of a model at a glance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd

from inferprof import stats
from inferprof.plots.style import GREY, INK, OKABE_ITO, ON_COLOUR, case_names, new_figure, tip
from inferprof.plugins import Plot
from inferprof.tables.records import rows_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FULL: Final = 4.0
"""The speed-up, or slow-down, from which on a cell has its full colour."""
PALEST, FULLEST = 0.1, 0.6
ROW_IN: Final = 0.32
MARGIN_IN: Final = 0.6
ROOMY: Final = 6
"""Up to so many columns have room for an interval beside the factor."""
COLOURS: Final = {"faster": (OKABE_ITO[0], ""), "slower": (OKABE_ITO[4], "///"), "undecided": (GREY, "")}


def draw(frame: pd.DataFrame) -> Figure:
    """A row per case, a column per shape; `speed_up`, `speed_up_low`, `speed_up_high` and `verdict`."""
    compared = frame[frame["speed_up"].notna() | (frame["verdict"] == "baseline")].assign(
        case=lambda rows: case_names(rows)
    )
    shapes = list(dict.fromkeys(compared.sort_values("batch", kind="stable")["shape"]))
    highest = compared.groupby("case", sort=False)["speed_up"].max()
    best = highest.fillna(1.0).sort_values(ascending=False, kind="stable")
    cases = list(best.index)
    figure = new_figure(len(cases) * ROW_IN + MARGIN_IN)
    ax = figure.subplots()
    roomy = len(shapes) <= ROOMY
    for row in rows_of(compared):
        _cell(ax, row, (shapes.index(row["shape"]), cases.index(row["case"])), roomy=roomy)
    ax.set_xlim(-0.5, len(shapes) - 0.5)
    ax.set_ylim(len(cases) - 0.5, -0.5)
    ax.set_xticks(range(len(shapes)), shapes, fontsize=9 if roomy else 7)
    ax.xaxis.tick_top()
    ax.set_yticks(range(len(cases)), cases)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return figure


def _cell(ax: Axes, row: dict[str, object], place: tuple[int, int], *, roomy: bool) -> None:
    """What the verdict is stands in the colour, and in grey in the hatch; how much, in the number."""
    from matplotlib.patches import Rectangle

    column, line = place
    verdict, speed_up = str(row["verdict"]), row["speed_up"]
    colour, hatch = COLOURS.get(verdict, (GREY, ""))
    ratio = 1.0 if verdict == "baseline" else float(str(speed_up))
    strength = min(abs(np.log(ratio)) / np.log(FULL), 1.0)
    alpha = PALEST + (FULLEST - PALEST) * strength if verdict in ("faster", "slower") else 0.0
    face = _on_white(colour, alpha) if alpha else "none"
    edge, ink = _on_white(colour, 0.5), ON_COLOUR if alpha else INK
    text = said = "baseline"
    if verdict != "baseline":
        bounded = not np.isnan(float(str(row["speed_up_low"])))
        ends = float(str(row["speed_up_low"])), float(str(row["speed_up_high"]))
        span = f"  ({ends[0]:.3g} to {ends[1]:.3g})" if bounded else ""
        shown = stats.is_told(ratio, *ends) if bounded else True
        times = f"{'≈ ' if verdict == 'undecided' else ''}{ratio:.3g}×" if shown else "–"
        text = f"{times}{span if roomy else ''}"
        said = f"{verdict}, by {row['speed_up_by']}{span}"
    cell = Rectangle((column - 0.48, line - 0.46), 0.96, 0.92, facecolor=face, edgecolor=edge)
    cell.set_hatch(hatch)
    cell.set_gid(tip(f"{row['case']} {row['shape']}", said))
    ax.add_patch(cell)
    ax.text(column, line, text, ha="center", va="center", fontsize=8 if roomy else 7, color=ink)


def _on_white(colour: str, alpha: float) -> tuple[float, float, float]:
    """What a translucent colour looks like on white; behind a hatch SVG fills with the colour alone."""
    from matplotlib.colors import to_rgb

    red, green, blue = (1 - alpha * (1 - part) for part in to_rgb(colour))
    return red, green, blue


MATRIX = Plot(
    name="speed_up",
    title="Speed-up over the baseline",
    caption=(
        "With its 95 % interval, where there is room. Hatched: slower. ≈: undecided, below what these rounds could "
        "tell apart."
    ),
    needs={"speed_up": 1},
    draw=draw,
    place=5,
    section="Speed-up over the baseline",
)
