"""The layers of our capture and of other people's by time, from either tool or both."""

from __future__ import annotations

import lzma
import shutil
from pathlib import Path

import pandas as pd
import pytest

from inferprof.profilers import trt_layers, trt_nodes
from inferprof.tables.nodes import layer_times
from inferprof.tables.schema import conform

REGION = "{ForeignNode[b.0.n1.b...(Unnamed Layer* 229) [ElementWise]]}"


@pytest.fixture(scope="module")
def traced(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    path = tmp_path_factory.mktemp("capture") / "b8.sqlite"
    path.write_bytes(lzma.decompress((repository / "tests/data/nsys/h100_tensorrt_vit2.sqlite.xz").read_bytes()))
    shutil.copy(repository / "tests/data/trt_layers/h100_tensorrt_vit2.graph.json", path.with_suffix(".graph.json"))
    return trt_nodes.read(path)


@pytest.fixture(scope="module")
def timed(repository: Path) -> pd.DataFrame:
    return trt_layers.read(repository / "tests/data/trt_layers/h100_tensorrt_vit2.profile.json")


def test_with_both_the_kernels_decide_and_the_timed_layers_stand_beside_them(
    traced: pd.DataFrame, timed: pd.DataFrame
) -> None:
    table = layer_times.of_case(pd.concat([timed, traced]))
    assert table["layer"].to_list()[:2] == [REGION, "/p/Conv"]
    region = table.iloc[0]
    assert (region["layer_type"], region["kernel_ns"], region["launches"]) == ("Myelin", 178_767.9, 23)
    assert round(region["duration_ns"]) == 226_880
    assert region["share"] == pytest.approx(1_787_679 / 2_451_209)
    assert table["conversion"].to_list() == [None, None, "reformat", "reformat", None]


def test_without_a_trace_the_timed_layers_decide(timed: pd.DataFrame) -> None:
    table = layer_times.of_case(timed)
    assert table["share"].sum() == pytest.approx(1)
    assert round(table["share"].iloc[0], 4) == 0.6265
    assert table["kernel_ns"].isna().all() and table["launches"].isna().all()


def test_without_timed_layers_the_trace_is_enough(traced: pd.DataFrame) -> None:
    table = layer_times.of_case(traced)
    assert table["duration_ns"].isna().all()
    assert table["kernel_ns"].sum() == pytest.approx(245_120.9)


def test_layers_of_tensorrt_10_have_nodes_and_formats(shared: Path) -> None:
    table = layer_times.of_case(trt_layers.read(shared / "real/trt_json/trt10_trtexec_alexnet_fp16.profile.json"))
    first = table.iloc[0]
    assert first["layer"] == "/classifier/classifier_1/Gemm_myl9_2"
    assert first["nodes"] == ("/classifier/classifier.1/Gemm", "/classifier/classifier.2/Relu")
    assert (first["inputs"], first["outputs"]) == ("fp16, fp32", "fp16")


def test_kernels_per_inference_carry_their_node_and_how_sure_it_is(traced: pd.DataFrame) -> None:
    first, second = layer_times.kernels(traced).to_dict("records")[:2]
    assert (first["layer"], first["node"], first["launches"], first["confidence"]) == ("/p/Conv", "/p/Conv", 1, 1)
    assert first["duration_ns"] == 57_156.2
    assert (second["layer"], second["launches"]) == (REGION, 2) and pd.isna(second["node"])


def test_kernels_of_no_layer_are_a_row_of_their_own() -> None:
    rows = [
        {"level": "kernel", "name": "mine", "metric": "duration_total", "value": 60.0, "instances": 2},
        {
            "level": "range",
            "name": "ExecutionContext::enqueue",
            "metric": "duration_total",
            "value": 9.0,
            "instances": 2,
        },
    ]
    frame = conform(pd.DataFrame(rows), "trt_nodes")
    table = layer_times.of_case(frame)
    assert table[["layer", "kernel_ns", "share"]].to_numpy().tolist() == [[layer_times.OUTSIDE, 30.0, 1.0]]


def test_iterations_count_where_a_graph_leaves_no_inference(traced: pd.DataFrame) -> None:
    assert layer_times.inferences(traced) == 10
    row = {"level": "range", "name": "iteration", "metric": "duration_total", "value": 1.0, "instances": 7}
    assert layer_times.inferences(conform(pd.DataFrame([row]), "trt_nodes")) == 7
