"""What is a secret in a text, and what only looks like one: every carrier is held against tests/data/secrets.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from inferprof import secret

CORPUS: dict[str, Any] = yaml.safe_load(
    Path(__file__).parents[1].joinpath("data", "secrets.yaml").read_text(encoding="utf-8")
)
PLANTED: list[tuple[str, list[str]]] = [
    (entry["text"].format("".join(entry["secret"])), entry["secret"]) for entry in CORPUS["planted"]
]
"""A text and the pieces of the secret in it."""


@pytest.mark.parametrize(("text", "pieces"), PLANTED, ids=[text[:40] for text, _ in PLANTED])
def test_a_planted_secret_is_gone_and_the_text_stays_so(text: str, pieces: list[str]) -> None:
    clean = secret.redact(text)
    assert "".join(pieces) not in clean
    assert secret.REDACTED in clean
    assert pieces[-1] not in clean
    assert secret.redact(clean) == clean


@pytest.mark.parametrize("text", CORPUS["kept"])
def test_names_of_kernels_layers_and_tensors_stay(text: str) -> None:
    assert secret.redact(text) == text
