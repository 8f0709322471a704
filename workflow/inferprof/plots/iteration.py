"""One iteration as a timeline: what the host did, what ran on each stream of the GPU, and where it ran nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from inferprof.plots.style import GREY, OKABE_ITO, ON_COLOUR, case_names, end_shapes, new_figure, tip
from inferprof.plugins import Plot
from inferprof.tables.records import rows_of
from inferprof.tables.trace import tracks
from inferprof.tables.trace.intervals import Intervals
from inferprof.tables.trace.one_iteration import RANGE
from inferprof.tables.trace.tracks import Events, Kind, Track
from inferprof.units import NS_PER_US

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_CASES: Final = 3
"""The fastest ones: a picture of each is as wide as the page."""
MOST_LANES: Final = 8
MOST_GPUS: Final = 4
LANES_OF_EACH: Final = 4
"""Of several GPUs, and of their host."""
RESOLUTION: Final = 1000
"""Of the width: events closer together than this are drawn as one."""
MOST_TIPS: Final = 30
"""Longest events of a lane that say what they are when they are pointed at, each a shape of its own."""
LANE_IN: Final = 0.27
PANEL_IN: Final = 0.7
STAGES: Final = "host: stages"
STAGE: Final = "stage:"
ROOM_FOR_NAME: Final = 12
"""A stage whose length is this part of the width, or more, has its name on it."""
NAME_LENGTH: Final = 80


LOOKS: Final[Mapping[Kind, tuple[str, str]]] = {
    "range": (GREY, ""),
    "call": (OKABE_ITO[1], ""),
    "sync": (OKABE_ITO[7], "///"),
    "kernel": (OKABE_ITO[0], ""),
    "copy": (OKABE_ITO[2], "|||"),
    "idle": (OKABE_ITO[4], "\\\\\\"),
}
"""Kind of track → colour and hatch."""


@dataclass(frozen=True)
class _Lane:
    """A row of the picture."""

    label: str
    events: Events
    colour: str
    hatch: str = ""


def draw(frame: pd.DataFrame) -> Figure:
    """A panel per case, of those at the smallest shape that have `events` (one_iteration.of_case)."""
    traced = frame[frame["events"].notna()]
    rows = traced[traced["shape"] == end_shapes(traced)[0]].sort_values("end_to_end_ms").head(MOST_CASES)
    panels = [list(_lanes(events)) for events in rows["events"]]
    heights = [len(lanes) * LANE_IN + PANEL_IN for lanes in panels]
    figure = new_figure(sum(heights))
    axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    for ax, lanes, row, name in zip(axes, panels, rows_of(rows), case_names(rows), strict=True):
        _panel(ax, lanes)
        ax.set_title(f"{name}, {row['shape']}: under {row['events_tool']}")
    axes[-1].set_xlabel("µs since the iteration began")
    return figure


def _lanes(events: pd.DataFrame) -> Iterator[_Lane]:
    """From the host's stages down to the GPU's gaps; those without an event are left out."""
    staged = events["name"].str.startswith(STAGE)
    every = tracks.of_events(events[events["kind"].ne(RANGE) | staged])
    gpus = list(dict.fromkeys(track.process for track in every if track.process != tracks.HOST))
    several = len(gpus) > 1
    groups, room = ([tracks.HOST, *gpus[:MOST_GPUS]], LANES_OF_EACH) if several else ([None], MOST_LANES - 1)
    for process in groups:
        own = [track for track in every if process in (None, track.process)]
        yield from [_lane(track, several) for track in own if track.kind != "idle"][:room]
        yield from [_lane(track, several) for track in own if track.kind == "idle"][:1]


def _lane(track: Track, several: bool) -> _Lane:
    """A track as it is drawn; `several`: GPUs."""
    colour, hatch = LOOKS[track.kind]
    if track.kind == "range":
        names = np.array([name.removeprefix(STAGE) for name in track.events.name], object)
        return _Lane(STAGES, replace(track.events, name=names), colour, hatch)
    if several or not track.label.startswith("stream"):
        where = track.process if several or track.process == tracks.HOST else "GPU"
        return _Lane(f"{where}: {track.label}", track.events, colour, hatch)
    return _Lane(track.label, track.events, colour, hatch)


def _panel(ax: Axes, lanes: list[_Lane]) -> None:
    width = max(float(lane.events.end.max()) for lane in lanes) / NS_PER_US
    for place, lane in enumerate(lanes):
        _draw_lane(ax, lane, place, width)
    ax.set_xlim(0, width)
    ax.set_ylim(len(lanes) - 0.5, -0.5)
    ax.set_yticks(range(len(lanes)), [lane.label for lane in lanes])
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x")


def _draw_lane(ax: Axes, lane: _Lane, place: int, width: float) -> None:
    """The longest events one by one, with their names; the others merged as far as the eye can't tell them apart."""
    from matplotlib.patches import Rectangle

    step = width / RESOLUTION
    start, end = lane.events.start / NS_PER_US, lane.events.end / NS_PER_US
    length = np.maximum(end - start, step)  # what is shorter would not be seen
    longest = np.argsort(start - end, kind="stable")[:MOST_TIPS]
    rest = np.setdiff1d(np.arange(start.size), longest)
    merged = Intervals.union(
        np.floor(start[rest] / step).astype(np.int64), np.ceil(end[rest] / step).astype(np.int64)
    )
    style: dict[str, Any] = {"facecolor": lane.colour, "hatch": lane.hatch, "edgecolor": "white", "linewidth": 0.2}
    spans = zip(merged.start * step, (merged.end - merged.start) * step, strict=True)
    ax.broken_barh(list(spans), (place - 0.34, 0.68), **style)
    for index in longest:
        bar = ax.add_artist(Rectangle((start[index], place - 0.34), length[index], 0.68, **style))
        name = str(lane.events.name[index])
        if lane.label == STAGES and end[index] - start[index] > width / ROOM_FOR_NAME:
            ax.text(
                (start[index] + end[index]) / 2, place, name, ha="center", va="center", fontsize=7, color=ON_COLOUR
            )
        bar.set_gid(tip(name[:NAME_LENGTH], f"{end[index] - start[index]:.4g} µs, from {start[index]:.4g} µs on"))


TIMELINE = Plot(
    name="iteration",
    title="One iteration",
    caption=(
        f"That of median length, under the profiler, of the {MOST_CASES} fastest traced cases at the smallest shape. "
        "A profiler lengthens the host's part: the order of things is right, the lengths of the gaps are not."
    ),
    needs={"events": 1},
    draw=draw,
    place=62,
    section="Timeline",
)
