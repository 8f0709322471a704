"""ONNX Runtime's optimizer of transformers as an option."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from tests.unit.facts import naming

from inferprof.backends.ort_transformers import rewritten
from inferprof.case import Variant
from inferprof.errors import CaseFailed

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
AS_BERT = Variant("v", {"transformer_optimizer": "bert"})


def saved(path: Path, nodes: list[tuple[str, list[str], list[str]]]) -> Path:
    """A graph from x, skip, scale, bias to y."""
    from onnx import TensorProto, helper, numpy_helper

    sides = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3, 8]) for n in ("x", "skip", "y")]
    weights = [numpy_helper.from_array(np.full(8, value, np.float32), n) for n, value in (("scale", 2), ("bias", 1))]
    made = [helper.make_node(kind, ins, outs) for kind, ins, outs in nodes]
    graph = helper.make_graph(made, "g", sides[:2], sides[2:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def test_a_skip_and_its_normalization_are_one_node_that_gives_the_same(tmp_path: Path) -> None:
    nodes = [("Add", ["x", "skip"], ["a"]), ("LayerNormalization", ["a", "scale", "bias"], ["y"])]
    file = saved(tmp_path / "g.onnx", nodes)
    fused_file = rewritten(file, AS_BERT)
    assert [node.op_type for node in onnx.load(fused_file).graph.node] == ["SkipLayerNormalization"]
    rng = np.random.default_rng(0)
    feeds = {name: rng.standard_normal((2, 3, 8)).astype(np.float32) for name in ("x", "skip")}
    plain, fused = (
        onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"]).run(None, feeds)[0]
        for graph in (file, fused_file)
    )
    np.testing.assert_allclose(plain, fused, atol=1e-4)


def test_what_was_made_once_is_taken_until_the_graph_changes(tmp_path: Path) -> None:
    nodes = [("Add", ["x", "skip"], ["a"]), ("LayerNormalization", ["a", "scale", "bias"], ["y"])]
    file = saved(tmp_path / "g.onnx", nodes)
    kept = rewritten(file, AS_BERT)
    made = kept.stat().st_mtime_ns
    assert rewritten(file, AS_BERT) == kept and kept.stat().st_mtime_ns == made
    os.utime(file, ns=(made + 1, made + 1))
    assert rewritten(file, AS_BERT).stat().st_mtime_ns > made


def test_a_graph_in_which_nothing_is_fused_fails_its_case_in_one_line(tmp_path: Path) -> None:
    file = saved(tmp_path / "g.onnx", [("Add", ["x", "skip"], ["y"])])
    with pytest.raises(CaseFailed, match=naming("nothing", "bert")):
        rewritten(file, AS_BERT)


@pytest.mark.parametrize("options", [{}, {"transformer_optimizer": "off"}])
def test_a_graph_stays_as_it_is_unless_it_is_asked_for(tmp_path: Path, options: dict[str, str]) -> None:
    assert rewritten(tmp_path / "g.onnx", Variant("v", options)) == tmp_path / "g.onnx"
