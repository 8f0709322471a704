"""The plots of a report: each plot of each model for which there is enough to draw."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pandas as pd

from inferprof import registry, spread
from inferprof.errors import failure_of, meant
from inferprof.grouping import grouped
from inferprof.plots import engine_graph, render
from inferprof.plots.stacked import WATERFALL, in_card
from inferprof.plugins import Plot
from inferprof.report import answers, plot_frame
from inferprof.report.common import few
from inferprof.report.evidence import Evidence
from inferprof.report.model import Figure, SectionContent, Text
from inferprof.report.section import sections
from inferprof.report.sections.layers import cases
from inferprof.tables.nodes import layer_times

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

SECTION_OF_ANSWER: Final = "Answer"
SECTION_OF_ENGINES: Final = "Layers"
PLACE: Final = 355
"""Where the plots stand that belong to no section of the report: before Method."""
PLOTS_OF_A_PROCESS: Final = 24
"""A process beside this one is worth its start from so many plots on, of which two thirds are drawn: it takes as long
as four of them."""


@dataclass(frozen=True)
class Wanted:
    """What to draw of which rows, the name of its file without the suffix, and the words and places of the figure."""

    draw: Callable[[pd.DataFrame], MatplotlibFigure]
    frame: pd.DataFrame
    name: str
    title: str
    caption: str
    section: str
    card: str = ""


def worth(evidence: Evidence) -> int:
    """How many processes beside this one the plots are worth, if each is drawn."""
    return len(evidence.models) * len(registry.plots()) // PLOTS_OF_A_PROCESS


def draw(
    evidence: Evidence, folder: Path, processes: spread.Processes = spread.HERE, suffix: str = render.SVG
) -> Callable[[], SectionContent]:
    """Begin to write {plot}-{model}{suffix} into `folder`. The answer waits for them; what can't be drawn is named in
    it with its reason."""
    plots, left_out = _plots(evidence)
    graphs, too_large = _engine_graphs(evidence)
    wanted = [*_answers(evidence), *plots, *graphs]
    files = [folder / f"{plot.name}{suffix}" for plot in wanted]
    drawings = [(plot.draw, plot.frame, file) for plot, file in zip(wanted, files, strict=True)]
    svgs = render.every(drawings, processes)

    def section() -> SectionContent:
        drawn = [_figure(plot, file, svg) for plot, file, svg in zip(wanted, files, svgs(), strict=True)]
        return SectionContent("Plots", (*drawn, *left_out, *too_large), PLACE)

    return section


def _figure(plot: Wanted, file: Path, svg: str | render.Failed) -> Figure | Text:
    """The figure, or why there is none."""
    if isinstance(svg, render.Failed):
        return _not_drawn(plot.title, svg.reason)
    return Figure(plot.title, plot.caption, f"{file.parent.name}/{file.name}", svg, plot.section, plot.card)


def _not_drawn(title: str, reason: str) -> Text:
    """What stands in place of a plot that failed."""
    return Text(f"{title}: not drawn: {reason}", "item", "fail")


def _plots(evidence: Evidence) -> tuple[list[Wanted], list[Text]]:
    """The plots of each model, and why others cannot be drawn."""
    frame = evidence.once(plot_frame.of)
    wanted: list[Wanted] = []
    failed = [_not_drawn(plot.title, reason) for plot in registry.plots().values() if (reason := misplaced(plot))]
    lacking: dict[tuple[str, str], list[str]] = {}
    plots = sorted((plot for plot in registry.plots().values() if not misplaced(plot)), key=lambda plot: plot.place)
    for model in evidence.models:
        of_model = frame[frame["model"] == model]
        for plot in plots:
            title = f"{plot.title}: {model}"
            try:
                reason = render.lacks(plot, of_model)
            except Exception as error:  # The other plots are worth having without it.
                failed.append(_not_drawn(title, failure_of(error)))
                continue
            if reason:
                if not plot.asked:
                    lacking.setdefault((plot.title, reason), []).append(model)
                continue
            drawing = plot.draw, of_model, f"{plot.name}-{model}"
            wanted.append(Wanted(*drawing, title, plot.caption, plot.section))
    return wanted, [*failed, *_left_out(lacking)]


def misplaced(plot: Plot) -> str | None:
    """Why a plot has no place: no report has a section of that title."""
    titles = [section.title for section in sections().values()]
    if plot.section in titles:
        return None
    return f"section is {plot.section!r}; allowed: {', '.join(sorted(titles))}{meant([plot.section], titles)}"


def _answers(evidence: Evidence) -> list[Wanted]:
    """Where the time of each recommended case goes, beside the baseline's."""
    frame = evidence.once(plot_frame.of)
    wanted: list[Wanted] = []
    for answer in answers.of(evidence):
        if answer.best is None:
            continue
        names = frame["precision"] + "/" + frame["backend"] + "/" + frame["variant"]
        beside = frame["model"].eq(answer.model) & frame["shape"].eq(answer.shape)
        rows = frame[beside & names.isin([answer.best.name, evidence.baseline])]
        if render.lacks(WATERFALL, rows) is None:
            drawing = in_card, rows, f"answer-{answer.model}"
            title = f"Where the time goes: {answer.title}"
            caption = "Parts that add up to the median of end_to_end."
            wanted.append(Wanted(*drawing, title, caption, SECTION_OF_ANSWER, answer.title))
    return wanted


def _left_out(lacking: Mapping[tuple[str, str], list[str]]) -> list[Text]:
    """A line per reason and the models that it holds for. lacking: title of a plot and the reason → models."""
    titles = grouped(((reason, few(models)), title) for (title, reason), models in lacking.items())
    return [
        Text(f"Not drawn of {models}, since {reason}: {'; '.join(plots)}", "item")
        for (reason, models), plots in titles.items()
    ]


def _engine_graphs(evidence: Evidence) -> tuple[list[Wanted], list[Text]]:
    """The layers of an engine per model and format, that of the largest batch: its graph, or why it is not drawn."""
    chosen = {
        tuple(candidate.case[key] for key in ("model", "precision", "backend")): candidate
        for candidate in cases(evidence)
    }
    wanted: list[Wanted] = []
    left_out = []
    for names, profile in chosen.items():
        title = f"Engine: {'/'.join(names)} {profile.case['shape']}"
        described = layer_times.described(profile.frame)
        if not 1 < len(described) <= engine_graph.MOST_LAYERS:
            reason = f"{len(described):,} layers; from 2 to {engine_graph.MOST_LAYERS} can be drawn"
            left_out.append(Text(f"{title}: not drawn: {reason}", "item"))
            continue
        times = layer_times.of_case(profile.frame)
        graph = layer_times.graph_of(described, dict(zip(times["layer"], times["share"], strict=True)))
        drawing = engine_graph.draw, graph, f"engine-{'-'.join(names)}"
        wanted.append(Wanted(*drawing, title, engine_graph.CAPTION, SECTION_OF_ENGINES))
    return wanted, left_out
