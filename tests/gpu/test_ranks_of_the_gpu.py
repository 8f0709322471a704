"""Ranks over NCCL: a world of one GPU, run as one of several is, and what a machine with too few GPUs says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.facts import mentions

from inferprof import documents
from inferprof.case import Shape
from inferprof.machine import hardware
from inferprof.model import accuracy, data, expected, export, model_spec

REPOSITORY = Path(__file__).resolve().parents[2]
MODEL = REPOSITORY / "models/llama_tiny.yaml"


def run(out: Path, *words: str, verb: str = "run") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "inferprof", verb, *words, "--out", str(out)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def case(out: Path, parallel: str, *options: str) -> dict[str, Any]:
    """The record of two blocks of a Llama, divided in this way."""
    words = ["--shape=b4_s64", "--precision=bf16", "--budget=0.2", f"--set=parallel={parallel}", *options]
    done = run(out, "torch_eager", str(MODEL), "--spec", str(MODEL), *words)
    assert done.returncode == 0, done.stderr
    documents.read(out, "record")
    record: dict[str, Any] = json.loads(out.read_text())
    return record


def test_the_outputs_that_a_gpu_computes_to_hold_others_against_are_those_of_the_cpu(tmp_path: Path) -> None:
    spec = model_spec.load(MODEL)
    shape = spec.at(Shape.parse("b4_s64"))
    feeds = data.feeds(spec, shape, 1, 0)[0]
    export.expect(spec.path, spec, shape, feeds, tmp_path / "e.npz")
    on_gpu, source = expected.of(tmp_path / "e.npz", feeds)
    on_cpu, _ = export.outputs(spec, shape, feeds)
    assert mentions(source, "TF32")
    assert accuracy.distance(on_cpu["output"], on_gpu["output"])["sqnr_db"] > 100


@pytest.mark.parametrize("options", [(), ("--set=cuda_graph=true",)], ids=["eager", "graph"])
def test_a_world_of_one_gpu_runs_its_collectives_through_nccl(tmp_path: Path, options: tuple[str, ...]) -> None:
    record = case(tmp_path / "r.json", "{tensor: 1}", *options)
    assert (record["status"], record["reason"]) == ("ok", None)
    assert record["boundaries"]["device"]["samples_ns"]
    (rank,) = record["ranks"]
    assert rank["rank"] == 0 and rank["telemetry"]["summary"]["samples"] > 0


def test_a_world_of_two_gpus_gives_what_one_gives_or_says_how_many_there_are(tmp_path: Path) -> None:
    record = case(tmp_path / "r.json", "{tensor: 2}")
    if hardware.count_gpus() < 2:
        assert (record["status"], record["stage"]) == ("failed", "run")
        assert mentions(record["reason"], "{tensor: 2}", "2 GPUs", "1")
        return
    assert record["status"] == "ok" and [rank["rank"] for rank in record["ranks"]] == [0, 1]
    (own,), (other,) = record["outputs"].values(), record["ranks"][1]["outputs"].values()
    assert own == other


def test_links_measure_between_gpus_or_say_that_one_has_none(tmp_path: Path) -> None:
    out = tmp_path / "links.json"
    done = run(out, verb="links")
    if hardware.count_gpus() < 2:
        assert done.returncode == 2 and not out.exists()
        return
    assert done.returncode == 0, done.stderr
    assert documents.read(out, "links").through["library"] == "nccl"
