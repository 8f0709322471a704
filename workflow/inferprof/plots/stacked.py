"""Stacked bars: the stages of end_to_end and its parts, kernels by class, and what the GPU waits for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, get_args

import numpy as np
import pandas as pd

from inferprof.case import STAGES
from inferprof.plots.style import GREY, OKABE_ITO, WIDTH_IN, name_bars, shape_panels, tip
from inferprof.plugins import Plot
from inferprof.tables.limits.waterfall import PARTS, Part
from inferprof.tables.records import rows_of
from inferprof.tables.trace.kernel_class import KernelClass

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def _stack(ax: Axes, frame: pd.DataFrame, parts: Mapping[str, tuple[np.ndarray, str, str]], tips: str = "") -> None:
    """A bar for each row of `frame`, whose first shape is the title; parts: label → (lengths, colour, hatch)."""
    left = np.zeros(len(frame))
    for label, (lengths, colour, hatch) in parts.items():
        bars = ax.barh(
            np.arange(len(frame)), lengths, left=left, height=0.68, label=label, color=colour, hatch=hatch,
            edgecolor=GREY if colour == "none" else "white", linewidth=0.4,
        )  # fmt: skip
        for bar, length in zip(bars, lengths, strict=True):
            if tips:
                bar.set_gid(tip(label, f"{length:.1f} {tips}"))
        left += lengths
    name_bars(ax, frame)


def _stack_shares(ax: Axes, frame: pd.DataFrame, parts: Mapping[str, tuple[np.ndarray, str, str]]) -> None:
    """Bars of 100 %, each part of which says its share when it is pointed at."""
    _stack(ax, frame, parts, "%")
    ax.set_xlim(0, 107)
    ax.set_xticks([0, 25, 50, 75, 100])


def _totals(ax: Axes, ends: np.ndarray, totals: np.ndarray) -> None:
    """How long each bar is in all, behind its end."""
    for place, (end, total) in enumerate(zip(ends, totals, strict=True)):
        ax.annotate(f"{total:.4g}", (end, place), (5, 0), textcoords="offset points", va="center", fontsize=8)


# --- stages --------------------------------------------------------------------------------------------------------


STAGE_HATCHES = ("", "///", "||", "", "\\\\\\", "xx")
"""Tell neighbouring stages apart in grey."""
STAGE_COLOURS = (OKABE_ITO[1], OKABE_ITO[0], GREY, OKABE_ITO[2], OKABE_ITO[3], OKABE_ITO[5])
STAGES_LEGEND_IN = 0.35


def draw_stages(frame: pd.DataFrame) -> Figure:
    """Shares of the sum of the stages, a panel for the smallest and one for the largest shape."""
    measured = frame[frame["execute_ms"].notna()]
    figure, panels = shape_panels(measured, STAGES_LEGEND_IN)
    for ax, panel in panels:
        _stages(ax, panel)
    ax.set_xlabel("share of the sum of the stages, %; the sum in ms stands at the right")
    figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=len(STAGES))
    return figure


def _stages(ax: Axes, frame: pd.DataFrame) -> None:
    values = frame[[f"{stage}_ms" for stage in STAGES]].to_numpy(dtype=float)
    sums = np.nansum(values, axis=1)
    shares = np.nan_to_num(values) / sums[:, None] * 100
    looks = zip(STAGES, STAGE_COLOURS, STAGE_HATCHES, strict=True)
    parts = {name.replace("_", " "): (shares[:, i], colour, hatch) for i, (name, colour, hatch) in enumerate(looks)}
    _stack_shares(ax, frame, parts)
    _totals(ax, np.full(len(sums), 100), sums)


STAGES_OF_CASES = Plot(
    name="stages",
    title="Stages of end_to_end",
    caption="With a synchronise behind each stage. Smallest and largest shape, the others are in the table.",
    needs={"execute_ms": 1},
    draw=draw_stages,
    place=40,
    section="Throughput, stages, first use and memory",
)


# --- waterfall -----------------------------------------------------------------------------------------------------


UNSPLIT_BLUE = "#9DB4C0"
PART_LABELS: dict[Part, str] = {"kernels": "kernels, unsplit", "execution": "execution, unsplit"}
PART_COLOURS: dict[Part, str] = {
    "launch": OKABE_ITO[4],
    "copy": OKABE_ITO[1],
    "memory": OKABE_ITO[2],
    "compute": OKABE_ITO[0],
    "latency": OKABE_ITO[5],
    "tail": OKABE_ITO[3],
    "idle": OKABE_ITO[7],
    "kernels": UNSPLIT_BLUE,
    "execution": GREY,
    "unexplained": "none",
}
PART_HATCHES: dict[Part, str] = {
    "copy": "///",
    "latency": "||",
    "tail": "xx",
    "kernels": "\\\\\\",
    "unexplained": "////",
}
"""Tell neighbouring parts apart in grey."""
PARTS_LEGEND_IN = 0.55
PART_COLUMNS = 6
CARD_IN = 4.2
"""Wide enough for the names of cases, and narrow enough for a phone."""


def in_card(frame: pd.DataFrame) -> Figure:
    """The same as wide as a card."""
    return draw_waterfall(frame, CARD_IN)


def draw_waterfall(frame: pd.DataFrame, width_in: float = WIDTH_IN) -> Figure:
    """Milliseconds of each part, a panel for the smallest and one for the largest shape."""
    split = frame[frame["unexplained_part_ms"].notna()]
    parts = [part for part in PARTS if (split[f"{part}_part_ms"].fillna(0) > 0).any()]
    figure, panels = shape_panels(split, PARTS_LEGEND_IN, width_in)
    for ax, panel in panels:
        _parts(ax, panel.sort_values("end_to_end_ms", kind="stable"), parts)
    ax.set_xlabel("end_to_end median, ms")
    columns = min(len(parts), int(PART_COLUMNS * width_in / WIDTH_IN))
    figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=columns)
    return figure


def _parts(ax: Axes, frame: pd.DataFrame, parts: list[Part]) -> None:
    ms = {part: frame[f"{part}_part_ms"].fillna(0).to_numpy(dtype=float) for part in parts}
    looks = {
        PART_LABELS.get(part, part): (ms[part], PART_COLOURS[part], PART_HATCHES.get(part, "")) for part in parts
    }
    _stack(ax, frame, looks)
    ax.set_xlim(0, float(frame["end_to_end_ms"].max()) * 1.1)
    ax.grid(axis="x")
    totals = sum(ms.values(), np.zeros(len(frame)))
    _totals(ax, totals, totals)


WATERFALL = Plot(
    name="waterfall",
    title="Where end_to_end goes",
    caption="Parts that add up to the bare run's median. Smallest and largest shape, the others are in the table.",
    needs={"unexplained_part_ms": 1},
    draw=draw_waterfall,
    place=45,
    section="Waterfall",
)


# --- profiles ------------------------------------------------------------------------------------------------------


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
    return _profiled(frame, "kernel_classes", CLASSES, "share of the kernel time of an iteration, %")


def draw_idle(frame: pd.DataFrame) -> Figure:
    """Shares of an iteration's duration; `iteration`: metric → share."""
    return _profiled(frame, "iteration", IDLE, "share of an iteration under the profiler, %")


def _profiled(frame: pd.DataFrame, column: str, looks: Mapping[str, Look], label: str) -> Figure:
    profiled = frame[frame[column].notna()]
    present = [name for name in looks if any(row[column].get(name, 0) > 0 for row in rows_of(profiled))]
    lines = -(-len(present) // LEGEND_COLUMNS)
    figure, panels = shape_panels(profiled, LEGEND_LINE_IN * (lines + 0.5))
    for ax, panel in panels:
        shares = {name: np.array([100 * row[column].get(name, 0.0) for row in rows_of(panel)]) for name in present}
        _stack_shares(ax, panel, {looks[name][0]: (shares[name], *looks[name][1:]) for name in present})
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
