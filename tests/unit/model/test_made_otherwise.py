"""Graphs that were made by another description than there is."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.facts import mentions

from inferprof.files import sha256, write_document
from inferprof.model import model_files


@pytest.mark.parametrize("edited", [False, True])
def test_a_description_that_was_edited_since_is_told(tmp_path: Path, edited: bool) -> None:
    path, onnx = tmp_path / "models/toy.yaml", tmp_path / "results/onnx"
    path.parent.mkdir()
    path.write_text("source: onnx\n", encoding="utf-8")
    made = {"status": "ok", "reason": None, "made_from": {"models/toy.yaml": sha256(path)}}
    write_document(onnx / "toy/fp32.convert.json", "convert", made)
    if edited:
        path.write_text("source: timm\n", encoding="utf-8")
    said = list(model_files.made_otherwise({"toy": path, "new": path}, onnx))
    assert len(said) == edited
    assert not edited or mentions(said[0], "toy.yaml", "fp32.onnx", ".snakemake", "remove", "toy")
