from __future__ import annotations

import re
from pathlib import Path

import pytest
from onnx import TensorProto, helper
from tests.unit.facts import facts, mentions, naming, states

from inferprof.case import Shape
from inferprof.errors import UserError
from inferprof.model import model_spec
from inferprof.model.model_spec import InputSpec, ModelSpec

TOKENS = "source: onnx\nonnx: bert.onnx\ninputs: [{name: ids, dtype: int64, dims: [b, s], data: 'integers:9'}]\n"


def yaml_file(folder: Path, text: str, name: str = "m.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def onnx_file(folder: Path, *inputs: tuple[str, int, tuple[int | str | None, ...]], name: str = "m.onnx") -> Path:
    """Write a model with these inputs, each behind an Identity."""
    given = inputs or (("x", TensorProto.FLOAT, ("batch", 4)),)
    values = [helper.make_tensor_value_info(*item) for item in given]
    outputs = [helper.make_tensor_value_info(f"{item[0]}_out", item[1], item[2]) for item in given]
    nodes = [helper.make_node("Identity", [item[0]], [f"{item[0]}_out"]) for item in given]
    model = helper.make_model(helper.make_graph(nodes, "g", values, outputs))
    path = folder / name
    path.write_bytes(model.SerializeToString())
    return path


def refusal(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        model_spec.load(path)
    message = str(caught.value)
    assert "\n" not in message and str(path) in message
    return message


def spec(**changes: object) -> ModelSpec:
    values: dict[str, object] = {
        "inputs": (InputSpec("ids", "int64", ("b", "s")), InputSpec("mask", "int64", ("b", "s"))),
        "sizes": {"s": 128},
        "max_sizes": {"s": 512},
    }
    return ModelSpec("bert", Path("models/bert.yaml"), "onnx", **(values | changes))  # type: ignore[arg-type]


# --- YAML ---


MODELS = model_spec.discover(Path(__file__).parents[3] / "models")


@pytest.mark.parametrize("name", MODELS)
def test_every_model_of_the_repository_loads(name):
    if name.startswith("detector") and not model_spec.package_roots("rapidocr"):
        pytest.skip("rapidocr, which carries the detector's file, is not installed")
    spec = model_spec.load(MODELS[name])
    assert spec.name == name
    assert spec.onnx_path is None or spec.onnx_path.is_file()


def test_a_torch_model_may_do_without_an_onnx_file_and_an_onnx_file_may_not(tmp_path: Path) -> None:
    torch = "source: timm\narchitecture: vit\nexport: false\ninputs: [{name: x, dtype: float32, dims: [b]}]\n"
    assert not model_spec.load(yaml_file(tmp_path, torch)).exported
    assert model_spec.load(yaml_file(tmp_path, torch.replace("export: false\n", ""))).exported
    onnx_file(tmp_path, name="bert.onnx")
    message = refusal(yaml_file(tmp_path, TOKENS + "export: false\n"))
    assert states(message, "onnx", "ONNX", "false", "torch")


def packaged(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The YAML of a model whose ONNX file lies in an installed package."""
    inside = folder / "site" / "carrier" / "models"
    inside.mkdir(parents=True)
    (inside.parent / "__init__.py").write_text("raise AssertionError('imported')")
    onnx_file(inside, name="x.onnx")
    monkeypatch.syspath_prepend(folder / "site")
    text = "source: onnx\npackage: carrier\nonnx: models/x.onnx\n"
    return yaml_file(folder, f"{text}inputs: [{{name: x, dtype: float32, dims: [b, 4]}}]\n")


def test_an_onnx_file_can_lie_in_a_package_which_is_not_imported(tmp_path, monkeypatch):
    found = model_spec.load(packaged(tmp_path, monkeypatch)).onnx_path
    assert found == tmp_path / "site" / "carrier" / "models" / "x.onnx"


def test_a_package_that_is_missing_or_lacks_the_file_is_refused(tmp_path, monkeypatch):
    path = packaged(tmp_path, monkeypatch)
    text = path.read_text()
    path.write_text(text.replace("x.onnx", "y.onnx"))
    assert "carrier/models/y.onnx is no file" in refusal(path)
    path.write_text(text.replace("carrier", "no_such_package"))
    assert states(refusal(path), "no_such_package", "ONNX", "not")


def test_yaml_says_what_the_source_reads_and_what_is_common(repository):
    minilm = model_spec.load(repository / "models" / "minilm.yaml")
    assert minilm.from_torch and minilm.pretrained and minilm.task == "embedding"
    assert minilm.options["pooling"] == "mean" and "inputs" not in minilm.options
    assert minilm.symbols == ("b", "s")
    assert minilm.inputs[1] == InputSpec("attention_mask", "int64", ("b", "s"), "token_mask")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds nothing"),
        ("source: onnx\nonnx: m.onnx\n", "top level: 'inputs' is a required property"),
        (TOKENS.replace("[{", "[] # ["), "inputs: [] should be non-empty"),
        (TOKENS + "batch: 8\n", "'batch' was unexpected); allowed: architecture, config,"),
        (TOKENS.replace("int64", "bfloat16"), "inputs.0.dtype: 'bfloat16' is not one of"),
        (TOKENS.replace("[b, s]", "[b, 0]"), "inputs.0.dims.1: 0"),
        (TOKENS.replace("integers:9", "integer:9"), "inputs.0.data: 'integer:9' does not match"),
        (TOKENS.replace("integers:9", "constant:1.2.3"), "inputs.0.data: 'constant:1.2.3' does not match"),
        (TOKENS.replace("[b, s]", "[b, 8.0]"), "inputs.0.dims.1: 8.0"),
        (TOKENS + "seed: 1.0\n", "seed: 1.0 is not a whole number"),
        (TOKENS + "opset: eleven\n", "opset: 'eleven' is not a whole number"),
        (TOKENS + "revision: main\n", "revision: 'main' does not match"),
        (TOKENS + "sizes: {t: 8}\n", "no input has the symbol t; they have b, s"),
        (TOKENS + "sizes: {s: 8}\nmax_sizes: {s: 4}\n", "size s: 8 is over its maximum 4"),
        (TOKENS + "variants: {nvfp4: four.onnx}\n", "four.onnx is no file"),
        (TOKENS.replace("bert.onnx", "gone.onnx"), "gone.onnx is no file"),
        (TOKENS.replace("onnx: bert.onnx\n", ""), "source onnx needs the key onnx:"),
        (TOKENS.replace("source: onnx", "source: python"), "source python needs the key python:"),
        (TOKENS.replace("source: onnx", "source: timm"), "source timm needs the key architecture:"),
        (TOKENS.replace("}]", "}, {name: ids, dtype: int64, dims: [b]}]"), "two inputs are named ids"),
        (TOKENS + "repository: a/b\n", "repository: needs revision:"),
        ("source: transformers\narchitecture: BertModel\n" + TOKENS.split("\n")[2], "write pretrained: false"),
        ("source: [onnx", "expected ',' or ']'"),
    ],
)
def test_what_is_wrong_with_a_yaml_file_is_said_in_one_line(tmp_path, text, words):
    onnx_file(tmp_path, name="bert.onnx")
    assert words in refusal(yaml_file(tmp_path, text))


def test_a_file_that_is_not_there_or_not_text_is_named(tmp_path):
    assert mentions(refusal(tmp_path / "nope.yaml"), "nope.yaml: no such file")
    (tmp_path / "latin.yaml").write_bytes(b"\xe9")
    assert "UTF-8" in refusal(tmp_path / "latin.yaml")


# --- bare ONNX files ---


def test_a_bare_onnx_file_is_a_model(tmp_path):
    loaded = model_spec.load(onnx_file(tmp_path))
    assert loaded.name == "m" and loaded.source == "onnx" and not loaded.from_torch
    assert loaded.onnx_path == tmp_path / "m.onnx"
    assert loaded.inputs == (InputSpec("x", "float32", ("b", 4), "normal"),)


@pytest.mark.parametrize(
    ("dims", "expected"),
    [
        ([("N", 3, "H", "W")], [("b", 3, "h", "w")]),
        ([("batch_size", "seq_len"), ("batch_size", "past_len")], [("b", "seqlen"), ("b", "pastlen")]),
        ([(2, "batch", 4)], [(2, "b", 4)]),
        ([("s0", "s1"), ("s0", "s17")], [("b", "sb"), ("b", "sbh")]),
        ([(None, 4)], [("b", 4)]),
        ([("unk__214", 2048)], [("b", 2048)]),
        ([("M", "K"), ("K", "N")], [("b", "k"), ("k", "n")]),
        ([()], [()]),
    ],
)
def test_dimensions_become_symbols_of_letters(tmp_path, dims, expected):
    path = onnx_file(tmp_path, *((f"x{i}", TensorProto.FLOAT, given) for i, given in enumerate(dims)))
    assert [item.dims for item in model_spec.load(path).inputs] == expected


def test_each_type_is_fed_with_what_fits_it(tmp_path):
    types = {"f": TensorProto.FLOAT16, "i": TensorProto.INT64, "q": TensorProto.BOOL}
    path = onnx_file(tmp_path, *((name, number, ("b",)) for name, number in types.items()))
    assert [(item.dtype, item.data) for item in model_spec.load(path).inputs] == [
        ("float16", "normal"),
        ("int64", "integers:2"),
        ("bool", "zeros"),
    ]


def test_a_bare_file_that_cannot_be_used_is_refused_in_one_line(tmp_path):
    whole = onnx_file(tmp_path)
    truncated = tmp_path / "truncated.onnx"
    truncated.write_bytes(whole.read_bytes()[:-9])
    assert mentions(refusal(truncated), "not a readable ONNX")
    assert mentions(
        refusal(onnx_file(tmp_path, ("x", TensorProto.FLOAT, ("b", None)))), "axis 1", "describe the inputs"
    )
    assert mentions(refusal(onnx_file(tmp_path, ("x", TensorProto.BFLOAT16, ("b",)))), "is bfloat16", "cannot be fed")
    assert mentions(refusal(onnx_file(tmp_path, ("x", TensorProto.STRING, ("b",)))), "strings", "cannot be fed")


def test_weights_listed_among_the_inputs_are_not_fed(tmp_path):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 1])
    w = helper.make_tensor_value_info("w", TensorProto.FLOAT, [1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 1])
    weight = helper.make_tensor("w", TensorProto.FLOAT, [1], [2.0])
    graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "g", [x, w], [y], [weight])
    path = tmp_path / "old.onnx"
    path.write_bytes(helper.make_model(graph).SerializeToString())
    assert [item.name for item in model_spec.load(path).inputs] == ["x"]


def test_real_files_are_described_or_refused_in_one_line(shared):
    described = {}
    for path in sorted((shared / "real" / "onnx").glob("*.onnx")):
        try:
            described[path.stem] = model_spec.load(path).inputs
        except UserError as error:
            assert "\n" not in str(error)
    assert described["magika_standard_v3_3"] == (InputSpec("bytes", "int32", ("b", 2048), "integers:2"),)
    assert "silero_vad" not in described  # its dimensions have neither sizes nor names


# --- the models of a folder ---


def test_a_yaml_file_beside_the_onnx_file_that_it_names_is_one_model(tmp_path):
    onnx_file(tmp_path, name="bert.onnx")
    onnx_file(tmp_path, name="bert_nvfp4.onnx")
    onnx_file(tmp_path, name="other.onnx")
    yaml_file(tmp_path, TOKENS + "variants: {nvfp4: bert_nvfp4.onnx}\n", "bert.yaml")
    (tmp_path / "data").mkdir()
    (tmp_path / "notes.txt").write_text("no model")
    assert model_spec.discover(tmp_path) == {"bert": tmp_path / "bert.yaml", "other": tmp_path / "other.onnx"}


def test_two_models_of_one_name_are_left_out_and_stop_no_other(tmp_path, capsys):
    onnx_file(tmp_path, name="vit.onnx")
    yaml_file(tmp_path, TOKENS, "vit.yaml")
    yaml_file(tmp_path, TOKENS, "bert.yaml")
    assert [*model_spec.discover(tmp_path)] == ["bert"]
    assert re.search(naming("named vit", "vit.yaml", "vit.onnx", "rename"), capsys.readouterr().err)


def test_a_broken_yaml_file_does_not_hide_the_others(tmp_path):
    yaml_file(tmp_path, "source: [", "broken.yaml")
    yaml_file(tmp_path, TOKENS, "bert.yaml")
    assert list(model_spec.discover(tmp_path)) == ["bert", "broken"]


def test_a_name_that_cannot_stand_in_a_path_is_left_out_and_stops_no_other(tmp_path, capsys):
    yaml_file(tmp_path, TOKENS, "my model.yaml")
    yaml_file(tmp_path, TOKENS, "bert.yaml")
    assert [*model_spec.discover(tmp_path)] == ["bert"]
    assert re.search(naming("left out", "my model", "letters, digits"), capsys.readouterr().err)


@pytest.mark.parametrize(("key", "source"), [("sha256", "timm"), ("package", "torchvision"), ("repository", "timm")])
def test_a_key_that_the_source_of_the_weights_does_not_read_is_refused(tmp_path, key, source):
    value = "0" * 64 if key == "sha256" else "a_package" if key == "package" else "a/b"
    more = "revision: 0123456789abcdef0123456789abcdef01234567\n" if key == "repository" else ""
    image = "inputs: [{name: x, dtype: float32, dims: [b, 3, 8, 8], data: image}]\n"
    path = yaml_file(tmp_path, f"source: {source}\narchitecture: x\n{key}: {value!r}\n{more}{image}", "net.yaml")
    with pytest.raises(UserError, match=naming(f"source {source}", key)):
        model_spec.load(path)


def test_what_an_editor_or_a_mac_leaves_in_the_folder_is_no_model(tmp_path):
    onnx_file(tmp_path, name="net.onnx")
    (tmp_path / "._net.onnx").write_bytes(b"\0")
    (tmp_path / ".#net.yaml").symlink_to("nobody@nowhere.1")
    assert [*model_spec.discover(tmp_path)] == ["net"]


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(UserError, match="nowhere: no such folder"):
        model_spec.discover(tmp_path / "nowhere")


# --- shapes ---


def test_a_shape_gets_the_default_sizes_and_the_models_order():
    assert spec().resolve(Shape.parse("b8")) == Shape((("b", 8), ("s", 128)))
    assert spec().resolve(Shape.parse("b8_s64")) == Shape((("b", 8), ("s", 64)))
    assert spec().inputs[0].shape(Shape.parse("b8_s64")) == (8, 64)


def test_a_shape_of_another_model_does_not_apply():
    assert spec().resolve(Shape.parse("b8_h224")) is None


def test_an_unbound_symbol_is_refused_with_both_ways_out():
    with pytest.raises(UserError, match=naming("no size to s", "b8_s128", "sizes:")):
        spec(sizes={}).resolve(Shape.parse("b8"))


def test_a_sequence_over_the_maximum_is_a_reason():
    assert facts(spec().exceeds(Shape.parse("b8_s1024"))) == ["s1024", "s512"]
    assert spec().exceeds(Shape.parse("b8_s512")) is None


def test_a_fixed_batch_is_a_reason():
    fixed = spec(inputs=(InputSpec("x", "float32", (1, 3)),), sizes={}, max_sizes={})
    assert facts(fixed.exceeds(Shape.parse("b8")), "batch") == ["batch", "b8", "cannot", "b1"]
    assert fixed.exceeds(Shape.parse("b1")) is None


# --- a KV cache ---

KV = """source: transformers
architecture: LlamaForCausalLM
pretrained: false
kv_cache: true
inputs: [{name: input_ids, dtype: int64, dims: [b, p], data: 'integers:9'}]
max_sizes: {p: 512, c: 1024}
"""


@pytest.mark.parametrize(
    ("label", "resolved", "ids"),
    [("b8_p512", "b8_p512", (8, 512)), ("b8_c512", "b8_c512", (8, 1)), ("b8_c512p4", "b8_p4c512", (8, 4))],
)
def test_a_shape_of_a_model_with_a_cache_names_a_prompt_a_context_or_both(
    tmp_path: Path, label: str, resolved: str, ids: tuple[int, ...]
) -> None:
    model = model_spec.load(yaml_file(tmp_path, KV))
    shape = model.at(Shape.parse(label))
    assert shape.label == resolved
    assert model.inputs[0].shape(shape) == ids
    assert not model.exported


@pytest.mark.parametrize("label", ["b8", "b8_s128"])
def test_a_shape_that_names_neither_is_refused(tmp_path: Path, label: str) -> None:
    with pytest.raises(
        UserError, match=naming("b", "p", "c") if "s" in label else naming("b8", "b8_p128", "b8_c128")
    ):
        model_spec.load(yaml_file(tmp_path, KV)).at(Shape.parse(label))


def test_a_context_beyond_the_model_s_longest_is_too_large(tmp_path: Path) -> None:
    model = model_spec.load(yaml_file(tmp_path, KV))
    assert states(model.exceeds(Shape.parse("b1_c2048")), "c2048", "c1024")
    assert model.exceeds(Shape.parse("b1_c1024")) is None


@pytest.mark.parametrize(
    ("changed", "instead", "word"),
    [
        ("source: transformers", "source: timm", "transformers"),
        ("kv_cache: true", "kv_cache: true\nexport: true", "export"),
        ("[b, p]", "[b, s]", "[b, p]"),
        ("max_sizes: {p: 512, c: 1024}", "sizes: {p: 512}", "sizes"),
    ],
)
def test_a_cache_is_refused_where_it_cannot_be(tmp_path: Path, changed: str, instead: str, word: str) -> None:
    text = KV.replace(changed, instead) if changed != "[b, p]" else KV.replace("b, p", "b, s").split("max_sizes")[0]
    message = refusal(yaml_file(tmp_path, text))
    assert "kv_cache" in message and word in message


@pytest.mark.parametrize(
    ("source", "key"),
    [
        ("source: python\npython: m:f\n", "architecture: ViTModel"),
        ("source: python\npython: m:f\n", "config: {a: 1}"),
        ("source: timm\narchitecture: vit\n", "onnx: m.onnx"),
        ("source: timm\narchitecture: vit\n", "python: m:f"),
    ],
)
def test_a_key_that_the_source_does_not_read_is_named(tmp_path: Path, source: str, key: str) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(f"{source}{key}\ninputs: [{{name: x, dtype: float32, dims: [b]}}]\n", encoding="utf-8")
    with pytest.raises(UserError) as refused:
        model_spec.load(path)
    assert mentions(str(refused.value), "source", key.partition(":")[0])
