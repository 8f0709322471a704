"""Prefill and decode on a real GPU: eager, graphed and compiled steps give the same logits; a graph saves time."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inferprof import documents, loading, registry, workload
from inferprof.case import Case, Variant
from inferprof.measure import timing
from inferprof.measure.lane import Lane
from inferprof.model import model_spec
from inferprof.run_request import RunRequest

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]

YAML = """
source: transformers
architecture: LlamaForCausalLM
pretrained: false
kv_cache: true
config:
  hidden_size: 512
  intermediate_size: 1024
  num_hidden_layers: 4
  num_attention_heads: 8
  num_key_value_heads: 2
  vocab_size: 1000
inputs: [{name: input_ids, dtype: int64, dims: [b, p], data: 'integers:1000'}]
"""
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "eager": ("torch_eager", {}),
    "graph": ("torch_eager", {"cuda_graph": True}),
    "compiled_graph": ("torch_compile", {"compile_mode": "reduce-overhead"}),
}


def request(folder: Path, way: str, shape: str, precision: str = "bf16") -> RunRequest:
    path = folder / "lm.yaml"
    path.write_text(YAML)
    backend, options = WAYS[way]
    return RunRequest(
        case=Case("lm", precision, backend, way, shape),
        artifact=path,
        spec=model_spec.load(path),
        variant=Variant(way, options),
        machine="gpu",
        protocol=timing.Protocol(budget_s=0.3, first_pass=True),
        streams=1,
    )


def logits_of(asked: RunRequest, runs: int = 4) -> np.ndarray[Any, Any]:
    """Of the last of several runs, with a graph where the case has one."""
    backend = registry.backends()[asked.case.backend]
    device = loading.device_of(loading.gpus_of(backend, 1))
    with backend.open(loading.open_request(asked, device)) as session:
        lane = Lane(session, device, loading.feeds_of(asked), asked.placement)
        for _ in range(runs):
            lane.begin()
            outputs = lane.finish()
        if asked.variant.flag("cuda_graph"):
            assert session.capture_graph()
            lane.begin()
            outputs = lane.finish()
        return outputs["output"]


@pytest.mark.parametrize("shape", ["b2_p64", "b4_c96", "b2_p16c64"])
def test_all_ways_to_run_a_step_give_the_same_logits(tmp_path: Path, shape: str) -> None:
    expected = logits_of(request(tmp_path, "eager", shape, "fp32"))
    for way in WAYS if shape == "b4_c96" else ("eager", "graph"):
        error = logits_of(request(tmp_path, way, shape)) - expected
        assert np.sqrt((error**2).mean() / (expected**2).mean()) < 0.03, way


def test_a_graph_takes_the_launches_off_a_decode_step_and_its_record_says_what_it_reads(tmp_path: Path) -> None:
    medians = {}
    for way in ("eager", "graph"):
        record = documents.decode(json.dumps(workload.run(request(tmp_path, way, "b1_c128"))).encode(), "record")
        assert record.failure is None, record.failure
        medians[way] = statistics.median(record.boundaries.call.samples_ns)
        assert (record.operation.tokens, record.operation.context) == (1, 128)
        assert record.operation.kv_read == 128 * 4 * 2 * 2 * 64 * 2
    assert medians["graph"] < 0.6 * medians["eager"]
