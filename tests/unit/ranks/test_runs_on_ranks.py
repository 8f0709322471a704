"""Cases over several ranks, on CPUs through gloo: the same loop, checks and record as in one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.facts import facts, mentions
from tests.unit.test_processes import alive

from inferprof import documents
from inferprof.documents import Record
from inferprof.profilers import kineto

REPOSITORY = Path(__file__).resolve().parents[3]
MODEL = REPOSITORY / "models/llama_tiny.yaml"
KINDS = ("tensor", "sequence", "pipeline", "data")
SHAPE = "b4_s16"
RUN = """
import functools, json, sys
from pathlib import Path
import numpy as np
from inferprof import workload
from inferprof.case import Case, Shape, Variant
from inferprof.measure import timing
from inferprof.model import data, expected, export, model_spec
from inferprof.profilers import kineto
from inferprof.ranks import supervise
from inferprof.run_request import Profiling, RunRequest

spec = model_spec.load(Path(sys.argv[1]))
out, shape, limits = Path(sys.argv[2]), sys.argv[3], supervise.Limits(*json.loads(sys.argv[4]))
supervise.run = functools.partial(supervise.run, limits=limits)
full = spec.at(Shape.parse(shape))
feeds = data.feeds(spec, full, 1, 0)[0]
reference = out / "expected.npz"
expected.write(functools.partial(export.outputs, spec, full), feeds, reference)  # on the CPU: ranks are forked here
for name in sys.argv[5:]:
    kind, _, profiled = name.partition("/")
    request = RunRequest(
        case=Case(spec.name, "fp32", "torch_eager", name.replace("/", "-"), shape),
        artifact=spec.path, spec=spec, variant=Variant(kind, {"parallel": {kind: 2}}), machine="cpu-test",
        protocol=timing.Protocol(budget_s=0.05, throughput_min_s=0.02), reference=reference,
        profiling=Profiling(3, None, functools.partial(kineto.record, out / "trace.json"), kineto.named_range)
        if profiled
        else None,
    )
    (out / f"{name.replace('/', '-')}.json").write_text(json.dumps(workload.run(request)))
"""


def run(model: Path, out: Path, shape: str, limits: tuple[float, float], *kinds: str) -> str:
    """Measure a model divided in these ways; what was said."""
    paths = os.pathsep.join([str(REPOSITORY / "workflow"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", RUN, model, out, shape, json.dumps(limits), *kinds],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of each way to divide the model its record; Kineto watches the run of tensor-profiled.json: trace.json."""
    out = tmp_path_factory.mktemp("records")
    run(MODEL, out, SHAPE, (120, 60), *KINDS, "tensor/profiled")
    return out


@pytest.fixture(scope="module")
def records(results: Path) -> dict[str, Any]:
    return {path.stem: json.loads(path.read_text()) for path in results.glob("*.json") if "trace" not in path.name}


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_of_divided_blocks_are_those_of_the_whole(records: dict[str, Any], kind: str) -> None:
    record = records[kind]
    assert (record["status"], record["reason"]) == ("ok", None)
    assert record["checks"]["outputs_match"]["passed"] and record["checks"]["outputs_overwritten"]["passed"]
    (own,) = record["outputs"].values()
    assert own["shape"] == [4, 16, 64]


@pytest.mark.parametrize("kind", KINDS)
def test_the_record_has_the_boundaries_of_one_process_and_an_entry_for_each_rank(
    records: dict[str, Any], kind: str
) -> None:
    record: Record = msgspec.convert(records[kind], documents.TYPES["record"])
    assert record.boundaries is not None and record.boundaries.call is not None
    assert record.boundaries.call.samples_ns
    assert [rank.rank for rank in record.ranks] == [0, 1]
    assert record.ranks[1].outputs == record.outputs
    assert record.options == {"parallel": {kind: 2}}


