"""What TensorRT-RTX's parser takes of a graph and what falls back: asked without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.facts import facts, mentions, naming, reason_alone

from inferprof.backends import tensorrt_partition
from inferprof.backends.tensorrt_partition import partition
from inferprof.errors import UserError

pytest.importorskip("tensorrt_rtx")
parser = pytest.importorskip("onnx.parser")

Written = Callable[..., Path]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """A graph in ONNX's text form → its file."""
    import onnx

    def write(graph: str, imports: str = '"": 17') -> Path:
        path = tmp_path / "graph.onnx"
        onnx.save(parser.parse_model(f"<ir_version: 8, opset_import: [{imports}]> {graph}"), path)
        return path

    return write


def left(part: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["node"], one["why"]) for one in part["left"]]


def test_an_operator_without_a_kernel_splits_the_graph_in_two(written: Written) -> None:
    path = written("g (float[2,4,4] x) => (float[2] y) { e = Exp(x) d = Det(e) y = Neg(d) }")
    found = partition(path, None)
    assert mentions(reason_alone(found["dynamic"]), "sizes", "fixed")
    assert found["static"] == {
        "nodes": 3,
        "taken": 2,
        "subgraphs": [1, 1],
        "left": [
            {
                "node": "Det 1",
                "op_type": "Det",
                "why": "operator",
                "words": "not among the operators of this parser",
            }
        ],
        "edges": 2,
        "edge_bytes": 2 * 4 * 4 * 4 + 2 * 4,
    }


def test_a_node_that_falls_back_for_open_sizes_is_taken_at_fixed_ones(written: Written) -> None:
    path = written("g (float[n,m] x) => (float[n,m] y) { e = EyeLike(x) y = Exp(e) }")
    found = partition(path, {"x": (4, 4)})
    assert left(found["dynamic"]) == [("EyeLike 0", "dynamic shape")]
    assert found["dynamic"]["edge_bytes"] is None
    assert (found["static"]["taken"], found["static"]["subgraphs"], found["static"]["left"]) == (2, [2], [])
    assert mentions(reason_alone(partition(path, None)["static"]), "no sizes", "--spec", "--shape")


def test_an_input_that_must_be_constant_is_no_missing_operator(written: Written) -> None:
    path = written("g (float[2,64] x, int64 step) => (float[2,3,33,2] y) { y = STFT(x, step) }")
    assert left(partition(path, None)["static"]) == [("STFT 0", "attributes")]


def test_what_a_missing_driver_says_is_not_the_reason(written: Written) -> None:
    graph = "g (uint8[2,8] x) => (uint8[4,4] y) <int64[2] s = {4, 4}> { y = Reshape(x, s) }"
    (one,) = partition(written(graph), None)["static"]["left"]
    assert one["why"] == "number format"
    assert "CUDA" not in one["words"].upper()


def test_the_planted_fallback_is_none_for_a_parser_that_knows_hardmax_and_its_loop_is_named(repository: Path) -> None:
    found = partition(repository / "tests/data/models/planted_fallback.onnx", None)
    assert found["by"].startswith("TensorRT-RTX ")
    assert (found["static"]["subgraphs"], found["static"]["left"]) == ([9], [])
    assert found["looped"] == ["cumsum"]


@pytest.mark.parametrize(
    ("name", "part", "taken", "why"),
    [
        ("polygraphy_capability", "static", [1, 1], ["operator"] * 3),
        ("polygraphy_nonzero", "static", [], ["operator"]),
        ("silero_vad", "dynamic", [5], []),
        ("rapidocr_cls_mobile", "dynamic", [566], []),
        ("ort_custom_op_test", "static", [], ["operator", "operator"]),
    ],
)
def test_other_peoples_models(name: str, part: str, taken: list[int], why: list[str], shared: Path) -> None:
    found = partition(shared / f"real/onnx/{name}.onnx", None)[part]
    assert found["subgraphs"] == taken
    assert [one["why"] for one in found["left"]] == why


def test_loops_in_the_bodies_of_a_model_count_too(shared: Path) -> None:
    looped = partition(shared / "real/onnx/silero_vad.onnx", None)["looped"]
    assert len(looped) == 4
    assert all(name.endswith("/LSTM") for name in looped)


def test_a_compiled_graph_says_itself_who_took_what(written: Written) -> None:
    graph = (
        "g (float[2,4] x) => (float[2,4] y) { e = com.microsoft.EPContext<source = "
        '"NvTensorRTRTXExecutionProvider", embed_mode = 1>(x) y = Hardmax(e) }'
    )
    found = partition(written(graph, '"": 17, "com.microsoft": 1'), None)
    assert found["by"] == "NvTensorRTRTXExecutionProvider"
    assert (found["static"]["taken"], found["static"]["subgraphs"]) == (1, [1])
    assert left(found["static"]) == [("Hardmax 1", "not told")]
    assert mentions(reason_alone(found["dynamic"]), "compiled", "fixed")


def test_the_text_says_what_crosses_and_why(written: Written) -> None:
    path = written("g (float[2,4,4] x) => (float[2] y) { e = Exp(x) d = Det(e) y = Neg(d) }")
    lines = tensorrt_partition.render(partition(path, None)).splitlines()
    assert [facts(text, "dynamic", "left", "nodes", "operator", "static", "subgraphs") for text in lines[1:]] == [
        ["dynamic", "not", "all"],
        ["static", "2", "3", "nodes", "subgraphs", "1", "1"],
        ["2", "136", "left"],
        ["Det", "1", "operator", "not"],
    ]


