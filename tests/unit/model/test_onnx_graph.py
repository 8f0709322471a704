"""What ONNX files say that other people made: read, put right, or refused in one line before anything trusts it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.facts import mentions, naming, states

onnx = pytest.importorskip("onnx")

from inferprof.case import Shape  # noqa: E402
from inferprof.errors import UserError  # noqa: E402
from inferprof.model import model_spec, onnx_file, onnx_graph, onnx_inputs, onnx_reader  # noqa: E402

helper = onnx.helper


def parsed(graph: str, imports: str = '"": 17', functions: str = "") -> Any:
    return onnx.parser.parse_model(f"<ir_version: 8, opset_import: [{imports}]> {graph} {functions}")


def saved(folder: Path, model: Any) -> Path:
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def refused(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        onnx_reader.read(path)
    message = str(caught.value)
    assert "\n" not in message and str(path) in message
    return message


def external(folder: Path, **told: str) -> Path:
    """A product with a weight of 8 × 4 in another file, told of as given."""
    tensor = onnx.TensorProto(name="w", data_type=1, dims=[8, 4], data_location=onnx.TensorProto.EXTERNAL)
    for key, value in told.items():
        tensor.external_data.add(key=key, value=value)
    model = parsed("g (float[b,8] x) => (float[b,4] y) { y = MatMul(x, w) }")
    model.graph.initializer.append(tensor)
    (folder / "w.bin").write_bytes(np.ones((8, 4), np.float32).tobytes())
    return saved(folder, model)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"location": "w.bin", "offset": "-5"}, "offset -5"),
        ({"location": "w.bin", "offset": "abc"}, "offset abc"),
        ({"location": "w.bin", "length": "-1"}, "length -1"),
        ({"location": "w.bin", "offset": "64", "length": "128"}, "128 bytes, not the 192"),
        ({"location": "w.bin", "length": "17"}, "17 bytes, not the 128"),
        ({"location": "w.bin", "offset": "64"}, "64 bytes, not the 128"),
        ({"location": "other.bin"}, "is missing"),
        ({"location": "."}, "is missing"),
        ({"location": "../w.bin"}, "outside"),
        ({"location": "sub/../../w.bin"}, "outside"),
        ({"location": "/etc/passwd"}, "outside"),
        ({"offset": "0"}, "no file"),
    ],
)
def test_external_data_that_are_not_as_told_are_refused(told: dict[str, str], said: str, tmp_path: Path) -> None:
    assert said in refused(external(tmp_path, **told))


def test_external_data_of_a_local_function_are_checked_and_named(tmp_path: Path) -> None:
    model = parsed(
        "g (float[b,8] x) => (float[b,4] y) { y = own.f(x) }"
        '<domain: "own", opset_import: ["": 17]> f (p) => (q) { w = Constant<value = float {1}>() q = MatMul(p, w) }'
    )
    model.opset_import.add(domain="own", version=1)
    held = onnx.TensorProto(data_type=1, dims=[8, 4], data_location=onnx.TensorProto.EXTERNAL)
    held.external_data.add(key="location", value="w.bin")
    model.functions[0].node[0].attribute[0].t.CopyFrom(held)
    path = saved(tmp_path, model)
    assert mentions(refused(path), "w.bin", "Constant", "missing")
    (tmp_path / "w.bin").write_bytes(np.ones((8, 4), np.float32).tobytes())
    assert onnx_reader.weight_files(path) == [tmp_path / "w.bin"]


def test_external_data_beside_the_file_are_read(tmp_path: Path) -> None:
    model = onnx_reader.read(external(tmp_path, location="w.bin", offset="0", length="128"), external=True)
    assert onnx.numpy_helper.to_array(model.graph.initializer[0]).sum() == 32


@pytest.mark.parametrize("content", [b"", b"\0" * 12])
def test_weights_that_are_cut_short_are_refused(content: bytes, tmp_path: Path) -> None:
    model = parsed("g (float[b,8] x) => (float[b,4] y) { y = MatMul(x, w) }")
    weight = onnx.TensorProto(name="w", data_type=1, dims=[8, 4])
    if content:
        weight.raw_data = content
    model.graph.initializer.append(weight)
    assert "weights of w" in refused(saved(tmp_path, model))


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"data_type": 99, "dims": [2], "raw_data": b"12345678"}, "type number 99"),
        ({"data_type": 0, "dims": [2], "raw_data": b"12345678"}, "type number 0"),
        ({"data_type": 1, "dims": [-2], "raw_data": b"12345678"}, "[-2]"),
        ({"data_type": 1, "dims": [3], "float_data": [1.0]}, "1 values, not 3"),
        ({"data_type": 7, "dims": [2], "int64_data": [1, 2, 3]}, "3 values, not 2"),
        ({"data_type": 10, "dims": [2], "raw_data": b"123"}, "3 bytes, not 4"),
        ({"data_type": 18, "dims": [2], "raw_data": b"12345678"}, "8 bytes, not 2"),
    ],
)
def test_a_weight_that_no_tensor_can_be_is_refused(told: dict[str, Any], said: str, tmp_path: Path) -> None:
    model = parsed("g (float[b,2] x) => (float[b,2] y) { y = Relu(x) }")
    model.graph.initializer.append(onnx.TensorProto(name="w", **told))
    assert said in refused(saved(tmp_path, model))


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        ("g (float[b,2] x) => (float[b,2] y) { y = Add(x, nosuch) }", "reads 'nosuch'"),
        ("g (float[b,2] x) => (float[b,2] z) { y = Relu(x) }", "output 'z'"),
        (
            "g (float[b,2] x, bool c) => (float[b,2] y) { y = If (c) <"
            "then_branch = t () => (float[b,2] u) { u = Add(x, gone) },"
            "else_branch = e () => (float[b,2] v) { v = Relu(x) }> }",
            "reads 'gone'",
        ),
    ],
)
def test_what_nothing_makes_is_refused_by_its_name(graph: str, said: str, tmp_path: Path) -> None:
    assert said in refused(saved(tmp_path, parsed(graph)))


def test_nodes_in_any_order_are_put_behind_what_they_read(tmp_path: Path) -> None:
    model = parsed("g (float[b,8] x) => (float[b,8] y) { y = Relu(b2) b2 = Add(a, x) a = Neg(x) }")
    assert [node.op_type for node in onnx_reader.read(saved(tmp_path, model)).graph.node] == ["Neg", "Add", "Relu"]


@given(order=st.permutations(range(5)))
def test_a_sorted_chain_is_the_same_from_every_order(order: list[int], tmp_path_factory: Any) -> None:
    names = "xabcdy"
    nodes = [helper.make_node("Relu", [names[i]], [names[i + 1]]) for i in range(5)]
    value = [helper.make_tensor_value_info(name, 1, ["b"]) for name in "xy"]
    model = helper.make_model(helper.make_graph([nodes[i] for i in order], "g", value[:1], value[1:]))
    read = onnx_reader.read(saved(tmp_path_factory.getbasetemp(), model))
    assert [node.output[0] for node in read.graph.node] == list("abcdy")


def test_nodes_in_a_circle_are_refused(tmp_path: Path) -> None:
    graph = "g (float[b] x) => (float[b] y) { a = Add(x, c) c = Relu(a) y = Relu(c) }"
    assert "needs its own output" in refused(saved(tmp_path, parsed(graph)))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("y = MatMul(x)", "node MatMul has 1 inputs, not 2"),
        ("y = DequantizeLinear()", "node DequantizeLinear has 0 inputs, not 2"),
        ("y = Cast(x)", "node Cast has no attribute to"),
        ("y = Scan(x)", "node Scan has no attribute"),
        ("y = If(x)", "node If has no attribute"),
    ],
)
def test_a_node_that_lacks_what_its_operator_needs_is_refused(body: str, said: str, tmp_path: Path) -> None:
    assert said in refused(saved(tmp_path, parsed(f"g (float[b] x) => (float[b] y) {{ {body} }}")))


def test_a_node_without_an_output_is_refused(tmp_path: Path) -> None:
    model = parsed("g (float[b] x) => (float[b] y) { y = Relu(x) }")
    del model.graph.node[0].output[:]
    assert states(refused(saved(tmp_path, model)), "Relu", "no")


# --- symbols ---------------------------------------------------------------------------------------------------

dimension = st.text(st.sampled_from("abnsBN_019é"), min_size=1, max_size=6)


@given(names=st.lists(dimension, min_size=1, max_size=6, unique=True))
def test_no_two_dimensions_share_a_symbol_but_those_of_the_batch(names: list[str]) -> None:
    value = helper.make_tensor_value_info("x", 1, names)
    symbols = onnx_inputs._symbols([value])
    assert symbols[names[0]] == "b"  # the first axis 0; no name here has "batch" in it
    assert len(set(symbols.values())) == len(names)
    assert all(re.fullmatch("[a-z]+", symbol) for symbol in symbols.values())


def dims(folder: Path, *names: str) -> tuple[int | str, ...]:
    value = [helper.make_tensor_value_info(name, 1, names) for name in "xy"]
    model = helper.make_model(helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", value[:1], value[1:]))
    return model_spec.load(saved(folder, model)).inputs[0].dims


def test_the_batch_is_what_is_called_so_wherever_it_stands(tmp_path: Path) -> None:
    assert dims(tmp_path, "sequence_len", "batch") == ("sequencelen", "b")
    assert dims(tmp_path, "n", "b") == ("b", "bx")


@pytest.mark.parametrize("name", ["batch*seq", "2*n", "s0 + 1", "floor(n/2)"])
def test_a_dimension_that_follows_from_others_is_asked_for(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=re.escape(f"follows from others ({name})")):
        dims(tmp_path, name, "batch", "seq")


def test_an_input_without_a_shape_is_asked_for(tmp_path: Path) -> None:
    value = [helper.make_tensor_value_info(name, 1, None) for name in "xy"]
    model = helper.make_model(helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", value[:1], value[1:]))
    with pytest.raises(UserError, match=naming("input x", "no shape")):
        model_spec.load(saved(tmp_path, model))


def test_a_symbol_without_a_size_is_asked_for_with_a_description_that_works(tmp_path: Path, repository: Path) -> None:
    import yaml

    path = tmp_path / "two_symbols.onnx"
    path.write_bytes((repository / "tests/data/faults/onnx/two_symbols.onnx").read_bytes())
    spec = model_spec.load(path)
    with pytest.raises(UserError) as caught:
        spec.at(Shape.parse("b1"))
    message = str(caught.value)
    assert "b1_sequence128" in message and "\n" not in message
    stub = message[message.index("{source") :]
    described = path.with_suffix(".yaml")
    described.write_text(stub)
    assert yaml.safe_load(stub)["sizes"] == {"sequence": 128}
    assert model_spec.load(described).at(Shape.parse("b2")).label == "b2_sequence128"


def test_a_shape_gives_the_sizes_that_a_description_lacks(repository: Path) -> None:
    spec = model_spec.load(repository / "tests/data/faults/onnx/two_symbols.onnx")
    sized = spec.sized(Shape.parse("b1_sequence8"))
    assert (spec.unsized, sized.unsized) == (("sequence",), ())
    assert sized.at(Shape.parse("b3")).label == "b3_sequence8"
    assert sized.at(Shape.parse("b3_sequence5")).label == "b3_sequence5"


def test_axes_without_a_name_are_asked_for_with_a_description_that_works(tmp_path: Path) -> None:
    values = [helper.make_tensor_value_info(name, 1, [None, 3, None, "xaxis"]) for name in "xy"]
    model = helper.make_model(
        helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", values[:1], values[1:])
    )
    path = saved(tmp_path, model)
    with pytest.raises(UserError, match=naming("input x", "axis 2")) as caught:
        model_spec.load(path)
    described = path.with_suffix(".yaml")
    described.write_text(str(caught.value)[str(caught.value).index("{source") :])
    spec = model_spec.load(described)
    assert spec.inputs[0].dims == ("b", 3, "cunnamed", "xaxis")
    assert (spec.sizes, spec.unsized) == ({"cunnamed": 128}, ("xaxis",))


def test_a_state_beside_a_sequence_is_offered_a_size_of_its_own(tmp_path: Path) -> None:
    kinds = {"ids": [None, None], "mask": [None, None], "state.0": [2, None, 8]}
    values = [helper.make_tensor_value_info(name, 1, dims) for name, dims in kinds.items()]
    made = helper.make_node("Add", ["ids", "mask"], ["y"])
    graph = helper.make_graph([made], "g", values, [helper.make_tensor_value_info("y", 1, [None, None])])
    spec = model_spec.of_onnx(saved(tmp_path, helper.make_model(graph)), open_axes=True)
    sequence = ("b", "bunnamed")
    assert [item.dims for item in spec.inputs] == [sequence, sequence, (2, "statebunnamed", 8)]


# --- tidied ----------------------------------------------------------------------------------------------------


def test_a_tidied_graph_has_weights_that_are_no_inputs_and_nodes_with_names_of_their_own() -> None:
    model = parsed(
        """g (float[1,2] x, float[2,2] w) => (float[1,2] y) <float[2,2] w = {1, 2, 3, 4}> {
        [same] a = MatMul(x, w) [same] b = Relu(a) [same_1] y = own.double(b) }""",
        '"": 17, "own": 1',
        '<domain: "own", opset_import: ["": 17]> double (p) => (q) { q = Add(p, p) }',
    )
    model.ir_version = 3
    tidy = onnx_file.tidied(model)
    assert [value.name for value in tidy.graph.input] == ["x"]
    assert [node.op_type for node in tidy.graph.node] == ["MatMul", "Relu", "Add"]
    names = [node.name for node in tidy.graph.node]
    assert len(set(names)) == 3
    onnx.checker.check_model(tidy, full_check=True)


def test_a_sparse_weight_is_the_same_with_its_zeros() -> None:
    for places in ([0, 5, 10], [[0, 0], [1, 1], [2, 2]]):
        indices = onnx.numpy_helper.from_array(np.array(places, np.int64), "places")
        values = onnx.numpy_helper.from_array(np.array([1, 2, 3], np.float32), "w")
        dense = onnx_graph.dense(helper.make_sparse_tensor(values, indices, [3, 4]))
        assert dense.name == "w"
        assert onnx.numpy_helper.to_array(dense).tolist() == [[1, 0, 0, 0], [0, 2, 0, 0], [0, 0, 3, 0]]


def test_a_function_that_calls_itself_is_refused_by_its_name(tmp_path: Path) -> None:
    model = parsed("g (float[b,8] x) => (float[b,8] y) { y = Relu(x) }")
    for name, called in (("First", "Second"), ("Second", "First")):
        node = onnx.helper.make_node(called, ["X"], ["Y"], domain="a.b")
        model.functions.append(onnx.helper.make_function("a.b", name, ["X"], ["Y"], [node], [*model.opset_import]))
    said = refused(saved(tmp_path, model))
    assert "a.b:First" in said or "a.b:Second" in said


def test_sizes_of_other_inputs_are_refused_where_those_of_the_graph_are_open() -> None:
    (open_input,) = onnx_graph.inputs(parsed("g (float[n,2] x) => (float[n,2] y) { y = Relu(x) }"))
    (fixed,) = onnx_graph.inputs(parsed("g (float[4,2] x) => (float[4,2] y) { y = Relu(x) }"))
    with pytest.raises(UserError, match=r"input x .*pixels"):
        onnx_graph.given(open_input, {"pixels": (8, 2)})
    assert onnx_graph.given(open_input, {}) == onnx_graph.given(fixed, {"pixels": (8, 2)}) == ()


def test_a_folder_is_no_missing_file(tmp_path: Path) -> None:
    assert "a folder" in refused(tmp_path)
    assert "no such file" in refused(tmp_path / "none.onnx")


@pytest.mark.parametrize(("dims", "axis"), [("0,3", 0), ("b,0", 1), ("2,0,4", 1)])
def test_an_input_of_size_0_has_nothing_to_infer(dims: str, axis: int, tmp_path: Path) -> None:
    model = parsed(f"g (float[{dims.replace('0', '9')}] x) => (float[{dims.replace('0', '9')}] y) {{ y = Relu(x) }}")
    model.graph.input[0].type.tensor_type.shape.dim[axis].dim_value = 0
    with pytest.raises(UserError, match=f"axis {axis}, is of"):
        onnx_inputs.describe(saved(tmp_path, model))
