"""Cases under load on a real GPU: batches form, copies are real, and what was predicted comes about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from inferprof import config, documents
from inferprof.case import Case, Variant
from inferprof.model import model_spec
from inferprof.run_request import RunRequest
from inferprof.serving import measure

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]

YAML = "source: onnx\nonnx: {name}\ninputs:\n  - {{name: x, dtype: float32, dims: [b, 3, 32, 32]}}\n"
BATCHES = (1, 2, 4, 8)
REPOSITORY = Path(__file__).parents[2]


def served(convolutions: Path, backend: str, options: dict[str, Any], **given: Any) -> documents.Serving:
    """What the record of a run says, as it is read back."""
    path = convolutions.with_suffix(".yaml")
    path.write_text(YAML.format(name=convolutions.name), encoding="utf-8")
    spec = model_spec.load(path)
    asked = {"name": "p", "policy": "dynamic", "max_batch": 8, "slo_ms": 50, "seconds": 2.0, "search": False}
    policy = config.serving_entry(asked | given)
    requests = [
        RunRequest(
            case=Case(spec.name, "fp32", backend, "v", f"b{batch}"),
            artifact=convolutions,
            spec=spec,
            variant=Variant("v", options),
            machine="gpu",
        )
        for batch in BATCHES
        if batch <= policy.max_batch
    ]
    document: documents.Serving = documents.decode(msgspec.json.encode(measure.measure(requests, policy)), "serving")
    assert document.failure is None, document.failure
    return document


@pytest.mark.parametrize("options", [{}, {"cuda_graph": True}, {"placement": "pinned"}], ids=str)
def test_batches_form_on_a_gpu_and_their_latency_is_near_what_was_predicted(
    convolutions: Path, options: dict[str, Any]
) -> None:
    # A few thousand requests a second: more than that a client in Python cannot send on time.
    document = served(convolutions, "ort_cuda", options, max_delay_ms=2, loads=[0.02, 0.05])
    assert set(document.curve or {}) == {"1", "2", "4", "8"}
    for load in document.loads:
        assert load.refused is None, load.refused
        assert load.predicted and load.replayed
        assert sum(int(size) * count for size, count in load.batches.items()) == load.requests
        assert load.latency["mean"].value_ns == pytest.approx(load.replayed.latency["mean"], rel=0.3)
    assert max(int(size) for size in document.loads[-1].batches) > 1


def test_the_highest_rate_of_single_requests_is_bracketed_on_a_gpu(convolutions: Path) -> None:
    document = served(
        convolutions, "ort_cuda", {}, policy="none", max_batch=1, loads=[0.5], seconds=0.5, slo_ms=5, search=True
    )
    highest = document.highest
    assert highest and document.capacity
    if highest.rate:
        assert highest.low and highest.high and highest.low <= highest.rate <= highest.high
        assert highest.rate <= 1.3 * document.capacity
    else:
        assert highest.not_measured and highest.probes


@pytest.mark.parametrize(
    ("policy", "options"), [("continuous", {}), ("continuous", {"cuda_graph": True}), ("dynamic", {})]
)
def test_a_generative_model_answers_on_a_gpu_about_as_fast_as_was_predicted(policy: str, options: Any) -> None:
    spec = model_spec.load(REPOSITORY / "models" / "llm_tiny.yaml")
    asked = {
        "name": "g",
        "policy": policy,
        "max_batch": 8,
        "prompts": [16, 64],
        "new_tokens": [8, 16],
        "slo_ms": 2000,
    }
    request = RunRequest(
        case=Case(spec.name, "bf16", "torch_eager", "v", "b8_c64"),
        artifact=spec.path,
        spec=spec,
        variant=Variant("v", options),
        machine="gpu",
    )
    entry = config.serving_entry(asked | {"percentile": 90, "seconds": 3, "loads": [0.5], "search": False})
    content = measure.measure([request], entry)
    document: documents.Serving = documents.decode(msgspec.json.encode(content), "serving")
    assert document.failure is None, document.failure
    (load,) = document.loads
    assert load.refused is None, load.refused
    assert load.tokens and load.predicted
    assert load.tokens.good_share > 0.9
    assert load.tokens.tpot["mean"].value_ns == pytest.approx(load.predicted.tpot["mean"], rel=0.4)
