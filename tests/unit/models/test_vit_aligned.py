"""The vision transformer of aligned sizes computes what a vision transformer does."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

MODULE = Path(__file__).parents[3] / "models" / "vit_aligned.py"


@pytest.mark.slow
def test_folded_attention_is_attention() -> None:
    torch = pytest.importorskip("torch")
    module = runpy.run_path(str(MODULE))
    attention = module["Attention"]().eval()
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((2, 256, 768), np.float32))

    def heads(part: Any) -> Any:
        return part(x).reshape(2, 256, 12, 64).transpose(1, 2)

    with torch.inference_mode():
        mixed = torch.nn.functional.scaled_dot_product_attention(
            heads(attention.q), heads(attention.k), heads(attention.v)
        )
        expected = attention.out(mixed.transpose(1, 2).reshape(2, 256, 768))
        torch.testing.assert_close(attention(x), expected, rtol=1e-4, atol=1e-5)
