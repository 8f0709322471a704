"""How the latency of a case spreads: its middle, its tails, and the percentiles in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from inferprof.plots.style import (
    INK,
    case_names,
    colours,
    end_shapes,
    kinds,
    name_bars,
    new_figure,
    shape_panels,
    tip,
)
from inferprof.plugins import Plot
from inferprof.stats import samples_needed
from inferprof.tables.records import rows_of
from inferprof.units import NS_PER_MS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BOX: Final = (25.0, 75.0)
WHISKERS: Final = (5.0, 95.0)
TAIL: Final = 99.0
BOX_HEIGHT: Final = 0.6
MOST_LINES: Final = 10
STEPS: Final = 200
"""Points of a line of percentiles."""
MARK_EVERY: Final = 0.08
"""Between its markers, part of the diagonal of the plot."""
LEGEND_LINE_IN: Final = 0.2


def draw_boxes(frame: pd.DataFrame) -> Figure:
    """A box for each case that has `end_to_end_samples` (ns); the fastest at the top."""
    sampled = frame[frame["end_to_end_samples"].notna()]
    figure, panels = shape_panels(sampled)
    for ax, panel in panels:
        _boxes(ax, panel.sort_values("end_to_end_ms"))
    ax.set_xlabel("end_to_end, % from the case's median, which stands at the right")
    return figure


def _boxes(ax: Axes, frame: pd.DataFrame) -> None:
    palette = colours(frame["precision"])
    for place, (precision, samples) in enumerate(zip(frame["precision"], frame["end_to_end_samples"], strict=True)):
        ms = samples / NS_PER_MS
        middle = float(np.median(ms))
        percent = 100 * (ms / middle - 1)
        low, begin, end, high = np.percentile(percent, (WHISKERS[0], *BOX, WHISKERS[1]))
        ax.hlines(place, low, high, color=INK, linewidth=0.9)
        (box,) = ax.barh(
            place, end - begin, left=begin, height=BOX_HEIGHT, color=palette[precision], edgecolor=INK, linewidth=0.6
        )
        box.set_gid(tip(f"median {middle:.4g} ms", f"slowest {ms.max():.4g} ms", f"{ms.size:,} samples"))
        ax.vlines(0, place - BOX_HEIGHT / 2, place + BOX_HEIGHT / 2, color=INK, linewidth=1.6)
        if ms.size >= samples_needed(TAIL / 100):
            ax.plot([np.percentile(percent, TAIL)], [place], "|", color=INK, markersize=9)
        name = f"{middle:.4g} ms"
        ax.annotate(name, (1, place), (4, 0), ("axes fraction", "data"), "offset points", va="center", fontsize=8)
    ax.grid(axis="x")
    name_bars(ax, frame)


def draw_percentiles(frame: pd.DataFrame) -> Figure:
    """How many times its median a case takes, over the percentile, at the smallest shape."""
    shape = end_shapes(frame)[0]
    rows = frame[(frame["shape"] == shape) & frame["end_to_end_samples"].notna()]
    rows = rows.sort_values("end_to_end_ms").head(MOST_LINES)
    figure = new_figure(3.2 + LEGEND_LINE_IN * np.ceil(len(rows) / 2))
    ax = figure.subplots()
    palette = colours(rows["precision"])
    looks = kinds(frame)
    for name, row in zip(case_names(rows), rows_of(rows), strict=True):
        samples = row["end_to_end_samples"]
        slower = np.geomspace(1.0, samples.size, STEPS)  # one of so many samples is slower
        ratio = np.percentile(samples, 100 * (1 - 1 / slower)) / np.median(samples)
        marker, dashes = looks[row["backend"], row["variant"]]
        style: dict[str, Any] = {"marker": marker, "markersize": 4, "markevery": MARK_EVERY, "linestyle": dashes}
        ax.plot(slower, ratio, color=palette[row["precision"]], label=name, linewidth=1.4, **style)
    ax.set_xscale("log")
    most = max(samples.size for samples in rows["end_to_end_samples"])
    ticks = [tick for tick in (2, 10, 100, 1000, 10_000) if tick <= most]
    ax.set_xticks(ticks, [f"p{100 * (1 - 1 / tick):.4g}" for tick in ticks])
    ax.minorticks_off()
    ax.set_xlabel(f"percentile of the samples at {shape}")
    ax.set_ylabel("end_to_end / its median")
    ax.grid()
    figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


BOXES = Plot(
    name="distribution",
    title="Distribution of the latency",
    caption=(
        "Box: the middle half of the samples of all rounds; line: p5 to p95; the bar to its right: p99, where there "
        "are samples enough for it. Smallest and largest shape."
    ),
    needs={"end_to_end_samples": 1},
    draw=draw_boxes,
    place=15,
    section="Latency",
)
PERCENTILES = Plot(
    name="percentiles",
    title="Percentiles of the latency",
    caption=f"To the slowest sample of each of the {MOST_LINES} fastest cases: the length of the tail.",
    needs={"end_to_end_samples": 1},
    draw=draw_percentiles,
    place=16,
    section="Latency",
)
