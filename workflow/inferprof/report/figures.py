"""The plots of a report: each plot of each model for which there is enough to draw."""

from __future__ import annotations

from pathlib import Path

from inferprof import registry
from inferprof.plots import engine_graph, render
from inferprof.report import plot_frame
from inferprof.report.evidence import Evidence
from inferprof.report.model import Figure, Section, Text
from inferprof.report.sections import layers
from inferprof.tables.nodes import layer_graph, layer_times


def draw(evidence: Evidence, folder: Path) -> Section:
    """Write {plot}-{model}.png into `folder`; what can't be drawn is named with its reason."""
    frame = plot_frame.of(evidence)
    blocks: list[Figure | Text] = []
    left_out = []
    for model in evidence.models:
        of_model = frame[frame["model"] == model]
        for plot in sorted(registry.plots().values(), key=lambda plot: plot.place):
            if reason := render.lacks(plot, of_model):
                left_out.append(Text(f"{plot.title}: {model}: not drawn: {reason}", "item"))
                continue
            path = folder / f"{plot.name}-{model}.png"
            svg = render.render(plot, of_model, path)
            title = f"{plot.title}: {model}"
            blocks.append(Figure(title, plot.caption, f"{folder.name}/{path.name}", svg, plot.section))
    drawn, too_large = _engine_graphs(evidence, folder)
    return Section("Plots", (*blocks, *drawn, *left_out, *too_large))


def _engine_graphs(evidence: Evidence, folder: Path) -> tuple[list[Figure], list[Text]]:
    """The layers of an engine per model and format, that of the largest batch: its graph, or why it is not drawn."""
    chosen = {
        tuple(one.case[key] for key in ("model", "precision", "backend")): one for one in layers.cases(evidence)
    }
    drawn, left_out = [], []
    for names, one in chosen.items():
        title = f"Engine: {'/'.join(names)} {one.case['shape']}"
        described = layer_times.described(one.frame)
        if not 1 < len(described) <= engine_graph.MOST_LAYERS:
            reason = f"{len(described):,} layers; from 2 to {engine_graph.MOST_LAYERS} can be drawn"
            left_out.append(Text(f"{title}: not drawn: {reason}", "item"))
            continue
        times = layer_times.of_case(one.frame)
        graph = layer_graph.of_layers(described, dict(zip(times["layer"], times["share"], strict=True)))
        path = folder / f"engine-{'-'.join(names)}.png"
        svg = render.written(engine_graph.draw, graph, path)
        drawn.append(Figure(title, engine_graph.CAPTION, f"{folder.name}/{path.name}", svg, layers.TITLE))
    return drawn, left_out
