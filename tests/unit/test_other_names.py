"""What is named and does not exist, or belongs to something else, is refused with what there is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from inferprof import cli

OF_ANOTHER = (
    "source: onnx\nonnx: x.onnx\ntask: other\ninputs: [{name: tokens, dtype: int64, dims: [b, 4], data: zeros}]\n"
)


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """A product, whose input is `x`, beside the spec of a model with another input."""
    weight = numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["b", 4]) for name in ("x", "y")]
    made = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", value[:1], value[1:], [weight])
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "x.onnx")
    (tmp_path / "other.yaml").write_text(OF_ANOTHER)
    return tmp_path / "x.onnx"


@pytest.mark.parametrize(
    "words",
    [
        ["quantize", "fp16", "GRAPH", "--out", "OUT"],
        ["sensitivity", "fp16", "GRAPH"],
        ["cost", "GRAPH", "--shape", "b1", "--out", "OUT"],
        ["partition", "GRAPH"],
        ["audit", "GRAPH"],
        ["accuracy", "fp16", "GRAPH", "--reference", "GRAPH", "--out", "OUT"],
    ],
)
def test_the_spec_of_another_model_is_refused_with_the_inputs_of_the_graph(
    words: list[str], graph: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {"GRAPH": str(graph), "OUT": str(graph.with_name("out.json"))}
    argv = [places.get(word, word) for word in words]
    assert cli.main([*argv, "--spec", str(graph.with_name("other.yaml"))]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert all(word in line for word in ("tokens of", "other.yaml", str(graph), "has x:"))


def test_a_study_that_there_is_not_is_refused_with_those_that_there_are(
    repository: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "reports" / "mine" / "box"
    folder.mkdir(parents=True)
    (folder / "cases.csv").touch()
    assert cli.main(["bundle", str(tmp_path), "--study", "mien", "--machine", "box"]) == 2
    assert "studies here: mine/box" in capsys.readouterr().err


def test_a_baseline_that_the_study_lacks_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "reports" / "mine"
    folder.mkdir(parents=True)
    head = "machine,model,precision,backend,variant,shape,outcome,reason"
    (folder / "cases.csv").write_text(f"{head}\nbox,vit,fp16,ort_cpu,default,b1,run,\n")
    words = ["bundle", str(tmp_path), "--study", "mine", "--machine", "box", "--baseline", "fp99/ort_cpu/default"]
    assert cli.main(words) == 2
    assert "known: fp16/ort_cpu/default" in capsys.readouterr().err
