"""What the report says of the diagnoses: verdicts, findings, and what could not be assessed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from msgspec.structs import replace
from tests.unit.facts import facts, mentions
from tests.unit.report.conftest import evidence_of

from inferprof.case import Case
from inferprof.diagnosis import frames, run
from inferprof.profilers import nsys, ort_profile
from inferprof.report import evidence
from inferprof.report.compose import content_of
from inferprof.report.model import Card, Table, Text
from inferprof.report.sections import answer, timeline, verdicts
from inferprof.tables import schema

TENSORRT = "planted/fp32/ort_tensorrt/default/b4"
BASELINE = "planted/fp32/ort_cuda/default/b4"


def load(results: Any) -> evidence.Evidence:
    return evidence_of(results, "fp32/ort_cuda/default")


@pytest.fixture(scope="module")
def traced(captured: Callable[[str], Path]) -> pd.DataFrame:
    return nsys.read(captured("h100_ort_tensorrt_ep"))


@pytest.fixture
def study(results: Any, repository: Path, traced: pd.DataFrame) -> Any:
    """Two cases, of which one was watched, and both diagnosed."""
    results.ok(BASELINE, 2.0, gpu=True)
    results.ok(TENSORRT, 1.0, gpu=True)
    results.plan()
    nothing = {"not_measured": "no sizes were given"}
    partition = {"by": "TensorRT-RTX 1.7.1", "dynamic": nothing, "static": nothing, "looped": ["cumsum"]}
    results.write("onnx/planted/fp32.partition.json", partition)
    profile = ort_profile.read(repository / "tests/data/ort_profile/h100_ort_tensorrt_ep.json.gz")
    for tool, frame in (("nsys", traced), ("ort_profile", profile)):
        path = results.root / results.machine / "table" / tool / f"{TENSORRT}.parquet"
        path.parent.mkdir(parents=True)
        schema.of_case(frame, results.machine, Case(*TENSORRT.split("/"))).to_parquet(path)
    for case in (BASELINE, TENSORRT):
        loaded = frames.load(results.root, results.machine, Case(*case.split("/")))
        results.write(f"{results.machine}/diagnosis/{case}.json", run.document(loaded, run.answers(loaded)))
    return results


def table(found: evidence.Evidence, name: str) -> Table:
    return next(
        one for one in content_of(verdicts.build, found).blocks if isinstance(one, Table) and one.name == name
    )


def column(of: Table, key: str) -> list[str]:
    place = [one.key for one in of.columns].index(key)
    return [row[place].text for row in of.rows]


def test_the_loop_stands_before_the_copies_of_the_fallback(study: Any) -> None:
    findings = table(load(study), "findings")
    own = [i for i, backend in enumerate(column(findings, "backend")) if backend == "ort_tensorrt"]
    checks = [column(findings, "check")[i] for i in own]
    assert [check for check in checks if check in ("kernel_loops", "fallback")] == ["kernel_loops", "fallback"]
    assert checks[0] == "kernel_loops"
    assert column(findings, "subject")[own[0]] == "the loop of cumsum"
    assert column(findings, "rank")[own[0]] == "1"


def test_every_check_has_an_answer_on_every_case(study: Any) -> None:
    found = load(study)
    answers = table(found, "check_answers")
    assert set(column(answers, "answer")) == {"found", "clear", "not assessed"}
    content = next(iter(found.diagnoses.values())).content
    per_case = len((content and content.answers) or ())
    assert len(answers.rows) == 2 * per_case


def test_the_answer_has_the_verdict_on_the_fastest_case(study: Any) -> None:
    (card,) = [one for one in content_of(answer.build, load(study)).blocks if isinstance(one, Card)]
    told = dict(card.lines)
    assert told["Use"].startswith("fp32/ort_tensorrt/default, 1.61 ms")
    assert "cumsum" in told["Why"] and facts(told["Why"])[0] == "28 %"


def test_captures_alone_have_their_verdicts_in_the_answer_too(study: Any) -> None:
    for path in (study.root / study.machine / "benchmark").rglob("r*.json"):
        path.unlink()
    loaded = frames.load(study.root, study.machine, Case(*TENSORRT.split("/")))
    study.write(f"{study.machine}/diagnosis/{TENSORRT}.json", run.document(loaded, run.answers(loaded)))
    blocks = content_of(answer.build, load(study)).blocks
    texts = [one.text for one in blocks if isinstance(one, Text)]
    assert isinstance(blocks[0], Card)
    assert mentions(blocks[0].lines[0][1], "no case")
    assert any(
        text.startswith("fp32/ort_tensorrt/default b4: Of a run by ONNX Runtime's profile (0.472 ms) 96.9 % is ")
        for text in texts
    )


@pytest.mark.parametrize(("ran", "names"), [({"fp16": 1.0}, True), ({"fp16": 0.9, "fp8": 0.1}, False)])
def test_formats_that_nothing_was_computed_in_are_named(ran: dict[str, float], names: bool, results: Any) -> None:
    case = "planted/fp8/ort_cuda/default/b4"
    results.ok(BASELINE, 2.0, gpu=True)
    results.ok(case, 2.0, gpu=True)
    results.plan()
    loaded = frames.load(results.root, results.machine, Case(*case.split("/")))
    document = run.document(loaded, run.answers(loaded))
    finding: dict[str, Any] = {
        "subject": "fp16",
        "bottleneck": "compute",
        "share": None,
        "reason": "x.",
        "source": "x",
        "gain": None,
    }
    finding |= {"evidence": {f"{dtype}_share": share for dtype, share in ran.items()}}
    for given in document["answers"]:
        if given["check"] == answer.FORMATS_RAN:
            given |= {"verdict": "found", "findings": [finding | {"advice": "x.", "confidence": "medium"}]}
            given["reason"] = ""
    results.write(f"{results.machine}/diagnosis/{case}.json", document)
    texts = [block.text for block in content_of(answer.build, load(results)).blocks if isinstance(block, Text)]
    said = [text for text in texts if "fp8 in fp16" in text]
    assert bool(said) == names
    assert all(mentions(text, "ort_cuda") for text in said)


def test_what_checks_needed_and_did_not_have_is_said_once(study: Any) -> None:
    texts = [one.text for one in content_of(verdicts.build, load(study)).blocks if isinstance(one, Text)]
    (lacking,) = [text for text in texts if "counters of the case's kernels" in text]
    assert facts(lacking)[:3] == ["2", "2", "bank_conflicts"]


def test_cases_of_a_model_of_which_nothing_was_found_are_one_line(results: Any) -> None:
    for case in (BASELINE, TENSORRT):
        results.ok(case, 2.0, gpu=True)
    results.plan()
    for case in (BASELINE, TENSORRT):
        loaded = frames.load(results.root, results.machine, Case(*case.split("/")))
        document = run.document(loaded, run.answers(loaded))
        document["verdict"] |= {"groups": [], "gain": None, "sentence": "2 ms, no more."}
        results.write(f"{results.machine}/diagnosis/{case}.json", document)
    assert table(load(results), "verdicts").csv_only
    first = table(load(results), "first_findings")
    assert column(first, "check") == [verdicts.NO_FINDING]
    assert column(first, "cases") == ["2"]
    assert column(first, "example") == ["fp32/ort_cuda/default b4"]
    assert column(first, "advice") == [""]
    assert column(first, "sentence") == ["2 ms, no more."]


def test_what_comes_first_is_a_row_of_each_check_with_what_to_do(study: Any) -> None:
    first = table(load(study), "first_findings")
    by_check = dict(zip(column(first, "check"), column(first, "advice"), strict=True))
    assert by_check["kernel_loops"]
    assert sum(map(int, column(first, "cases"))) == 2
    own = table(load(study), "top_findings")
    shares = dict(zip(column(own, "check"), column(own, "share_percent"), strict=True))
    assert column(first, "share_percent") == [shares[check] for check in by_check]


def test_a_study_without_diagnoses_has_no_such_section(results: Any) -> None:
    results.ok(TENSORRT, 1.0, gpu=True)
    results.plan()
    assert content_of(verdicts.build, load(results)).blocks == ()


def test_a_share_that_is_not_known_is_missing_with_its_reason(study: Any) -> None:
    found = load(study)
    (key,) = [key for key in found.diagnoses if "ort_tensorrt" in key]
    content = found.diagnoses[key].content
    assert content and content.verdict
    groups = [replace(group, share=None) for group in content.verdict.groups]
    unshared = replace(content, verdict=replace(content.verdict, groups=groups))
    changed = dataclasses.replace(found.diagnoses[key], content=unshared)
    again = dataclasses.replace(found, diagnoses={key: changed})
    without_total = dataclasses.replace(changed, content=replace(unshared, total=None))
    nowhere = dataclasses.replace(found, diagnoses={key: without_total})
    place = [one.key for one in verdicts.VERDICT_COLUMNS].index("share_percent")
    reasons = [table(one, "verdicts").rows[0][place].missing for one in (again, nowhere)]
    assert reasons == [f"not measured: {verdicts.NO_OWN_TIME}", f"not measured: {verdicts.NO_SHARE}"]


def test_a_profiler_that_winners_left_a_case_out_of_is_not_asked_for_again(results: Any) -> None:
    names = ("fp32/ort_cpu", "int8/ort_cpu", "fp16/ort_cpu", "fp32/torch_eager")
    cases = [f"planted/{name}/default/b4" for name in names]
    for case in cases:
        results.ok(case, 2.0)
    results.plan()
    for case in cases:
        loaded = frames.load(results.root, results.machine, Case(*case.split("/")))
        answers = [given for given in run.answers(loaded) if given.check == "cpu_operators"]
        results.write(f"{results.machine}/diagnosis/{case}.json", run.document(loaded, answers))
    config = {"baseline": None, "profilers": ["ort_profile", "kineto"], "captures": "winners"}
    results.write(f"reports/{results.study}/config.json", config)

    def lacking() -> list[list[str]]:
        blocks = content_of(verdicts.build, load(results)).blocks
        texts = [one.text for one in blocks if isinstance(one, Text) and "cpu_operators:" in one.text]
        return [facts(text, "profilers", "all")[:1] + facts(text, "profilers", "captures")[-2:] for text in texts]

    (nothing_chosen,) = lacking()
    assert nothing_chosen[0] == "3", "torch has no such profile, and its case does not count"
    assert nothing_chosen[-1] == "profilers"
    results.write(f"reports/{results.study}/selection.csv", f"case,repeat,capture,why\n{cases[0]},,yes,fastest\n")
    results.write(f"{results.machine}/capture/ort_profile/{cases[0]}.record.json", {})
    left_out, watched = lacking()
    assert left_out[0] == "2" and "profilers" not in left_out
    assert watched[0] == "1" and watched[-1] == "profilers"
    texts = [one.text for one in content_of(timeline.build, load(results)).blocks if isinstance(one, Text)]
    (unused,) = [text for text in texts if "`captures: all`" in text]
    assert facts(unused)[0] == "kineto"
