"""What the answer says of the batch: from which on the GPU is saturated, and that a larger one is worth taking."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.facts import mentions
from tests.unit.report.conftest import evidence_of

from inferprof.case import Case
from inferprof.diagnosis import frames, run
from inferprof.report import answers

CASE = "vit/fp16/ort_cuda/default"


def answered(results: Any, times: dict[int, float]) -> answers.Answer:
    """By `device`, of a case that was measured at these batches (batch -> ms) and diagnosed. The baseline, which has
    b1 alone, makes b1 the shape of the answer."""
    asked = {"baseline": "fp32/ort_cuda/default", "answer": {"boundary": "device"}}
    results.write(f"reports/{results.study}/config.json", asked)
    for batch, took in times.items():
        results.ok(f"{CASE}/b{batch}", took, gpu=True)
    results.ok("vit/fp32/ort_cuda/default/b1", 50.0, gpu=True)
    results.accuracy("vit", "fp16", 60.0, "pass")
    results.plan()
    for batch in times:
        case = f"{CASE}/b{batch}"
        loaded = frames.load(results.root, results.machine, Case(*case.split("/")))
        results.write(f"{results.machine}/diagnosis/{case}.json", run.document(loaded, run.answers(loaded)))
    (answer,) = answers.of(evidence_of(results, "fp32/ort_cuda/default"))
    return answer


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ({1: 1.0, 2: 1.2, 4: 2.4}, "Throughput is saturated from batch 2 on (device)"),
        ({1: 1.0, 2: 2.5}, "Throughput is saturated from batch 1, the smallest measured, on (device)"),
        (
            {1: 1.0, 2: 1.2, 4: 1.4},
            "Throughput is not saturated at batch 4, the largest that is in no doubt (device)",
        ),
    ],
)
def test_the_answer_says_from_which_batch_on_its_case_is_saturated(results: Any, times: Any, said: str) -> None:
    assert answered(results, times).use.endswith(f". {said}")


def test_of_one_batch_nothing_is_said(results: Any) -> None:
    assert "aturated" not in answered(results, {1: 1.0}).use


def test_where_nothing_shortens_an_inference_a_larger_batch_is_what_to_do_next(results: Any) -> None:
    assert mentions(answered(results, {1: 1.0, 2: 1.2, 4: 2.4}).do_next, "Take batches of 2", "throughput")
