"""Quantized torch models on a GPU: the plain result but for the format's noise, out of half of the weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inferprof.backends import torch as backend
from inferprof.model import model_spec
from inferprof.plugins import OpenRequest

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]
TABLES = 2 * 2048 * 16 * 2
"""Bytes of the model's cosines and sines, which stay in bf16."""


@pytest.mark.parametrize("name", ["float8_weight_only", "float8_dynamic", "int8_weight_only"])
def test_a_quantized_model_gives_the_plain_result_out_of_fewer_bytes(
    repository: Path,
    opening: Callable[..., OpenRequest],
    infer: Callable[..., dict[str, np.ndarray[Any, Any]]],
    feeds_of: Callable[[OpenRequest], Any],
    name: str,
) -> None:
    pytest.importorskip("torchao", reason="torchao is not installed: requirements/puzzles.txt")
    path = repository / "models/llama_tiny.yaml"
    results, weights = [], []
    for options in ({}, {"quantize": name}):
        request = opening(model_spec.load(path), "b1_s32", path, "bf16", **options)
        with backend.open_eager(request) as session:
            results.append(infer(session, request.device, feeds_of(request))["output"].copy())
            weights.append(session.memory()["weights"] - TABLES)
    noise = ((results[1] - results[0]) ** 2).sum() / (results[0] ** 2).sum()
    assert 10 * np.log10(1 / noise) > 18
    assert weights[1] < 0.6 * weights[0]
