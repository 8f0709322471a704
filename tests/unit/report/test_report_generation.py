"""What the report says of prefill and decode."""

from __future__ import annotations

from typing import Any

from tests.unit.facts import facts
from tests.unit.report.conftest import evidence_of

from inferprof.report.compose import content_of
from inferprof.report.model import SectionContent, Table, Text
from inferprof.report.sections import generation
from inferprof.units import MIB

WEIGHTS, PER_TOKEN, FLOPS = 1000 * MIB, MIB, 10**9
CEILINGS = {
    "status": "ok",
    "gemm": {"bf16": {"flops_per_s": 1e12}},
    "memory": {"read": {"bytes_per_s": 1e12 * 1.048576}},
}
"""1,000 MiB take 1 ms, 1 GFLOP as long."""


def told(batch: int, tokens: int = 1, context: int = 0) -> dict[str, Any]:
    moved = {"kv_read": batch * context * PER_TOKEN, "kv_written": batch * tokens * PER_TOKEN}
    flops = batch * tokens * FLOPS
    return {"operation": {"tokens": tokens, "context": context, "weights_read": WEIGHTS, "flops": flops, **moved}}


def section_of(results: Any, ceilings: bool = True) -> SectionContent:
    results.plan()
    if ceilings:
        results.write(f"{results.machine}/ceilings.json", CEILINGS)
    return content_of(generation.prefill_and_decode, evidence_of(results, None))


def rows(section: SectionContent, name: str, columns: slice) -> list[list[str]]:
    table = next(block for block in section.blocks if isinstance(block, Table) and block.name == name)
    return [[cell.text for place, cell in enumerate(row) if place in table.shown][columns] for row in table.rows]


def measured(results: Any) -> None:
    eager, graph = "llm/bf16/torch_eager/eager", "llm/bf16/torch_eager/graph"
    on = {"options": {"cuda_graph": True}}
    results.ok(f"{eager}/b1_p100", 300.0, gpu=True, **told(1, tokens=100))
    results.ok(f"{eager}/b1_c100", 9.0, gpu=True, **told(1, context=100))
    results.ok(f"{eager}/b1_c200", 9.0, gpu=True, **told(1, context=200))
    results.ok(f"{eager}/b8_c100", 9.0, gpu=True, **told(8, context=100))
    results.ok(f"{graph}/b1_c100", 1.5, gpu=True, **told(1, context=100), **on)
    results.ok(f"{graph}/b8_c100", 8.9, gpu=True, **told(8, context=100), **on)


def test_a_study_without_a_kv_cache_has_no_such_section(results: Any) -> None:
    results.ok("vit/fp16/torch_eager/default/b1", 8.0)
    assert section_of(results).blocks == ()


def test_each_step_stands_beside_its_roofs_and_says_what_binds_it(results: Any) -> None:
    measured(results)
    table = rows(section_of(results), "generation", slice(1, None))
    assert [(row[0], row[3], row[4], *row[7:10]) for row in table] == [
        ("b1_p100", "eager", "prefill", "100", "1.100", "100.0"),
        ("b1_c100", "eager", "decode", "101", "1.101", "1.000"),
        ("b1_c200", "eager", "decode", "201", "1.201", "1.000"),
        ("b8_c100", "eager", "decode", "808", "1.808", "8.000"),
        ("b1_c100", "graph", "decode", "101", "1.101", "1.000"),
        ("b8_c100", "graph", "decode", "808", "1.808", "8.000"),
    ]
    assert [row[-1] for row in table] == ["not told", "launch", "not told", "compute", "memory", "compute"]
    assert 70 < float(table[4][-2]) < 75  # 1.101 ms of about 1.52 ms


def test_requests_follow_from_a_prefill_and_its_steps_and_what_lacks_is_named(results: Any) -> None:
    measured(results)
    results.ok("llm/bf16/torch_eager/eager/b8_p100", 900.0, gpu=True, **told(8, tokens=100))
    section = section_of(results)
    (one, eight) = rows(section, "generation_requests", slice(4, 7))
    assert (one, eight[:2]) == (["1", "100", "101"], ["8", "100"])
    table = next(
        block for block in section.blocks if isinstance(block, Table) and block.name == "generation_requests"
    )
    assert facts(table.footnotes[0])[-1] == "b8_c200"


def test_where_decode_turns_is_said_for_each_case(results: Any) -> None:
    measured(results)
    lines = [block.text for block in section_of(results).blocks if isinstance(block, Text)]
    assert [line.partition(": ")[2] for line in lines] == ["launch b1, compute b8.", "memory b1, compute b8."]


def test_what_narrower_numbers_could_gain_is_bounded_by_the_roofs(results: Any) -> None:
    measured(results)
    table = rows(section_of(results), "generation_gains", slice(1, None))
    assert [(row[0], row[3], *row[4:]) for row in table][:3] == [
        ("b1_c100", "eager", "1.10×", "1.10×", "1.05×", "1.10×", "2"),
        ("b1_c200", "eager", "1.20×", "1.20×", "1.09×", "1.20×", "2"),
        ("b8_c100", "eager", "1.00×", "1.00×", "1.00×", "1.00×", "2"),
    ]


def test_without_ceilings_the_times_stand_and_the_distance_says_why_it_is_missing(results: Any) -> None:
    measured(results)
    section = section_of(results, ceilings=False)
    table = next(block for block in section.blocks if isinstance(block, Table) and block.name == "generation")
    assert {row[-2].text for row in table.rows if "graph" in row[4].text} == {"not told"}
    assert any("ceilings" in footnote for footnote in table.footnotes)
