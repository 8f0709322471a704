"""What autotuners tried: configurations against sizes, each by how much slower it is than the winner there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd

from inferprof.plots.style import GREY, new_figure
from inferprof.plugins import Plot
from inferprof.tables.records import rows_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

TRIALS: Final = "trials"
"""The column: tables.tuning.trials of the case, of choices among several."""
MOST: Final = 16
"""Configurations of a kernel that are drawn, the fastest at any size; all are in the table."""
ACROSS: Final = 3
ROW_IN = 0.21
"""Height of a configuration."""
SLOWEST: Final = 4.0
"""Where the colours end; the number in the cell goes on."""
COLOURS: Final = "viridis_r"
DARK: Final = 0.5
"""From this place on the colours are dark enough for white digits."""


def draw(frame: pd.DataFrame) -> Figure:
    """A panel per kernel, its best configurations from top to bottom, and a column per case that tried several."""
    panels = _panels(frame)
    across = min(ACROSS, len(panels))
    lines = -(-len(panels) // across)
    figure = new_figure(lines * (max(len(table) for _, table in panels) * ROW_IN + 0.7))
    columns = [max(len(table.columns) for _, table in panels[place::across]) for place in range(across)]
    axes = figure.subplots(lines, across, squeeze=False, width_ratios=columns).ravel()
    for ax, (kernel, table) in zip(axes, panels, strict=False):
        _panel(ax, kernel, table)
    for ax in axes[len(panels) :]:
        ax.set_axis_off()
    return figure


def _panels(frame: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """(kernel, table): rows are configurations, columns cases, values times as long as the winner; NaN: not run."""
    tried = frame[frame[TRIALS].notna()].sort_values("batch", kind="stable")
    several = tried["variant"].nunique() > 1
    parts = []
    for row in rows_of(tried):
        name = f"{row['shape']}\n{row['variant']}" if several else row["shape"]
        parts.append(row[TRIALS][["kernel", "config", "relative"]].assign(case=name))
    trials = pd.concat(parts).astype({"relative": float})
    panels = []
    for kernel, rows in trials.groupby("kernel", sort=False):
        order = list(dict.fromkeys(rows["case"]))
        table = rows.groupby(["config", "case"])["relative"].min().unstack()[order]
        best = table.min(axis=1).sort_values(kind="stable").index[:MOST]
        panels.append((str(kernel), table.loc[best]))
    return panels


def _panel(ax: Axes, kernel: str, table: pd.DataFrame) -> None:
    from matplotlib.colors import LogNorm

    norm = LogNorm(1.0, SLOWEST, clip=True)
    values = table.to_numpy(float)
    ax.pcolormesh(np.ma.masked_invalid(values), cmap=COLOURS, norm=norm, edgecolors="white", linewidth=0.8)
    for (line, column), value in np.ndenumerate(values):
        ax.text(
            column + 0.5, line + 0.5, _digits(value), ha="center", va="center", fontsize=6.5, color=_ink(value, norm)
        )
    ax.set_xticks(np.arange(len(table.columns)) + 0.5, list(table.columns))
    names = [str(name).split() for name in table.index]
    same = [part for part in names[0] if all(part in name for name in names)] if len(names) > 1 else []
    different = [" ".join(part for part in name if part not in same) for name in names]
    ax.set_yticks(np.arange(len(table)) + 0.5, different, fontsize=6.5)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.invert_yaxis()
    ax.set_title(f"{kernel}\n{' '.join(same)}", loc="right", fontsize=7.5)


def _digits(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.2f}"


def _ink(value: float, norm: Normalize) -> str:
    """Digits that can be read on the cell's colour, and grey where there is none."""
    if np.isnan(value):
        return GREY
    return "white" if norm(value) > DARK else "black"


TUNING = Plot(
    name="tuning",
    title="Configurations that were tried, against the winner at each size",
    caption="How many times as long as the fastest there, as the autotuner timed it; – was not tried, or did not "
    f"run. Of each kernel the {MOST} configurations that come closest to the fastest at any size.",
    needs={TRIALS: 1},
    draw=draw,
    place=47,
    section="Choices of autotuned kernels",
)
