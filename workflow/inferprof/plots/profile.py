"""What the GPU did in an iteration under a profiler: kernels by class, and idle time by its cause."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, get_args

import numpy as np
import pandas as pd

from inferprof.plots.style import GREY, OKABE_ITO, shape_panels, stacked_shares
from inferprof.plugins import Plot
from inferprof.tables.records import rows_of
from inferprof.tables.trace.kernel_class import KernelClass

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Look = tuple[str, str, str]
"""Label, colour, hatch: neighbours differ in hatch, so that they can be told apart in grey."""
HATCHES: Final = ("", "///", "||", "\\\\\\", "xx", "--")
LEGEND_LINE_IN: Final = 0.2
LEGEND_COLUMNS: Final = 5
CLASSES: Final[Mapping[str, Look]] = {
    name: (name.replace("_", " "), OKABE_ITO[place % len(OKABE_ITO)], HATCHES[place % len(HATCHES)])
    for place, name in enumerate(get_args(KernelClass))
}
IDLE: Final[Mapping[str, Look]] = {
    "gpu_busy": ("busy", OKABE_ITO[0], ""),
    "idle_launch": ("idle: host launches", OKABE_ITO[4], "///"),
    "idle_sync": ("idle: synchronise", OKABE_ITO[1], "||"),
    "idle_copy": ("idle: copy on the host", OKABE_ITO[3], "\\\\\\"),
    "idle_queued": ("idle: queued", OKABE_ITO[5], "xx"),
    "idle_end": ("idle: at the end", OKABE_ITO[7], "--"),
    "idle_unknown": ("idle: not told", GREY, ""),
    "idle_other_process": ("idle: another process", GREY, "///"),
}


def draw_classes(frame: pd.DataFrame) -> Figure:
    """Shares of each case's kernel time; `kernel_classes`: class → share."""
    return _draw(frame, "kernel_classes", CLASSES, "share of the kernel time of an iteration, %")


def draw_idle(frame: pd.DataFrame) -> Figure:
    """Shares of an iteration's duration; `iteration`: metric → share."""
    return _draw(frame, "iteration", IDLE, "share of an iteration under the profiler, %")


def _draw(frame: pd.DataFrame, column: str, looks: Mapping[str, Look], label: str) -> Figure:
    profiled = frame[frame[column].notna()]
    present = [name for name in looks if any(row[column].get(name, 0) > 0 for row in rows_of(profiled))]
    lines = -(-len(present) // LEGEND_COLUMNS)
    figure, panels = shape_panels(profiled, LEGEND_LINE_IN * (lines + 0.5))
    for ax, panel in panels:
        shares = {name: np.array([100 * row[column].get(name, 0.0) for row in rows_of(panel)]) for name in present}
        stacked_shares(ax, panel, {looks[name][0]: (shares[name], *looks[name][1:]) for name in present})
    ax.set_xlabel(label)
    columns = min(len(present), LEGEND_COLUMNS)
    figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=columns)
    return figure


KERNEL_CLASSES = Plot(
    name="kernel_classes",
    title="Kernel time by class",
    caption="By the kernels' names. Smallest and largest shape, the others are in the table.",
    needs={"kernel_classes": 1},
    draw=draw_classes,
    place=60,
    section="Kernels",
)
IDLE_GAPS = Plot(
    name="idle",
    title="GPU busy and idle",
    caption=(
        "What the GPU waits for while it is idle; a profiler lengthens the host's part. Smallest and largest shape, "
        "the others are in the table."
    ),
    needs={"iteration": 1},
    draw=draw_idle,
    place=61,
    section="Timeline",
)
