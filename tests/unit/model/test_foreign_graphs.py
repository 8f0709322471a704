"""Graphs of other people: what an audit and a cost say of them, at the sizes that were asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.unit.facts import facts, naming

onnx = pytest.importorskip("onnx")

from inferprof.case import Shape  # noqa: E402
from inferprof.documents import Cost  # noqa: E402
from inferprof.errors import UserError  # noqa: E402
from inferprof.model import audit, cost, export, graph_text, model_spec, onnx_reader  # noqa: E402

ONNX = "tests/data/faults/onnx"
EVERY_FILE = "real/onnx"


def parsed(graph: str, imports: str = '"": 17') -> Any:
    return onnx.parser.parse_model(f"<ir_version: 8, opset_import: [{imports}]> {graph}")


def audited(folder: Path, model: Any, precision: str | None = None) -> dict[str, Any]:
    path = folder / "m.onnx"
    onnx.save(model, path)
    return audit.audit(path, precision, None)


def test_every_foreign_graph_is_counted_or_refused_in_one_line(shared: Path) -> None:
    files = sorted((shared / EVERY_FILE).glob("*.onnx"))
    assert len(files) > 18
    refused = {}
    for path in files:
        try:
            assert audit.audit(path, None, None)["macs"] >= 0
            cost.cost(path, Shape.parse("b1"))
        except UserError as error:
            refused[path.stem] = str(error)
    assert list(refused) == ["polygraphy_empty"]
    assert "\n" not in refused["polygraphy_empty"]


@pytest.mark.parametrize(
    ("name", "macs", "weights"),
    [
        ("magika_standard_v3_3", 366_717_952, None),
        ("onnx_light_resnet50", 4_089_184_256, None),
        ("ort_model_with_valid_ort_config_json", 3 * 2, {"float32": 8}),  # opset 7
        ("ort_sparse_initializer_handling", 0, {"float32": 3 * 4 * 5 * 4}),
        ("polygraphy_sparse.conv", 25_600, None),
    ],
)
def test_products_of_foreign_graphs_are_counted_exactly(
    name: str, macs: int, weights: dict[str, int] | None, shared: Path
) -> None:
    result = audit.audit(shared / EVERY_FILE / f"{name}.onnx", None, None)
    assert (result["macs"], result["products_of_unknown_size"]) == (macs, [])
    assert weights is None or result["weight_bytes"] == weights


def test_symbols_of_the_file_take_the_sizes_of_the_descriptions_inputs(repository: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.onnx"
    path.write_bytes((repository / ONNX / "other_symbols.onnx").read_bytes())
    (tmp_path / "mine_half.onnx").touch()
    described = tmp_path / "mine.yaml"
    described.write_text((repository / ONNX / "other_symbols.yaml").read_text())
    spec, shape = model_spec.load(described), Shape.parse("b8")
    assert audit.audit(path, None, shape, spec)["macs"] == 8 * 32 * 32
    assert cost.cost(path, shape, spec)["nodes"][0]["flops"] == 2 * 8 * 32 * 32
    alone = audit.audit(path, None, shape)
    assert (alone["macs"], alone["assumed_sizes"]) == (32 * 32, ["batch_size"])
    assert "counted as 1" in alone["advice"][0]


def test_a_graph_of_another_rank_than_its_description_is_refused(repository: Path, tmp_path: Path) -> None:
    described = tmp_path / "m.yaml"
    described.write_text("{source: onnx, onnx: m.onnx, inputs: [{name: x, dtype: float32, dims: [b, 4, 4]}]}")
    (tmp_path / "m.onnx").write_bytes((repository / ONNX / "other_symbols.onnx").read_bytes())
    with pytest.raises(UserError, match="input x has dims"):
        audit.audit(tmp_path / "m.onnx", None, Shape.parse("b1"), model_spec.load(described))


def test_an_operator_of_another_domain_is_never_counted_by_its_bare_name(tmp_path: Path) -> None:
    graph = "g (float[2,8] x, float[8,8] w) => (float[2,8] y) { h = my.MatMul(x, w) y = my.Softmax(h) }"
    for imports in ('"": 17, "my": 1', '"": 17'):  # some files forget to import it
        result = audited(tmp_path, parsed(graph, imports))
        assert (result["macs"], result["softmax"]) == (0, {})
        assert result["foreign_domains"] == {"my": ["MatMul", "Softmax"]}
        assert facts(result["advice"][-1], "my")[-4:] == ["my", "MatMul", "Softmax", "nothing"]
    nodes = cost.cost(tmp_path / "m.onnx", Shape.parse("b1"))["nodes"]
    assert [(node["op"], node["flops"]) for node in nodes] == [("my::MatMul", None), ("my::Softmax", None)]


def test_a_file_without_any_opset_is_counted_with_a_remark(shared: Path) -> None:
    result = audit.audit(shared / EVERY_FILE / "ort_mul_1.noopset.onnx", None, None)
    assert any("names no opset" in line for line in result["advice"])


def test_a_file_that_names_only_another_domains_opset_is_counted_with_a_remark(tmp_path: Path) -> None:
    model = parsed("g (float[2,8] x, float[8,4] w) => (float[2,4] y) { y = MatMul(x, w) }", '"my": 1')
    result = audited(tmp_path, model)
    assert (result["macs"], result["no_opset"]) == (2 * 8 * 4, True)


def test_a_graph_of_another_domain_alone_needs_no_opset_of_onnxs_own(tmp_path: Path) -> None:
    graph = "g (float[b,4] x) => (float[b,4] y) { y = ai.onnx.ml.Scaler<offset = [1.0], scale = [2.0]>(x) }"
    assert audited(tmp_path, parsed(graph, '"ai.onnx.ml": 1'))["no_opset"] is False
    facts = export.export(model_spec.load(tmp_path / "m.onnx"), tmp_path / "fp32.onnx")
    assert facts["nodes"] == 1


def test_int8_with_a_zero_point_is_not_tensorrts(repository: Path) -> None:
    result = audit.audit(repository / ONNX / "uint8.onnx", "int8", None)
    assert result["not_tensorrt_int8"] == {"q": "uint8, zero point 128", "dq": "uint8, zero point 128"}
    assert sum("zero point 128" in line for line in result["advice"]) == 1
    assert not any("Casts" in line for line in result["advice"])
    symmetric = audit.audit(repository / ONNX / "quantized_already.onnx", "int8", None)
    assert symmetric["not_tensorrt_int8"] == {}


def test_a_signed_zero_point_that_is_off_zero_is_not_tensorrts(tmp_path: Path) -> None:
    graph = """g (float[2,8] x) => (float[2,8] y) <float s = {0.1}, int8 z = {3}> {
        q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }"""
    assert set(audited(tmp_path, parsed(graph))["not_tensorrt_int8"].values()) == {"int8, zero point 3"}


@pytest.mark.parametrize("kind", ["uint16", "int16", "uint4"])
@pytest.mark.parametrize("said_by", ["zero point", "output_dtype", "stored weight"])
def test_a_type_that_tensorrt_does_not_quantize_to_is_said_wherever_it_stands(
    kind: str, said_by: str, tmp_path: Path
) -> None:
    number = {"uint16": 4, "int16": 5, "uint4": 21}[kind]
    body = {
        "zero point": f"<float s = {{0.1}}, {kind} z = {{0}}> {{ q = QuantizeLinear(x, s, z)",
        "output_dtype": f"<float s = {{0.1}}> {{ q = QuantizeLinear<output_dtype: int = {number}>(x, s)",
        "stored weight": f"<float s = {{0.1}}, {kind}[2,2] q = {{1, 2, 3, 4}}> {{",
    }[said_by]
    graph = f"g (float[2,2] x) => (float[2,2] y) {body} w = DequantizeLinear(q, s) y = Mul(x, w) }}"
    result = audited(tmp_path, parsed(graph, '"": 21'))
    assert set(result["not_tensorrt_int8"].values()) == {f"{kind}, zero point 0"}
    assert sum(kind in line for line in result["advice"]) == 1


def test_a_graph_that_is_quantized_already_is_no_baseline(repository: Path, tmp_path: Path) -> None:
    result = audit.audit(repository / ONNX / "quantized_already.onnx", "fp32", None)
    assert result["quantized_nodes"] == ["q", "dq", "dqw"]
    assert sum("no fp32 baseline" in line for line in result["advice"]) == 1
    with pytest.raises(UserError, match="no fp32 baseline"):
        export.export(model_spec.load(repository / ONNX / "quantized_already.onnx"), tmp_path / "fp32.onnx")


def test_a_bias_in_int32_makes_no_quantized_graph(repository: Path, tmp_path: Path) -> None:
    facts = export.export(model_spec.load(repository / ONNX / "two_biases.onnx"), tmp_path / "fp32.onnx")
    assert facts["nodes"] == 6


def test_a_normalization_in_pieces_in_float16_is_told(repository: Path) -> None:
    result = audit.audit(repository / ONNX / "half_layernorm.onnx", "fp16", None)
    assert result["normalization_in_pieces"] == ["s"]
    assert sum("256" in line and "65,504" in line for line in result["advice"]) == 1


@pytest.mark.parametrize(
    ("pieces", "told"),
    [
        ("s = Mul(x, x) m = ReduceMean<axes = [-1]>(s) e = Add(m, c) r = Sqrt(e) y = Div(x, r)", ["s"]),
        ("m = ReduceSumSquare<axes = [-1]>(x) r = Sqrt(m) y = Div(x, r)", ["m"]),
        ("r = ReduceL2<axes = [-1]>(x) y = Div(x, r)", ["r"]),
        ("s = Mul(x, x) f = Cast<to = 1>(s) m = ReduceMean<axes = [-1]>(f) r = Sqrt(m) y = Cast<to = 10>(r)", ["s"]),
        (
            "s = Mul(x, x) m = ReduceMean<axes = [-1]>(s) e = Add(m, c) i = Identity(e) r = Sqrt(i) y = Div(x, r)",
            ["s"],
        ),
        ("s = Mul(x, x) y = Add(s, c)", []),
        ("s = Mul(x, x) y = ReduceMean<axes = [-1]>(s)", []),
        ("w = Cast<to = 1>(x) s = Mul(w, w) m = ReduceMean<axes = [-1]>(s) r = Sqrt(m) y = Cast<to = 10>(r)", []),
    ],
)
def test_only_squares_under_a_root_are_a_normalization(pieces: str, told: list[str], tmp_path: Path) -> None:
    model = parsed(f"g (float16[2,8] x) => (float16[2,8] y) {{ {pieces} }}")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.float16(1e-3), "c"))
    assert audited(tmp_path, model)["normalization_in_pieces"] == told


def test_a_product_of_nothing_is_no_product_of_unknown_size(tmp_path: Path) -> None:
    model = parsed("g (float[2,0] x, float[0,4] w) => (float[2,4] y) { y = MatMul(x, w) }")
    result = audited(tmp_path, model)
    assert (result["macs"], result["products_of_unknown_size"]) == (0, [])


def test_a_vector_multiplies_as_a_row_or_a_column(tmp_path: Path) -> None:
    model = parsed("g (float[8] x, float[8,4] w) => (float[4] y) { y = MatMul(x, w) }")
    assert audited(tmp_path, model)["macs"] == 8 * 4


@pytest.mark.parametrize(
    ("imports", "normalized"),
    [
        ('"": 18', "GroupNormalization<num_groups: int = 2>(x, g, g)"),
        ('"": 21', "GroupNormalization<num_groups: int = 2>(x, g, g)"),
        ('"": 17, "com.microsoft": 1', "com.microsoft.QuickGelu(x)"),
        ('"": 17, "com.microsoft": 1', "com.microsoft.SkipLayerNormalization(x, x, g)"),
    ],
)
def test_products_behind_what_onnx_infers_nothing_of_are_counted(
    imports: str, normalized: str, tmp_path: Path
) -> None:
    graph = (
        f"g (float[2,4,8] x, float[4] g, float[8,3] w) => (float[2,4,3] y) {{ h = {normalized} y = MatMul(h, w) }}"
    )
    result = audited(tmp_path, parsed(graph, imports))
    assert (result["macs"], result["products_of_unknown_size"]) == (2 * 4 * 8 * 3, [])


def test_the_sum_beside_a_fused_normalization_has_its_shape_too(tmp_path: Path) -> None:
    graph = """g (float[2,8] x, float[8] g, float[8,3] w) => (float[2,3] y) {
        h, m, v, s = com.microsoft.SkipLayerNormalization(x, x, g) y = MatMul(s, w) }"""
    assert audited(tmp_path, parsed(graph, '"": 17, "com.microsoft": 1'))["macs"] == 2 * 8 * 3


def test_products_behind_onnx_runtimes_quantized_sums_are_counted(tmp_path: Path) -> None:
    graph = """g (int8[2,8] x, int8[1,8] b, int8[8,3] w) => (int8[2,3] y) <float s = {0.1}, int8 z = {0}> {
        a = com.microsoft.QLinearAdd(b, s, z, x, s, z, s, z) h = com.microsoft.QLinearSigmoid(a, s, z, s, z)
        y = QLinearMatMul(h, s, z, w, s, z, s, z) }"""
    result = audited(tmp_path, parsed(graph, '"": 17, "com.microsoft": 1'))
    assert (result["macs"], result["macs_share"]) == (2 * 8 * 3, {"int8": 1.0})


def test_sizes_that_an_unknown_operator_makes_are_said_to_be_its(tmp_path: Path) -> None:
    graph = "g (float[2,8] x, float[8,3] w) => (float[2,3] y) { h = my.F(x) y = MatMul(h, w) }"
    line = next(line for line in audited(tmp_path, parsed(graph))["advice"] if "1 of 1 products" in line)
    assert "of my make" in line


def test_weights_that_old_files_list_as_inputs_have_sizes(tmp_path: Path) -> None:
    model = parsed("g (float[2,8] x, float[8,4] w) => (float[2,4] y) { y = MatMul(x, w) }", '"": 9')
    model.ir_version = 3
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((8, 4), np.float32), "w"))
    result = audited(tmp_path, model)
    assert (result["macs"], result["products_of_unknown_size"]) == (2 * 8 * 4, [])


def test_an_input_that_is_an_output_as_well_keeps_its_type(tmp_path: Path) -> None:
    model = parsed("g (float16[2,8] x, float16[8,4] w) => (float16[2,8] x, float16[2,4] y) { y = MatMul(x, w) }")
    assert audited(tmp_path, model)["macs_share"] == {"float16": 1.0}


@pytest.mark.parametrize("kind", ["value_floats", "sparse_value"])
def test_a_constant_is_a_weight_in_each_of_its_forms(kind: str, tmp_path: Path) -> None:
    zeros, place = np.ones(1, np.float32), np.array([3])
    sparse = onnx.helper.make_sparse_tensor(*map(onnx.numpy_helper.from_array, (zeros, place), ("w", "i")), [8])
    value = [1.0] * 8 if kind == "value_floats" else sparse
    model = parsed("g (float[2,8] x) => (float[2] y) { w = Constant() y = MatMul(x, w) }")
    model.graph.node[0].attribute.append(onnx.helper.make_attribute(kind, value))
    result = audited(tmp_path, model)
    assert (result["macs"], result["weight_bytes"]) == (16, {"float32": 32})


def test_a_branch_that_the_sizes_choose_is_the_one_that_runs(tmp_path: Path) -> None:
    graph = """g (float[b,8] x, float[8,8] w) => (float[b,8] y) <int64 eight = {8}> {
        s = Shape<start = 1>(x) n = Squeeze(s) c = Equal(n, eight)
        y = If(c) <then_branch = t () => (float[b,8] t1) { t1 = MatMul(x, w) },
                   else_branch = e () => (float[b,8] e2) { e1 = MatMul(x, w) e2 = MatMul(e1, w) }> }"""
    result = audited(tmp_path, parsed(graph))
    assert (result["macs"], result["branches"]) == (8 * 8, [])


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_a_scan_of_opset_8_goes_through_each_sequence_of_its_batch(batch: int, tmp_path: Path) -> None:
    graph = f"""g (float[{batch},6,8] x, float[8,4] w) => (float[{batch},6,4] y) {{
        y = Scan<num_scan_inputs = 1, body = s (float[8] r) => (float[4] o) {{ o = MatMul(r, w) }}>("", x) }}"""
    assert audited(tmp_path, parsed(graph, '"": 8'))["macs"] == batch * 6 * 8 * 4


@pytest.mark.parametrize(("holds", "macs"), [(0, 0), (1, 3 * 2 * 8 * 8)])
def test_a_loop_whose_condition_never_holds_runs_nothing(holds: int, macs: int, tmp_path: Path) -> None:
    graph = f"""g (float[2,8] x, float[8,8] w) => (float[2,8] y) <int64 n = {{3}}, bool t = {{{holds}}}> {{
        y = Loop<body = l (int64 i, bool c, float[2,8] a) => (bool d, float[2,8] b) {{
            d = Identity(c) b = MatMul(a, w) }}>(n, t, x) }}"""
    result = audited(tmp_path, parsed(graph))
    assert (result["macs"], result["products_in_loops_of_unknown_length"]) == (macs, {})


LOCAL = '<domain: "own", opset_import: ["": {opset}, "own": 1]> {name} (p, w) => (q) {{ {body} }}'


def test_a_local_function_of_another_opset_is_counted(tmp_path: Path) -> None:
    function = LOCAL.format(opset=13, name="f", body="h = MatMul(p, w) q = ReduceMean<axes: ints = [1]>(h)")
    model = parsed(
        f"g (float[2,8] x, float[8,8] w) => (float[2,1] y) {{ y = own.f(x, w) }} {function}", '"": 18, "own": 1'
    )
    result = audited(tmp_path, model)
    assert (result["macs"], result["foreign_domains"]) == (2 * 8 * 8, {})


def test_overloads_of_a_function_may_call_each_other(tmp_path: Path) -> None:
    functions = [LOCAL.format(opset=18, name="f", body=body) for body in ("q = MatMul(p, w)", "q = own.f(p, w)")]
    model = parsed(
        f"g (float[2,8] x, float[8,8] w) => (float[2,8] y) {{ y = own.f(x, w) }} {' '.join(functions)}",
        '"": 18, "own": 1',
    )
    model.ir_version = 10
    model.functions[0].overload = model.functions[1].node[0].overload = "plain"
    model.functions[1].overload = model.graph.node[0].overload = "outer"
    assert audited(tmp_path, model)["macs"] == 2 * 8 * 8
    model.functions[1].node[0].overload = "outer"
    with pytest.raises(UserError, match="own:f:outer calls itself"):
        audited(tmp_path, model)


def test_operands_that_do_not_fit_are_said_to_contradict_each_other(tmp_path: Path) -> None:
    for columns, says in ((63, True), (64, False)):
        path = tmp_path / "a.onnx"
        onnx.save(parsed(f"g (float[4,{columns}] x, float[64,32] w) => (float[a,c] y) {{ y = MatMul(x, w) }}"), path)
        result = audit.audit(path, None, None)
        assert any("cannot run" in line and "MatMul" in line for line in result["advice"]) is says
        assert result["products_of_unknown_size"] == (["y"] if says else [])
        assert not any("only a run tells" in line for line in result["advice"])


def test_two_weights_of_one_name_are_refused(tmp_path: Path) -> None:
    model = parsed("g (float[4,8] x) => (float[4,2] y) <float[8,2] w = {0}> { y = MatMul(x, w) }")
    del model.graph.initializer[:]
    for value in (1.0, 2.0):
        array = np.full((8, 2), value, np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, "w"))
    with pytest.raises(UserError, match=naming("2 weights", "w")):
        audited(tmp_path, model)
    del model.graph.initializer[1:]
    model.graph.initializer[0].name = "y"
    model.graph.input.add(name="w").CopyFrom(model.graph.output[0])
    model.graph.input[1].name = "w"
    with pytest.raises(UserError, match=naming("node", "weight", "y")):
        audited(tmp_path, model)


IN_A_BRANCH = (
    "o = If(t) <then_branch = a () => (float[n,c,d] p) {{ p = {0} }}, "
    "else_branch = b () => (float[n,c,d] q) {{ q = {0} }}>"
)


@pytest.mark.parametrize("size", [190, 500, 700])
@pytest.mark.parametrize("where", ["o = {0}", IN_A_BRANCH])
def test_a_window_larger_than_its_input_is_no_product_of_a_negative_size(
    where: str, size: int, tmp_path: Path
) -> None:
    """ONNX infers a size below 0, or, since it rounds towards 0, of 1."""
    conv = where.format("Conv<strides = [128], pads = [5, 5], dilations = [2]>(x, w)")
    graph = f"g (float[1,1,{size}] x, float[4,1,256] w, bool t) => (float[n,c,d] o) {{ {conv} }}"
    result = audited(tmp_path, parsed(graph))
    runs = size >= 2 * 255 + 1 - 10
    assert any("cannot run" in line and "[511]" in line for line in result["advice"]) is not runs
    nodes = cost.cost(tmp_path / "m.onnx", Shape.parse("b1"))["nodes"]
    assert all((node["flops"] or 0) >= 0 for node in nodes)
    assert not runs or result["macs"] == 4 * 256 * ((size + 10 - 511) // 128 + 1)


def test_weights_of_a_size_that_only_a_run_tells_make_a_cost_all_the_same(tmp_path: Path) -> None:
    model = parsed("g (float[2,8] x) => (float[2,8] y) { n = NonZero(w) f = Cast<to = 1>(n) y = Mul(x, f) }")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((200, 200), np.float32), "w"))
    onnx.save(model, tmp_path / "m.onnx")
    content = cost.cost(tmp_path / "m.onnx", Shape.parse("b1"))
    assert msgspec.convert(content, Cost).in_weights is None
    assert "not known" in graph_text.of_cost(content)


@pytest.mark.parametrize(
    ("call", "opset", "flops"),
    [
        ("Swish(x)", 24, 16),
        ("Celu(x)", 17, 16),
        ("ThresholdedRelu(x)", 17, 16),
        ("Trilu(x)", 17, 0),
        ("OneHot(i, d, v)", 17, 0),
        ("Resize<mode = 'nearest'>(x, '', '', g)", 17, 0),
        ("Resize<mode = 'linear'>(x, '', '', g)", 17, None),
        ("TopK(x, k)", 17, None),
    ],
)
def test_what_only_moves_data_is_told_from_what_nobody_counts(
    call: str, opset: int, flops: int | None, tmp_path: Path
) -> None:
    weights = "int64 d = {4}, float[2] v = {0, 1}, int64[2] g = {8, 8}, int64[1] k = {1}"
    outputs = "y, z" if "TopK" in call else "y"
    call = call.replace("''", '""').replace("'", '"')
    graph = f"g (float[4,4] x, int64[3] i) => (float[a,b] y) <{weights}> {{ {outputs} = {call} }}"
    onnx.save(parsed(graph, f'"": {opset}'), tmp_path / "m.onnx")
    content = cost.cost(tmp_path / "m.onnx", Shape.parse("b1"))
    assert [node["flops"] for node in content["nodes"]] == [flops]
    assert ("TopK" in graph_text.of_cost(content).splitlines()[1]) is ("TopK" in call)


def test_zeros_that_nobody_placed_are_one_line(tmp_path: Path) -> None:
    model = parsed("g (float16[4,64] x) => (float16[4,32] y) { y = MatMul(x, w) }")
    values = np.ones((64, 32), np.float16)
    values[:40] = 0
    model.graph.initializer.append(onnx.numpy_helper.from_array(values, "w"))
    assert sum("sparse" in line for line in audited(tmp_path, model)["advice"]) == 1


@pytest.mark.parametrize(
    ("kind", "said"),
    [("seq(float[2])", "sequence"), ("optional(float[2])", "optional"), ("string[2]", "strings")],
)
def test_inputs_that_are_no_numbers_are_refused_by_what_they_are(kind: str, said: str, tmp_path: Path) -> None:
    onnx.save(parsed(f"g ({kind} x) => ({kind} y) {{ y = Identity(x) }}"), tmp_path / "m.onnx")
    with pytest.raises(UserError, match=naming("x", said, "audit")):
        model_spec.of_onnx(tmp_path / "m.onnx")


def test_onnxs_own_domain_may_be_written_out(tmp_path: Path) -> None:
    graph = "g (float[4, 16] x, float[16, 8] w) => (float[4, 8] y) { y = ai.onnx.MatMul(x, w) }"
    assert audited(tmp_path, parsed(graph, '"ai.onnx": 17'))["macs"] == 4 * 16 * 8


def test_a_tensor_that_two_nodes_make_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=naming("2 nodes", "'y'")):
        audited(tmp_path, parsed("g (float[2] x) => (float[2] y) { y = Relu(x) y = Tanh(x) }"))


def test_what_git_lfs_left_in_place_of_a_graph_is_named(tmp_path: Path) -> None:
    pointer = tmp_path / "m.onnx"
    pointer.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(UserError, match=naming("Git LFS", "git lfs pull")):
        onnx_reader.read(pointer)


def test_few_weights_are_not_shown_as_none(tmp_path: Path) -> None:
    graph = "g (float[4, 16] x) => (float[4, 8] y) <float[16, 8] w> { y = MatMul(x, w) }"
    model = parsed(graph)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((16, 8), np.float32), "w"))
    assert "float32 0.5 KiB" in audit.render(audited(tmp_path, model))
