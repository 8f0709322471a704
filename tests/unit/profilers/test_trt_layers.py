"""What TensorRT and trtexec say of layers, in files of other people (8.4 to 10.x) and of our own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.unit.facts import facts, naming, states

from inferprof.case import Case
from inferprof.errors import UserError
from inferprof.machine.hardware import Machine
from inferprof.profilers import kineto, trt_layers
from inferprof.readers import trt_json
from inferprof.tables.nodes import trt_engine
from inferprof.tables.nodes.trt_layers import layers_of, tidy

VIT2 = "trt_layers/h100_tensorrt_vit2"
PROFILES = {
    "trt8_trex_mobilenet_qat": (
        *(73, 6610, 470_389),
        *("features.15.conv.2.weight + QuantizeLinear_722 + Conv_726 + Add_728", 16_448.8),
    ),
    "trt8_trex_resnet18_a100_fp16": (36, 1, 1_016_832, "Conv_0 + Relu_1", 111_616.0),
    "trt10_trtexec_alexnet_fp16": (14, 14590, 524_171, "/classifier/classifier_1/Gemm_myl9_2", 239_573.0),
}
"""Layers, inferences, sum of the means in ns, and the longest with its mean: PROVENANCE.md."""
TIMES = {
    "trt8_trex_mobilenet_qat": (8945, 356_062),
    "trt8_trex_resnet18_a100_fp16": (3698, 862_354),
    "trt10_trtexec_alexnet_fp16": (6039, 495_324),
}
"""Inferences and their mean GPU compute time in ns: PROVENANCE.md."""


def of(frame: pd.DataFrame, metric: str) -> pd.Series[Any]:
    """The metric by name, numbers or words."""
    rows = frame[frame["metric"] == metric].set_index("name")
    return rows["value"] if rows["value"].notna().all() else rows["text"]


# --- other people's files --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROFILES)
def test_times_and_layers_of_one_trtexec_run_are_joined(name: str, shared: Path) -> None:
    layers, count, total, longest, mean = PROFILES[name]
    frame = trt_layers.read(shared / f"real/trt_json/{name}.profile.json")
    means = of(frame, "duration_mean")
    assert (len(means), round(means.sum())) == (layers, total)
    assert (means.idxmax(), means.max()) == (longest, pytest.approx(mean))
    assert set(frame.loc[frame["metric"] == "duration_mean", "instances"]) == {count}
    assert set(frame["level"]) == {"layer"}
    assert len(of(frame, "layer_type")) == layers


@pytest.mark.parametrize("name", TIMES)
def test_times_of_inferences_are_stages(name: str, shared: Path) -> None:
    frame = trt_layers.read(shared / f"real/trt_json/{name}.timing.json.gz")
    count, mean = TIMES[name]
    compute = frame[(frame["name"] == "compute") & (frame["metric"] == "duration_mean")].iloc[0]
    assert (compute["level"], compute["instances"], round(compute["value"])) == ("stage", count, mean)
    assert set(frame.loc[frame["level"] == "range", "name"]) == {"latency"}
    assert set(frame.loc[frame["level"] == "stage", "name"]) == {"h2d", "compute", "d2h", "enqueue"}


def test_layers_of_the_inspector_keep_what_they_are_made_of(shared: Path) -> None:
    frame = trt_layers.read(shared / "real/trt_json/trt10_resnet18_engine_info_inspector.json")
    kinds = of(frame, "layer_type").value_counts().to_dict()
    assert kinds == {"CaskConvolution": 20, "Reformat": 5, "CaskPooling": 2, "CaskGemmConvolution": 1, "NoOp": 1}
    layers = layers_of(frame)
    assert len(layers) == 29
    assert layers[1].nodes == ("/conv1/Conv", "/relu/Relu")
    assert (layers[1].weights, layers[1].sparse, layers[0].origin) == ("fp32", False, "REFORMAT")
    assert [tensor.dtype for tensor in (*layers[0].inputs, *layers[0].outputs)] == ["fp16", "fp32"]
    assert layers[0].inputs[0].dims == (1, 3, 224, 224)


def test_layers_of_myelin_name_their_nodes_and_types(shared: Path) -> None:
    layers = {
        layer.name: layer
        for layer in layers_of(trt_layers.read(shared / "real/trt_json/trt10_trtexec_alexnet_fp16.graph.json"))
    }
    gemm = layers["/classifier/classifier_1/Gemm_myl9_2"]
    assert (gemm.kind, gemm.nodes) == ("gemm", ("/classifier/classifier.1/Gemm", "/classifier/classifier.2/Relu"))
    assert [tensor.dtype for tensor in gemm.inputs] == ["fp16", "fp16", "fp32", "fp32", "fp16"]
    assert layers["dummy_shape_call__mye622_0_myl9_0"].inputs == ()


def test_an_export_of_names_alone_is_a_list_of_layers(shared: Path) -> None:
    frame = trt_layers.read(shared / "real/trt_json/trt_detr_layer_names_only_exportLayerInfo.json")
    assert len(frame) == 840
    assert set(frame["metric"]) == {"layer_type"}
    assert layers_of(frame)[10].name == "PWN(PWN(/Sub), PWN(/Div))"


def test_times_of_a_profiler_of_ones_own_have_a_shortest_and_a_longest(shared: Path) -> None:
    frame = trt_layers.read(shared / "real/trt_json/trt10_resnet18_layer_latency_custom_iprofiler.json")
    means = of(frame, "duration_mean")
    assert (len(means), round(means.iloc[0])) == (29, 16_784)
    assert set(frame["instances"]) == {100}
    assert (of(frame, "duration_min") <= of(frame, "duration_median")).all()


@pytest.mark.parametrize("name", ["exportProfile_concatenated.json", "exportTimes_concatenated.json.gz"])
def test_several_documents_of_tensorrt_7_are_refused_in_one_line(name: str, shared: Path) -> None:
    with pytest.raises(UserError, match=naming("several documents", "inferprof explain")) as caught:
        trt_layers.read(shared / f"real/trt_json/trt7_jetson_resnet50_int8_{name}")
    assert "\n" not in str(caught.value)


def test_one_document_of_tensorrt_7_is_read_without_medians(tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    path.write_text(json.dumps([{"count": 3}, {"name": "a", "timeMs": 3, "averageMs": 1, "percentage": 100}]))
    frame = trt_layers.read(path)
    assert dict(zip(frame["metric"], frame["value"], strict=True)) == {"duration_total": 3e6, "duration_mean": 1e6}
    row = {
        "startEnqMs": 0,
        "endEnqMs": 0.5,
        "startInMs": 0,
        "inMs": 0.25,
        "computeMs": 1,
        "outMs": 2,
        "latencyMs": 3.25,
    }
    path.write_text(json.dumps([row]))
    frame = trt_layers.read(path)
    means = frame[frame["metric"] == "duration_mean"].set_index("name")["value"].to_dict()
    assert means == {"h2d": 250_000, "compute": 1e6, "d2h": 2e6, "enqueue": 500_000, "latency": 3_250_000}


# --- our own capture -------------------------------------------------------------------------------------------


def test_our_capture_has_five_layers_and_their_times(repository: Path) -> None:
    frame = trt_layers.read(repository / f"tests/data/{VIT2}.profile.json")
    layers = layers_of(frame)
    assert [layer.kind for layer in layers] == [
        *("ShapeHostToDevice", "Reformat", "CaskConvolution", "Myelin", "Reformat"),
    ]
    assert of(frame, "duration_median").round().astype(int).tolist() == [19_904, 21_984, 72_896, 226_880, 20_448]
    # Without the context's shapes the inspector tells no format.
    assert {tensor.dtype for layer in layers for tensor in layer.inputs} == {None}


# --- what is refused -------------------------------------------------------------------------------------------


def test_a_file_that_is_cut_short_is_refused(shared: Path, tmp_path: Path) -> None:
    whole = (shared / "real/trt_json/trt8_trex_mobilenet_qat.graph.json").read_text()
    path = tmp_path / "layers.json"
    path.write_text(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=naming("not whole JSON", "cut short")):
        trt_layers.read(path)


def test_a_profile_of_another_engine_is_refused_with_counts_and_examples(shared: Path, tmp_path: Path) -> None:
    real = shared / "real/trt_json"
    shutil.copy(real / "trt8_trex_mobilenet_qat.graph.json", tmp_path / "x.graph.json")
    path = Path(shutil.copy(real / "trt8_trex_resnet18_a100_fp16.profile.json", tmp_path / "x.profile.json"))
    with pytest.raises(UserError) as caught:
        trt_layers.read(path)
    said = str(caught.value)
    assert facts(said, "layers")[:3] == ["36", "36", "layers"]
    assert states(
        said, "Reformatting", "CopyNode", "Input", "Tensor", "0", "Conv_0", "Relu_1", "Conv_0", "Relu_1", "MaxPool_2"
    )


def test_layers_of_another_build_do_not_match(shared: Path, tmp_path: Path) -> None:
    real = shared / "real/trt_json"
    renumbered = (real / "trt10_trtexec_alexnet_fp16.graph.json").read_text().replace("_myl9_", "_myl3_")
    (tmp_path / "x.graph.json").write_text(renumbered)
    path = Path(shutil.copy(real / "trt10_trtexec_alexnet_fp16.profile.json", tmp_path / "x.profile.json"))
    with pytest.raises(
        UserError,
        match=naming("5 of the 14", "x.profile.json", "not", "dummy_shape_call__mye622_0_myl9_0; __myl_Res_myl9_1"),
    ):
        trt_layers.read(path)


def test_times_of_a_small_part_of_the_layers_are_of_another_engine(shared: Path, tmp_path: Path) -> None:
    real = shared / "real/trt_json"
    shutil.copy(real / "trt10_trtexec_alexnet_fp16.graph.json", tmp_path / "x.graph.json")
    rows = json.loads((real / "trt10_trtexec_alexnet_fp16.profile.json").read_text())
    path = tmp_path / "x.profile.json"
    path.write_text(json.dumps(rows[:8]))
    assert len(of(trt_layers.read(path), "duration_mean")) == 7
    path.write_text(json.dumps(rows[:7]))
    with pytest.raises(UserError, match=naming("8", "14", "layers", "graph.json", "not", "profile.json")):
        trt_layers.read(path)


def test_layers_of_other_profiles_of_the_engine_need_no_time(tmp_path: Path) -> None:
    names = ["a", "b", *(f"{name} [profile {number}]" for name in "ab" for number in (1, 2))]
    (tmp_path / "x.graph.json").write_text(json.dumps({"Layers": names}))
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"a": [1.0], "b": [2.0]}))
    assert of(trt_layers.read(path), "duration_mean").to_dict() == {"a": 1e6, "b": 2e6}


@pytest.mark.parametrize(
    "content", [{"Layers": []}, {"layers": ["a"]}, [{"count": 3, "name": "a"}], {"a": [], "b": []}]
)
def test_other_json_is_refused(content: object, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps(content))
    with pytest.raises(UserError):
        trt_layers.read(path)


@pytest.mark.parametrize(
    "content",
    [
        {"Layers": [{"Name": "a", "Inputs": [{"Name": "x", "Dimensions": [1, {"a": 1}]}]}]},
        {"Layers": [{"Name": "a", "Inputs": [{"Name": "x", "Dimensions": "1x2"}]}]},
        {"Layers": [{"LayerType": "gemm"}]},
        {"Layers": [{"Name": "a", "Inputs": [{"Name": "x"}]}]},
        {"Layers": [1]},
        [{"count": 2}, {"name": "a", "medianMs": 1.0}],
        [{"startEnqMs": 1, "startH2dMs": 1, "computeMs": 1}],
    ],
)
def test_a_file_that_lacks_a_part_is_refused_in_one_line(content: object, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=naming("x.json", "not", "TensorRT")) as caught:
        trt_layers.read(path)
    assert "\n" not in str(caught.value)


def test_a_profile_beside_a_profile_is_no_list_of_layers(tmp_path: Path) -> None:
    for name in ("x.json", "x.graph.json"):
        (tmp_path / name).write_text(json.dumps({"a": [1.0], "b": [2.0]}))
    with pytest.raises(UserError, match=naming("x.graph.json", "no", "layers")):
        trt_layers.read(tmp_path / "x.json")


def test_the_other_readers_name_this_one(repository: Path) -> None:
    with pytest.raises(UserError, match="inferprof table trt_layers"):
        kineto.read(repository / f"tests/data/{VIT2}.graph.json")


# --- writing and asking ----------------------------------------------------------------------------------------


def test_what_we_write_reads_as_what_trtexec_writes(tmp_path: Path) -> None:
    path = tmp_path / "b1.profile.json"
    path.write_text(json.dumps(trt_json.profile_rows({"a": [1.0, 3.0, 2.0], "b": [4.0, 4.0, 4.0]})))
    (tmp_path / "b1.graph.json").write_text(json.dumps({"Layers": ["a", "b"]}))
    assert json.loads(path.read_text())[1] == {
        **{"name": "a", "timeMs": 6.0, "averageMs": 2.0, "medianMs": 2.0},
        "percentage": pytest.approx(100 / 3),
    }
    frame = trt_layers.read(path)
    assert of(frame, "duration_total").to_dict() == {"a": 6e6, "b": 12e6}
    assert of(frame, "duration_median").to_dict() == {"a": 2e6, "b": 4e6}


def test_two_layers_of_one_name_keep_their_own_times() -> None:
    layers = (trt_engine.Layer("copy", kind="Reformat"), trt_engine.Layer("copy", kind="NoOp"))
    times = [trt_engine.LayerTime("copy", 1, total, total, total) for total in (5.0, 7.0)]
    frame = tidy(layers, times, "trt_layers")
    assert layers_of(frame) == layers
    kinds_and_times = frame[frame["metric"].isin(["layer_type", "duration_total"])]
    assert kinds_and_times["text"].fillna("").tolist() == ["Reformat", "", "NoOp", ""]
    assert kinds_and_times["value"].dropna().tolist() == [5.0, 7.0]


@pytest.mark.parametrize(
    ("metadata", "nodes"),
    [
        ("", ()),
        ("[ONNX Layer: /a/Conv]", ("/a/Conv",)),
        ("[ONNX Layer: a]\x1e[ONNX Layer: b[0]]\x1f[ONNX Layer: a]", ("a", "b[0]")),
        ("[ONNX Layer: a][ONNX Layer: b]", ("a", "b")),
    ],
)
def test_metadata_names_onnx_nodes(metadata: str, nodes: tuple[str, ...]) -> None:
    assert trt_json.onnx_nodes(metadata) == nodes


@pytest.mark.parametrize(
    ("words", "dtype"),
    [
        ("Thirty-two wide channel vectorized row major Int8 format", "int8"),
        ("Channel major FP16 format where channel % 8 == 0", "fp16"),
        ("Row major linear FP32", "fp32"),
        ("Row major linear BF16 format", "bf16"),
        ("Half", "fp16"),
        ("Float", "fp32"),
        ("BFloat16", "bf16"),
        ("FP8", "fp8"),
        ("Float8E4M3FN", "fp8"),
        ("UInt8", "uint8"),
        ("Int64", "int64"),
        ("N/A due to dynamic shapes", None),
    ],
)
def test_formats_name_their_number_format(words: str, dtype: str | None) -> None:
    assert trt_engine.dtype_of(words) == dtype


def test_only_engines_of_tensorrt_have_layers_to_time() -> None:
    machine = Machine(gpu=None)
    assert trt_layers.refuses(Case("vit", "fp16", "tensorrt", "default", "b8"), machine) is None
    assert facts(trt_layers.refuses(Case("vit", "fp16", "ort_tensorrt", "default", "b8"), machine)) == [
        "trt_layers",
        "ort_tensorrt",
        "no",
    ]


def test_the_run_is_told_where_its_profile_goes(tmp_path: Path) -> None:
    out = tmp_path / "b8.profile.json"
    assert trt_layers.command(["inferprof", "run"], out) == ["inferprof", "run", "--native-profile", str(out)]
