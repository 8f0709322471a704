"""One sentence and a ranking, in which the same time is counted once."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
from tests.unit.facts import facts, mentions

from inferprof.diagnosis import verdict
from inferprof.documents.diagnosed import Resource, Verdict
from inferprof.findings import Answer, Bottleneck, Confidence, Finding, Gain, Total

TOTAL = Total(1000.0, "end_to_end")


def finding(subject: str, bottleneck: Bottleneck, share: float | None, gain: Gain | None, **more: Any) -> Finding:
    usual: dict[str, Any] = {"reason": "a reason", "evidence": {}, "source": "nsys", "advice": "advice"}
    return Finding(subject, bottleneck, share, gain=gain, **{**usual, "confidence": "medium", **more})


def answer(*findings: Finding, check: str = "check") -> Answer:
    return Answer(check, "kernel", "found", findings=findings)


def judge(*findings: Finding, times: dict[Resource, float] | None = None) -> Verdict:
    return verdict.judge([answer(*findings)], TOTAL, times or {})


def test_two_findings_about_one_kernel_are_the_same_time() -> None:
    found = judge(
        finding("k", "tail", 0.3, Gain(0.0, 200.0)),
        finding("k", "memory", 0.3, Gain(0.0, 250.0)),
        finding("other", "compute", 0.1, Gain(0.0, 40.0)),
        times={"kernels": 600.0},
    )
    (group,) = found.groups
    assert (group.resource, group.share, group.gain) == ("kernels", 0.6, Gain(0.0, 290.0))


def test_a_group_gains_no_more_than_its_resource_takes() -> None:
    kernels = [finding(f"k{i}", "kernels", 0.2, Gain(0.0, 200.0)) for i in range(4)]
    found = judge(*kernels, times={"kernels": 500.0})
    assert found.groups[0].gain == Gain(0.0, 500.0)
    assert found.gain == Gain(0.0, 500.0)


def test_a_symptom_covers_its_causes_instead_of_adding_to_them() -> None:
    found = judge(
        finding("", "launch", 0.5, Gain(0.0, 500.0)),
        finding("loop", "launch", 0.4, Gain(100.0, 400.0)),
        finding("python", "launch", 0.3, Gain(50.0, 300.0)),
        times={"launch": 500.0},
    )
    assert found.groups[0].gain == Gain(100.0, 500.0)


def test_a_cause_that_explains_half_of_the_symptom_stands_before_it() -> None:
    symptom = finding("", "launch", 0.6, Gain(0.0, 600.0))
    order = [
        one.finding.subject
        for one in judge(symptom, finding("loop", "launch", 0.3, Gain(0.0, 300.0))).groups[0].findings
    ]
    assert order == ["loop", ""]
    order = [
        one.finding.subject
        for one in judge(symptom, finding("loop", "launch", 0.2, Gain(0.0, 290.0))).groups[0].findings
    ]
    assert order == ["", "loop"]


def test_groups_stand_in_the_order_of_what_they_may_gain_or_take() -> None:
    found = judge(
        finding("copies", "copy", 0.2, Gain(0.0, 150.0)),
        finding("conv", "kernels", 0.3, None),
        finding("", "launch", 0.1, Gain(0.0, 100.0)),
    )
    assert [group.resource for group in found.groups] == ["kernels", "copy", "launch"]
    assert found.groups[0].gain is None
    assert found.gain == Gain(0.0, 250.0)


def test_a_sure_gain_stands_before_a_larger_one_by_a_rule_of_thumb() -> None:
    found = judge(
        finding("", "kernels", 1.0, Gain(0.0, 950.0), confidence="low"),
        finding("", "launch", 0.6, Gain(400.0, 600.0), confidence="high"),
    )
    assert [group.resource for group in found.groups] == ["launch", "kernels"]


def test_what_costs_trust_is_a_caution_and_no_time() -> None:
    found = judge(finding("", "measurement", None, None), finding("k", "tail", 0.1, Gain(0.0, 10.0)))
    assert [one.finding.bottleneck for one in found.cautions] == ["measurement"]
    assert [group.resource for group in found.groups] == ["kernels"]


def test_the_sentence_has_the_share_the_reason_the_advice_and_the_gain() -> None:
    found = judge(finding("", "launch", 0.5, Gain(400.0, 500.0), reason="it waits", advice="a CUDA graph"))
    assert facts(found.sentence) == [
        "end_to_end",
        "0.001 ms",
        "50.0 %",
        "launches",
        "To",
        "CUDA",
        "It",
        "0.0004 ms",
        "0.0005 ms",
        "40.0 %",
        "50.0 %",
    ]


def test_where_a_timeline_split_the_execution_its_parts_are_named() -> None:
    launches = finding("", "launch", 0.5, Gain(0.0, 500.0))
    found = judge(launches, times={"execution": 0.0, "launch": 500.0, "kernels": 400.0})
    assert facts(found.sentence)[:6] == ["end_to_end", "0.001 ms", "50.0 %", "launches", "40.0 %", "kernels"]


def test_the_sentence_begins_with_what_takes_most_of_the_time_whoever_can_be_helped() -> None:
    copies = finding("arrays", "copy", 0.3, Gain(0.0, 200.0), reason="they are pageable", advice="pin them")
    found = judge(copies, times={"execution": 640.0, "copy": 310.0, "launch": 20.0})
    assert facts(found.sentence, "arrays") == [
        "end_to_end",
        "0.001 ms",
        "64.0 %",
        "execution",
        "31.0 %",
        "copies",
        "arrays",
        "To",
        "It",
        "most",
        "0.0002 ms",
        "20.0 %",
    ]


def test_without_a_total_the_sentence_begins_with_the_first_finding() -> None:
    found = verdict.judge([answer(finding("k", "tail", None, None))], None, {"kernels": 5.0})
    assert mentions(found.sentence, "k: a reason", "advice", "saves is not known")


def test_a_gain_that_is_not_bounded_is_said_to_be_none_that_is_known() -> None:
    assert mentions(judge(finding("conv", "kernels", 0.2, None)).sentence, "saves is not known")
    assert facts(verdict.gain_in_words(Gain(0.0, 100.0), TOTAL))[-2:] == ["0.0001 ms", "10.0 %"]
    assert facts(verdict.gain_in_words(Gain(100.0, 100.0), None)) == ["0.0001 ms"]


def test_without_findings_the_sentence_says_how_much_was_looked_at() -> None:
    answers = [Answer("a", "host", "clear", "fine"), Answer("b", "host", "not assessed", "needs x")]
    nothing = "No check found a cause: 1 check is clear, 1 not assessed."
    assert verdict.judge(answers, None, {}).sentence == nothing
    assert facts(verdict.judge(answers, TOTAL, {"execution": 980.0}).sentence) == [
        "end_to_end",
        "0.001 ms",
        "98.0 %",
        "execution",
        *facts(nothing),
    ]


def test_where_no_timeline_tells_kernels_from_waits_a_finding_is_about_both() -> None:
    roof = finding("", "kernels", 0.95, Gain(0.0, 900.0))
    found = judge(roof, times={"execution": 940.0, "copy": 60.0})
    assert [group.resource for group in found.groups] == ["execution"]
    assert facts(found.sentence)[:6] == ["end_to_end", "0.001 ms", "94.0 %", "execution", "6.0 %", "copies"]


def test_a_gain_by_a_rule_of_thumb_is_said_to_be_one() -> None:
    low = finding("", "kernels", 0.6, Gain(0.0, 100.0), confidence="low")
    assert mentions(judge(low).sentence, "0.0001 ms (10.0 %)", "rule of thumb")
    assert facts(judge(finding("", "kernels", 0.6, Gain(0.0, 100.0))).sentence)[-2:] == ["0.0001 ms", "10.0 %"]


def test_a_case_near_its_roof_is_said_to_be_there_however_little_else_is_known() -> None:
    lacking = [Answer(name, "host", "not assessed", "needs a GPU") for name in ("a", "b")]
    answers = [*lacking, Answer("roof", "kernel", "clear", "1.66 times the roof")]
    expected = "It is near its roofline. 1.66 times the roof. To do: Less work, or a narrower format."
    assert verdict.judge(answers, None, {}).sentence == expected


def test_where_most_could_not_be_assessed_nothing_found_says_little() -> None:
    lacking = [Answer(name, "host", "not assessed", "needs a GPU") for name in ("a", "b")]
    answers = [*lacking, Answer("c", "host", "not assessed", "needs x"), Answer("d", "host", "clear", "fine")]
    assert facts(verdict.judge(answers, None, {}).sentence) == ["3", "4", "not", "GPU"]


@pytest.mark.parametrize("seed", range(200))
def test_together_no_findings_gain_more_than_all_of_the_time(seed: int) -> None:
    rng = np.random.default_rng(seed)
    total = Total(float(rng.uniform(1, 1e9)), "end_to_end") if rng.random() > 0.1 else None
    found = [_random(rng, total) for _ in range(rng.integers(1, 40))]
    parts = rng.dirichlet(np.ones(len(get_args(Resource)))) * (total.ns if total else 1.0)
    known = dict(zip(get_args(Resource), parts.tolist(), strict=True))
    times = {name: time for name, time in known.items() if rng.random() > 0.3}
    judged = verdict.judge([answer(*found)], total, times)
    listed = [one.finding for group in judged.groups for one in group.findings] + [
        one.finding for one in judged.cautions
    ]
    assert sorted(map(id, listed)) == sorted(map(id, found))
    for group in judged.groups:
        gains = [one.finding.gain for one in group.findings if one.finding.gain]
        assert (group.gain is None) == (not gains)
        if group.gain:
            assert 0 <= group.gain.low_ns <= group.gain.high_ns <= sum(gain.high_ns for gain in gains) * (1 + 1e-12)
        if group.gain and total and group.share is not None:
            assert group.gain.high_ns <= group.share * total.ns * (1 + 1e-12) <= total.ns * (1 + 1e-9)
    if judged.gain and total:
        assert 0 <= judged.gain.low_ns <= judged.gain.high_ns <= total.ns


def _random(rng: np.random.Generator, total: Total | None) -> Finding:
    """A finding whose gain may be larger than its share, and than all of the time."""
    ns = total.ns if total else 1.0
    high = float(rng.uniform(0, 2 * ns))
    return finding(
        subject=str(rng.choice(["", "a", "b", "c"])),
        bottleneck=rng.choice(get_args(Bottleneck)),
        share=float(rng.random()) if total and rng.random() > 0.2 else None,
        gain=Gain(float(rng.uniform(0, high)), high) if rng.random() > 0.3 else None,
        confidence=rng.choice(get_args(Confidence)),
    )
