"""A key that `--config` gave means what it would mean in a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from inferprof import arguments, config, registry
from inferprof.case import Shape
from inferprof.errors import UserError
from inferprof.files import read_json
from inferprof.model import model_spec
from inferprof.yaml_file import read_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ([{"name": "graph", "cuda_graph": "true"}], [{"name": "graph", "cuda_graph": True}]),
        ({"rounds": "2", "budget_s": "0.5"}, {"rounds": 2, "budget_s": 0.5}),
        ([["1", "2.5"], "False"], [[1, 2.5], False]),
        (["b1_s128", "2024-01-01", "{broken", "null", ""], ["b1_s128", "2024-01-01", "{broken", "null", ""]),
        ("auto", "auto"),
    ],
)
def test_numbers_and_booleans_inside_of_what_config_gave_are_numbers_and_booleans(text: Any, value: Any) -> None:
    assert config.as_in_a_file({"key": text, "other": ["1"]}, ["key"]) == {"key": value, "other": ["1"]}


def test_what_is_text_by_the_schema_stays_text(repository: Path) -> None:
    assert config.as_in_a_file({"target": ["12.0"]}, ["target"]) == {"target": ["12.0"]}
    properties = read_json(repository / "workflow/inferprof/schemas/config.schema.json")["properties"]
    of_text = {name for name, one in properties.items() if one.get("items", {}).get("type") == "string"}
    assert of_text == config.TEXTS


BASE = "study: x\nmodels: [vit_tiny]\nprecisions: [fp32]\nbackends: [ort_cpu]\nshapes: [b1]\n"
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BASE + "protocol: {budget_s: .nan}\n", "protocol.budget_s"),
        (BASE + "protocol: {budget_s: .inf}\n", "protocol.budget_s"),
        (BASE + "protocol: {budget_s: 0}\n", "protocol.budget_s"),
        (BASE + "protocol: {seed: -1}\n", "protocol.seed"),
        (BASE + "protocol: {accuracy_samples: 100001}\n", "protocol.accuracy_samples"),
        (BASE + "protocol: {rounds: true}\n", "protocol.rounds"),
        (BASE + f"protocol: {{rounds: {'9' * 30}}}\n", "protocol.rounds"),
        (BASE + f"protocol: {{rounds: {'9' * 5000}}}\n", "is no int"),
        (BASE + "machine: !!bool x\n", "is no bool"),
        (BASE + "machine: 2026-13-45\n", "line 6, column 10: '2026-13-45' is no timestamp"),
        (BASE + "machine: 2026-01-01\n", '2026-01-01 is not a string: write "2026-01-01"'),
        (BASE + "machine: no\n", "write quotes"),
        (BASE + "protocol: {budget_s: 1e3}\n", "'1e3' is not a number: write 1000"),
        (BASE + "protocol: {rounds: 3.0}\n", "3.0 is not a whole number: write 3"),
        (BASE + "thresholds: {gap_share: .nan}\n", "thresholds.gap_share"),
        (BASE + "study: y\n", "study is given twice"),
        (BASE + "protocol: {seed: 1, seed: 2}\n", "seed is given twice"),
        (BASE.replace("x\n", '"x\\n"\n', 1), "config: study"),
        (BASE.replace("x\n", "../x\n", 1), "config: study"),
        (BASE + 'machine: "m\\n"\n', "config: machine"),
        (BASE + "variants: [{name: a/b}]\n", "config: variants.0.name"),
        (BASE.replace("b1", "b" + "9" * 5000), "shape 'b999"),
        (BASE + "thresholds: " + "[" * 3000 + "\n", "nested too deeply"),
        (BASE + "thresholds: " + "[" * 60 + "]" * 60 + "\n", "nested deeper than 50"),
        ("&a [*a]\n", "nested deeper than 50"),
        (BOMB, "values"),
        (BASE + "? [1]\n: 2\n", "unhashable"),
        (BASE + "thresholds: {1: 2}\n", "thresholds: the key 1 is not a string"),
        (BASE + "variants: [{name: default, on: 2}]\n", "variants.0: the key true is not a string"),
        (BASE.replace("[fp32]", "[{name: int8, 2024-01-01: 1}]"), "precisions.0: the key"),
        (BASE.replace("[fp32]", "[no]"), "precisions.0: false is none of what may stand here (a name, or a mapping"),
        (BASE + "protocol: {limit_s: 1:30}\n", "base 60"),
        (BASE + "protocol: {budget_s: 1:30.5}\n", "base 60"),
        (BASE + "protocol: {rounds: 010}\n", "octal"),
        (BASE + "protocol:\n", "nothing behind it"),
        (BASE.replace("[b1]", "[1]"), "shapes.0: 1 is not a string: write b1 (b<batch>"),
        (BASE + "variants: [graph]\n", "{name: graph, cuda_graph: true}"),
        (BASE + "target: 12.0\n", "write [12.0]"),
        (BASE + "target: [12]\n", "target.0: 12 is not a string: write 12.0 (a compute capability: 12.0)"),
        (BASE + "target: [sm120]\n", "a compute capability: 12.0"),
        ('{"study": NaN}', "study"),
        ('{"study": ' + "[" * 100_000, "not JSON"),
    ],
    ids=lambda value: str(value)[-30:],
)
def test_a_config_that_no_study_can_be_made_of_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    given = text
    if not text.startswith("{"):
        (tmp_path / "study.yaml").write_text(text, encoding="utf-8")
        given = str(tmp_path / "study.yaml")
    with pytest.raises(UserError) as refused:
        content = config.with_defaults(arguments.read_config(given))
        for label in content["shapes"]:
            Shape.parse(label)
    assert said in str(refused.value) and "\n" not in str(refused.value) and len(str(refused.value)) < 600


@pytest.mark.parametrize("given", ["[12.0, 12.1]", '["12.0", "12.1"]'])
def test_a_target_is_a_number_or_a_string(tmp_path: Path, given: str) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(BASE + f"target: {given}\n", encoding="utf-8")
    assert config.with_defaults(read_yaml(path))["target"] == ["12.0", "12.1"]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("onnxruntime", "ort_cpu, ort_cuda, ort_tensorrt, ort_tensorrt_rtx"),
        ("onnx-runtime-gpu", "ort_cpu, ort_cuda, ort_tensorrt, ort_tensorrt_rtx"),
        ("PyTorch", "torch_compile, torch_eager"),
        ("TensorRT", "tensorrt"),
    ],
)
def test_a_runtime_is_found_by_what_its_program_is_called(given: str, meant: str) -> None:
    with pytest.raises(UserError) as refused:
        config.check_names("backends", [given], registry.backends())
    assert str(refused.value).endswith(f"; did you mean {meant}?")


def test_what_a_config_may_hold_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(
        BASE + "exclude:\n- {model: &names [a, b], reason: r}\n- {model: *names, variant: v, reason: r}\n"
    )
    assert config.with_defaults(read_yaml(path))["exclude"][1]["model"] == ["a", "b"]


@pytest.mark.parametrize("package", ["..", ".", "a..b", "/etc", "a/b", "a\n", ""])
def test_a_package_of_a_model_is_a_name(tmp_path: Path, package: str) -> None:
    path = tmp_path / "m.yaml"
    inputs = [{"name": "x", "dtype": "float32", "dims": ["b"]}]
    content = {"source": "onnx", "onnx": "m.onnx", "package": package, "inputs": inputs}
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(UserError, match="package"):
        model_spec.load(path)


SHAPES = {"vit": [Shape.parse("b1"), Shape.parse("b8")]}


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([{"name": "a", "policy": "dynamic", "max_batch": 4, "slo_ms": 5}], "max_batch 4 is no batch of vit"),
        ([{"name": "a", "policy": "none", "slo_ms": 5}] * 2, "two are named a"),
        ([{"name": "a", "policy": "none", "slo_ms": 5, "models": ["bert"]}], "bert"),
    ],
)
def test_a_policy_of_serving_that_no_shape_or_model_fits_is_refused(entries: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        config.serving(entries, SHAPES)


CACHED = {"llm": [Shape.parse(label) for label in ("b1_p64", "b4_c64", "b8_p16c64", "b8_c32")]}
GENERATES = {
    "name": "a",
    "policy": "continuous",
    "max_batch": 4,
    "slo_ms": 5,
    "prompts": [8, 64],
    "new_tokens": [2, 9],
}


@pytest.mark.parametrize(
    ("given", "shapes", "cached", "said"),
    [
        ({}, SHAPES, [], "KV cache"),
        ({"policy": "dynamic", "prompts": None, "new_tokens": None}, CACHED, ["llm"], "needs prompts"),
        ({"max_batch": 8}, CACHED, ["llm"], "no shape b8_c64"),
        ({"arrivals": "trace:none.txt"}, CACHED, ["llm"], "none.txt: no trace"),
    ],
)
def test_a_policy_and_a_model_that_do_not_go_together_are_refused(
    given: Any, shapes: Any, cached: Any, said: str
) -> None:
    with pytest.raises(UserError, match=said):
        config.serving([GENERATES | given], shapes, cached)


def test_a_generative_model_is_served_at_the_context_of_its_longest_prompt() -> None:
    policy = config.serving([GENERATES], CACHED, ["llm"])["a"]
    assert [str(shape) for shape in CACHED["llm"] if config.is_served(policy, shape)] == ["b4_c64"]


def test_policies_of_serving_are_known_by_their_names() -> None:
    entries = [{"name": "a", "policy": "dynamic", "max_batch": 8, "slo_ms": 5}]
    assert config.serving(entries, SHAPES)["a"].max_batch == 8


def test_a_description_that_does_not_fit_its_onnx_file_is_refused_before_anything_runs(tmp_path: Path) -> None:
    from tests.unit.model.test_graph_text import graph

    graph(tmp_path, "m", "x")
    path = tmp_path / "m.yaml"
    assert config.models(["m"], {"m": path})[0]["m"].inputs[0].name == "x"
    good = path.read_text()
    for wrong, said in (
        (good.replace("name: x", "name: image"), "image are not those of m.onnx: x"),
        (good.replace("float32", "float16"), "float16, but float32"),
        (good.replace("[b, 4]", "[b, 5]"), "dims"),
    ):
        path.write_text(wrong)
        with pytest.raises(UserError, match=said):
            config.models(["m"], {"m": path})
    # A file that is broken fails in its export, where the other models go on.
    path.write_text(good)
    (tmp_path / "m.onnx").write_bytes(b"broken")
    assert config.models(["m"], {"m": path})[0]["m"].name == "m"
