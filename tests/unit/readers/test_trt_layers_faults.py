"""TensorRT's JSON as other versions and other people's programs write it, and what is damaged or cut short."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit import cuts
from tests.unit.facts import naming

from inferprof.errors import UserError
from inferprof.explain import explain
from inferprof.profilers import trt_layers
from inferprof.readers.kinds.trt_json import TRT_LAYERS
from inferprof.tables.nodes.trt_engine import Layer
from inferprof.tables.nodes.trt_layers import layers_of

STAGES = (
    "startEnqMs",
    "endEnqMs",
    "startH2dMs",
    "startComputeMs",
    "endComputeMs",
    "endD2hMs",
    "h2dMs",
    "computeMs",
    "d2hMs",
    "latencyMs",
)
ONE_BY_ONE = "layer-dumps-one-by-one"
LAYER = {"Name": "a", "LayerType": "gemm", "Inputs": [], "Outputs": [], "TacticName": "x"}
PROFILE: list[dict[str, Any]] = [
    {"count": 10},
    {"name": "a", "timeMs": 1.0, "averageMs": 0.1, "medianMs": 0.1, "percentage": 100},
]


def layers(path: Path) -> tuple[Layer, ...]:
    return layers_of(trt_layers.read(path))


# --- dialects --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["concatenated", "list", "separated"])
def test_layers_that_were_asked_for_one_by_one_are_an_engines(name: str, repository: Path) -> None:
    quantizer, product = layers(repository / f"tests/data/faults/{ONE_BY_ONE}/{name}.json")
    assert (quantizer.name, quantizer.kind, quantizer.nodes) == ("quant_myl0_1", "kgen", ("/q/QuantizeLinear",))
    assert (product.name, [tensor.dtype for tensor in product.inputs]) == ("fc", ["fp32", "fp32"])


@pytest.mark.parametrize("between", ["", "\n", ",\n", '\nLayer {1}: "b" [gemm]\n', "\n\n# 1\n\n"])
def test_between_layers_may_stand_any_line(between: str, tmp_path: Path) -> None:
    path = tmp_path / "layers.json"
    path.write_text(f"engine of today\n{json.dumps(LAYER)}{between}{json.dumps({**LAYER, 'Name': 'b'}, indent=1)}\n")
    assert [layer.name for layer in layers(path)] == ["a", "b"]


def test_a_single_layer_is_an_engine_of_one(tmp_path: Path) -> None:
    path = tmp_path / "layers.json"
    path.write_text(json.dumps(LAYER))
    assert [layer.tactic for layer in layers(path)] == ["x"]


def test_separators_that_tensorrt_8_6_does_not_escape_part_nodes(repository: Path) -> None:
    (stem,) = layers(repository / "tests/data/faults/trt86-control-characters/e.graph.json")
    assert stem.nodes == ("stem", "act")


def test_names_with_tabs_and_lines_in_them_come_back(tmp_path: Path) -> None:
    path = tmp_path / "layers.json"
    tensor = {"Name": "in\tor\nout", "Dimensions": [1], "Format/Datatype": "Half"}
    path.write_text(json.dumps([{**LAYER, "Inputs": [tensor], "Metadata": "[ONNX Layer: a\tb]"}]))
    (layer,) = layers(path)
    assert (layer.inputs[0].name, layer.inputs[0].dtype, layer.nodes) == ("in or out", "fp16", ("a b",))


def test_bindings_may_come_first(tmp_path: Path) -> None:
    path = tmp_path / "layers.json"
    path.write_text(json.dumps({"Bindings": ["x", "y"], "Layers": ["a", "b"]}))
    assert [layer.name for layer in layers(path)] == ["a", "b"]


# --- what is refused -------------------------------------------------------------------------------------------


REFUSED = {
    "nan": [PROFILE[0], {**PROFILE[1], "medianMs": float("nan")}],
    "infinite": [PROFILE[0], {**PROFILE[1], "averageMs": float("inf")}],
    "negative": [PROFILE[0], {**PROFILE[1], "timeMs": -1.0}],
    "words": [PROFILE[0], {**PROFILE[1], "timeMs": "fast"}],
    "no count": [{"count": 0}, PROFILE[1]],
    "half a count": [{"count": 0.5}, PROFILE[1]],
    "no row": [PROFILE[0], 7],
    "layers of numbers": {"Layers": [1, 2]},
    "layers of nothing": {"Layers": None},
    "a tensor without sizes": {"Layers": [{**LAYER, "Inputs": [{"Name": "a"}]}]},
    "times of a row": [{"startH2dMs": 0, "computeMs": 1}],
    "negative iprofiler": {"a": [1.0, -1.0], "b": [1.0]},
}


@pytest.mark.parametrize("content", REFUSED.values(), ids=REFUSED)
def test_what_is_no_time_or_no_layer_is_one_line(content: object, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps(content))
    with pytest.raises(UserError) as caught:
        trt_layers.read(path)
    assert "\n" not in str(caught.value)


def test_profiles_of_several_runs_are_not_taken_for_one(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps(PROFILE) + "\n" + json.dumps(PROFILE))
    with pytest.raises(UserError, match=naming("several documents", "file of its own")):
        trt_layers.read(path)


def test_nesting_without_end_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"Layers": ' + "[" * 200_000)
    with pytest.raises(UserError, match="cut short"):
        trt_layers.read(path)


WHOLE = {
    "layers": {"Layers": [LAYER, {**LAYER, "Name": "b"}], "Bindings": ["x"]},
    "names": {"Layers": ["a", "b + c"], "Bindings": []},
    "list": [LAYER, {**LAYER, "Name": "b"}],
    "profile": [*PROFILE, {**PROFILE[1], "name": "b"}],
    "iprofiler": {"a": [1.0, 2.0], "b": [1.0, 12.5]},
    "times": [
        {
            **{"startEnqMs": 0.5, "endEnqMs": 1, "startH2dMs": 0, "h2dMs": 0.25, "computeMs": 12, "d2hMs": 0},
            **{"latencyMs": 12.25},
        }
    ]
    * 3,
}


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("kind", WHOLE)
def test_a_file_that_is_cut_anywhere_is_refused(kind: str, indent: int | None, tmp_path: Path) -> None:
    content = json.dumps(WHOLE[kind], indent=indent).encode()
    everywhere = range(len(content))
    assert list(cuts.accepted(content, "x.json", trt_layers.read, tmp_path, everywhere)) == []


def test_layers_one_by_one_that_are_cut_are_refused_but_between_two(repository: Path, tmp_path: Path) -> None:
    content = (repository / f"tests/data/faults/{ONE_BY_ONE}/separated.json").read_bytes()
    first = content.index(b"\n}\n") + 2
    kept = list(cuts.accepted(content, "x.json", trt_layers.read, tmp_path, range(len(content))))
    assert set(kept) <= {first, first + 1}


@pytest.mark.parametrize(
    "change",
    [
        {"timeMs": True},
        {"averageMs": True},
        {"medianMs": True},
        {"averageMs": "0.1"},
        {"averageMs": 10.0},
        {"timeMs": 0.1, "averageMs": 1.0},
        {"name": None},
    ],
    ids=str,
)
def test_times_that_are_no_numbers_or_disagree_are_refused(change: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "x.profile.json"
    path.write_text(json.dumps([PROFILE[0], {**PROFILE[1], **change}]))
    with pytest.raises(UserError, match=naming("x.profile.json", "not as TensorRT writes it")):
        trt_layers.read(path)


@pytest.mark.parametrize(
    "content",
    [
        [{"count": True}, PROFILE[1]],
        [*PROFILE, PROFILE[1]],
        {"Layers": {"a": 1}},
        [{**dict.fromkeys(STAGES, 1.0), "computeMs": True}],
        [{**dict.fromkeys(STAGES, 1.0), "startEnqMs": 2.0}],
    ],
    ids=["count", "twice", "layers", "boolean", "backwards"],
)
def test_what_tensorrt_does_not_write_is_refused(content: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=naming("x.json", "not as TensorRT writes it")):
        TRT_LAYERS.read(path)  # type: ignore[misc]


def test_layers_of_another_engine_are_named_by_their_file(tmp_path: Path) -> None:
    (tmp_path / "x.profile.json").write_text(json.dumps(PROFILE))
    (tmp_path / "x.graph.json").write_text(json.dumps({"Layers": [{**LAYER, "Name": "b"}]}))
    with pytest.raises(UserError, match=naming("x.graph.json", "two engines")):
        TRT_LAYERS.read(tmp_path / "x.profile.json")  # type: ignore[misc]


def test_times_without_ends_are_explained_without_a_throughput(tmp_path: Path) -> None:
    row = {"startEnqMs": 0, "endEnqMs": 0.1, "inMs": 0.1, "computeMs": 1.0, "outMs": 0.1, "latencyMs": 1.2}
    (tmp_path / "x.json").write_text(json.dumps([row, row]))
    (case,) = explain([tmp_path / "x.json"])
    assert case.total is not None and case.total.ns == pytest.approx(1.2e6)
