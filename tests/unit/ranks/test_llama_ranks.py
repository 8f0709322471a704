"""Blocks of a Llama that have the same weights are divided once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
MODELS = Path(__file__).resolve().parents[3] / "models"


@pytest.mark.parametrize("alike", [False, True])
def test_each_block_keeps_its_share_of_heads_and_columns(monkeypatch: pytest.MonkeyPatch, alike: bool) -> None:
    monkeypatch.syspath_prepend(MODELS)
    import llama_blocks  # type: ignore[import-not-found]
    import llama_ranks  # type: ignore[import-not-found]

    monkeypatch.setattr(llama_ranks.distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(llama_ranks.distributed, "get_world_size", lambda: 2)
    size = llama_blocks.Size(width=64, mlp=160, heads=4, key_value_heads=2, blocks=3, alike=alike)
    whole, part = llama_blocks.stack(size), llama_ranks.divided(llama_blocks.stack(size), "tensor")
    assert len(part.layers) == 3 and len(set(part.layers)) == (1 if alike else 3)
    for one_rank, all_of_it in zip(part.layers, whole.layers, strict=True):
        assert (one_rank.attention.heads, one_rank.attention.key_value_heads) == (2, 1)
        assert torch.equal(one_rank.mlp.up.weight, all_of_it.mlp.up.weight.chunk(2, 0)[1])
        assert torch.equal(one_rank.mlp.down.weight, all_of_it.mlp.down.weight.chunk(2, 1)[1])
    for name in ("llama_blocks", "llama_ranks"):
        sys.modules.pop(name, None)
