"""Latency and throughput over the batch, where more batch stops paying, and over the length of a sequence."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pandas as pd

from inferprof.plots.style import case_names, colours, kinds, new_figure, plain_log
from inferprof.plugins import Boundary, Plot
from inferprof.tables.limits.saturation import rest_of, smallest

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Over = Literal["batch", "sequence"]
LEGEND_LINES_IN: Final = 0.2
"""Height of one line of the legend."""
MOST_LINES: Final = 16
"""More than these cannot be told apart."""
LABELS: Final[dict[Over, str]] = {"batch": "batch", "sequence": "sequence length"}


def draw(frame: pd.DataFrame, boundary: Boundary, over: Over) -> Figure:
    """Latency with its interval on the left and items/s on the right; a line for each case."""
    timed = frame[frame[f"{boundary}_ms"].notna() & frame[over].notna()]
    fixed = timed["shape"].map(rest_of) if over == "batch" else "b" + timed["batch"].astype(str)
    measured = timed.assign(case=case_names(timed), rest=fixed)
    lines = _chosen(measured, boundary, over)
    figure = new_figure(3.1 + LEGEND_LINES_IN * np.ceil(len(lines) / 2))
    left, right = figure.subplots(1, 2)
    palette = colours(measured["precision"])
    looks = kinds(measured)
    for (case, rest), line in lines:
        marker, dashes = looks[line["backend"].iloc[0], line["variant"].iloc[0]]
        style = {
            "color": palette[line["precision"].iloc[0]],
            "marker": marker,
            "linestyle": dashes,
            "label": f"{case} {rest}".strip(),
        }
        _line(left, right, line.sort_values(over), (boundary, over), style)
    left.set_ylabel(f"{boundary}, median ms")
    right.set_ylabel("items/s = batch / median")
    for ax in (left, right):
        _axis(ax, sorted({int(size) for _, line in lines for size in line[over]}), over)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def _chosen(measured: pd.DataFrame, boundary: Boundary, over: Over) -> list[tuple[Any, pd.DataFrame]]:
    """The lines to draw, in the order of the study: of each runtime the one with the highest throughput, then the
    others by theirs. Single points are none, unless there is nothing else: each would be a line of the legend."""
    every = list(measured.groupby(["case", "rest"], sort=False))
    lines = [(name, line) for name, line in every if line[over].nunique() > 1] or every

    def rate(place: int) -> float:
        return float((lines[place][1]["batch"].astype(float) / lines[place][1][f"{boundary}_ms"]).max())

    ranked = sorted(range(len(lines)), key=rate, reverse=True)
    seen: dict[str, int] = {}
    for place in ranked:
        seen.setdefault(lines[place][1]["backend"].iloc[0], place)
    first = [*seen.values(), *(place for place in ranked if place not in seen.values())]
    return [lines[place] for place in sorted(first[:MOST_LINES])]


def _line(left: Axes, right: Axes, line: pd.DataFrame, axes: tuple[Boundary, Over], style: dict[str, Any]) -> None:
    """One case; over the batch, a ring marks the smallest one with 95 % of its highest throughput."""
    boundary, over = axes
    sizes = line[over].to_numpy(dtype=int)
    batches = line["batch"].to_numpy(dtype=int)
    median, low, high = (line[f"{boundary}{end}_ms"].to_numpy(dtype=float) for end in ("", "_low", "_high"))
    rates = batches / median * 1e3
    spread = np.nan_to_num(np.vstack([median - low, high - median]))
    rate_spread = np.nan_to_num(np.vstack([rates - batches / high * 1e3, batches / low * 1e3 - rates]))
    bars: dict[str, Any] = {"linewidth": 1.4, "markersize": 4.5, "capsize": 2, "elinewidth": 0.9}
    left.errorbar(sizes, median, yerr=spread, **bars, **style)
    right.errorbar(sizes, rates, yerr=rate_spread, **bars, **style)
    if over == "batch" and len(sizes) > 1:
        best = smallest(batches, rates)
        rate = rates[list(batches).index(best)]
        right.plot([best], [rate], "o", markersize=10, fillstyle="none", color=style["color"])


def _axis(ax: Axes, sizes: list[int], over: Over) -> None:
    from matplotlib.ticker import NullLocator

    ax.set_xscale("log", base=2)
    plain_log(ax, "y")
    ax.set_xticks(sizes, [str(size) for size in sizes])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel(LABELS[over])
    ax.grid(which="major")


SHOWN: Final = (
    f"Bars: the 95 % interval. At most {MOST_LINES} lines, the fastest of each runtime first; single points are left "
    "out beside lines."
)
RING: Final = "Ring: the smallest batch with 95 % of the highest throughput."
END_TO_END = Plot(
    name="batch_end_to_end",
    title="Latency and throughput over the batch, end_to_end",
    caption=f"{RING} {SHOWN}",
    needs={"end_to_end_ms": 2, "batch": 2},
    draw=functools.partial(draw, boundary="end_to_end", over="batch"),
    place=20,
    section="Latency",
)
DEVICE = Plot(
    name="batch_device",
    title="Latency and throughput over the batch, device",
    caption=f"{RING} {SHOWN}",
    needs={"device_ms": 2, "batch": 2},
    draw=functools.partial(draw, boundary="device", over="batch"),
    place=21,
    section="Latency",
)
SEQUENCE = Plot(
    name="sequence_end_to_end",
    title="Latency and throughput over the sequence length, end_to_end",
    caption=SHOWN,
    needs={"end_to_end_ms": 2, "sequence": 2},
    draw=functools.partial(draw, boundary="end_to_end", over="sequence"),
    place=22,
    section="Latency",
)
