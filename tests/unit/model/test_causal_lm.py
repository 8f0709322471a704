"""Prefill and decode compute what the whole sequence at once does, and say what that takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.facts import naming

from inferprof.case import Shape
from inferprof.errors import UserError
from inferprof.model import data, export, model_spec, torch_source
from inferprof.model.model_spec import ModelSpec

pytestmark = pytest.mark.slow

WIDTH, MLP, LAYERS, HEADS, KV_HEADS, HEAD, VOCABULARY = 32, 48, 2, 4, 2, 8, 100
YAML = f"""
source: transformers
architecture: {{architecture}}
pretrained: false
kv_cache: true
config:
  hidden_size: {WIDTH}
  intermediate_size: {MLP}
  num_hidden_layers: {LAYERS}
  num_attention_heads: {HEADS}
  num_key_value_heads: {KV_HEADS}
  vocab_size: {VOCABULARY}
  tie_word_embeddings: {{tied}}
inputs:
  - {{{{name: input_ids, dtype: int64, dims: [b, p], data: 'integers:{VOCABULARY}'}}}}
"""
MATRICES = LAYERS * (2 * WIDTH * HEADS * HEAD + 2 * WIDTH * KV_HEADS * HEAD + 3 * WIDTH * MLP)
NORMS = (2 * LAYERS + 1) * WIDTH


@pytest.fixture(autouse=True)
def _torch() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")


def spec_of(folder: Path, architecture: str = "LlamaForCausalLM", tied: str = "false") -> ModelSpec:
    path = folder / "lm.yaml"
    path.write_text(YAML.format(architecture=architecture, tied=tied))
    return model_spec.load(path)


def step_at(spec: ModelSpec, label: str, *, grows: bool = False) -> Any:
    from inferprof.model import causal_lm

    module = export.torch_module(spec, attention="sdpa")
    return causal_lm.Step(module, spec, Shape.parse(label), grows=grows).eval()


def ids_at(spec: ModelSpec, label: str) -> Any:
    import torch

    return torch.from_numpy(data.feeds(spec, Shape.parse(label), 1, 0)[0]["input_ids"])


@pytest.mark.parametrize("grows", [False, True])
@pytest.mark.parametrize("label", ["b3_p9", "b3_c7", "b1_c1", "b2_p4c7"])
def test_the_logits_are_those_of_the_whole_sequence_at_once(tmp_path: Path, label: str, grows: bool) -> None:
    import torch

    from inferprof.model import causal_lm

    spec = spec_of(tmp_path)
    step, ids = step_at(spec, label, grows=grows), ids_at(spec, label)
    context = causal_lm._context_ids(spec, step.context) if step.context else ids[:1, :0]
    whole = torch.cat([context.expand(len(ids), -1), ids], dim=1)
    model = export.torch_module(spec).model
    with torch.inference_mode():
        logits = model(input_ids=whole, use_cache=False).logits[:, -1]
        for _ in range(2):  # an inference leaves the cache as it found it
            torch.testing.assert_close(step(ids), logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("label", ["b2_p5", "b2_c6"])
def test_what_a_run_must_agree_with_is_computed_with_the_library_s_own_cache(tmp_path: Path, label: str) -> None:
    spec = spec_of(tmp_path)
    ids = ids_at(spec, label)
    outputs, _ = export.outputs(spec, Shape.parse(label), {"input_ids": ids.numpy()})
    assert outputs["output"].shape == (2, VOCABULARY)
    np.testing.assert_allclose(step_at(spec, label)(ids).detach().numpy(), outputs["output"], rtol=1e-4, atol=1e-5)


def test_each_row_of_a_batch_has_memory_of_its_own(tmp_path: Path) -> None:
    step = step_at(spec_of(tmp_path), "b3_c7")
    assert [tuple(buffer.shape) for buffer in step.buffers() if buffer.ndim == 4] == [(3, KV_HEADS, 8, HEAD)] * 4
    assert all(buffer.is_contiguous() for buffer in step.buffers() if buffer.ndim == 4)


def test_a_cache_that_grows_has_no_room_for_new_tokens_and_needs_as_many_bytes(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    steps = [step_at(spec, "b3_c7", grows=grows) for grows in (False, True)]
    assert [step.cache0.shape[2] for step in steps] == [8, 7]
    assert steps[0].operation(0) == steps[1].operation(0)


@pytest.mark.parametrize("tied", ["false", "true"])
def test_a_decode_step_reads_all_matrices_and_the_cache_but_no_table_that_only_rows_are_picked_from(
    tmp_path: Path, tied: str
) -> None:
    from inferprof.backends import torch_quantize

    step = step_at(spec_of(tmp_path, tied=tied), "b3_c7")
    told = step.operation(torch_quantize.size(step.lm))
    rotary = HEAD // 2 * 2  # inverse frequencies, and as they were first
    assert told == {
        "tokens": 1,
        "context": 7,
        "weights_read": 4 * (MATRICES + NORMS + VOCABULARY * WIDTH + rotary),
        "kv_read": 4 * 3 * 7 * 2 * LAYERS * KV_HEADS * HEAD,
        "kv_written": 4 * 3 * 2 * LAYERS * KV_HEADS * HEAD,
        "flops": 3 * (2 * MATRICES + 2 * VOCABULARY * WIDTH + LAYERS * 4 * HEADS * HEAD * 8),
        "not_counted": None,
    }


@pytest.mark.parametrize(("label", "pairs"), [("b2_p5", 15), ("b2_c6", 7), ("b2_p3c6", 24)])
def test_the_flops_are_those_that_torch_counts_but_for_what_the_causal_mask_leaves_out(
    tmp_path: Path, label: str, pairs: int
) -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    spec = spec_of(tmp_path)
    step = step_at(spec, label)
    counter = FlopCounterMode(display=False)
    with sdpa_kernel(SDPBackend.MATH), counter:
        step(ids_at(spec, label))
    square = step.tokens * (step.tokens + step.context)
    left_out = 2 * LAYERS * 4 * HEADS * HEAD * (square - pairs)
    assert step.operation(0)["flops"] == counter.get_total_flops() - left_out


def test_a_model_with_a_sliding_window_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=naming("lm.yaml", "kv_cache", "sliding window")):
        torch_source.load(spec_of(tmp_path, "MistralForCausalLM"), "sdpa")


def test_there_is_no_onnx_file_of_a_model_with_a_cache(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=naming("kv_cache", "torch", "no ONNX file")):
        export.export(spec_of(tmp_path), tmp_path / "fp32.onnx")


def test_the_weights_of_a_large_model_are_repeated_and_no_two_rows_are_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_source, "MANY", 1000)
    monkeypatch.setattr(torch_source, "DRAWN", 1009)
    spec = spec_of(tmp_path)
    first, second = (export.torch_module(spec).state_dict() for _ in range(2))
    assert all((first[name] == second[name]).all() for name in first)
    matrix = first["model.model.layers.0.mlp.gate_proj.weight"].numpy()
    assert len(np.unique(matrix, axis=0)) == MLP
    assert matrix.std() == pytest.approx(WIDTH**-0.5, rel=0.1)
