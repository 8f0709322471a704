"""The cost and the accuracy of a graph as the verbs say them on the screen."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.unit.facts import mentions

from inferprof import cli
from inferprof.backends import tensorrt_partition
from inferprof.errors import CaseFailed

INPUT = "{{name: {input}, dtype: float32, dims: [b, 4]}}"
SPEC = f"source: onnx\nonnx: {{name}}.onnx\ntask: classification\ninputs: [{INPUT}]\n"


def graph(folder: Path, name: str, given: str, scale: float = 1.0) -> Path:
    """`y = x · w` of 4 by 8, with its description."""
    weights = scale * np.random.default_rng(0).standard_normal((4, 8)).astype("float32")
    made = helper.make_graph(
        [helper.make_node("MatMul", [given, "w"], ["y"], name="product")],
        name,
        [helper.make_tensor_value_info(given, TensorProto.FLOAT, ["b", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", 8])],
        [numpy_helper.from_array(weights, "w")],
    )
    onnx.save(
        helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), folder / f"{name}.onnx"
    )
    (folder / f"{name}.yaml").write_text(SPEC.format(name=name, input=given))
    return folder / f"{name}.onnx"


def said(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, str]:
    """What a verb says, by the words in front of each line."""
    assert cli.main([str(word) for word in words]) == 0
    return {line.split("  ")[0]: line for line in capsys.readouterr().out.splitlines()}


def test_the_cost_of_a_graph_is_said_in_operations_and_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = graph(tmp_path, "m", "x")
    lines = said(capsys, "cost", file, "--spec", tmp_path / "m.yaml", "--shape", "b256")
    assert mentions(lines["FLOPs"], "16.4 kFLOP", "1 node") and mentions(lines["products"], "16.4 kFLOP in 1")
    assert mentions(lines["weights read"], "0.00 MiB") and mentions(lines["moved once"], "0.01 MiB")
    assert mentions(lines["most FLOPs"], "product", "100.0%")


@pytest.mark.parametrize("verb", ["audit", "cost"])
def test_a_shape_needs_no_description_beside_the_graph(verb: str, tmp_path: Path) -> None:
    file, bare, described = graph(tmp_path, "m", "x"), tmp_path / "bare.json", tmp_path / "described.json"
    asked = [verb, str(file), "--shape", "b256", "--out"]
    assert cli.main([*asked, str(bare)]) == 0
    assert cli.main([*asked, str(described), "--spec", str(tmp_path / "m.yaml")]) == 0
    answer = json.loads(bare.read_text())
    assert answer["shape"] == "b256" and answer == json.loads(described.read_text())


def test_a_shape_alone_gives_the_parser_its_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def partition(_: Path, shapes: object) -> dict[str, object]:
        asked.append(shapes)
        raise CaseFailed("asked", "partition")

    monkeypatch.setattr(tensorrt_partition, "partition", partition)
    cli.main(["partition", str(graph(tmp_path, "m", "x")), "--shape", "b256"])
    assert asked == [{"x": (256, 4)}]


def test_the_accuracy_of_a_graph_is_said_with_its_distance_and_its_decisions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reference, other = graph(tmp_path, "m", "x"), graph(tmp_path, "other", "x", 1.01)
    asked = ("--reference", reference, "--spec", tmp_path / "m.yaml", "--samples", "8")
    lines = said(capsys, "accuracy", "fp16", other, *asked)
    assert mentions(lines["pass"], "40.0 dB") and mentions(lines["y"], "SQNR 40.0 dB")
    assert mentions(lines["top-1"], "100.0%", "8 samples")
    assert mentions(said(capsys, "accuracy", "fp16", reference, *asked)["y"], "identical")


def test_a_reference_of_another_model_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own, foreign = graph(tmp_path, "m", "x"), graph(tmp_path, "foreign", "image")
    out = tmp_path / "out.json"
    asked = ["accuracy", "fp16", own, "--reference", foreign, "--spec", tmp_path / "m.yaml", "--out", out]
    assert cli.main([str(word) for word in asked]) == 2
    assert mentions(capsys.readouterr().err, "foreign.onnx", "image") and not out.exists()


def test_with_a_place_for_it_the_answer_is_in_the_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = graph(tmp_path, "m", "x"), tmp_path / "cost.json"
    assert said(capsys, "cost", file, "--spec", tmp_path / "m.yaml", "--shape", "b1", "--out", out) == {}
    assert json.loads(out.read_text())["shape"] == "b1"
