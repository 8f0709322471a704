"""Plots: what they show, and that the same frame gives the same bytes."""

import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes

from inferprof import registry
from inferprof.lane import STAGES
from inferprof.plots import batch, latency, render, roofline, stages, style, waterfall
from inferprof.tables.waterfall import PARTS


def measurements(batches: tuple[int, ...] = (1, 8), slowest: float = 2.0) -> pd.DataFrame:
    rows = []
    for size in batches:
        for precision, factor in (("fp32", slowest), ("fp16", 1.0)):
            ms = factor * size**0.5
            row: dict[str, Any] = {
                "model": "vit",
                "precision": precision,
                "backend": "ort_cuda",
                "variant": "default",
            }
            row |= {"shape": f"b{size}", "batch": size, "sqnr_db": 60.0 if precision == "fp16" else np.nan}
            row |= {"identical": precision == "fp32", "accuracy": "pass"}
            for boundary in ("device", "end_to_end"):
                row |= {f"{boundary}_ms": ms, f"{boundary}_low_ms": ms * 0.99, f"{boundary}_high_ms": ms * 1.02}
            row |= {f"{part}_part_ms": ms / len(PARTS) for part in PARTS}
            peak = 10e12 if precision == "fp32" else 100e12
            row |= {"intensity": size * 10.0, "flops": 1e9, "bandwidth": 1e12, "peak_flops": peak}
            rows.append(row | {f"{stage}_ms": ms / 6 for stage in STAGES})
    return pd.DataFrame(rows)


def labels(ax: Axes) -> list[str]:
    return [label.get_text() for label in ax.get_yticklabels()]


def test_the_fastest_case_is_at_the_top_of_each_panel():
    axes = latency.END_TO_END.draw(measurements()).axes
    assert [ax.get_title(loc="left") or ax.get_title() for ax in axes] == ["b1", "b8"]
    assert labels(axes[0]) == ["fp16 · ort_cuda", "fp32 · ort_cuda"]
    assert axes[0].yaxis_inverted()


def test_bars_start_at_zero_and_a_wide_range_has_points_on_a_log_axis():
    bars = latency.DEVICE.draw(measurements(slowest=2.0)).axes[0]
    points = latency.DEVICE.draw(measurements(slowest=40.0)).axes[0]
    assert (bars.get_xscale(), bars.get_xlim()[0], len(bars.patches)) == ("linear", 0.0, 2)
    assert (points.get_xscale(), len(points.patches)) == ("log", 0)


def test_throughput_is_batch_over_median():
    _, right = batch.DEVICE.draw(measurements(batches=(1, 4))).axes
    fp16 = next(line for line in right.lines if line.get_label() == "fp16 · ort_cuda")
    assert np.asarray(fp16.get_ydata()).tolist() == pytest.approx([1000.0, 2000.0])


def test_stage_shares_fill_the_bar():
    ax = stages.STACKED.draw(measurements()).axes[0]
    ends = [patch.get_path().get_extents(patch.get_patch_transform()).x1 for patch in ax.patches]
    assert max(ends) == pytest.approx(100.0)


def test_the_parts_of_the_waterfall_fill_the_median_and_those_that_no_case_has_are_not_drawn():
    frame = measurements().assign(tail_part_ms=np.nan)
    frame["unexplained_part_ms"] += frame["end_to_end_ms"] / len(PARTS)
    figure = waterfall.WATERFALL.draw(frame)
    for ax, shape in zip(figure.axes, ("b1", "b8"), strict=True):
        ends = [patch.get_path().get_extents(patch.get_patch_transform()).x1 for patch in ax.patches]
        assert max(ends) == pytest.approx(frame.loc[frame["shape"] == shape, "end_to_end_ms"].max())
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        *("launch", "idle", "copy", "memory", "compute", "latency"),
        *("kernels, unsplit", "execution, unsplit", "unexplained"),
    ]


@pytest.mark.parametrize("plot", registry.plots().values(), ids=registry.plots())
def test_a_plot_is_the_same_bytes_twice_and_takes_the_colour_of_its_page(plot, tmp_path):
    frame = measurements()
    assert render.lacks(plot, frame) is None
    svgs = [render.render(plot, frame, tmp_path / f"{index}.png") for index in range(2)]
    assert svgs[0] == svgs[1]
    assert (tmp_path / "0.png").read_bytes() == (tmp_path / "1.png").read_bytes()
    assert "currentColor" in svgs[0] and style.INK not in svgs[0]
    ET.fromstring(svgs[0])


def test_a_plot_without_its_data_says_what_it_lacks():
    frame = measurements(batches=(1,)).assign(device_ms=np.nan)
    assert render.lacks(latency.DEVICE, frame) == "device_ms was not measured"
    assert render.lacks(batch.END_TO_END, frame) == "it needs 2 different values of batch, and there is 1"


def test_each_number_format_has_a_colour_of_its_own():
    chosen = style.colours([*style.FORMAT_COLOURS, "fp16_sparse"])
    assert len(set(chosen.values())) == len(style.FORMAT_COLOURS) + 1


def test_a_point_of_the_roofline_is_what_the_case_reaches_under_the_roof_of_its_format():
    (ax,) = roofline.DIAGRAM.draw(measurements(batches=(1, 4))).axes
    lines = {str(line.get_label()): line for line in ax.lines}
    fp16 = lines["fp16 · ort_cuda"]
    assert np.asarray(fp16.get_xdata()).tolist() == [10.0, 40.0]
    assert np.asarray(fp16.get_ydata()).tolist() == pytest.approx([1.0, 0.5])
    tops = [float(np.asarray(line.get_ydata()).max()) for line in ax.lines if line not in lines.values()]
    assert sorted({round(top, 6) for top in tops} | {10.0, 100.0}) == [10.0, 100.0]
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")


def test_without_roofs_there_is_no_diagram():
    frame = measurements().assign(peak_flops=np.nan, bandwidth=np.nan)
    assert render.lacks(roofline.DIAGRAM, frame) == "peak_flops was not measured"
