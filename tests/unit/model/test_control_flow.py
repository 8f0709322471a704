"""Bodies of If, Loop and Scan, and recurrent operators: what an inference runs of them is counted, or said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

onnx = pytest.importorskip("onnx")

from inferprof.case import Shape  # noqa: E402
from inferprof.model import audit, cost, typed_graph  # noqa: E402
from inferprof.model.products import products_of  # noqa: E402

B1 = Shape.parse("b1")
node = onnx.helper.make_node
few = st.integers(1, 4)


def parsed(graph: str, functions: str = "", imports: str = '"": 17') -> Any:
    return onnx.parser.parse_model(f"<ir_version: 8, opset_import: [{imports}]> {graph} {functions}")


def audited(tmp_path: Path, model: Any) -> dict[str, Any]:
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    return audit.audit(path, None, B1)


def costs(tmp_path: Path, model: Any) -> dict[str, dict[str, Any]]:
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    return {entry["name"]: entry for entry in cost.cost(path, B1)["nodes"]}


def macs(model: Any) -> int:
    return sum(product.macs for product in products_of(typed_graph.analyse(model, {})))


def loop(trips: str, states: str = "c, x", goes_on: str = "Identity(going)") -> str:
    """A Loop whose state [2,8] goes through a square product at each trip."""
    body = f"(int64 i, bool going, float[2,8] s) => (bool on, float[2,8] t) {{ on = {goes_on} t = MatMul(s, w) }}"
    return (
        f"g (float[2,8] x, int64 n, bool c) => (float[2,8] y) <float[8,8] w = {{{', '.join('1' * 64)}}}, "
        f"int64 three = {{3}}, bool yes = {{1}}> {{ y = Loop({trips}, {states}) <body = b {body}> }}"
    )


def test_the_dearer_branch_of_an_if_is_counted_and_both_are_told(tmp_path: Path, repository: Path) -> None:
    result = audit.audit(repository / "tests/data/faults/onnx/if_bodies.onnx", None, None)
    assert (result["macs"], result["weight_bytes"]) == (2 * 64 * 64, {"float32": 2 * 64 * 64 * 4})
    assert result["branches"][0]["macs"] == {"then_branch": 8192, "else_branch": 8192}
    assert sum("8,192" in line for line in result["advice"]) == 1


def test_a_branch_with_more_products_outweighs_the_other(tmp_path: Path) -> None:
    graph = """g (float[2,8] x, float[8,8] w, bool c) => (float[2,8] y) {
        y = If(c) <then_branch = t () => (float[2,8] p) { p = Relu(x) },
                   else_branch = e () => (float[2,8] q) { h = MatMul(x, w) q = MatMul(h, w) }> }"""
    result = audited(tmp_path, parsed(graph))
    assert result["macs"] == 2 * 2 * 8 * 8
    assert result["branches"] == [
        {"node": "y", "counted": "else_branch", "macs": {"then_branch": 0, "else_branch": 256}}
    ]


def test_of_an_if_with_a_constant_condition_the_branch_that_runs_is_counted(tmp_path: Path) -> None:
    graph = """g (float[2,8] x, float[8,8] w) => (float[2,8] y) <bool no = {0}> {
        y = If(no) <then_branch = t () => (float[2,8] p) { h = MatMul(x, w) p = MatMul(h, w) },
                    else_branch = e () => (float[2,8] q) { q = MatMul(x, w) }> }"""
    result = audited(tmp_path, parsed(graph))
    assert (result["macs"], result["branches"]) == (128, [])


def test_the_body_of_a_loop_counts_as_often_as_it_runs(tmp_path: Path) -> None:
    model = parsed(loop("three"))
    result = audited(tmp_path, model)
    assert (result["macs"], result["products_in_loops_of_unknown_length"]) == (
        0,
        {"y/body/t": 128},
    )  # `c` may be false
    assert audited(tmp_path, parsed(loop("three", '"", x')))["macs"] == 3 * 2 * 8 * 8
    (product,) = costs(tmp_path, parsed(loop("three", "yes, x"))).values()
    assert (product["op"], product["times"], product["flops"]) == ("MatMul", 3, 3 * 2 * 128)
    assert (product["read"], product["written"], product["weights"]) == (3 * 64, 3 * 64, 3 * 256)


def test_a_loop_whose_condition_is_computed_has_no_known_length(tmp_path: Path) -> None:
    for graph in (loop("three", "yes, x", "Not(going)"), loop("n", "yes, x"), loop('""', "yes, x")):
        result = audited(tmp_path, parsed(graph))
        assert result["macs"] == 0
        assert result["products_in_loops_of_unknown_length"] == {"y/body/t": 128}
        assert any("128 MACs a step" in line for line in result["advice"])
        assert costs(tmp_path, parsed(graph))["y/body/t"]["flops"] is None


def test_a_loop_of_no_trips_runs_nothing(tmp_path: Path) -> None:
    graph = loop("none", "yes, x").replace("three = {3}", "none = {0}")
    result = audited(tmp_path, parsed(graph))
    assert (result["macs"], result["products_of_unknown_size"]) == (0, [])
    assert costs(tmp_path, parsed(graph)) == {}


def test_a_state_that_grows_is_no_known_size(tmp_path: Path) -> None:
    graph = """g (float[1,8] x, float[8,8] w) => (float[?,8] y) <int64 four = {4}, bool yes = {1}> {
        y = Loop(four, yes, x) <body = b (int64 i, bool c, float[k,8] s) => (bool d, float[l,8] t) {
            d = Identity(c) h = MatMul(s, w) t = Concat<axis = 0>(s, h) }> }"""
    result = audited(tmp_path, parsed(graph))
    assert (result["macs"], result["products_of_unknown_size"]) == (0, ["y/body/h"])


def test_what_follows_a_loop_knows_its_shapes(tmp_path: Path) -> None:
    graph = """g (float[2,8] x, float[8,8] w) => (float[5,2,8] z) <int64 five = {5}, bool yes = {1}> {
        s, all = Loop(five, yes, x) <body = b (int64 i, bool c, float[2,8] a) => (
            bool d, float[2,8] t, float[2,8] u) {
            d = Identity(c) t = Relu(a) u = Tanh(a) }>
        y = MatMul(s, w)  z = MatMul(all, w) }"""
    assert audited(tmp_path, parsed(graph))["macs"] == 2 * 8 * 8 + 5 * 2 * 8 * 8


def test_an_if_inside_of_a_loop_runs_as_often_as_the_loop(tmp_path: Path) -> None:
    inner = """If(k) <then_branch = t () => (float[2,8] p) { p = MatMul(s, w) },
                      else_branch = e () => (float[2,8] q) { h = MatMul(s, w) q = MatMul(h, w) }>"""
    graph = f"""g (float[2,8] x, float[8,8] w, bool k) => (float[2,8] y) <int64 three = {{3}}, bool yes = {{1}}> {{
        y = Loop(three, yes, x) <body = b (int64 i, bool c, float[2,8] s) => (bool d, float[2,8] r) {{
            d = Identity(c) r = {inner} }}> }}"""
    assert audited(tmp_path, parsed(graph))["macs"] == 3 * 2 * 128


def test_branches_that_name_their_tensors_alike_are_kept_apart(tmp_path: Path) -> None:
    graph = """g (float[2,8] x, float[8,8] w, float[8,4] v, bool c) => (float[2,?] y) {
        y = If(c) <then_branch = t () => (float[2,8] p) { p = MatMul(x, w) },
                   else_branch = e () => (float[2,4] p) { p = MatMul(x, v) }> }"""
    assert audited(tmp_path, parsed(graph))["branches"][0]["macs"] == {"then_branch": 128, "else_branch": 64}


def test_weights_of_bodies_are_weights(tmp_path: Path) -> None:
    graph = """g (float[2,8] x, bool c) => (float[2,8] y) {
        y = If(c) <then_branch = t () => (float[2,8] p) <float[8] a = {1,1,1,1,1,1,1,1}> { p = Add(x, a) },
                   else_branch = e () => (float[2,8] p) {
                       a = Constant<value = float[8] {1,1,1,1,1,1,1,1}>() p = Add(x, a) }> }"""
    assert audited(tmp_path, parsed(graph))["weight_bytes"] == {"float32": 64}


def test_local_functions_are_taken_apart_wherever_they_are_called(tmp_path: Path) -> None:
    graph = """g (float[2,8] x, float[8,8] w, bool c) => (float[2,8] y) {
        y = If(c) <then_branch = t () => (float[2,8] p) { p = own.twice(x, w) },
                   else_branch = e () => (float[2,8] q) { q = Relu(x) }> }"""
    function = '<domain: "own", opset_import: ["": 17]> twice (a, b) => (d) { h = MatMul(a, b) d = MatMul(h, b) }'
    result = audited(tmp_path, parsed(graph, function, '"": 17, "own": 1'))
    assert (result["macs"], result["foreign_domains"]) == (256, {})


@given(trips=st.integers(0, 5), inner=st.integers(0, 5))
@settings(max_examples=15, deadline=None)
def test_nested_loops_multiply(trips: int, inner: int) -> None:
    within = """Loop(m, yes, s) <body = c (int64 j, bool e, float[2,8] u) => (bool f, float[2,8] v) {
        f = Identity(e) v = MatMul(u, w) }>"""
    graph = f"""g (float[2,8] x, float[8,8] w) => (float[2,8] y)
        <int64 n = {{{trips}}}, int64 m = {{{inner}}}, bool yes = {{1}}> {{
        y = Loop(n, yes, x) <body = b (int64 i, bool c, float[2,8] s) => (bool d, float[2,8] t) {{
            d = Identity(c) t = {within} }}> }}"""
    assert macs(parsed(graph)) == trips * inner * 128


@given(steps=st.integers(1, 6), axis=st.integers(0, 1), outputs=st.integers(1, 3))
@settings(max_examples=20, deadline=None)
def test_a_scan_runs_once_for_each_slice(steps: int, axis: int, outputs: int) -> None:
    dims = f"{steps},8" if axis == 0 else f"8,{steps}"
    extra = "".join(f", float[1,8] o{index}" for index in range(outputs))
    made = " ".join(f"o{index} = Relu(t)" for index in range(outputs))
    names = ", ".join(f"z{index}" for index in range(outputs))
    graph = f"""g (float[1,8] h, float[{dims}] x, float[8,8] w, float[8,3] v) => (float[{steps},1,3] last) {{
        y, {names} = Scan(h, x) <num_scan_inputs = 1, scan_input_axes = [{axis}],
            body = b (float[1,8] s, float[8] e) => (float[1,8] t{extra}) {{ a = Add(s, e) t = MatMul(a, w) {made} }}>
        last = MatMul(z0, v) }}"""
    assert macs(parsed(graph)) == steps * 8 * 8 + steps * 8 * 3


def recurrent(operator: str, gates: int, directions: int, steps: int, batch: int, hidden: int, layout: int) -> Any:
    weights = [
        onnx.numpy_helper.from_array(np.ones((directions, gates * hidden, size), np.float32), name)
        for name, size in (("w", 6), ("r", hidden))
    ]
    dims = [batch, steps, 6] if layout else [steps, batch, 6]
    x = onnx.helper.make_tensor_value_info("x", 1, dims)
    y = onnx.helper.make_tensor_value_info("y", 1, None)
    direction = "bidirectional" if directions == 2 else "forward"
    made = node(operator, ["x", "w", "r"], ["y"], operator, hidden_size=hidden, direction=direction, layout=layout)
    graph = onnx.helper.make_graph([made], "g", [x], [y], weights)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


@given(
    kind=st.sampled_from([("LSTM", 4), ("GRU", 3), ("RNN", 1)]),
    directions=st.integers(1, 2),
    steps=few,
    batch=few,
    hidden=few,
    layout=st.integers(0, 1),
)
@settings(max_examples=40, deadline=None)
def test_a_recurrent_operator_multiplies_by_both_weights_at_each_step(
    kind: tuple[str, int], directions: int, steps: int, batch: int, hidden: int, layout: int
) -> None:
    model = recurrent(*kind, directions, steps, batch, hidden, layout)
    assert macs(model) == directions * steps * batch * kind[1] * hidden * (6 + hidden)


def test_an_lstm_counts_over_its_whole_sequence(repository: Path) -> None:
    result = audit.audit(repository / "tests/data/faults/onnx/lstm.onnx", None, None)
    assert (result["macs"], result["weight_bytes"]) == (491_520, {"float32": 393_216})


def test_the_flops_of_a_recurrent_operator_are_its_products_gates_and_state(tmp_path: Path) -> None:
    (entry,) = costs(tmp_path, recurrent("LSTM", 4, 1, 5, 2, 3, 0)).values()
    assert entry["flops"] == 2 * 5 * 2 * 4 * 3 * (6 + 3) + 5 * 2 * 3 * (4 * 2 + 5)
    assert (entry["weights"], entry["product"]) == (4 * 3 * (6 + 3) * 4, True)


def test_a_recurrent_operator_of_unknown_length_is_named(tmp_path: Path) -> None:
    model = recurrent("GRU", 3, 1, 5, 2, 3, 0)
    model.graph.node.insert(0, node("NonZero", ["x"], ["places"]))
    model.graph.node.insert(1, node("Cast", ["places"], ["found"], to=1))
    model.graph.node.insert(2, node("Unsqueeze", ["found", "axis"], ["deep"]))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([2]), "axis"))
    model.graph.node[3].input[0] = "deep"
    assert audited(tmp_path, model)["products_of_unknown_size"] == ["GRU"]
