"""What the report says of generative models under load."""

from __future__ import annotations

from typing import Any

from tests.unit.facts import mentions
from tests.unit.report.conftest import evidence_of
from tests.unit.serving_records import content_of as content
from tests.unit.serving_records import load

from inferprof.report.compose import content_of
from inferprof.report.model import SectionContent, Table, Text
from inferprof.report.sections import generation, serving

CASE = "vit/fp32/torch_eager/default/b8"
ASKED = {"max_batch": 8, "slo_ms": 500, "tpot_ms": 40, "percentile": 90, "prompts": [8, 64], "new_tokens": [4, 9]}


def quantiles(mean: float, p90: float) -> dict[str, Any]:
    return {"mean": {"value_ns": mean * 1e6}, "p90": {"value_ns": p90 * 1e6}}


def tokens(**more: Any) -> dict[str, Any]:
    seen: dict[str, Any] = {"ttft": quantiles(100, 200), "tpot": quantiles(20, 30), "itl": quantiles(19, 45)}
    seen |= {"per_s": 250.0, "good_per_s": 30.0, "good_share": 0.75, "steps": 400, "per_step": 6.5}
    return seen | more


def serve(results: Any, name: str, policy: str = "continuous", **more: Any) -> None:
    predicted: dict[str, Any] = {"latency": {"p90": 390e6}, "ttft": {"p90": 190e6}, "tpot": {"p90": 29e6}}
    predicted |= {"utilization": 0.7, "mean_batch": 6.0}
    loads = [load(latency=quantiles(300, 400), predicted=predicted, tokens=tokens(), advised_delay_ns=None)]
    asked = {"name": name, "policy": policy, **ASKED}
    document = content(name, CASE, results.machine, policy=asked, loads=loads) | more
    results.write(f"{results.machine}/serving/{name}/{CASE}.json", document)


def section_of(results: Any, section: Any = generation.answering) -> SectionContent:
    results.plan()
    return content_of(section, evidence_of(results, None))


def shown(section: SectionContent, name: str) -> list[list[str]]:
    table = next(block for block in section.blocks if isinstance(block, Table) and block.name == name)
    return [[row[index].text for index in table.shown] for row in table.rows]


def test_a_rate_has_its_tokens_beside_what_was_predicted_and_its_goodput(results: Any) -> None:
    results.ok(CASE, 10.0)
    serve(results, "continuous")
    head = ["vit", "fp32/torch_eager/default", "continuous", "400"]
    section = section_of(results)
    cells = ["200.0", "190.0", "30.00", "29.00", "45.00", "400.0", "390.0"]
    assert shown(section, "answering") == [[*head, *cells]]
    assert shown(section, "answering_tokens") == [[*head, "250", "6.50", "30.0", "75.0", "5.000", "0.300", "4,000"]]


def test_the_policy_that_carries_the_most_within_both_objectives_is_to_be_used(results: Any) -> None:
    results.ok(CASE, 10.0)
    for name, rate in (("continuous", 9.0), ("static", 4.0)):
        serve(results, name, highest={"rate": rate, "fails": rate + 0.1, "ended": "bracketed"})
    section = section_of(results)
    (line,) = [block.text for block in section.blocks if isinstance(block, Text) and "Use" in block.text]
    assert mentions(line, "TTFT", "500 ms", "TPOT", "40 ms", "continuous 9.00", "static 4.00", "Use continuous")
    rows = shown(section, "answering_highest")
    assert [row[4] for row in rows] == ["9.000", "4.000"]
    assert all(mentions(row[3], "p90", "500 ms", "40 ms") for row in rows)


def test_a_generative_model_stands_in_its_own_section_alone(results: Any) -> None:
    results.ok(CASE, 10.0)
    serve(results, "continuous")
    assert section_of(results, serving.build).blocks == ()


def test_a_rate_that_was_not_run_says_why(results: Any) -> None:
    results.ok(CASE, 10.0)
    serve(results, "continuous", loads=[{"rate": 960.0, "share": 1.2, "refused": "unstable, not measured"}])
    section = section_of(results)
    row = shown(section, "answering")[0]
    assert row[3] == "960*" and set(row[4:]) == {"\u2013"}
    assert any(mentions(block.text, "960", "unstable") for block in section.blocks if isinstance(block, Text))
