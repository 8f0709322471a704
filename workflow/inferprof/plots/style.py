"""How plots look: colours that colour-blind readers can tell apart, matplotlib's own font, few lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from inferprof import registry
from inferprof.plugins import Boundary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#1f2328"
"""Text and axes; the HTML report swaps it for the colour of its own text."""
ON_COLOUR = "#111111"
"""Text on what has a colour of its own, on any page."""
GREY = "#8c959f"
WIDTH_IN = 8.6
ROW_IN = 0.27
"""Height of one bar."""
MARGIN_IN = 0.75
"""Height of a panel beside its bars: title and axis."""
OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#7F7F7F", "#B8A800")
"""Okabe & Ito 2008, "Color Universal Design"; black and yellow darkened or lightened for both backgrounds."""
TIP = "tip:"
"""Begins the gid of an artist whose rest is a tooltip on the page."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINE_STYLES = ("-", "--", ":", "-.")
STYLE: Mapping[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titley": 1.0,  # where it is without ticks above: to find that, all tick labels are laid out twice
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "text.color": INK,
    "text.parse_math": False,  # a $ in a name is a $
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelcolor": INK,
    "grid.color": GREY,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "svg.hashsalt": "inferprof",
    "svg.fonttype": "none",
}


def new_figure(height_in: float, width_in: float = WIDTH_IN) -> Figure:
    """An empty figure, else of the report's width, laid out so that labels don't overlap."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width_in, height_in), layout="constrained")


def shape_panels(
    frame: pd.DataFrame, extra_in: float = 0.0, width_in: float = WIDTH_IN
) -> tuple[Figure, list[tuple[Axes, pd.DataFrame]]]:
    """A panel with the rows of each of the end_shapes, as high as its bars need; `extra_in` is for a legend."""
    panels = [frame[frame["shape"] == shape] for shape in end_shapes(frame)]
    rows = [len(panel) for panel in panels]
    figure = new_figure(sum(count * ROW_IN + MARGIN_IN for count in rows) + extra_in, width_in)
    axes = figure.subplots(len(rows), 1, squeeze=False, height_ratios=rows)[:, 0]
    return figure, list(zip(axes, panels, strict=True))


def name_bars(ax: Axes, frame: pd.DataFrame, boundary: Boundary = "end_to_end") -> None:
    """A case for each bar, the first at the top, and their shape as the title."""
    ax.set_yticks(range(len(frame)), starred_names(frame, boundary))
    ax.tick_params(axis="y", length=0)
    ax.invert_yaxis()
    ax.set_title(frame["shape"].iloc[0])


def tip(*lines: str) -> str:
    """The gid of an artist that says these lines on the page when it is pointed at."""
    return TIP + "\n".join(lines)


def plain_log(ax: Axes, axis: Literal["x", "y"]) -> None:
    """A logarithmic axis with ticks at 1, 2 and 5, written as people write numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    ax.set(**{f"{axis}scale": "log"})
    which = ax.xaxis if axis == "x" else ax.yaxis
    which.set_major_locator(LogLocator(subs=(1, 2, 5)))
    which.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    which.set_minor_locator(NullLocator())


def case_names(frame: pd.DataFrame) -> list[str]:
    """`fp16 · ort_cuda · graph` of each row; the variant `default` goes without saying."""
    return [
        " · ".join(part for part in parts if part != "default")
        for parts in frame[["precision", "backend", "variant"]].itertuples(index=False, name=None)
    ]


def starred_names(frame: pd.DataFrame, boundary: Boundary = "end_to_end") -> list[str]:
    """The same with * at what is in doubt by a boundary, so that it makes no headline."""
    doubts = frame.get(f"{boundary}_doubt", [None] * len(frame))
    return [f"{name}*" if doubt else name for name, doubt in zip(case_names(frame), doubts, strict=True)]


def colours(precisions: Iterable[str]) -> dict[str, str]:
    """Number format → colour: the same in every plot; formats without one of their own share what is left."""
    own = {name: described.colour for name, described in registry.precisions().items() if described.colour}
    names = list(dict.fromkeys(precisions))
    free = [colour for colour in OKABE_ITO if colour not in {own.get(name) for name in names}]
    other = [name for name in names if name not in own]
    return own | {name: free[index % len(free)] for index, name in enumerate(other)}


def kinds(frame: pd.DataFrame) -> dict[tuple[str, str], tuple[str, str]]:
    """(backend, variant) → marker and style of the line."""
    names = dict.fromkeys(zip(frame["backend"], frame["variant"], strict=True))
    return {name: look(place) for place, name in enumerate(names)}


def look(place: int) -> tuple[str, str]:
    """Marker and style of the line of a series by its number: those of 32 differ from each other."""
    return MARKERS[place % len(MARKERS)], LINE_STYLES[(place + place // len(MARKERS)) % len(LINE_STYLES)]


def end_shapes(frame: pd.DataFrame) -> list[str]:
    """The shapes of the smallest and of the largest batch: those between them are in the tables."""
    ordered = frame.sort_values("batch", kind="stable")["shape"]
    return list(dict.fromkeys([ordered.iloc[0], ordered.iloc[-1]]))
