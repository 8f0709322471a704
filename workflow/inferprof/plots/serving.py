"""Latency over the rate of requests: predicted lines, measured points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd

from inferprof.plots.style import OKABE_ITO, look, new_figure, plain_log
from inferprof.plugins import Plot
from inferprof.queueing import theory
from inferprof.queueing.policy import curve_of, policy_of
from inferprof.units import NS_PER_MS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from inferprof.documents import Serving

SERVED: Final = "served"
"""The column: the documents of a case under load."""
SHARES: Final = (0.05, 0.2, 0.4, 0.55, 0.7, 0.8, 0.88, 0.94)
"""Of the capacity: where the lines are computed."""
LEGEND_LINES_IN: Final = 0.2


def draw(frame: pd.DataFrame) -> Figure:
    """A line and points for each policy; a dotted line at each objective."""
    served = [document for documents in frame[SERVED].dropna() for document in documents if document.policy]
    figure = new_figure(3.3 + LEGEND_LINES_IN * np.ceil(len(served) / 2))
    ax = figure.subplots()
    for place, document in enumerate(served):
        _policy(ax, document, place)
    for objective in sorted({document.policy.slo_ms for document in served if document.policy}):
        ax.axhline(objective, linewidth=1.0, linestyle=":", color="0.4")
    ax.set(xlabel="requests/s", ylabel="percentile of the objective, ms", xlim=(0, None))
    plain_log(ax, "y")
    ax.grid(which="major")
    figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def _policy(ax: Axes, document: Serving, place: int) -> None:
    assert document.policy is not None and document.case is not None
    asked, case = document.policy, document.case
    curve, policy = curve_of(document), policy_of(asked)
    marker, dashes = look(place)
    colour = OKABE_ITO[place % len(OKABE_ITO)]
    rates = [share * curve.capacity(policy.max_batch) for share in SHARES]
    values = [theory.predict(curve, policy, rate).percentile(asked.percentile) / NS_PER_MS for rate in rates]
    label = f"{asked.name} · {case.precision} · {case.backend} · {case.variant} · {case.shape}"
    ax.plot(rates, values, linestyle=dashes, color=colour, linewidth=1.4, label=label)
    for load in document.loads:
        value = load.latency.get(f"p{asked.percentile:g}")
        if value is None:
            continue
        ends = [
            [value.value_ns - (value.low_ns or value.value_ns)],
            [(value.high_ns or value.value_ns) - value.value_ns],
        ]
        face = "none" if load.refused else colour
        ax.errorbar(
            [load.rate],
            [value.value_ns / NS_PER_MS],
            yerr=np.array(ends) / NS_PER_MS,
            fmt=marker,
            color=colour,
            markerfacecolor=face,
            capsize=2,
        )
    if document.highest and document.highest.rate:
        ends = [[document.highest.rate - (document.highest.low or document.highest.rate)]]
        ends += [[(document.highest.high or document.highest.rate) - document.highest.rate]]
        at = [document.highest.rate], [asked.slo_ms]
        ax.errorbar(*at, xerr=np.maximum(ends, 0.0), fmt="none", ecolor=colour, capsize=2)
        ax.scatter(*at, s=110, marker="*", color=colour, edgecolor="black", linewidth=0.6, zorder=5)


SERVING = Plot(
    name="serving",
    title="Latency over the rate of requests: predicted and measured",
    caption="Lines: predicted for Poisson arrivals from the latency over the batch. Points: measured, with the 95 % "
    "interval; hollow where the run may not be used. Dotted: the objective; stars: the highest rate that meets it.",
    needs={SERVED: 1},
    draw=draw,
    place=25,
    section="Under load",
    asked=True,
)
