"""A failed case is a row with its reason, and the others are as they were."""

from __future__ import annotations

import pytest
from tests.unit.report.conftest import evidence_of

from inferprof.diagnosis import run
from inferprof.report.compose import compose
from inferprof.report.txt import render

FAILED = {"status": "failed", "stage": "load", "reason": "node /Det (Det): not supported"}
REASON = "first inference: node /Det (Det): not supported"


@pytest.mark.parametrize("stop", ["", "."])
def test_a_failed_record_is_a_row_and_its_verdict_is_the_reason(stop, results):
    results.ok("vit/fp32/ort_cpu/default/b1", 2.0)
    results.failed("vit/fp16/ort_cpu/default/b1", f"node /Det (Det): not supported{stop}")
    results.plan()
    (diagnosed,) = run.documents_of_models(results.root, results.machine, ["vit"], {}, 1)
    assert not isinstance(diagnosed, Exception)
    diagnoses = dict(diagnosed)
    sentences = {str(case): document["verdict"]["sentence"] for case, document in diagnoses.items()}
    assert sentences["vit/fp16/ort_cpu/default/b1"] == f"It failed: {REASON}."
    assert "failed" not in sentences["vit/fp32/ort_cpu/default/b1"]
    evidence = evidence_of(results)
    assert evidence.of("failed")["reason"].tolist() == [f"{REASON}{stop}"]
    text = " ".join(render(compose(evidence)).split())
    assert REASON in text and "1 measured, 1 failed" in text


def test_a_stage_that_failed_is_named_with_its_file(results):
    results.ok("vit/fp16/ort_cpu/default/b1", 2.0)
    results.write("onnx/vit/fp16.audit.json", {**FAILED, "stage": "audit"})
    results.plan()
    evidence = evidence_of(results)
    assert [(document.file, document.failure) for document in evidence.failed] == [
        ("onnx/vit/fp16.audit.json", f"audit: {FAILED['reason']}")
    ]
    assert evidence.documents["vit", "fp16", "audit"].lacking == evidence.failed[0].failure
