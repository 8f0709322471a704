"""Sessions of a model with a KV cache: they share its weights, and each has a cache of its own."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.facts import naming

from inferprof.backends import torch as backend
from inferprof.backends import torch_options
from inferprof.case import Shape, Variant
from inferprof.device import Buffer
from inferprof.devices.cpu import CpuDevice
from inferprof.errors import UserError
from inferprof.model import data, export, model_spec
from inferprof.plugins import OpenRequest, Session

pytestmark = pytest.mark.slow

YAML = """
source: transformers
architecture: LlamaForCausalLM
pretrained: false
kv_cache: true
config: {hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2, num_attention_heads: 4, vocab_size: 100}
inputs: [{name: input_ids, dtype: int64, dims: [b, p], data: 'integers:100'}]
"""


@pytest.fixture
def requested(tmp_path: Path) -> Callable[..., OpenRequest]:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    path = tmp_path / "lm.yaml"
    path.write_text(YAML)

    def request(label: str, precision: str = "fp32", **options: Any) -> OpenRequest:
        spec = model_spec.load(path)
        return OpenRequest(path, spec, precision, Shape.parse(label), Variant("v", options), CpuDevice(), threads=1)

    return request


def logits(session: Session, request: OpenRequest, host: Callable[..., Buffer]) -> np.ndarray[Any, Any]:
    feeds = data.feeds(request.spec, request.shape, 1, 0)[0]
    session.bind({"input_ids": host(feeds["input_ids"])})
    session.enqueue()
    array = session.outputs()["output"].array
    assert array is not None
    return np.array(array)


def step_of(session: backend.TorchSession) -> Any:
    return session._call


def told_by(session: Session) -> dict[str, Any]:
    told = torch_options.operation_of(session)
    assert told is not None
    return told


@pytest.mark.parametrize("label", ["b2_p5", "b2_c6"])
def test_a_session_gives_the_expected_logits_however_often_it_runs(
    requested: Callable[..., OpenRequest], host: Callable[..., Buffer], label: str
) -> None:
    request = requested(label)
    feeds = data.feeds(request.spec, request.shape, 1, 0)[0]
    outputs, _ = export.outputs(request.spec, request.shape, feeds)
    with backend.open_eager(request) as session, backend.open_eager(requested("b3_c9")) as other:
        for _ in range(3):
            np.testing.assert_allclose(logits(session, request, host), outputs["output"], rtol=1e-4, atol=1e-5)
        assert step_of(session).lm is step_of(other).lm
        assert told_by(other)["context"] == 9


def test_a_step_in_half_precision_keeps_half_the_bytes(requested: Callable[..., OpenRequest]) -> None:
    told = {}
    for precision in ("fp32", "bf16"):
        with backend.open_eager(requested("b2_c6", precision)) as session:
            told[precision] = told_by(session)
    assert told["bf16"]["kv_read"] * 2 == told["fp32"]["kv_read"] == 4 * 2 * 6 * 2 * 2 * 32
    assert told["bf16"]["flops"] == told["fp32"]["flops"]


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # torch.compile's own imports
def test_a_compiled_step_gives_what_an_eager_one_gives(
    requested: Callable[..., OpenRequest], host: Callable[..., Buffer]
) -> None:
    if not any(shutil.which(name) for name in backend.COMPILERS):
        pytest.skip("no C++ compiler")
    request = requested("b2_c6")
    results = []
    for opening in (backend.open_eager, backend.open_compile):
        with opening(request) as session:
            results += [logits(session, request, host) for _ in range(2)]
    for result in results[1:]:
        np.testing.assert_allclose(result, results[0], rtol=1e-4, atol=1e-5)


def test_graphs_of_several_batch_sizes_are_refused(requested: Callable[..., OpenRequest]) -> None:
    with (
        pytest.raises(UserError, match=naming("graphs", "KV cache")),
        backend.open_eager(requested("b2_c6", graphs=2)),
    ):
        raise AssertionError("it was opened")
