"""What Triton's autotuner tries on a real GPU, and GemLite's kernels through the one workload."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from inferprof import run_request, workload
from inferprof.backends.triton_tuning import tuned, watched
from inferprof.case import Case, Shape, Variant
from inferprof.documents.record import Tuning
from inferprof.measure.timing import Protocol
from inferprof.model import data, export, model_spec

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")

pytestmark = pytest.mark.gpu
BLOCKS = (64, 1024)
SIZE = 1 << 24
FACTORY = """
import torch

def layer():
    levels = torch.arange(1024 * 1024).reshape(1024, 1024) * 7 % 16
    linear = torch.nn.Linear(1024, 1024, bias=False)
    linear.weight = torch.nn.Parameter((levels - 7.5) * 2.0**-8)
    return torch.nn.Sequential(linear)
"""
YAML = """
source: python
python: one_layer:layer
export: false
inputs:
  - {name: x, dtype: float32, dims: [b, 1024]}
"""


@triton.jit  # type: ignore[untyped-decorator]
def double_kernel(x, y, size, STEP: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[name-defined]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, 2 * tl.load(x + at, mask=at < size), mask=at < size)


def autotuned() -> Any:
    """The kernel with an autotuner that knows nothing yet."""
    configs = [triton.Config({"BLOCK": block}, num_warps=2) for block in BLOCKS]
    return triton.autotune(configs, key=["size", "STEP"])(double_kernel)


def launch(kernel: Any, step: int, size: int = SIZE) -> Any:
    """Launch it; `step` does nothing but make another kernel of it."""
    x = torch.arange(size, dtype=torch.float32, device="cuda")
    y = torch.empty_like(x)
    kernel[lambda meta: (triton.cdiv(size, meta["BLOCK"]),)](x, y, size, STEP=step)
    torch.cuda.synchronize()
    assert torch.equal(y, 2 * x)
    return kernel


def test_every_configuration_is_timed_and_the_fastest_wins() -> None:
    with tuned(Variant("v", {"tuning": "fresh"}), ()) as watch:
        kernel = launch(autotuned(), step=1)
        launch(kernel, step=1)  # whose choice is known by now
    (found,) = watch.record()
    trials = found["trials"]
    assert [one["config"]["BLOCK"] for one in trials] == list(BLOCKS)
    times = [one["median_ns"] for one in trials]
    assert found["winner"] == times.index(min(times))
    assert kernel.best_config.kwargs["BLOCK"] == trials[found["winner"]]["config"]["BLOCK"]
    bytes_moved = 2 * 4 * SIZE
    assert 1e9 * bytes_moved / min(times) < 6e12  # no GPU's memory is faster
    assert found["key"] == {"size": SIZE, "STEP": 1, "dtypes": ["torch.float32"] * 2}


def test_a_trial_has_what_was_compiled_and_what_an_sm_holds() -> None:
    with tuned(Variant("v", {"tuning": "fresh"}), ()) as watch:
        launch(autotuned(), step=2)
    properties = torch.cuda.get_device_properties(0)
    for trial in watch.record()[0]["trials"]:
        assert trial["compiled"] == 1
        assert 0 < trial["compile_s"] < trial["seconds"]
        assert trial["programs"] == SIZE // trial["config"]["BLOCK"]
        assert (trial["warps"], trial["spills"]) == (2, 0)
        assert 0 < trial["registers"] <= 255
        assert 0 < trial["occupancy"] <= 1
        held = trial["blocks_per_sm"] * properties.multi_processor_count
        assert trial["waves"] == pytest.approx(trial["programs"] / held)


def test_a_remembered_choice_is_run_and_nothing_else() -> None:
    with watched() as first:
        launch(autotuned(), step=3)
    (choice,) = first.record()
    slower = {**choice, "winner": 1 - choice["winner"]}
    with watched([msgspec.convert(slower, Tuning)]) as second:
        kernel = launch(autotuned(), step=3, size=SIZE // 2)
    (found,) = second.record()
    assert (found["source"], len(found["trials"])) == ("remembered", 1)
    assert kernel.best_config.kwargs["BLOCK"] == choice["trials"][slower["winner"]]["config"]["BLOCK"]


@pytest.fixture
def measured(tmp_path: Path) -> Any:
    """The record of a layer whose weights 4 bits hold without loss, by GemLite's kernels at batch 1."""
    pytest.importorskip("gemlite")
    (tmp_path / "one_layer.py").write_text(FACTORY)
    (tmp_path / "layer.yaml").write_text(YAML)
    spec = model_spec.load(tmp_path / "layer.yaml")
    reference = tmp_path / "expected.npz"
    shape = spec.at(Shape.parse("b1"))
    export.expect(spec.path, spec, shape, data.feeds(spec, shape, 1, 0)[0], reference)
    return workload.run(
        run_request.RunRequest(
            case=Case("layer", "fp16", "torch_eager", "tuned", "b1"),
            artifact=spec.path,
            spec=spec,
            variant=Variant("tuned", {"cuda_graph": True, "quantize": "gemlite_a16w4", "tuning": "fresh"}),
            machine="gpu-test",
            protocol=Protocol(budget_s=0.1, throughput_min_s=0.1),
            reference=reference,
        )
    )


def test_gemlites_kernels_are_tuned_and_give_what_the_plain_layer_gives(measured: Any) -> None:
    assert (measured["status"], measured["reason"]) == ("ok", None)
    assert measured["checks"]["outputs_match"]["passed"]
    (found,) = measured["tuning"]
    assert found["source"] == "tried" and found["kernel"].startswith("gemv")
    assert len(found["trials"]) > 5
    assert found["seconds"] < measured["first"]["first_inference_ns"] / 1e9
