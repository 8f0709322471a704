"""Why an accuracy is not measured: the reference is missing for a reason of its own, and that is said."""

from __future__ import annotations

import pytest
from tests.unit.facts import facts, mentions, states
from tests.unit.report.conftest import evidence_of

from inferprof.documents.graph import BESIDE_VARIATION, NAN_IN_FP32
from inferprof.report import fidelity, winner
from inferprof.report.compose import content_of
from inferprof.report.evidence import Evidence
from inferprof.report.model import SectionContent, Table, Text
from inferprof.report.sections import accuracy, answer, graphs

TORCH_ALONE = "torch alone runs this model, so that no ONNX graph is made"
BASELINE = "fp16/torch_eager/plain"


def load(results) -> Evidence:
    results.plan()
    return evidence_of(results, BASELINE)


def texts(section: SectionContent) -> list[str]:
    return [block.text for block in section.blocks if isinstance(block, Text)]


def reasons(section: SectionContent) -> set[str | None]:
    """Why cells of the section's first table are empty."""
    table = next(block for block in section.blocks if isinstance(block, Table))
    return {cell.missing for row in table.rows for cell in row if cell.missing}


def test_of_a_model_that_torch_alone_runs_there_is_no_reference(results) -> None:
    results.ok("block/fp16/torch_eager/plain/b1", 1.0, gpu=True)
    results.refused("block/fp16/ort_cuda/plain/b1", "ort_cuda runs ONNX graphs and block is not exported")
    found = load(results)
    sentence = f"not measured: {TORCH_ALONE} and there is no reference"
    assert fidelity.of(found, "block", "fp16").sentence == sentence
    assert any(states(line, "fp16", "fp32", *facts(f"{sentence}")) for line in texts(content_of(answer.build, found)))


def test_its_graph_is_missed_for_that_reason_too_and_not_as_a_file(results) -> None:
    results.ok("block/fp32/torch_eager/plain/b1", 1.0, gpu=True)
    found = load(results)
    assert [facts(text) for text in reasons(content_of(accuracy.accuracy, found))] == [
        ["not", *facts(TORCH_ALONE), "no"]
    ]
    assert (
        reasons(content_of(graphs.models, found))
        == reasons(content_of(graphs.graphs, found))
        == {f"not measured: {TORCH_ALONE}"}
    )


@pytest.mark.parametrize(
    ("backend", "made"),
    [("ort_cuda", False), ("torch_eager", True)],
    ids=["another runtime was to run it", "its graph was made"],
)
def test_where_a_graph_is_asked_for_its_file_is_what_is_missing(results, backend: str, made: bool) -> None:
    results.ok("block/fp16/torch_eager/plain/b1", 1.0, gpu=True)
    results.ok(f"block/fp16/{backend}/other/b1", 1.0, gpu=True)
    if made:
        results.write("onnx/block/fp32.convert.json", {})
    assert fidelity.of(load(results), "block", "fp16").sentence == "not measured: no onnx/block/fp16.accuracy.json"


def test_the_graph_says_nothing_of_weights_that_torch_quantizes(results) -> None:
    results.ok("block/fp16/ort_cuda/plain/b1", 3.0, gpu=True)
    results.ok("block/fp16/torch_eager/plain/b1", 2.0, gpu=True)
    results.ok("block/fp16/torch_eager/narrow/b1", 1.0, gpu=True, options={"quantize": "int8_weight_only"})
    results.accuracy("block", "fp16", 62.0, "fail")
    found = load(results)
    (first,) = winner.find(found, "block")
    why = (
        "torch alone runs narrow, whose weights it quantizes, so that no ONNX graph is made and there is no reference"
    )
    assert (first.name, first.fidelity.sentence) == ("fp16/torch_eager/narrow", f"not measured: {why}")
    assert fidelity.of(found, "block", "fp16").outcome == "fail"
    assert f"Not measured: {why}." in texts(content_of(accuracy.accuracy, found))


def test_the_answer_says_that_an_error_is_large_beside_what_the_input_changes(results) -> None:
    results.ok("block/fp16/ort_cuda/plain/b1", 1.0, gpu=True)
    reason = f"{BESIDE_VARIATION}, 98% of the standard deviation over samples of output y: output y: SQNR 62.0 dB"
    results.accuracy("block", "fp16", 62.0, "warn", reason=reason)
    lines = texts(content_of(answer.build, load(results)))
    assert any(mentions(line, "warn", BESIDE_VARIATION, "98%", "output y") for line in lines)


@pytest.mark.parametrize("fastest", ["fp16", "fp32"])
def test_the_answer_says_that_fp32_itself_gives_nan(results, fastest: str) -> None:
    results.ok("block/fp16/ort_cuda/plain/b1", 1.0 if fastest == "fp16" else 3.0, gpu=True)
    results.ok("block/fp32/ort_cuda/plain/b1", 2.0, gpu=True)
    reason = f"{NAN_IN_FP32} in 118 of 256 values of output y: output y: SQNR 62.0 dB"
    results.accuracy("block", "fp16", 62.0, "warn", reason=reason)
    lines = texts(content_of(answer.build, load(results)))
    assert any(states(line, "NaN", "118", "256", "y") for line in lines)
