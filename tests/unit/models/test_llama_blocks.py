"""The blocks compute what a Llama of transformers does, and their weights are what they are said to be."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

MODELS = Path(__file__).parents[3] / "models"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def blocks() -> Any:
    pytest.importorskip("torch")
    return runpy.run_path(str(MODELS / "llama_blocks.py"))


@pytest.fixture(scope="module")
def llama(blocks: Any) -> Any:
    """transformers' Llama of the tiny size with the same weights, and no norm behind the last layer."""
    import torch
    from transformers import LlamaConfig, LlamaModel

    sizes = {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2, "vocab_size": 8}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 2048}
    config = LlamaConfig(
        **sizes, **heads, rms_norm_eps=1e-5, rope_parameters={"rope_type": "default", "rope_theta": 500_000.0}
    )
    model = LlamaModel(config).eval()
    model.norm = torch.nn.Identity()
    for theirs, ours in zip(model.layers, blocks["tiny"]().layers, strict=True):
        attention, mlp = ours.attention, ours.mlp
        for name, part in (("q", attention.q), ("k", attention.k), ("v", attention.v), ("o", attention.out)):
            getattr(theirs.self_attn, f"{name}_proj").weight.data = part.weight.data
        for name in ("gate", "up", "down"):
            getattr(theirs.mlp, f"{name}_proj").weight.data = getattr(mlp, name).weight.data
    return model


@pytest.mark.parametrize("shape", [(1, 1), (2, 1), (1, 33)])
def test_the_blocks_are_those_of_a_llama(blocks: Any, llama: Any, shape: tuple[int, int]) -> None:
    import torch

    hidden = torch.from_numpy(np.random.default_rng(0).standard_normal((*shape, 64), np.float32))
    with torch.inference_mode():
        expected = llama(inputs_embeds=hidden, use_cache=False).last_hidden_state
        torch.testing.assert_close(blocks["tiny"]()(hidden), expected, rtol=1e-4, atol=1e-5)


def test_the_weights_are_the_same_each_time_and_no_two_rows_of_a_matrix_are_alike(blocks: Any) -> None:
    first, second = blocks["tiny"](), blocks["tiny"]()
    for one, other in zip(first.parameters(), second.parameters(), strict=True):
        assert (one == other).all()
    matrix = first.layers[0].mlp.gate.weight.detach().numpy()
    assert len(np.unique(matrix, axis=0)) == len(matrix)
    assert matrix.std() == pytest.approx(64**-0.5, rel=0.02)
