"""The roofline diagram: what each case reaches over the FLOPs that its graph has per byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from inferprof.errors import UserError
from inferprof.plots.style import case_names, colours, kinds, new_figure, plain_log
from inferprof.plugins import Plot
from inferprof.tables.records import rows_of
from inferprof.units import TERA

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LETTER = (0.0095, 0.035)
"""About how wide and high a letter of a name is, as a share of the axes."""
ROOM = 3.0
"""How far the axes reach beyond the points and the ridges, as a factor."""


def draw(frame: pd.DataFrame) -> Figure:
    """TFLOP/s over FLOP/B, both logarithmic: a roof for each number format, a point for each case and shape."""
    placed = frame[frame["peak_flops"].notna() & frame["device_ms"].notna() & (frame["intensity"] > 0)]
    if placed.empty:
        raise UserError("no graph has FLOPs, and without them none has a place on logarithmic axes")
    rows = placed.assign(case=case_names(placed), reached=placed["flops"] / placed["device_ms"] * 1e3 / TERA)
    figure = new_figure(4.6)
    ax = figure.subplots()
    ridges = rows["peak_flops"] / rows["bandwidth"]
    span = (min(rows["intensity"].min(), ridges.min()) / ROOM, max(rows["intensity"].max(), ridges.max()) * ROOM)
    _roofs(ax, rows, np.geomspace(*span, 200))
    _points(ax, rows)
    plain_log(ax, "x")
    plain_log(ax, "y")
    ax.set_xlim(*span)
    ax.set_ylim(rows["reached"].min() / ROOM, rows["peak_flops"].max() / TERA * ROOM)
    _shapes(ax, rows)
    ax.set_xlabel("FLOP per byte of weights, inputs and outputs")
    ax.set_ylabel("TFLOP/s, by the device median")
    ax.grid()
    figure.legend(*ax.get_legend_handles_labels(), loc="outside right upper")
    return figure


def _roofs(ax: Axes, rows: pd.DataFrame, intensity: np.ndarray[Any, Any]) -> None:
    """The roof of each number format: its products at their types' peaks, below the ridge the bandwidth."""
    palette = colours(rows["precision"])
    for precision, cases in rows.groupby("precision", sort=False):
        best = max(rows_of(cases), key=lambda row: float(row["peak_flops"]))
        roof = np.minimum(best["peak_flops"], intensity * best["bandwidth"]) / TERA
        ax.plot(intensity, roof, color=palette[str(precision)], linewidth=1.2, zorder=1)
        ax.annotate(
            str(precision), (intensity[-1], roof[-1]), (-2, 3), textcoords="offset points", ha="right", fontsize=8,
            color=palette[str(precision)],
        )  # fmt: skip


def _points(ax: Axes, rows: pd.DataFrame) -> None:
    """Colour tells the number format, the marker backend and variant; a case's shapes are joined by a line."""
    palette = colours(rows["precision"])
    looks = kinds(rows)
    for case, line in rows.sort_values("intensity", kind="stable").groupby("case", sort=False):
        first = rows_of(line)[0]
        marker, _ = looks[first["backend"], first["variant"]]
        style: dict[str, Any] = {"color": palette[first["precision"]], "marker": marker, "label": case}
        ax.plot(line["intensity"], line["reached"], markersize=6, linewidth=0.6, linestyle=":", **style)


def _shapes(ax: Axes, rows: pd.DataFrame) -> None:
    """The name of each shape over its uppermost point, where no name that is there already is in its way."""
    upper = rows.sort_values("reached", kind="stable").drop_duplicates("shape", keep="last")
    taken: list[tuple[float, float]] = []
    for row in rows_of(upper.sort_values("intensity", kind="stable")):
        x, y = (
            _placed(row[name], limits) for name, limits in (("intensity", ax.get_xlim()), ("reached", ax.get_ylim()))
        )
        if any(x < end and abs(y - height) < LETTER[1] for end, height in taken):
            continue
        taken.append((x + LETTER[0] * len(row["shape"]), y))
        ax.annotate(row["shape"], (row["intensity"], row["reached"]), (0, 6), textcoords="offset points", fontsize=8)


def _placed(value: float, limits: tuple[float, float]) -> float:
    """Where a value is on a logarithmic axis: 0 at its start, 1 at its end."""
    low, high = limits
    return float(np.log(value / low) / np.log(high / low))


DIAGRAM = Plot(
    name="roofline",
    title="Roofline",
    caption=(
        "Lines: the roof of each number format, measured where it was, else the datasheet's. FLOPs and bytes are the "
        "graph's, as if one kernel did it all: a point beyond the slope finds its bytes in the L2."
    ),
    needs={"device_ms": 1, "peak_flops": 1, "bandwidth": 1},
    draw=draw,
    place=50,
    section="Roofline",
)
