"""A stage that fails ends the verb of a user with an exit code and one line; as the job of a study it is a result."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from inferprof import cli, forked, outcomes

INPUTS = "[{name: x, dtype: float32, dims: [b, 4], data: normal}]"
SPEC = f"source: python\npython: block:block\ntask: other\ninputs: {INPUTS}\n"
AFTER = {
    "quantize": ["quantize", "fp16", "ONNX", "--spec", "SPEC", "--out", "OUT.onnx"],
    "audit": ["audit", "ONNX", "--out", "OUT.json"],
    "partition": ["partition", "ONNX", "--out", "OUT.json"],
    "cost": ["cost", "ONNX", "--spec", "SPEC", "--shape", "b1", "--out", "OUT.json"],
    "expect": ["expect", "ONNX", "--spec", "SPEC", "--shape", "b1", "--out", "OUT.npz"],
    "accuracy": ["accuracy", "fp16", "ONNX", "--reference", "ONNX", "--spec", "SPEC", "--out", "OUT.json"],
    "sensitivity": ["sensitivity", "fp16", "ONNX", "--spec", "SPEC", "--out", "OUT.json"],
    "build": ["build", "ort_tensorrt", "ONNX", "--spec", "SPEC", "--shape", "b1", "--out", "OUT.engine"],
    "run": ["run", "ort_cpu", "ONNX", "--spec", "SPEC", "--shape", "b1", "--out", "OUT.json"],
}
"""Verbs behind a conversion that failed."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model whose Python needs a package that is not installed, and an export of it that failed."""
    (tmp_path / "block.py").write_text("import a_package_that_nobody_has\n")
    (tmp_path / "m.yaml").write_text(SPEC)
    (tmp_path / "fp32.onnx").touch()
    failed = {"status": "failed", "stage": "convert", "reason": "the first reason"}
    (tmp_path / "fp32.convert.json").write_text(json.dumps(failed))
    return tmp_path


def ended(folder: Path, words: Sequence[str]) -> int:
    places = {"ONNX": folder / "fp32.onnx", "SPEC": folder / "m.yaml"}
    given = {
        **places,
        **{f"OUT.{suffix}": folder / f"out.{suffix}" for suffix in ("onnx", "json", "npz", "engine")},
    }
    return cli.main([str(given.get(word, word)) for word in words])


def only_reason(capfd: pytest.CaptureFixture[str]) -> str:
    """The one line on stderr besides those that say what is at work."""
    (line,) = (line for line in capfd.readouterr().err.splitlines() if not line.endswith(" s"))
    return line


@pytest.mark.parametrize("verb", AFTER)
def test_a_verb_whose_stage_failed_says_so_in_one_line_and_its_exit_code(
    verb: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert ended(folder, AFTER[verb]) == outcomes.FAILED
    assert "convert: the first reason" in only_reason(capfd)
    monkeypatch.setenv(forked.LIMIT, "60")
    assert ended(folder, AFTER[verb]) == 0


def test_an_export_whose_package_is_missing_fails_with_its_reason_and_leaves_it_to_a_study_as_a_result(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["export", "SPEC", "--out", "OUT.onnx"]
    assert ended(folder, words) == outcomes.FAILED
    assert "a_package_that_nobody_has" in only_reason(capfd)
    monkeypatch.setenv(forked.LIMIT, "60")
    assert ended(folder, words) == 0
    assert "a_package_that_nobody_has" in json.loads((folder / "out.convert.json").read_text())["reason"]


@pytest.mark.parametrize("words", [AFTER["audit"], AFTER["partition"], AFTER["sensitivity"]])
def test_a_verb_that_only_prints_ends_as_one_that_writes(
    words: list[str], folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "fp32.convert.json").unlink()
    assert ended(folder, words[:-2]) == outcomes.FAILED
    assert only_reason(capfd)