def test_each_rank_of_tensor_parallel_blocks_holds_half_of_the_matrices(records: dict[str, Any]) -> None:
    weights = {kind: records[kind]["memory"]["runtime"]["weights"] for kind in KINDS}
    norms, rotations = 4 * (2 * 2 * 64), 4 * (2 * 2048 * 16)
    assert weights["tensor"] == records["tensor"]["ranks"][1]["memory"]["weights"]
    matrices = weights["data"] - norms - rotations
    assert weights["tensor"] == weights["sequence"] == matrices // 2 + norms + rotations
    assert weights["pipeline"] == (matrices + norms) // 2 + rotations


def test_a_run_for_a_profiler_has_its_iterations_on_all_ranks(records: dict[str, Any]) -> None:
    record = records["tensor-profiled"]
    assert record["status"] == "ok" and len(record["iterations"]["samples_ns"]) == 3
    assert record["outputs"] == records["tensor"]["outputs"]


def test_kineto_records_each_rank_and_leaves_one_trace(results: Path) -> None:
    kineto.finish(results / "trace.json", lambda command: None)
    assert [path.name for path in results.glob("*trace.json")] == ["trace.json"]
    trace = json.loads((results / "trace.json").read_text())
    iterations = [event["pid"] for event in trace["traceEvents"] if event["name"] == "iteration"]
    assert sorted(iterations) == [1, 1, 1, 2, 2, 2]
    assert not {"distributedInfo", "hostname", "trace_id"} & trace.keys()


FAULTY = """
import os, time
from pathlib import Path
import torch
from torch import distributed


class Faulty(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.runs, self.linear = 0, torch.nn.Linear(4, 4)

    def forward(self, x):
        self.runs += 1
        if distributed.is_initialized():
            Path(__file__).with_name(f"pid{distributed.get_rank()}").write_text(str(os.getpid()))
            if distributed.get_rank() == 1 and self.runs == 5:
                FAULT
        return self.linear(x)
"""
FAULTY_YAML = """
source: python
python: faulty:Faulty
export: false
inputs:
  - {name: x, dtype: float32, dims: [b, 4]}
"""
FAULTS = {
    "os.kill(os.getpid(), 9)": ["1", "SIGKILL"],
    "raise RuntimeError('planted')": ["1", "RuntimeError"],
    "time.sleep(600)": ["no", "2 s", "all", "5"],
}


def run_faulty(folder: Path, fault: str, limit_s: float) -> dict[str, Any]:
    """The record of a case whose rank 1 does this in its fifth inference; pid0 and pid1 name the processes."""
    (folder / "faulty.py").write_text(FAULTY.replace("FAULT", fault))
    model = folder / "faulty.yaml"
    model.write_text(FAULTY_YAML)
    run(model, folder, "b2", (60, limit_s), "data")
    record: dict[str, Any] = json.loads((folder / "data.json").read_text())
    return record


@pytest.mark.parametrize("fault", FAULTS)
def test_a_rank_that_dies_or_hangs_is_a_failed_case_within_the_limit_and_leaves_no_process(
    tmp_path: Path, fault: str
) -> None:
    began = time.monotonic()
    record = run_faulty(tmp_path, fault, 2)
    assert time.monotonic() - began < 60
    assert (record["status"], facts(record["reason"])) == ("failed", FAULTS[fault])
    pids = sorted(tmp_path.glob("pid*"))
    assert len(pids) == 2 and not any(alive(int(path.read_text())) for path in pids)


def test_a_model_that_says_no_way_to_divide_it_is_a_user_error_that_names_the_key(tmp_path: Path) -> None:
    command = ["run", "torch_eager", str(model := REPOSITORY / "models/linear_stack.yaml"), "--spec", str(model)]
    flags = ["--shape=b2", "--precision=fp32", "--set=parallel={tensor: 2}", f"--out={tmp_path / 'r.json'}"]
    done = subprocess.run(
        [sys.executable, "-m", "inferprof", *command, *flags],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "workflow")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    assert mentions(done.stderr.splitlines()[-1], "linear_stack.yaml", "parallel", "{tensor: 2}")
    assert not (tmp_path / "r.json").exists()