def test_operators_of_onnxs_domain_for_trees_are_no_others_by_a_bare_name(written: Written) -> None:
    graph = "g (float[2,4] x) => (float[2,4] y) { y = ai.onnx.ml.Scaler<offset = [1.0], scale = [2.0]>(x) }"
    found = partition(written(graph, '"": 17, "ai.onnx.ml": 2'), None)["static"]
    assert (found["taken"], "caution" in found["left"][0]["words"]) == (0, False)


def test_what_is_left_for_one_reason_is_said_once(written: Written) -> None:
    nodes = " ".join(f"d{n} = Det(x) e{n} = Exp(d{n})" for n in range(20))
    path = written(f"g (float[2,4,4] x) => (float[2] e19) {{ {nodes} }}")
    static = tensorrt_partition.render(partition(path, None)).splitlines()[2:]
    assert facts(static[0], "subgraphs", "to") == ["20", "40", "20", "subgraphs", "1"]
    assert facts(static[2], "Det", "more")[:2] == ["20", "Det"]
    assert len(static) == 3


def test_a_stretch_that_is_asked_about_again_keeps_its_types(repository: Path) -> None:
    part = partition(repository / "tests/data/faults/onnx/two_biases.onnx", None)["static"]
    assert (part["taken"], part["nodes"], part["subgraphs"]) == (4, 6, [2, 2])
    assert left(part) == [("bias1", "number format"), ("bias2", "number format")]


def test_an_operator_of_another_domain_is_no_operator_of_onnx(written: Written) -> None:
    graph = "g (float[1,4] x) => (float[1,4] y) { h = Relu(x) y = my.Relu(h) }"
    part = partition(written(graph, '"": 17, "my": 1'), None)["static"]
    assert (part["taken"], left(part)) == (1, [("Relu 1", "operator")])
    assert mentions(part["left"][0]["words"], "caution", "domain", "my")


def test_a_local_function_is_judged_by_what_is_in_it(written: Written) -> None:
    graph = """g (float[1,4] x) => (float[1,4] y) { y = own.Relu(x) }
        <domain: "own", opset_import: ["": 17]> Relu (a) => (b) { b = Tanh(a) }"""
    assert partition(written(graph, '"": 17, "own": 1'), None)["static"]["taken"] == 1


def test_the_loop_in_a_local_function_is_named(written: Written) -> None:
    path = written(
        "g (float[2,4] x, int64 n) => (float[2,4] y) { y = own.f(x, n) }"
        '<domain: "own", opset_import: ["": 17]> f (a, m) => (b) { t = Constant<value = bool {1}>()'
        " b = Loop<body = g (int64 i, bool c, float[2,4] s) => (bool c2, float[2,4] s2)"
        " { c2 = Identity(c) s2 = Relu(s) }>(m, t, a) }",
        '"": 17, "own": 1',
    )
    assert partition(path, None)["looped"] == ["Loop"]


def test_a_weight_of_a_type_that_the_parser_lacks_is_the_reason(written: Written) -> None:
    graph = """g (float[2,4] x) => (float[2,4] y) <float s = {0.1}, int16 z = {0}> {
        q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }"""
    path = written(graph, '"": 21')
    found = partition(path, None)["static"]
    assert left(found) == [("QuantizeLinear 0", "number format"), ("DequantizeLinear 1", "number format")]
    assert all(one["words"].endswith("initializer: z") for one in found["left"])


def test_a_graph_without_its_weights_is_refused(repository: Path) -> None:
    with pytest.raises(UserError, match=naming("ext_weights.data", "missing")):
        partition(repository / "tests/data/faults/onnx/weights_missing/missing.onnx", None)


def test_sizes_that_do_not_fit_the_graph_are_refused(written: Written) -> None:
    path = written("g (float[n,4] x) => (float[n,4] y) { y = Relu(x) }")
    with pytest.raises(UserError, match="input x has dims"):
        partition(path, {"x": (1, 2, 3)})
    with pytest.raises(UserError, match="input x has dims"):
        partition(path, {"x": (1, 5)})


def test_an_input_of_unknown_rank_has_no_fixed_size(written: Written) -> None:
    path = written("g (float x) => (float y) { y = Relu(x) }")
    import onnx

    model = onnx.load(path)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.ClearField("shape")
    onnx.save(model, path)
    assert mentions(reason_alone(partition(path, None)["static"]), "no sizes")
    assert "not_measured" not in partition(path, None)["dynamic"]
    assert partition(path, {"x": (1, 4)})["static"]["taken"] == 1


def test_collectives_between_gpus_are_taken_and_named(written: Written) -> None:
    path = written("""g (float[4,8] x) => (float[4,8] y) {
        e = Exp(x)
        y = DistCollective <collective_operation: string = "all_reduce", reduce_op: string = "sum",
                            nb_rank: int = 2, root: int = -1> (e)
    }""")
    result = partition(path, None)
    assert result["collectives"] == ["y"] and result["static"]["taken"] == 2
    assert mentions(tensorrt_partition.render(result), "10.16", "y")


def test_what_the_parser_says_is_the_answer_and_nothing_is_said_beside_it(
    written: Written, caplog: pytest.LogCaptureFixture
) -> None:
    partition(written("g (float[2,64] x, int64 step) => (float[2,3,33,2] y) { y = STFT(x, step) }"), None)
    assert not caplog.records
