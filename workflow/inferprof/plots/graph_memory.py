"""Memory of CUDA graphs against their number, and the time that each saves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from inferprof.plots.style import OKABE_ITO, case_names, look, new_figure, plain_log
from inferprof.plugins import Plot
from inferprof.units import MIB

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEGEND_LINES_IN: Final = 0.2
CURVE: Final = "graph_curve"
"""The column: tables.graph_memory.curves of the case."""


def draw(frame: pd.DataFrame) -> Figure:
    """What the graphs' pools hold, what came into use on the device, and the time that each graph saves."""
    curves = frame[frame[CURVE].notna()]
    names = [f"{name} · {shape}" for name, shape in zip(case_names(curves), curves["shape"], strict=True)]
    figure = new_figure(3.1 + LEGEND_LINES_IN * np.ceil(len(names) / 2))
    left, middle, right = figure.subplots(1, 3)
    for place, (name, curve) in enumerate(zip(names, curves[CURVE], strict=True)):
        marker, dashes = look(place)
        style: dict[str, Any] = {
            "color": OKABE_ITO[place % len(OKABE_ITO)],
            "marker": marker,
            "linestyle": dashes,
            "markersize": 4,
            "linewidth": 1.4,
        }
        count, used = curve["graphs"].astype(int), curve["device_used"].astype(float)
        left.plot(count, curve["graph_reserved"].astype(float) / MIB, label=name, **style)
        if count.iloc[0] == 0:
            middle.plot(count, (used - used.iloc[0]) / MIB, **style)
        saved = curve[curve["saved_ns"].notna()].sort_values("batch")
        right.plot(saved["batch"].astype(int), saved["saved_ns"].astype(float) / 1e6, **style)
    for ax, label in ((left, "in the graphs' pools, MiB"), (middle, "more in use on the device, MiB")):
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.set(xlabel="graphs captured", ylabel=label, ylim=(0, None))
    right.set(xlabel="batch of the graph", ylabel="saved per inference, ms")
    right.axhline(0, linewidth=0.8, color="0.5")
    plain_log(right, "x")
    for ax in (left, middle, right):
        ax.grid(which="major")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


GRAPHS = Plot(
    name="graph_memory",
    title="Memory of CUDA graphs against their number, and the time that each saves",
    caption="Left: the allocator's pools of graphs. Middle: what came into use on the device, with the static "
    "inputs, since there was no graph. Right: device median without the graph, less that with it.",
    needs={CURVE: 1},
    draw=draw,
    place=45,
    section="Memory of CUDA graphs",
)
