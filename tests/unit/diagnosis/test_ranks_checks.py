"""What is said of GPUs that wait for each other."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.diagnosis.asking import ask

from inferprof.findings import Frames

Captured = Callable[..., Frames]


@pytest.fixture
def two_gpus(captured: Captured) -> Frames:
    return captured("h200x2_tensor_parallel")


def test_the_gpu_that_begins_last_is_named_with_what_the_others_wait(two_gpus: Frames) -> None:
    (finding,) = ask("late_rank", two_gpus).findings
    assert (finding.subject, finding.bottleneck) == ("GPU 1", "kernels")
    assert finding.evidence["waiting_total"] == pytest.approx(1_490_588.4)
    assert finding.gain is not None
    assert (finding.gain.low_ns, finding.gain.high_ns) == pytest.approx((0.0, 1_490_588.4))
    assert finding.evidence["waiting_idle"] > finding.evidence["waiting_compute"]
    assert "CUDA graph" in finding.advice


def test_of_communication_only_the_transfer_is_exposed(two_gpus: Frames) -> None:
    (finding,) = ask("exposed_communication", two_gpus).findings
    assert finding.subject == "GPU 1"
    assert finding.evidence == pytest.approx({"communication_ns": 462_004.2, "exposed_ns": 277_448.7})


@pytest.mark.parametrize("check", ["late_rank", "exposed_communication"])
def test_a_case_on_one_gpu_is_not_assessed(check: str, captured: Captured) -> None:
    assert ask(check, captured("h100_torch_eager")).verdict == "not assessed"
