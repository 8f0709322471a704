"""The graph of an engine: who reads whom, where each layer stands, and how it is drawn."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
from matplotlib.patches import FancyBboxPatch

from inferprof.plots import engine_graph, render
from inferprof.profilers import trt_layers
from inferprof.tables.nodes import layer_times
from inferprof.tables.nodes.trt_engine import Layer, Tensor


def layer(name: str, *reads: str, dtype: str | None = "fp16", kind: str = "gemm") -> Layer:
    inputs = tuple(Tensor(read, (8,), "fp16", "Half") for read in reads)
    return Layer(name, kind=kind, inputs=inputs, outputs=(Tensor(name, (8,), dtype, dtype),))


DIAMOND = (
    layer("top", "x"),
    layer("left", "top"),
    layer("right", "top", dtype="fp8"),
    layer("join", "left", "right"),
)


def test_layers_stand_below_all_that_they_read() -> None:
    graph = layer_times.graph_of(DIAMOND, {"top": 0.5})
    assert graph["reads"].to_list() == [(), (0,), (0,), (1, 2)]
    assert graph["depth"].to_list() == [0, 1, 1, 2]
    assert graph["lane"].to_list() == [0, 0, 1, 0]
    assert graph["share"].to_list() == [0.5, None, None, None]
    assert graph["dtype"].to_list() == ["fp16", "fp16", "fp8", "fp16"]


def test_a_layer_is_a_box_with_its_share_and_each_reader_has_a_line() -> None:
    ax = engine_graph.draw(layer_times.graph_of(DIAMOND, {"top": 0.5, "join": 0.25})).axes[0]
    assert [text.get_text() for text in ax.texts] == ["top  50.0 %", "left", "right", "join  25.0 %"]
    assert len([patch for patch in ax.patches if isinstance(patch, FancyBboxPatch)]) == 4
    assert len(ax.lines) == 4


def test_the_more_time_a_layer_takes_the_fuller_it_is() -> None:
    ax = engine_graph.draw(layer_times.graph_of(DIAMOND, {"top": 0.5, "left": 0.05, "right": 0.0})).axes[0]
    top, left, right = (patch.get_facecolor()[3] for patch in ax.patches[:3])
    assert top > left > right


def test_what_only_converts_is_framed_and_in_the_legend() -> None:
    layers = (layer("a", "x"), layer("cast", "a", dtype="fp32", kind="Reformat"))
    figure = engine_graph.draw(layer_times.graph_of(layers, {}))
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["writes fp16", "writes fp32", "only converts"]
    plain, framed = figure.axes[0].patches
    assert framed.get_linewidth() > plain.get_linewidth()


def test_lines_go_around_the_layers_between() -> None:
    layers = (layer("a", "x"), layer("b", "a"), layer("c", "b", "a"))
    ax = engine_graph.draw(layer_times.graph_of(layers, {})).axes[0]
    assert sorted(np.asarray(line.get_xydata()).shape[0] for line in ax.lines) == [2, 2, 4]


def test_a_deep_engine_has_several_columns_and_stays_inside_of_the_drawing(shared: Path) -> None:
    frame = trt_layers.read(shared / "real/trt_json/trt8_trex_mobilenet_qat.profile.json")
    times = layer_times.of_case(frame)
    shares = dict(zip(times["layer"], times["share"], strict=True))
    graph = layer_times.graph_of(layer_times.described(frame), shares)
    ax = engine_graph.draw(graph).axes[0]
    assert len(ax.texts) == 73
    assert len({round(text.get_position()[0], 3) for text in ax.texts}) == 2
    xs = np.concatenate([np.asarray(line.get_xdata(), float) for line in ax.lines])
    assert xs.min() > 0 and xs.max() < 1


def test_the_same_engine_gives_the_same_svg(tmp_path: Path) -> None:
    graph = layer_times.graph_of(DIAMOND, {"top": 0.5})
    svgs = [render.written(engine_graph.draw, graph, tmp_path / "engine.png") for _ in range(2)]
    assert svgs[0] == svgs[1]
    assert ET.fromstring(svgs[0]).tag.endswith("svg")
    assert (tmp_path / "engine.png").stat().st_size > 1000


def test_names_that_hold_dollars_are_no_formulas() -> None:
    graph = layer_times.graph_of((layer("$a$", "x"), layer("b", "$a$")), {})
    assert engine_graph.draw(graph).axes[0].texts[0].get_text() == "$a$"
