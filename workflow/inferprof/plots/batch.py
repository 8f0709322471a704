"""Latency and throughput over the batch: where more batch stops paying."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from inferprof.plots.style import MARKERS, case_names, colours, new_figure, plain_log
from inferprof.plugins import Boundary, Plot
from inferprof.tables.saturation import rest_of, smallest

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINE_STYLES = ("-", "--", ":", "-.")
LEGEND_LINES_IN = 0.2
"""Height of one line of the legend."""


def draw(frame: pd.DataFrame, boundary: Boundary) -> Figure:
    """Latency on the left and items/s on the right, both over the batch; a line for each case."""
    measured = frame[frame[f"{boundary}_ms"].notna()].assign(
        case=case_names(frame[frame[f"{boundary}_ms"].notna()]), rest=lambda rows: rows["shape"].map(rest_of)
    )
    lines = list(measured.groupby(["case", "rest"], sort=False))
    figure = new_figure(3.1 + LEGEND_LINES_IN * np.ceil(len(lines) / 2))
    left, right = figure.subplots(1, 2)
    palette = colours(measured["precision"])
    kinds = list(dict.fromkeys(zip(measured["backend"], measured["variant"], strict=True)))
    for (case, rest), line in lines:
        kind = kinds.index((line["backend"].iloc[0], line["variant"].iloc[0]))
        style = {
            "color": palette[line["precision"].iloc[0]],
            "marker": MARKERS[kind % len(MARKERS)],
            "linestyle": LINE_STYLES[kind % len(LINE_STYLES)],
            "label": f"{case} {rest}".strip(),
        }
        _line(left, right, line.sort_values("batch"), boundary, style)
    left.set_ylabel(f"{boundary}, median ms")
    right.set_ylabel("items/s = batch / median")
    for ax in (left, right):
        _batch_axis(ax, sorted(set(measured["batch"])))
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def _line(left: Axes, right: Axes, line: pd.DataFrame, boundary: Boundary, style: dict[str, Any]) -> None:
    """One case; a ring marks the smallest batch with 95 % of its highest throughput."""
    batches = line["batch"].to_numpy(dtype=int)
    median = line[f"{boundary}_ms"].to_numpy(dtype=float)
    rates = batches / median * 1e3
    left.plot(batches, median, linewidth=1.4, markersize=4.5, **style)
    right.plot(batches, rates, linewidth=1.4, markersize=4.5, **style)
    if len(batches) > 1:
        best = smallest(batches, rates)
        rate = rates[list(batches).index(best)]
        right.plot([best], [rate], "o", markersize=10, fillstyle="none", color=style["color"])


def _batch_axis(ax: Axes, batches: list[int]) -> None:
    from matplotlib.ticker import NullLocator

    ax.set_xscale("log", base=2)
    plain_log(ax, "y")
    ax.set_xticks(batches, [str(batch) for batch in batches])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("batch")
    ax.grid(which="major")


END_TO_END = Plot(
    name="batch_end_to_end",
    title="Saturation, end_to_end",
    caption="Latency and throughput over the batch. Ring: the smallest batch with 95 % of the highest throughput.",
    needs={"end_to_end_ms": 2, "batch": 2},
    draw=functools.partial(draw, boundary="end_to_end"),
    place=20,
    section="Latency",
)
DEVICE = Plot(
    name="batch_device",
    title="Saturation, device",
    caption="Latency and throughput over the batch. Ring: the smallest batch with 95 % of the highest throughput.",
    needs={"device_ms": 2, "batch": 2},
    draw=functools.partial(draw, boundary="device"),
    place=21,
    section="Latency",
)
