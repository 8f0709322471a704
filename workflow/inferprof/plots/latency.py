"""Latency of each case with its interval, at the smallest and the largest shape."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from inferprof.plots.style import INK, colours, name_bars, plain_log, shape_panels
from inferprof.plugins import Boundary, Plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOG_RANGE = 20.0
"""From this ratio of slowest to fastest on, the axis is logarithmic and points replace bars, which need a zero."""
SHOWN = (
    "Smallest and largest shape, the others are in the table. Bars stand on a linear axis, points on a log one. "
    "*: in doubt."
)


def draw(frame: pd.DataFrame, boundary: Boundary) -> Figure:
    """A panel for each of the two shapes; the fastest case at the top."""
    measured = frame[frame[f"{boundary}_ms"].notna()]
    figure, panels = shape_panels(measured)
    for ax, panel in panels:
        _panel(ax, panel.sort_values(f"{boundary}_ms", kind="stable"), boundary)
    ax.set_xlabel(f"{boundary}, median ms with its 95 % interval (less is better)")
    return figure


def _panel(ax: Axes, frame: pd.DataFrame, boundary: Boundary) -> None:
    values = frame[f"{boundary}_ms"].to_numpy(dtype=float)
    low = frame[f"{boundary}_low_ms"].to_numpy(dtype=float)
    high = frame[f"{boundary}_high_ms"].to_numpy(dtype=float)
    errors = np.nan_to_num(np.vstack([values - low, high - values]))
    ends = values + errors[1]
    places = np.arange(len(values))
    palette = colours(frame["precision"])
    chosen = [palette[name] for name in frame["precision"]]
    if values.max() / values.min() >= LOG_RANGE:
        plain_log(ax, "x")
        ax.scatter(values, places, c=chosen, s=36, zorder=3)
        ax.set_xlim((values - errors[0]).min() / 1.5, ends.max() * 3)
    else:
        ax.barh(places, values, color=chosen, height=0.68)
        ax.set_xlim(0, ends.max() * 1.14)
    ax.errorbar(values, places, xerr=errors, fmt="none", ecolor=INK, elinewidth=1, capsize=2)
    for place, value, end in zip(places, values, ends, strict=True):
        ax.annotate(f"{value:.4g}", (end, place), (5, 0), textcoords="offset points", va="center", fontsize=8)
    name_bars(ax, frame, boundary)
    ax.set_ylim(len(values) - 0.5, -0.5)
    ax.grid(axis="x")


END_TO_END = Plot(
    name="latency_end_to_end",
    title="Latency, end_to_end",
    caption=f"Host arrays in, host arrays out. {SHOWN}",
    needs={"end_to_end_ms": 1},
    draw=functools.partial(draw, boundary="end_to_end"),
    place=10,
    section="Latency",
)
DEVICE = Plot(
    name="latency_device",
    title="Latency, device",
    caption=f"Inputs resident on the GPU, enqueue to done. {SHOWN}",
    needs={"device_ms": 1},
    draw=functools.partial(draw, boundary="device"),
    place=11,
    section="Latency",
)
