"""Plots: what they show, and that the same frame gives the same bytes."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from tests.unit import tuning_records
from tests.unit.facts import facts, states
from tests.unit.graph_records import graphs_of, records_of
from tests.unit.serving_records import document_of

from inferprof import registry, spread
from inferprof.case import STAGES
from inferprof.errors import UserError
from inferprof.plots import (
    batch,
    distribution,
    graph_memory,
    iteration,
    latency,
    render,
    roofline,
    serving,
    speed_up,
    stacked,
    style,
    telemetry,
    tuning,
)
from inferprof.tables import graph_memory as graph_memory_table
from inferprof.tables import tuning as tuning_table
from inferprof.tables.limits.waterfall import PARTS

CHOICE = tuning_records.choice(64, {"small": 20.0, "wide": 30.0, "large": None})
TELEMETRY = {
    "t_ns": [0, 50_000_000, 100_000_000],
    "sm_mhz": [345.0, 1980.0, None],
    "power_w": [70.0, 400.0, 690.0],
    "temperature_c": [30, 31, 40],
    "reasons": [0, None, 4],
}


def events() -> pd.DataFrame:
    """An iteration of 100 µs: a stage, a launch, two kernels with 20 µs between them, and a synchronise."""
    rows = [
        ("stage:execute", "range", None, 0, 90),
        ("cudaLaunchKernel", "api", None, 5, 10),
        ("gemm", "kernel", 7, 10, 40),
        ("soft<max>" * 20, "kernel", 7, 60, 90),
        ("cudaStreamSynchronize", "api", None, 30, 100),
    ]
    frame = pd.DataFrame(rows, columns=["name", "kind", "stream", "start", "end"]).astype({"stream": "Int64"})
    frame = frame.assign(node=None, device=frame["stream"].where(frame["stream"].isna(), 0))
    frame[["start", "end"]] *= 1000
    return frame


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
            row |= {"standing": "front", "against": None}
            row |= {"speed_up": np.nan, "speed_up_low": np.nan, "speed_up_high": np.nan, "verdict": "baseline"}
            if precision == "fp16":
                row |= {"speed_up": slowest, "speed_up_low": slowest * 0.99, "speed_up_high": slowest * 1.01}
                row |= {"verdict": "faster", "speed_up_by": "device"}
            row |= {"sequence": 64 * size, "end_to_end_samples": ms * 1e6 * np.linspace(0.9, 1.1, 101)}
            row |= {"telemetry": TELEMETRY, "events": events(), "events_tool": "nsys"}
            row |= {"graph_curve": graph_memory_table.curves(records_of(graphs_of()))}
            row |= {"trials": tuning_table.trials(tuning_records.records_of(("tuned", f"b{size}", [CHOICE])))}
            row |= {"served": (document_of("slow", f"vit/{precision}/ort_cuda/default/b8"),) if size == 8 else None}
            row |= {
                "kernel_classes": {"gemm": 0.75, "softmax": 0.25},
                "iteration": {"gpu_busy": 0.6, "idle_sync": 0.4},
            }
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
    fp16 = next(line for line in right.containers if line.get_label() == "fp16 · ort_cuda")
    assert np.asarray(fp16[0].get_ydata()).tolist() == pytest.approx([1000.0, 2000.0])


def test_the_interval_of_throughput_is_that_of_the_median_turned_over():
    left, right = batch.DEVICE.draw(measurements(batches=(1, 4))).axes
    spans = [next(iter(ax.containers))[2][0].get_segments()[0][:, 1].tolist() for ax in (left, right)]
    assert spans[0] == pytest.approx([2.0 * 0.99, 2.0 * 1.02])
    assert spans[1] == pytest.approx([1e3 / (2.0 * 1.02), 1e3 / (2.0 * 0.99)])


def test_of_too_many_lines_each_runtime_keeps_its_fastest():
    slow = measurements(slowest=900.0).assign(backend="ort_cpu").query("precision == 'fp32'")
    many = [measurements().assign(variant=f"v{index}") for index in range(batch.MOST_LINES)]
    left, _ = batch.DEVICE.draw(pd.concat([slow, *many], ignore_index=True)).axes
    names = [str(line.get_label()) for line in left.containers]
    assert len(names) == batch.MOST_LINES
    assert [name for name in names if "ort_cpu" in name] == ["fp32 · ort_cpu"]


def test_stage_shares_fill_the_bar():
    ax = stacked.STAGES_OF_CASES.draw(measurements()).axes[0]
    ends = [patch.get_path().get_extents(patch.get_patch_transform()).x1 for patch in ax.patches]
    assert max(ends) == pytest.approx(100.0)


def test_the_parts_of_the_waterfall_fill_the_median_and_those_that_no_case_has_are_not_drawn():
    frame = measurements().assign(tail_part_ms=np.nan)
    frame["unexplained_part_ms"] += frame["end_to_end_ms"] / len(PARTS)
    figure = stacked.WATERFALL.draw(frame)
    for ax, shape in zip(figure.axes, ("b1", "b8"), strict=True):
        ends = [patch.get_path().get_extents(patch.get_patch_transform()).x1 for patch in ax.patches]
        assert max(ends) == pytest.approx(frame.loc[frame["shape"] == shape, "end_to_end_ms"].max())
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        *("launch", "idle", "copy", "memory", "compute", "latency"),
        *("kernels, unsplit", "execution, unsplit", "unexplained"),
    ]


SUFFIXES = (".svg", ".png")


@pytest.mark.parametrize("plot", registry.plots().values(), ids=registry.plots())
def test_a_plot_is_the_same_bytes_twice_and_takes_the_colour_of_its_page(plot, tmp_path):
    frame = measurements()
    assert render.lacks(plot, frame) is None
    svgs = [render.render(plot, frame, tmp_path / f"{index}{suffix}") for index in (0, 1) for suffix in SUFFIXES]
    assert len(set(svgs)) == 1
    for suffix in SUFFIXES:
        assert (tmp_path / f"0{suffix}").read_bytes() == (tmp_path / f"1{suffix}").read_bytes()
    alone = ET.fromstring((tmp_path / "0.svg").read_bytes())
    assert alone[0].tag.endswith("rect") and alone[0].attrib["fill"] == "white"
    assert "currentColor" in svgs[0] and style.INK not in svgs[0]
    ET.fromstring(svgs[0])


def test_plots_that_several_processes_draw_are_the_same_bytes_in_the_same_order(tmp_path):
    draws = [latency.DEVICE.draw, latency.END_TO_END.draw] * 3  # more than wait for another process: both draw

    def pngs(processes: int) -> list[Path]:
        return [tmp_path / f"{processes}-{place}.png" for place in range(len(draws))]

    def drawn(processes: int) -> list[str | render.Failed]:
        drawings = [(draw, measurements(), png) for draw, png in zip(draws, pngs(processes), strict=True)]
        with spread.over(processes) as every:
            return render.every(drawings, every)()

    alone, shared = drawn(1), drawn(2)
    assert alone == shared and alone[0] != alone[1]
    assert [png.read_bytes() for png in pngs(1)] == [png.read_bytes() for png in pngs(2)]


def no_plot(frame: pd.DataFrame) -> Any:
    raise ValueError("no axis\nin line two")


@pytest.mark.parametrize("processes", [1, 2])
def test_a_plot_that_raises_leaves_the_others_and_no_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, processes: int
) -> None:
    draws = {"failing": no_plot, "not_sent": lambda frame: None, "device": latency.DEVICE.draw}
    drawings = [(draw, measurements(), tmp_path / f"{name}.png") for name, draw in draws.items()]
    with spread.over(processes) as every:
        failed, not_sent, svg = render.every(drawings, every)()
    assert isinstance(failed, render.Failed)
    assert "no axis in line" in failed.reason and "test_plots.py:" in failed.reason
    assert isinstance(not_sent, render.Failed)
    assert isinstance(svg, str) and svg.startswith("<svg")
    assert [path.name for path in tmp_path.iterdir()] == ["device.png"]
    caplog.clear()


def test_a_plot_of_a_column_that_does_not_exist_is_left_out() -> None:
    plot = replace(latency.DEVICE, needs={"made_up": 1})
    assert facts(render.lacks(plot, measurements())) == ["made_up", "no"]


def test_memory_of_cuda_graphs_is_a_line_per_case_and_time_is_saved_per_batch():
    left, middle, right = graph_memory.GRAPHS.draw(measurements(batches=(16,))).axes
    assert [facts(text) for text in [str(line.get_label()) for line in left.lines]] == [
        ["fp32", "ort_cuda", "b16"],
        ["fp16", "ort_cuda", "b16"],
    ]
    assert np.asarray(left.lines[0].get_ydata()).tolist() == [0.0, 10.0, 50.0, 210.0]
    assert np.asarray(middle.lines[0].get_ydata()).tolist() == [0.0, 30.0, 150.0, 630.0]
    assert np.asarray(right.lines[0].get_xdata()).tolist() == [1, 4, 16]
    assert np.asarray(right.lines[0].get_ydata()).tolist() == [3.0, 1.0, 0.0]


def test_configurations_are_rows_and_sizes_columns_each_against_the_winner_there():
    frame = measurements(batches=(64, 512)).query("precision == 'fp16'")
    moved = tuning_records.choice(512, {"small": 90.0, "wide": 50.0, "large": 60.0})
    choices = (("b64", CHOICE), ("b512", moved))
    tables = [tuning_table.trials(tuning_records.records_of(("tuned", shape, [one]))) for shape, one in choices]
    frame["trials"] = pd.Series(tables, index=frame.index, dtype=object)
    (ax,) = tuning.TUNING.draw(frame).axes
    assert [label.get_text() for label in ax.get_xticklabels()] == ["b64", "b512"]
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        "M64 N256 w8",
        "M64 N64 w4",
        "M128 N128 w4",
    ]
    digits = [text.get_text() for text in ax.texts if text.get_text()]
    assert digits == ["1.50", "1.00", "1.00", "1.80", "–", "1.20"]
    assert ax.get_title(loc="right") == "gemm_kernel\nK64 s3"


def test_a_plot_without_its_data_says_what_it_lacks():
    frame = measurements(batches=(1,)).assign(device_ms=np.nan)
    assert render.lacks(latency.DEVICE, frame) == "device_ms was not measured"
    assert facts(render.lacks(batch.END_TO_END, frame), "batch") == ["2", "batch", "1"]


def test_each_number_format_has_a_colour_of_its_own():
    formats = registry.precisions()
    chosen = style.colours(formats)
    assert len(set(chosen.values())) == len(formats)
    assert {name: chosen[name] for name in formats if formats[name].colour} == {
        name: described.colour for name, described in formats.items() if described.colour
    }


def test_a_point_of_the_roofline_is_what_the_case_reaches_under_the_roof_of_its_format():
    (ax,) = roofline.DIAGRAM.draw(measurements(batches=(1, 4))).axes
    lines = {str(line.get_label()): line for line in ax.lines}
    fp16 = lines["fp16 · ort_cuda"]
    assert np.asarray(fp16.get_xdata()).tolist() == [10.0, 40.0]
    assert np.asarray(fp16.get_ydata()).tolist() == pytest.approx([1.0, 0.5])
    tops = [float(np.asarray(line.get_ydata()).max()) for line in ax.lines if line not in lines.values()]
    assert sorted({round(top, 6) for top in tops} | {10.0, 100.0}) == [10.0, 100.0]
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")


def test_shapes_whose_names_would_lie_on_each_other_share_one_and_lines_go_by_intensity():
    frame = measurements(batches=(1, 2, 64)).assign(
        intensity=lambda rows: rows["batch"].map({1: 300.0, 2: 10, 64: 11})
    )
    (ax,) = roofline.DIAGRAM.draw(frame).axes
    assert [text.get_text() for text in ax.texts if text.get_text().startswith("b")] == ["b2", "b64", "b1"]
    near = frame.assign(flops=lambda rows: rows["device_ms"] * 1e9)  # all as high
    assert [text.get_text() for text in roofline.DIAGRAM.draw(near).axes[0].texts if text.get_text()[0] == "b"] == [
        "b2",
        "b1",
    ]
    fp16 = next(line for line in ax.lines if line.get_label() == "fp16 · ort_cuda")
    assert np.asarray(fp16.get_xdata()).tolist() == [10, 11, 300]


def test_without_roofs_there_is_no_diagram():
    frame = measurements().assign(peak_flops=np.nan, bandwidth=np.nan)
    assert render.lacks(roofline.DIAGRAM, frame) == "peak_flops was not measured"


def test_graphs_without_flops_have_no_place_on_the_roofline() -> None:
    frame = measurements(batches=(1, 4))
    with pytest.raises(UserError, match="no graph has FLOPs"):
        roofline.DIAGRAM.draw(frame.assign(flops=0.0, intensity=0.0))
    some = frame.assign(intensity=frame["intensity"].where(frame["batch"] == 4, 0.0))
    (ax,) = roofline.DIAGRAM.draw(some).axes
    assert min(min(np.asarray(line.get_xdata()).tolist()) for line in ax.lines) > 0


def extents(patch: Any) -> tuple[float, float, float, float]:
    """x0, y0, x1, y1 of a bar."""
    box = patch.get_path().get_extents(patch.get_patch_transform())
    return (box.x0, box.y0, box.x1, box.y1)


def gids(artists: Any) -> list[str]:
    """What the artists say when they are pointed at."""
    return [text.removeprefix(style.TIP) for artist in artists if (text := artist.get_gid())]


def test_sequence_lengths_are_drawn_per_batch_only_where_there_are_some():
    frame = measurements().assign(sequence=None)
    assert render.lacks(batch.SEQUENCE, frame) == "sequence was not measured"
    left, _ = batch.SEQUENCE.draw(measurements(batches=(1,)).assign(sequence=128)).axes
    assert left.get_xlabel() == "sequence length"
    assert [line.get_label() for line in left.containers] == ["fp32 · ort_cuda b1", "fp16 · ort_cuda b1"]


def test_beside_a_line_single_points_are_left_out_however_fast_they_are():
    short, long = (measurements(batches=(1,)).assign(sequence=length) for length in (16, 512))
    many = [measurements(batches=(size,)).assign(sequence=128) for size in range(2, 2 + batch.MOST_LINES)]
    left, _ = batch.SEQUENCE.draw(pd.concat([short, *many, long], ignore_index=True)).axes
    assert [line.get_label() for line in left.containers] == ["fp32 · ort_cuda b1", "fp16 · ort_cuda b1"]
    assert left.get_xticks().tolist() == [16, 512]


def test_the_matrix_says_speed_up_and_interval_and_tells_slower_and_undecided_apart_without_colour():
    frame = measurements(batches=(1,))
    slower = frame[frame["precision"] == "fp16"].assign(
        precision="int8", speed_up=0.5, speed_up_low=0.49, speed_up_high=0.51, verdict="slower"
    )
    undecided = slower.assign(precision="fp8", speed_up=1.01, speed_up_low=np.nan, verdict="undecided")
    (ax,) = speed_up.MATRIX.draw(pd.concat([frame, slower, undecided], ignore_index=True)).axes
    assert labels(ax) == [f"{name} · ort_cuda" for name in ("fp16", "fp8", "fp32", "int8")]
    texts = {round(text.get_position()[1]): text.get_text() for text in ax.texts}
    assert texts == {0: "2×  (1.98 to 2.02)", 1: "≈ 1.01×", 2: "baseline", 3: "0.5×  (0.49 to 0.51)"}
    hatches = {round(extents(patch)[1] + 0.46): patch.get_hatch() for patch in ax.patches}
    assert hatches == {0: "", 1: "", 2: "", 3: "///"}
    opaque = {round(extents(patch)[1] + 0.46): patch.get_facecolor()[3] for patch in ax.patches}
    assert opaque == {0: 1.0, 1: 0.0, 2: 0.0, 3: 1.0}  # or the hatch is lost in SVG; the others are the page's own
    inks = {round(text.get_position()[1]): text.get_color() for text in ax.texts}
    assert inks == {0: style.ON_COLOUR, 1: style.INK, 2: style.INK, 3: style.ON_COLOUR}


def test_a_matrix_of_many_shapes_says_the_interval_to_who_points_at_it():
    (ax,) = speed_up.MATRIX.draw(measurements(batches=tuple(range(1, speed_up.ROOMY + 2)))).axes
    assert {text.get_text() for text in ax.texts} == {"2×", "baseline"}
    assert [facts(text, "baseline") for text in gids(ax.patches)[:2]] == [
        ["fp32", "ort_cuda", "b1", "baseline"],
        ["fp16", "ort_cuda", "b1", "faster", "device", "1.98", "2.02"],
    ]


def test_a_tail_is_drawn_of_as_many_samples_as_the_table_asks_for():
    few = measurements(batches=(1,))
    many = few.assign(end_to_end_samples=few["end_to_end_samples"].map(lambda samples: np.tile(samples, 3)))
    drawn = [distribution.BOXES.draw(frame).axes[0] for frame in (few, many)]
    assert [sum(line.get_marker() == "|" for line in ax.lines) for ax in drawn] == [0, 2]


def test_a_box_spans_the_middle_half_of_the_samples_around_the_median():
    ax = distribution.BOXES.draw(measurements(batches=(1,))).axes[0]
    assert [extents(bar)[::2] for bar in ax.patches] == [pytest.approx((-5.0, 5.0))] * 2
    assert facts(gids(ax.patches)[0]) == ["1 ms", "slowest", "1.1 ms", "101"]


def test_percentiles_end_at_the_slowest_sample():
    (ax,) = distribution.PERCENTILES.draw(measurements(batches=(1,))).axes
    ratio = np.asarray(ax.lines[0].get_ydata())
    assert (ratio[0], ratio[-1]) == pytest.approx((0.9, 0.9 + 0.2 * (1 - 1 / 101)))


def test_kernel_classes_and_idle_causes_fill_their_bars_and_only_those_that_occur_are_in_the_legend():
    for plot, names in (
        (stacked.KERNEL_CLASSES, ["gemm", "softmax"]),
        (stacked.IDLE_GAPS, ["busy", "idle: synchronise"]),
    ):
        figure = plot.draw(measurements())
        assert [text.get_text() for text in figure.legends[0].get_texts()] == names
        assert max(extents(patch)[2] for patch in figure.axes[0].patches) == pytest.approx(100.0)


def test_no_interval_reaches_beyond_the_axes_of_a_plot_of_latencies():
    frame = measurements(batches=(1,))
    most = frame["end_to_end_ms"].max()
    for other in (most / 2, most / 20):  # linear, and logarithmic
        ends = {"end_to_end_ms": [most, other], "end_to_end_low_ms": other / 4, "end_to_end_high_ms": most * 9}
        low, high = latency.END_TO_END.draw(frame.assign(**ends)).axes[0].get_xlim()
        assert low <= other / 4
        assert high > most * 9


def test_the_looks_of_32_series_differ():
    assert len({style.look(place) for place in range(32)}) == 32


def test_an_iteration_has_a_lane_per_kind_and_the_gaps_of_the_gpu_in_one_of_their_own():
    ax = iteration.TIMELINE.draw(measurements(batches=(1,))).axes[0]
    assert labels(ax) == [
        *("host: stages", "host: API calls", "host: synchronise", "stream 7: kernels", "GPU: idle"),
    ]
    assert [(label.split("\n")[0], *facts(label.split("\n")[1])) for label in gids(ax.patches)] == [
        ("execute", "90 µs", "0 µs"),
        ("cudaLaunchKernel", "5 µs", "5 µs"),
        ("cudaStreamSynchronize", "70 µs", "30 µs"),
        ("gemm", "30 µs", "10 µs"),
        (("soft<max>" * 20)[:80], "30 µs", "60 µs"),
        ("idle", "20 µs", "40 µs"),
        ("idle", "10 µs", "0 µs"),
    ]


def test_each_of_several_gpus_has_lanes_and_gaps_of_its_own():
    own = events()
    second = own[own["kind"].eq("kernel")].assign(device=1)
    frame = measurements(batches=(1,))
    frame = frame.assign(events=pd.Series([pd.concat([own, second], ignore_index=True)] * len(frame), dtype=object))
    assert labels(iteration.TIMELINE.draw(frame).axes[0]) == [
        *("host: stages", "host: API calls", "host: synchronise"),
        *(f"GPU {gpu}: {lane}" for gpu in (0, 1) for lane in ("stream 7: kernels", "idle")),
    ]


def test_throttled_samples_of_the_clock_are_marked_and_what_nvml_does_not_tell_is_a_gap():
    clock, power, _ = telemetry.OVER_TIME.draw(measurements(batches=(1,))).axes
    line, marked = power.lines[:2]
    assert np.asarray(line.get_xdata()).tolist() == pytest.approx([0.0, 0.05, 0.1])
    assert (np.asarray(marked.get_xdata()).tolist(), np.asarray(marked.get_ydata()).tolist()) == ([0.1], [690.0])
    assert np.isnan(np.asarray(clock.lines[0].get_ydata(), float)[2])


def test_tips_become_titles_and_the_numbers_of_a_label_keep_their_digits(tmp_path):
    svg = render.render(iteration.TIMELINE, measurements(), tmp_path / "x.svg")
    titles = [title.text for title in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}title")]
    assert any(states(title, "gemm", "30 µs", "10 µs") for title in titles)
    assert [title for title in titles if title and "soft<max>" in title]
    assert ">1.234<" in render.render(latency.DEVICE, measurements(slowest=1.234), tmp_path / "y.svg")
    assert not re.findall(r'"[^"<>]*\d\.\d{3}[^"<>]*"', svg)


def test_the_plot_of_load_has_a_line_and_its_measured_points_for_each_policy_and_the_objective() -> None:
    (ax,) = serving.SERVING.draw(measurements()).axes
    lines = [
        (str(line.get_label()), np.asarray(line.get_xdata()).tolist(), np.asarray(line.get_ydata()).tolist())
        for line in ax.lines
    ]
    slow = [(label, xs) for label, xs, _ in lines if label.startswith("slow")]
    assert [label for label, _ in slow] == [f"slow · {name} · ort_cuda · default · b8" for name in ("fp32", "fp16")]
    assert max(slow[0][1]) == 0.94 * 800
    assert 60.0 in [ys[0] for _, xs, ys in lines if xs == [400.0]]
    assert any(ys == [60.0, 60.0] for _, _, ys in lines)
