"""Clocks and power while a case was measured, from start to end of its first round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from inferprof.machine.hardware import SLOWER
from inferprof.plots.style import INK, case_names, colours, end_shapes, kinds, new_figure
from inferprof.plugins import Plot
from inferprof.tables.records import rows_of
from inferprof.units import NS_PER_S

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS: Final = {"sm_mhz": "SM clock, MHz", "power_w": "power, W", "temperature_c": "temperature, °C"}
MOST_LINES: Final = 6
PANEL_IN: Final = 1.25
LEGEND_LINE_IN: Final = 0.2
THROTTLED: Final = sum(SLOWER)
"""All bits of NVML's reasons that lower the clock under load."""


def draw(frame: pd.DataFrame) -> Figure:
    """A line per case at the largest shape; `telemetry`: the record's samples, a list for each field."""
    sampled = frame[frame["telemetry"].notna()]
    rows = sampled[sampled["shape"] == end_shapes(sampled)[-1]].sort_values("end_to_end_ms").head(MOST_LINES)
    figure = new_figure(len(PANELS) * PANEL_IN + 0.6 + LEGEND_LINE_IN * np.ceil(len(rows) / 2))
    axes = figure.subplots(len(PANELS), 1, sharex=True)
    palette = colours(rows["precision"])
    looks = kinds(frame)
    for ax, (gauge, label) in zip(axes, PANELS.items(), strict=True):
        for name, row in zip(case_names(rows), rows_of(rows), strict=True):
            samples = row["telemetry"]
            time = (np.array(samples["t_ns"], float) - samples["t_ns"][0]) / NS_PER_S
            values = np.array(samples.get(gauge, [None] * time.size), float)
            marker, dashes = looks[row["backend"], row["variant"]]
            style: dict[str, Any] = {"marker": marker, "markersize": 3.5, "markevery": 0.07, "linestyle": dashes}
            ax.plot(time, values, color=palette[row["precision"]], linewidth=1.1, label=name, **style)
            slower = np.array([bool(int(bits or 0) & THROTTLED) for bits in samples.get("reasons", [0] * time.size)])
            ax.plot(time[slower], values[slower], "x", color=INK, markersize=3.5)
        ax.set_ylabel(label)
        ax.set_ylim(bottom=0)
        ax.grid()
    axes[-1].set_xlabel("s since the run began")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


OVER_TIME = Plot(
    name="telemetry",
    title="Clocks and power",
    caption=(
        f"First round of the {MOST_LINES} fastest cases at the largest shape, loading and warm-up included. "
        "×: the GPU was throttled. Power is NVML's average over a second."
    ),
    needs={"telemetry": 1},
    draw=draw,
    place=70,
    section="GPU telemetry",
)
